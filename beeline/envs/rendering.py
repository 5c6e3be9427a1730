"""Choosing an OpenGL backend that works without a screen, before MuJoCo is imported."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import NamedTuple

CANDIDATES = ("egl", "osmesa")
INSTALL = (
    "No off-screen OpenGL was found, so nothing can be rendered. On Debian or Ubuntu run "
    "`apt-get install libegl1 libgl1-mesa-dri` (EGL) or `apt-get install libosmesa6` (software rendering)."
)
# The probe draws: a library that loads but has no device fails only here.
PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 3'/><geom size='1'/></worldbody></mujoco>")
renderer = mujoco.Renderer(model, 32, 32)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer.update_scene(data)
assert renderer.render().any()
"""


class Backend(NamedTuple):
    """The backend that works, or None and what to install."""

    name: str | None
    message: str


def choose_backend() -> Backend:
    """Set MUJOCO_GL to a backend that can draw here; a working choice of the user's is kept.

    Call it before mujoco or dm_control are imported: both read MUJOCO_GL only once.
    """
    wished = os.environ.get("MUJOCO_GL", "")
    backend = _search(wished)
    if backend.name is not None:
        os.environ["MUJOCO_GL"] = backend.name
        if backend.name in CANDIDATES:
            os.environ["PYOPENGL_PLATFORM"] = backend.name
    elif not wished:
        os.environ.pop("MUJOCO_GL", None)  # an empty value would make the imports fail
    return backend


@functools.cache
def _search(wished: str) -> Backend:
    for name in dict.fromkeys(filter(None, (wished, *CANDIDATES))):
        if works(name):
            note = f" ({wished} was asked for, but does not work here)" if wished not in ("", name) else ""
            return Backend(name, f"rendering with {name}{note}")
    return Backend(None, INSTALL)


def works(name: str) -> bool:
    """Draw one small frame with a backend in a process of its own, since a wrong one can kill the process."""
    environment = {**os.environ, "MUJOCO_GL": name, "PYOPENGL_PLATFORM": name}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
