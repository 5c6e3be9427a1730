"""The four tasks of the model-based comparison: observations cut down to positions and velocities.

The termination functions take one observation or any batch of predicted ones, as NumPy or JAX arrays, so that a learned
model ends its episodes exactly where the environment does (ALGORITHMS.md, section 16.3).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np

from beeline.envs.gym import spelled
from beeline.envs.spec import Built
from beeline.envs.tables import MBPO

Array = TypeVar("Array", bound=Any)
LIMIT = 1000


def hopper_terminated(obs: Array) -> Array:
    """Fallen below 0.7, tilted by 0.2 or more, or out of range; z is obs[0], the torso's angle obs[1]."""
    sane = _finite(obs) & (abs(obs[..., 1:]) < 100).all(-1)
    return ~(sane & (obs[..., 0] > 0.7) & (abs(obs[..., 1]) < 0.2))


def walker2d_terminated(obs: Array) -> Array:
    """Outside 0.8 < z < 2, or tilted by 1 or more."""
    z = obs[..., 0]
    return ~((z > 0.8) & (z < 2.0) & (abs(obs[..., 1]) < 1.0))


def ant_terminated(obs: Array) -> Array:
    """Outside 0.2 ≤ z ≤ 1, or not finite."""
    z = obs[..., 0]
    return ~(_finite(obs) & (z >= 0.2) & (z <= 1.0))


def humanoid_terminated(obs: Array) -> Array:
    """Outside 1 ≤ z ≤ 2."""
    z = obs[..., 0]
    return ~((z >= 1.0) & (z <= 2.0))


def _finite(obs: Array) -> Array:
    # Comparisons instead of isfinite: they need no array library, and NaN fails them as it should.
    return (abs(obs) < float("inf")).all(-1)


TERMINATED: dict[str, Callable[[Any], Any]] = {
    "hopper": hopper_terminated,
    "walker2d": walker2d_terminated,
    "ant": ant_terminated,
    "humanoid": humanoid_terminated,
}
# The -v4 classes have the bodies and rewards of the -v2 tasks that the comparison used: the bonus for being alive is
# paid on the terminal step as well, and Walker2d's feet keep their uneven friction.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "hopper": ("hopper_v4:HopperEnv", {}),
    "walker2d": ("walker2d_v4:Walker2dEnv", {}),
    "ant": ("ant_v4:AntEnv", {"use_contact_forces": True}),
    "humanoid": ("humanoid_v4:HumanoidEnv", {}),
}


def build(task: str, render: bool) -> Built:
    """Make `hopper`, `walker2d`, `ant` or `humanoid`."""
    name = spelled("mbpo", task, MBPO)
    return Built(Truncated(name, "rgb_array" if render else None), name, LIMIT, success=False)


class Truncated(gymnasium.Env[np.ndarray, np.ndarray]):
    """A MuJoCo task that shows the first numbers of its observation only: positions without x and y, then velocities."""

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        module, _, name = CLASSES[task][0].partition(":")
        robot = getattr(importlib.import_module(f"gymnasium.envs.mujoco.{module}"), name)
        self.robot: Any = robot(render_mode=render_mode, **CLASSES[task][1])
        self._size = MBPO[task][0]
        self._contact_cost = task == "humanoid"  # its -v4 class forgets it
        self.action_space = self.robot.action_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self._size,), np.float64)
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self.robot.metadata["render_fps"]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode."""
        super().reset(seed=seed)
        obs, info = self.robot.reset(seed=seed)
        return obs[: self._size], info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance one control step; the robot's own test of health is the termination function of the next state."""
        obs, reward, terminated, _, info = self.robot.step(action)
        if self._contact_cost:
            reward -= min(0.5e-6 * float(np.square(self.robot.data.cfrc_ext).sum()), 10.0)
        return obs[: self._size], reward, terminated, False, info

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Return the frame of the robot's camera."""
        return self.robot.render()

    def close(self) -> None:
        """Free the renderer."""
        self.robot.close()
