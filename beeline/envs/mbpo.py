"""The four tasks of the model-based comparison: observations cut down to positions and velocities.

Where their episodes end is in `known`.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np

from beeline.envs import known
from beeline.envs.gym import spelled
from beeline.envs.spec import Built
from beeline.envs.tables import MBPO

LIMIT = 1000


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
    env = Truncated(name, "rgb_array" if render else None)
    return Built(env, name, LIMIT, success=False, terminated=known.after(known.MBPO[name]))


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
