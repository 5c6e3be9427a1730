"""What the rest of Beeline knows about an environment, and the check of every number that comes out of one."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from beeline.errors import NonFiniteError

if TYPE_CHECKING:
    import gymnasium


@dataclasses.dataclass(frozen=True, eq=False)
class EnvSpec:
    """The facts of an adapted environment; lengths and limits count environment steps, not decisions."""

    id: str
    obs_dim: int
    action_dim: int
    action_low: np.ndarray
    action_high: np.ndarray
    repeat: int
    max_episode_steps: int | None
    success: bool
    replayable: bool
    ends: bool = True  # whether an episode can terminate before its limit


@dataclasses.dataclass(frozen=True)
class Built:
    """An environment as its suite makes it, without a time limit of its own, and what the suite says about it."""

    env: gymnasium.Env
    task: str
    limit: int | None
    success: bool
    ends: bool = True  # whether an episode can terminate before its limit


def check_finite(env_id: str, lane: int, step: int, obs: np.ndarray, reward: float) -> None:
    """Raise NonFiniteError if the reward or any number of the observation is NaN or infinite."""
    # A finite sum proves that every term is finite, at half the price of looking at each; overflow takes the slow way.
    if math.isfinite(reward) and math.isfinite(np.add.reduce(obs, axis=None)):
        return
    place = f"environment {env_id!r}, lane {lane}, step {step}"
    if not math.isfinite(reward):
        raise NonFiniteError(f"{place}: the reward is {reward}. Mend the reward function, then resume.")
    bad = np.flatnonzero(~np.isfinite(obs))
    if bad.size:
        raise NonFiniteError(
            f"{place}: observation[{bad[0]}] is {np.ravel(obs)[bad[0]]} ({bad.size} of {np.size(obs)} numbers are not "
            "finite). The simulation has probably diverged: bound the actions or mend the environment, then resume."
        )
