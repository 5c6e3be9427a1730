"""Meta-World v3: goal and object drawn anew at every reset, the goal observed."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np

from beeline.envs.gym import spelled
from beeline.envs.spec import Built
from beeline.envs.tables import METAWORLD

LIMIT = 500
CAMERA, CAMERA_PLACE = "corner2", (0.75, 0.075, 0.7)  # nearer than the model has it


def build(task: str, render: bool) -> Built:
    """Make a task by its name without the version, for example `hammer`."""
    name = spelled("metaworld", task, METAWORLD, lambda text: re.sub(r"-v\d$", "", text))
    return Built(MetaWorld(name, "rgb_array" if render else None), name, LIMIT, success=True, ends=False)


class MetaWorld(gymnasium.Env[np.ndarray, np.ndarray]):
    """A Sawyer task of the goal-observable kind, whose episodes are functions of the seed given to `reset`."""

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        sawyer = ALL_V3_ENVIRONMENTS[f"{task}-v3"]
        self.sawyer: Any = sawyer(render_mode=render_mode, camera_name=CAMERA)
        self.sawyer.model.camera(CAMERA).pos[:] = CAMERA_PLACE
        # What Meta-World's own goal-observable classes set, with two differences: they freeze the first draw of
        # goal and object for ever, and draw it from NumPy's global generator.
        self.sawyer._partially_observable = False
        self.sawyer.__dict__.pop("sawyer_observation_space", None)  # cached for the hidden goal
        self.sawyer._set_task_called = True
        self.sawyer._freeze_rand_vec = False
        self.sawyer.seeded_rand_vec = True
        self.sawyer.max_path_length = np.inf  # it raises beyond; the adapter counts instead
        self.action_space = self.sawyer.action_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (39,), np.float64)
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self.sawyer.metadata["render_fps"]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Draw goal and object, from the seed if there is one."""
        super().reset(seed=seed)
        if seed is not None:
            self.sawyer.seed(seed)
        return self.sawyer.reset()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance one control step; success never ends the episode."""
        return self.sawyer.step(action)

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Return the frame of a corner camera, which hangs upside down."""
        return self.sawyer.render()[::-1]

    def close(self) -> None:
        """Free the renderer."""
        self.sawyer.close()
