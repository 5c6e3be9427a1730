"""panda-gym: a Franka Panda in PyBullet."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from beeline.envs.gym import registered, spelled
from beeline.envs.spec import Built
from beeline.envs.tables import PANDA


def build(task: str, render: bool) -> Built:
    """Make `ReachJoints`, `Push`, …; these pay 0 on success and -1 otherwise, `…Dense` the negative distance."""
    with _silent():
        import panda_gym  # noqa: F401 (importing it registers the tasks)

    name = spelled("panda", task, PANDA, lambda text: re.sub(r"^Panda|-v3$", "", text))
    # The suite knows no "off": its tiny renderer draws on the CPU, and only when it is asked to.
    with _silent():
        return registered(f"Panda{name}-v3", f"panda/{name}", name, render=True, success=True, arguments={"renderer": "Tiny"})


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the Bullet library from printing its build time and its arguments, which it does below Python."""
    sys.stdout.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    try:
        with Path(os.devnull).open("w") as nothing:
            for stream in kept:
                os.dup2(nothing.fileno(), stream)
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C has buffered belongs to the silence, too
        for stream, copy in kept.items():
            os.dup2(copy, stream)
            os.close(copy)
