"""When a model is trained and branches are rolled out, and with which settings: every n steps, or by what was met (CMLO).

A trigger holds nothing: its own state is a dict of NumPy numbers that the agent carries for it. Before every decision after the
warm-up `look` is asked once, with a `Look` at the run; it gives back its state and what is due. `settings` are asked whenever
they are needed and change nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from beeline.dynamics.controller import Settings
from beeline.memory import Clock, Replay

Own = dict[str, Any]
SAMPLED, AXES = 1_000, 3  # CMLO: observations of a hull, and the dimensions it is measured in


class Due(NamedTuple):
    """What comes before a decision: a training of the model, and how many branches are rolled out after it."""

    train: bool
    branches: int


class Look(NamedTuple):
    """What a trigger may look at."""

    clock: Clock
    since: int  # environment steps since the warm-up
    decision: int  # environment steps of a decision
    trained: int  # trainings so far
    branches: int  # that the memory has room for, per environment step
    memories: Mapping[str, Replay]
    error: Callable[[int], NDArray[np.float64]]  # of the last n transitions: mean over elites of |ŝ' − s'|₂, ŝ' drawn
    losses: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)  # of the model and of the critics, where they are measured
    shift: Callable[[], float] = lambda: 0.0  # of the policy, where it is measured


class Trigger(Protocol):
    """Decides what is due."""

    @property
    def trains_first(self) -> bool:
        """Whether there must be a model before it is asked for the first time."""

    def init(self) -> Own:
        """Its state at the start."""

    def look(self, own: Own, look: Look) -> tuple[Own, Due]:
        """Asked once before every decision."""

    def settings(self, own: Own, since: int) -> Settings:
        """Share of real data, updates per step and rollout length, as they are now."""


class Schedule(Protocol):
    """Settings by the number of the epoch."""

    def __call__(self, epoch: int) -> Settings:
        """Those of an epoch, counted from 0."""


@dataclasses.dataclass(frozen=True)
class Linear:
    """MBPO's: a fixed ratio and G; k grows linearly from k0 to k1 between two epochs, rounded down."""

    ratio: float
    updates: int
    rollout: tuple[int, int, int, int]  # first epoch, last epoch, k0, k1

    def __call__(self, epoch: int) -> Settings:
        """k = ⌊clip(k0 + (e − e0)/(e1 − e0) (k1 − k0), k0, k1)⌋."""
        e0, e1, k0, k1 = self.rollout
        length = k0 + (epoch - e0) / (e1 - e0) * (k1 - k0)
        return Settings(self.ratio, self.updates, int(np.clip(length, k0, k1)))


@dataclasses.dataclass(frozen=True)
class Growing:
    """What AutoMBPO's trained controllers do on Hopper and Humanoid, as a fixed schedule; on Ant only k grows, twice as fast."""

    ant: bool = False

    def __call__(self, epoch: int) -> Settings:
        """ratio = min(.05 + .006 e, 1), G = min(10 + 4 e, 20), k = 1 + ⌊e/8⌋."""
        if self.ant:
            return Settings(0.05, 10, 1 + epoch // 4)
        return Settings(min(0.05 + 0.006 * epoch, 1.0), min(10 + 4 * epoch, 20), 1 + epoch // 8)


@dataclasses.dataclass(frozen=True)
class _Scheduled:
    schedule: Schedule
    epoch_steps: int
    trains_first: ClassVar[bool] = False

    def settings(self, own: Own, since: int) -> Settings:
        """Those of the epoch."""
        return self.schedule(max(since, 0) // self.epoch_steps)


@dataclasses.dataclass(frozen=True)
class Every(_Scheduled):
    """Train every `steps` environment steps, the first time right after the warm-up, and roll out for all of them at once."""

    steps: int

    def init(self) -> Own:
        """Nothing to remember."""
        return {}

    def look(self, own: Own, look: Look) -> tuple[Own, Due]:
        """At every multiple that this decision reaches."""
        due = crossed(look.since, look.decision, self.steps)
        return own, Due(due, look.branches * self.steps if due else 0)


def crossed(since: int, decision: int, every: float) -> bool:
    """Whether a multiple of `every` was reached by the last decision; the warm-up's end is one."""
    return since // every > (since - decision) // every


@dataclasses.dataclass(frozen=True)
class EventTriggered(_Scheduled):
    """Train when what was met has outgrown the model (CMLO, Ji et al. 2022); branches are rolled out at every step.

    Every c steps: F = vol_j / vol_{j−1} · L̄ with the volume of the hull of what was met and the model's mean error since its
    last training, and S += log(F + 1). The model is trained where S > α and `least` steps have passed since the last time, or
    after `most` in any case.
    """

    every: int  # c
    threshold: float  # α
    first: int = 250  # steps before the first training; S is summed from there
    least: int = 150  # fewest steps between two trainings
    most: int = 500

    def init(self) -> Own:
        """No volume yet, nothing summed."""
        return {
            "volume": np.zeros(()), "events": np.zeros((), np.int64), "sum": np.zeros(()), "error": np.zeros(()),
            "counted": np.zeros((), np.int64), "last": np.zeros((), np.int64), "seen": np.zeros((), np.int64),
        }  # fmt: skip

    def look(self, own: Own, look: Look) -> tuple[Own, Due]:
        """Take the volume and the errors into account where an event is due, and say whether the model is to be trained."""
        since, own = look.since, dict(own)
        passed = since - int(own["last"])
        if not look.trained:
            due = since >= self.first
        else:
            due = passed >= self.most
        if since > 0 and crossed(since, look.decision, self.every):
            fresh = since - int(own["seen"])
            if look.trained and fresh:
                errors = look.error(fresh // look.decision)
                own["error"], own["counted"] = own["error"] + float(np.sum(errors)), own["counted"] + len(errors)
            own["seen"] = np.asarray(since, np.int64)
            now = hull_volume(self.sample(look))
            if look.trained and since > self.first and own["counted"]:
                grown = now / own["volume"] if own["volume"] > 0 else 1.0
                own["sum"] = own["sum"] + np.log(grown * own["error"] / own["counted"] + 1.0)
                own["events"] = own["events"] + 1
                due = due or bool(passed >= self.least and own["events"] >= 2 and own["sum"] > self.threshold)
            own["volume"] = np.asarray(now)
        if due:
            fresh_start = {"sum": np.zeros(()), "error": np.zeros(()), "counted": np.zeros((), np.int64)}
            own |= fresh_start | {"last": np.asarray(since, np.int64), "seen": np.asarray(since, np.int64)}
        return own, Due(due, look.branches * look.decision if due or look.trained else 0)

    def sample(self, look: Look) -> NDArray[np.float32]:
        """Observations that were met."""
        replay, count = look.memories["replay"], look.clock.decisions
        return replay.sample(look.clock.seed, count, 1, SAMPLED, stream="cmlo/hull").obs[0]


def hull_volume(obs: NDArray) -> float:
    """The volume of the convex hull of observations along their first three principal axes; 0 where it is flat."""
    from scipy.spatial import ConvexHull, QhullError

    centred = np.asarray(obs, np.float64) - np.mean(obs, axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[: min(AXES, obs.shape[1])]
    projected = centred @ axes.T
    if projected.shape[1] == 1:
        return float(np.ptp(projected))
    try:
        return float(ConvexHull(projected).volume)
    except QhullError:
        return 0.0


