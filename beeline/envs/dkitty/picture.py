"""Pictures of the D'Kitty: a camera that follows it, and grounds painted after what they are."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np

from beeline.envs.dkitty.model import TEXELS
from beeline.envs.dkitty.robot import HEIGHT
from beeline.envs.dkitty.terrain import TERRAINS
from beeline.envs.rendering import CANDIDATES

if TYPE_CHECKING:
    from beeline.envs.dkitty.env import DKitty

WIDTH, HEIGHT_PX = 640, 480
Colour = tuple[float, float, float]


class Paint(NamedTuple):
    """How a ground looks: colours of its hollows, middle and heights, the deviation of its heights, and its grain."""

    hollows: Colour
    middle: Colour
    heights: Colour
    relief: float
    grain: float


FIELD = Paint((0.36, 0.33, 0.30), (0.62, 0.57, 0.50), (0.84, 0.79, 0.70), relief=0.026, grain=0.02)
PAINTS = {
    "rough-stone-road": Paint((0.30, 0.29, 0.28), (0.56, 0.56, 0.57), (0.70, 0.70, 0.71), relief=0.004, grain=0.02),
    "uphill-stone-road": Paint((0.27, 0.25, 0.22), (0.58, 0.54, 0.47), (0.74, 0.69, 0.60), relief=0.008, grain=0.03),
    "grassland": Paint((0.25, 0.20, 0.13), (0.36, 0.42, 0.17), (0.58, 0.58, 0.27), relief=0.015, grain=0.05),
}


class Picture:
    """Draws an environment's robot on its ground."""

    def __init__(self, env: DKitty) -> None:
        self.env = env
        self.context = gl_context()  # MuJoCo's own Renderer has chosen its library when it was imported: too early here
        self.context.make_current()
        self.scene = mujoco.MjvScene(env.model, maxgeom=1000)
        self.resources = mujoco.MjrContext(env.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self.resources)
        self.camera = mujoco.MjvCamera()
        self.camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        walks = env.variant.kind == "walk"
        self.camera.azimuth, self.camera.elevation = (112, -20) if walks else (215, -20)  # from behind, or from the front
        self.camera.distance = 1.3 if walks else 1.0
        self.scene_option = mujoco.MjvOption()
        self.scene_option.sitegroup[:] = 0
        self.scene_option.sitegroup[0] = env.variant.kind != "stand"
        self.stale = True

    def new_ground(self) -> None:
        """The next frame needs the heights of a new episode."""
        self.stale = True

    def frame(self) -> np.ndarray:
        """An RGB picture of the robot as it is now."""
        env = self.env
        self.context.make_current()
        if self.stale and env.heights is not None:
            self._paint(env.heights)
        self.stale = False
        x, y, z = env.data.body("torso").xpos
        self.camera.lookat[:] = x, y, z - 0.5 * HEIGHT
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(env.model, env.data, self.scene_option, None, self.camera, everything, self.scene)
        place, pixels = mujoco.MjrRect(0, 0, WIDTH, HEIGHT_PX), np.empty((HEIGHT_PX, WIDTH, 3), np.uint8)
        mujoco.mjr_render(place, self.scene, self.resources)
        mujoco.mjr_readPixels(pixels, None, place, self.resources)
        return np.flipud(pixels)

    def close(self) -> None:
        """Free what the graphics library holds."""
        self.context.make_current()
        self.resources.free()
        self.context.free()

    def _paint(self, heights: np.ndarray) -> None:
        """Colour the ground by its heights, with some grain, and hand field and texture to the graphics card."""
        model, variant = self.env.model, self.env.variant
        paint = next((PAINTS[name] for name, kind in TERRAINS.items() if kind is variant.terrain), FIELD)
        shade = np.clip(0.5 + (heights - _blurred(heights)) / (3 * paint.relief), 0.0, 1.0)
        fine = _finer(_finer(shade, 0), 1)
        grain = np.random.default_rng(0).normal(0.0, paint.grain, fine.shape)  # paint, not physics: no draw of the episode's
        low, middle, high = (np.array(colour) for colour in paint[:3])
        below, above = np.clip(2 * fine, 0, 1)[..., None], np.clip(2 * fine - 1, 0, 1)[..., None]
        colour = low + (middle - low) * below + (high - middle) * above + grain[..., None]
        texture = model.texture("ground").id
        start = model.tex_adr[texture]
        model.tex_data[start : start + colour.size] = (255 * np.clip(colour, 0, 1)).astype(np.uint8).ravel()
        mujoco.mjr_uploadHField(model, self.resources, 0)
        mujoco.mjr_uploadTexture(model, self.resources, texture)


def gl_context() -> Any:
    """An off-screen context of the library that MUJOCO_GL names now."""
    name = os.environ.get("MUJOCO_GL", "")
    return importlib.import_module(f"mujoco.{name if name in CANDIDATES else 'glfw'}").GLContext(WIDTH, HEIGHT_PX)


def _finer(shade: np.ndarray, axis: int) -> np.ndarray:
    """TEXELS values for every cell along an axis, linear between the vertices on its sides."""
    place = (np.arange(TEXELS * (shade.shape[axis] - 1)) + 0.5) / TEXELS
    first = place.astype(int)
    share = np.expand_dims(place - first, 1 - axis)
    return shade.take(first, axis) * (1 - share) + shade.take(first + 1, axis) * share


def _blurred(heights: np.ndarray, reach: int = 12) -> np.ndarray:
    """The mean over a square around each vertex: what slopes and waves are, as against stones and tufts."""
    padded = np.pad(heights, reach + 1, mode="edge")[:-1, :-1]
    total = padded.cumsum(0).cumsum(1)
    side = 2 * reach + 1
    return (total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]) / side**2
