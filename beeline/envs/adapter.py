"""The one wrapper: flat float32 observations, actions in [-1, 1], repeat, noise, sparse reward and time limit.

One class instead of a tower of wrappers, because the tower costs more than the physics of a small robot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any

import gymnasium
import numpy as np
from numpy._core import umath

from beeline.envs.boundary import FLOAT32, LARGEST, SMALLEST, Boundary, failed, space_of
from beeline.envs.ids import Options
from beeline.envs.known import never
from beeline.envs.spec import Built, EnvSpec
from beeline.errors import ConfigError, EnvError

clip: Callable[..., np.ndarray] = umath.clip  # type: ignore[attr-defined]  # np.clip costs six times as much in Python
GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
ASSUMED_DECISIONS = 1_000  # the length of an episode where no time limit is declared
REWARD_SLACK = 1e-6  # a reward of 1 that was multiplied together from cosines is 0.9999999


class Adapter(gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment as every part of Beeline sees it; `env` is the environment inside, `facts` its EnvSpec."""

    def __init__(self, built: Built, env_id: str, options: Options) -> None:
        env = built.env
        self.env = env
        low, high = action_bounds(env_id, space_of(env_id, env, "action_space"))
        space = space_of(env_id, env, "observation_space")
        flatten, obs_dim = flattener(env_id, space, getattr(env, "fresh_float32", False))
        self._world = Boundary(env, env_id, flatten, obs_dim)
        self._repetitions, self._noise = range(options.repeat), options.noise
        declared = options.limit or built.limit
        self._limit = declared or ASSUMED_DECISIONS * options.repeat
        self._pay = payer(env_id, options.sparse, built.success)
        self._rescale = rescaler(low, high)
        self._unit = np.full_like(low, -1.0), np.full_like(high, 1.0)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, low.shape, np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.render_mode = env.render_mode
        fps = (env.metadata or {}).get("render_fps") or 30
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        changed = options.repeat > 1 or options.noise or options.sparse  # it is not paid for this action, in this way
        self.facts = EnvSpec(
            id=env_id,
            obs_dim=obs_dim,
            action_dim=low.size,
            action_low=low,
            action_high=high,
            repeat=options.repeat,
            max_episode_steps=declared,
            limit=self._limit,
            success=built.success,
            replayable=bool(getattr(env.unwrapped, "beeline_replayable", True)),
            ends=built.ends,
            terminated=said(env, "beeline_terminated") or built.terminated or (None if built.ends else never),
            reward=None if changed else said(env, "beeline_reward") or built.reward,
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; with a seed it is the same episode every time, the action noise included."""
        super().reset(seed=seed)  # seeds self.np_random, from which the action noise is drawn
        return self._world.reset(seed, options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one decision: `repeat` environment steps with the rewards summed, fewer if the episode ends."""
        low, high = self._unit  # of the environment's dtype: clipping float32 actions makes them float64 where needed
        action = clip(action, low, high)
        total, rescale, pay, world = 0.0, self._rescale, self._pay, self._world
        for _ in self._repetitions:
            taken = action
            if self._noise:
                noisy = action + self._noise * self.np_random.standard_normal(action.shape)
                taken = clip(noisy, low, high)
            obs, reward, terminated, truncated, info = world.step(taken if rescale is None else rescale(taken))
            if info:
                world.success(info)
            total += reward if pay is None else pay(world.reward(float(reward)), info)
            if world.taken >= self._limit:
                truncated = True
            if terminated or truncated:
                break
        total = float(total)
        if not SMALLEST <= total <= LARGEST:
            world.reward(total)  # says what is wrong with it
        return world.observation(obs), total, terminated is not False and bool(terminated), bool(truncated), info

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Return the current frame as an RGB array."""
        return self.env.render()  # type: ignore[return-value]

    def close(self) -> None:
        """Free what the environment inside holds; one that fails in this is told of, since what was done stays done."""
        try:
            self.env.close()
        except Exception as error:
            warnings.warn(str(failed(f"environment {self.facts.id!r} failed in close()", error)), stacklevel=2)

    def __str__(self) -> str:
        return f"<Adapter {self.facts.id}>"


def said(env: gymnasium.Env, name: str) -> Any:
    """A function that an environment or the outermost of its wrappers has under this name, else None."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None


def action_bounds(env_id: str, space: gymnasium.Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a flat, bounded Box; anything else is an error that says what to do."""
    if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise EnvError(
            f"environment {env_id!r} has the action space {space}. Beeline controls continuous actions only: "
            "choose the continuous variant of the task, or wrap it so that its action space is a float Box."
        )
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise EnvError(f"environment {env_id!r} has actions of shape {space.shape}. Wrap it so that they are a vector.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low < space.high).all()):
        raise EnvError(
            f"environment {env_id!r} has unbounded actions ({space}). Give every action a finite lower and upper "
            "bound, for example with gymnasium.wrappers.RescaleAction or by changing its action_space."
        )
    return space.low.copy(), space.high.copy()


def rescaler(low: np.ndarray, high: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the map from [-1, 1] onto [low, high], or None where there is nothing to do; rounding keeps the bounds."""
    dtype = low.dtype
    if (low == -1).all() and (high == 1).all():
        # float32 actions become float64 in the clipping, but nothing there makes float64 ones float32.
        return None if dtype == np.float64 else lambda action: action.astype(dtype, copy=False)
    # Halve first: the width of bounds near the end of the float range does not overflow then.
    half, middle = high / 2 - low / 2, high / 2 + low / 2
    return lambda action: clip(action * half + middle, low, high).astype(dtype, copy=False)


def key_order(keys: Collection[str]) -> list[str]:
    """The order in which a Dict observation is flattened: GOAL_KEYS first if it has an "observation", then the alphabet."""
    first = [key for key in GOAL_KEYS if key in keys] if "observation" in keys else []
    return first + sorted(key for key in keys if key not in first)


def flattener(env_id: str, space: gymnasium.Space, fresh: bool) -> tuple[Callable[[Any], np.ndarray] | None, int]:
    """Return the function that makes a flat float32 observation, and its length.

    Dict observations follow GOAL_KEYS if they have an "observation", and the alphabet otherwise. Where the environment
    makes a new float32 array for every observation already (`fresh`), there is nothing to do.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        keys = key_order(space.spaces)
        size = sum(_length(env_id, f"observation {key!r}", space.spaces[key]) for key in keys)
        shapes = [space.spaces[key].shape for key in keys]

        def flatten(obs: Any) -> np.ndarray:
            parts = [obs[key] for key in keys]
            if [part.shape for part in parts] != shapes:
                raise ValueError("a part of the observation has another shape than its space")
            return np.concatenate(parts, dtype=np.float32)

        return flatten, size
    size = _length(env_id, "observation", space)
    # A copy, always; "same_kind" refuses text and complex numbers, which would otherwise be read as something.
    return None if fresh else lambda obs: obs.astype(FLOAT32, "C", "same_kind", False), size


def _length(env_id: str, what: str, space: gymnasium.Space) -> int:
    if not isinstance(space, gymnasium.spaces.Box):
        raise EnvError(
            f"environment {env_id!r}: the {what} is a {type(space).__name__}. Beeline reads vectors: "
            "flatten it with gymnasium.wrappers.FlattenObservation."
        )
    if len(space.shape) != 1:
        image = space.dtype == np.uint8 and len(space.shape) in (2, 3)
        kind = f"an image of shape {space.shape}" if image else f"an array of shape {space.shape}"
        raise EnvError(
            f"environment {env_id!r}: the {what} is {kind}. Beeline reads vectors: choose the state variant of "
            "the task, or flatten it with gymnasium.wrappers.FlattenObservation."
        )
    return space.shape[0]


def payer(env_id: str, sparse: float, success: bool) -> Callable[[Any, dict], float] | None:
    """Return the sparse reward of an environment step: its success, or whether its reward reaches a threshold."""
    if not sparse:
        return None
    if not success:
        return lambda reward, info: float(reward >= sparse - REWARD_SLACK)
    if sparse != 1:
        raise ConfigError(
            f"{env_id!r}: this environment reports success, so sparse=1 (reward 1 on success, else 0) is the only "
            f"sparse reward; sparse={sparse:g} was given."
        )
    return lambda reward, info: float(info.get("success", False))
