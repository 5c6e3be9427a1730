"""The DeepMind Control Suite: flat observations in its own key order, 1000 control steps, no terminal states."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import gymnasium
import numpy as np

from beeline.envs import rendering
from beeline.envs.spec import Built
from beeline.envs.tables import DMC
from beeline.errors import UnknownNameError

FRAME = (480, 480)
CAMERAS = {"quadruped": "x"}  # where the first one stands too far away
ALIASES = {"cup_": "ball_in_cup_"}


def build(task: str, render: bool) -> Built:
    """Make `domain-task`, for example `walker-run`."""
    name = resolve(task)
    domain, _, short = name.partition("-")
    env = DMControl(domain, short, "rgb_array" if render else None)
    return Built(env, name, env.step_limit, success=False, ends=False)


def resolve(task: str) -> str:
    """Return the suite's spelling: `cup-catch` is `ball_in_cup-catch`, `finger-turn-easy` is `finger-turn_easy`."""
    wanted = task.replace("-", "_").lower()
    for short, full in ALIASES.items():
        if wanted.startswith(short):
            wanted = full + wanted.removeprefix(short)
    for name in DMC:
        if name.replace("-", "_").lower() == wanted:
            return name
    raise UnknownNameError("environment", f"dmc/{task}", [f"dmc/{name}" for name in DMC])


def _load(domain: str, task: str) -> Any:
    if "dm_control" not in sys.modules:
        # Left alone it settles for GLFW, screen or not, and a film at the end of a training would fail.
        rendering.choose_backend()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it without a screen complains about X11
        from dm_control import suite
    return suite.load(domain, task, task_kwargs={"random": 0})


class DMControl(gymnasium.Env[np.ndarray, np.ndarray]):
    """A dm_control task whose episodes are functions of the seed given to `reset`."""

    fresh_float32 = True

    def __init__(self, domain: str, task: str, render_mode: str | None = None) -> None:
        self.dm_env = _load(domain, task)
        spec = self.dm_env.action_spec()
        self.action_space = gymnasium.spaces.Box(spec.minimum, spec.maximum, spec.shape, np.float64)
        shapes = {name: part.shape for name, part in self.dm_env.observation_spec().items()}
        self._vectors = all(len(shape) == 1 for shape in shapes.values())
        self.observation_parts = {name: int(np.prod(shape)) for name, shape in shapes.items()}  # in their order
        size = sum(self.observation_parts.values())
        self.dt = self.dm_env.control_timestep()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._task, self._physics, self._substeps = self.dm_env.task, self.dm_env.physics, self.dm_env._n_sub_steps
        self.step_limit = round(self.dm_env._step_limit)
        self._camera = CAMERAS.get(domain, 0)
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self.dm_env.control_timestep())}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; a seed replaces the task's random state."""
        super().reset(seed=seed)
        if seed is not None:
            words = np.random.SeedSequence(seed).generate_state(4)  # RandomState itself takes 32-bit seeds only
            self._task._random = np.random.RandomState(words)
        parts = self.dm_env.reset().observation.values()
        return np.concatenate([part.reshape(-1) for part in parts], dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance one control step; a discount of 0 ends the episode for good, any other last step truncates it.

        These are the lines of dm_control's own step without its time limit, automatic reset and packaging.
        """
        task, physics = self._task, self._physics
        task.before_step(action, physics)
        physics.step(self._substeps)
        task.after_step(physics)
        reward = task.get_reward(physics)
        parts = task.get_observation(physics).values()
        obs = np.concatenate(tuple(parts) if self._vectors else [part.reshape(-1) for part in parts], dtype=np.float32)
        discount = task.get_termination(physics)
        if discount is None:
            return obs, reward, False, False, {}
        return obs, reward, discount == 0.0, discount != 0.0, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Return the frame that the task's main camera sees."""
        return self._physics.render(*FRAME, camera_id=self._camera)

    def close(self) -> None:
        """Free the physics."""
        self.dm_env.close()
