"""What the loop is handed, and by what it knows it: callbacks, where rows, checkpoints and policies go, and how far a run is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from beeline.collect import Transition
from beeline.evaluate import Evaluation
from beeline.memory import Replay

if TYPE_CHECKING:
    import gymnasium

    from beeline.loop import Trainer


@dataclasses.dataclass(frozen=True)
class StepEvent:
    """What a callback sees after every decision."""

    step: int
    transitions: Sequence[Transition]
    trainer: Trainer


@dataclasses.dataclass(frozen=True)
class EvaluationEvent:
    """What a callback sees after every evaluation."""

    step: int
    evaluation: Evaluation
    best: bool
    trainer: Trainer


class Callback:
    """Subclass and override what you need; return False from either method to stop the training."""

    def on_step(self, event: StepEvent) -> bool | None:
        """Called after every decision."""

    def on_evaluation(self, event: EvaluationEvent) -> bool | None:
        """Called after every evaluation."""


class Record(Protocol):
    """Where rows go."""

    folder: Path | None
    rows: list[dict[str, Any]]

    def write(self, row: dict[str, Any]) -> None:
        """Record one row."""

    def sync(self) -> Any:
        """Make the rows durable; return what a checkpoint remembers of them."""

    def restore(self, meta: Mapping[str, Any], step: int, report: Callable[[str], None]) -> None:
        """Take the record back to a checkpoint."""


class Store(Protocol):
    """Where checkpoints go."""

    def save(self, step: int, arrays: Mapping[str, Any], meta: Mapping[str, Any], memories: Mapping[str, Replay]) -> Any:
        """Save everything at a step, durably."""


class Restorable(Protocol):
    """A checkpoint that was read and found intact."""

    @property
    def step(self) -> int:
        """The step it was made at."""

    @property
    def arrays(self) -> dict[str, Any]:
        """Every array of the state, by name."""

    @property
    def meta(self) -> dict[str, Any]:
        """Plain values beside them."""

    def memories(self) -> dict[str, Replay]:
        """The memories as they were."""


class PolicyWriter(Protocol):
    """Where policies go."""

    def __call__(self, name: str, arrays: dict[str, np.ndarray], step: int, score: float | None) -> None:
        """Write a policy file of that name."""


class Diagnoser(Protocol):
    """What is asked every `diagnose` steps; it reads state and replay, and has an environment and streams of its own."""

    env: gymnasium.Env
    columns: tuple[str, ...]
    stop: Callable[[], bool]

    def __call__(self, state: Any, replay: Replay, step: int) -> dict[str, float]:
        """The values of its columns."""


@dataclasses.dataclass
class Progress:
    """How far a run is; small enough to be stored as plain values."""

    step: int = 0
    decisions: int = 0
    updates: int = 0
    evaluations: int = 0
    rows: int = 0
    best_return: float | None = None
    best_step: int = -1
    done: list[str] = dataclasses.field(default_factory=list)  # events that happen once and have happened
    pending: bool = False  # what is due after this step was given up at a signal, and is done first when the run goes on
