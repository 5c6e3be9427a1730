"""Files of ours that hold arrays and a description: sealed by SHA-256, written in one rename, nothing in them is executed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline import files, npz
from beeline.errors import BeelineError, CheckpointError

ABOUT = "about.json"  # the member that holds the description
ABOUT_BYTES = 1 << 20


def write(path: Path, kind: str, arrays: Mapping[str, NDArray], about: Mapping[str, Any]) -> Path:
    """Write a file of that kind; a reader sees the old one or the new one, never a mixture."""
    text = files.sealed({**about, "kind": kind, "arrays": npz.sha256(arrays)})
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        npz.write(temporary, {**arrays, ABOUT: np.frombuffer(text, np.uint8)})
        files.rename(temporary, path)
    finally:
        if temporary.exists():
            files.remove(temporary)
    return path


def read(path: Path, kind: str) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """The arrays and the description of a file of that kind, both as they were written; CheckpointError says what is wrong."""
    try:
        arrays = npz.read(files.read_regular(Path(os.path.realpath(path))))
        text = arrays.pop(ABOUT, np.zeros(0, np.uint8))
        if not 0 < text.nbytes <= ABOUT_BYTES:
            raise ValueError("it has no description")
        about = json.loads(text.astype(np.uint8).tobytes())
        if not isinstance(about, dict) or about.get("kind") != kind:
            raise ValueError(f"it is no {kind} file")
        if files.SEAL not in about or not files.is_as_written(about) or about["arrays"] != npz.sha256(arrays):
            raise ValueError("it does not match its own SHA-256")
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"its array {name!r} has NaN or infinity")
    except FileNotFoundError:
        raise CheckpointError(f"there is no {kind} file {path}.") from None
    except RecursionError:
        raise CheckpointError(f"{path} is not an intact {kind} file (its description is nested too deeply).") from None
    except (OSError, ValueError, KeyError, TypeError, BeelineError) as error:
        raise CheckpointError(f"{path} is not an intact {kind} file ({str(error).rstrip('.')}).") from None
    return arrays, {name: value for name, value in about.items() if name not in (files.SEAL, "kind", "arrays")}
