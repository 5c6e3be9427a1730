"""What the rest of Beeline knows about an environment."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import gymnasium

    from beeline.envs.known import Known


@dataclasses.dataclass(frozen=True, eq=False)
class EnvSpec:
    """The facts of an adapted environment; lengths and limits count environment steps, not decisions.

    `max_episode_steps` is None where no limit is declared; an episode is cut after `limit` steps, declared or assumed.
    """

    id: str
    obs_dim: int
    action_dim: int
    action_low: np.ndarray
    action_high: np.ndarray
    repeat: int
    max_episode_steps: int | None
    limit: int
    success: bool
    replayable: bool
    ends: bool = True  # whether an episode can terminate before its limit
    terminated: Known | None = None  # where an episode ends, for rows of (obs, action in [-1, 1], next obs)
    reward: Known | None = None  # the reward of a decision, likewise

    @property
    def assumption(self) -> str:
        """What is assumed of an environment without a time limit, as a sentence; empty where one is declared."""
        if self.max_episode_steps is not None:
            return ""
        each = f" of {self.repeat} environment steps each" if self.repeat > 1 else ""
        return (
            f"environment {self.id!r} declares no time limit: its episodes are cut after {self.limit // self.repeat:,} decisions"
            f"{each}. Register it with max_episode_steps=N, or give limit=N (?limit=N in an id)."
        )


@dataclasses.dataclass(frozen=True)
class Built:
    """An environment as its suite makes it, without a time limit of its own, and what the suite says about it."""

    env: gymnasium.Env
    task: str
    limit: int | None
    success: bool
    ends: bool = True  # whether an episode can terminate before its limit
    terminated: Known | None = None  # where an episode ends, if its observations tell (`beeline.envs.known`)
    reward: Known | None = None  # the reward of a step, likewise
