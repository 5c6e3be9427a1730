"""The log of a controller: one JSON object per line, for the start, every tick, and the end."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from beeline.errors import RunFolderError


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, NaN and infinity as null."""
    if isinstance(value, np.ndarray):
        return [plain(each) for each in value.tolist()]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


class TickLog:
    """Writes a new file line by line: whatever happens to the process, the ticks before are there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("x", buffering=1, encoding="utf-8")
        except FileExistsError:
            raise RunFolderError(f"the log {path} exists already: name another.") from None
        except OSError as error:
            raise RunFolderError(f"the log {path} cannot be written: {error.strerror or error}.") from None

    def __call__(self, **entry: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps(plain(entry), separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Close the file; one in which nothing was written, since there was no walk, does not stay."""
        self._file.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_size == 0:
                self.path.unlink()


def no_log(**entry: Any) -> None:
    """Keep nothing."""
