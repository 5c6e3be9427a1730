"""Feeds: how batches are drawn from the memories. What is drawn is a function of the memories and the clock alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from beeline.errors import ConfigError
from beeline.memory import Batch, Clock, Data, Recency, Replay


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
    recency: Recency | None = None  # how the weight of a transition of the replay falls with its age

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """Batches by the number of their update."""
        return Data(self.batch(memories["replay"], clock, updates, self.batch_size, "replay", self.recency), clock.updates)

    def batch(self, memory: Replay, clock: Clock, updates: int, size: int, stream: str, recency: Recency | None = None) -> Batch:
        """`[updates, size]` transitions of one memory."""
        return memory.sample(
            clock.seed, clock.updates, updates, size,
            gamma=self.gamma, n_step=self.n_step, stream=stream, with_next_action=self.next_action, recency=recency,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class WithPrior:
    """The first round(share · batch) transitions of every batch from the memory "prior", the others from the replay."""

    uniform: Uniform
    share: float

    def __post_init__(self) -> None:
        if not self.size:
            raise ConfigError(
                f"prior_share = {self.share:g} of batch_size = {self.uniform.batch_size} is less than one transition: "
                "give more of either, or leave prior out."
            )

    @property
    def size(self) -> int:
        """Transitions of a batch that are drawn from the memory "prior"."""
        return round(self.share * self.uniform.batch_size)

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """Batches by the number of their update, with a stream for each memory."""
        rest = self.uniform.batch_size - self.size
        prior = self.uniform.batch(memories["prior"], clock, updates, self.size, "prior")
        own = self.uniform.batch(memories["replay"], clock, updates, rest, "replay", self.uniform.recency)
        return Data(joined(prior, own), clock.updates)


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Every batch has `real` transitions of the replay, first, and imagined ones of the memory "model" (MBPO)."""

    uniform: Uniform
    real: int

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """Batches by the number of their update, with a stream for each memory."""
        imagined = self.uniform.batch_size - self.real
        parts = [("replay", self.real), ("model", imagined)]
        drawn = [self.uniform.batch(memories[name], clock, updates, size, name) for name, size in parts if size]
        return Data(drawn[0] if len(drawn) == 1 else joined(*drawn), clock.updates)


@dataclasses.dataclass(frozen=True)
class Beside:
    """What one feed draws to train on, and beside it real transitions to fit V on (MB-BAC)."""

    train: Feed
    fit: Uniform

    def __call__(self, memories: Mapping[str, Replay], clock: Clock, updates: int) -> Data:
        """Both by the number of their update."""
        fit = self.fit.batch(memories["replay"], clock, updates, self.fit.batch_size, "exploit")
        return self.train(memories, clock, updates)._replace(fit=fit)


def joined(first: Batch, second: Batch) -> Batch:
    """Batches of the same updates side by side, with the extras that both have."""
    left, right = first.extras or {}, second.extras or {}
    extras = {name: np.concatenate([left[name], right[name]], axis=1) for name in left if name in right}
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)], axis=1) for name in Batch._fields[:-1]
    }
    return Batch(**columns, extras=extras or None)
