"""Feeds: how batches are drawn from the memories. What is drawn is a function of the memories and the clock alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from beeline.memory import Batch, Clock, Data, Replay


class Feed(Protocol):
    """Draws what an update call learns from; it changes nothing, and drawn twice it is the same."""

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """The data of the next `updates` updates."""


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Every transition of the replay with the same probability."""

    batch_size: int
    gamma: float
    n_step: int = 1
    next_action: bool = False  # whether a batch brings the action taken at s' (extras next_action, next_action_valid)

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """Batches by the number of their update."""
        return Data(self.batch(memories["replay"], clock, updates, self.batch_size, "replay"), clock.updates)

    def batch(self, memory: Replay, clock: Clock, updates: int, size: int, stream: str) -> Batch:
        """`[updates, size]` transitions of one memory."""
        return memory.sample(
            clock.seed, clock.updates, updates, size,
            gamma=self.gamma, n_step=self.n_step, stream=stream, with_next_action=self.next_action,
        )  # fmt: skip
