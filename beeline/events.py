"""What happens between two decisions, as values: evaluate, diagnose, record, renew, load, and last of all the checkpoint.

An event is called after every decision, in the order in which a run has them. As each is a function of the config and of how
far the run is, a resumed run meets the same ones at the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from beeline.loop import Trainer


class Event:
    """Subclass and override what you need."""

    def start(self, run: Trainer) -> None:
        """Before the first decision of a process."""

    def __call__(self, run: Trainer) -> None:
        """After every decision."""

    def between(self, run: Trainer, lane: int) -> None:
        """Between two episodes of a lane, the first of which may be none."""

    def finish(self, run: Trainer) -> None:
        """After the last one."""


class Observe(Event):
    """Evaluate every `eval_every` steps, diagnose every `diagnose`, and write a row with what was found or every `log_every`."""

    def __init__(self) -> None:
        self._since = (time.perf_counter(), 0)

    def start(self, run: Trainer) -> None:
        """The policy before training is evaluated too."""
        if not run.progress.rows:
            self._row(run, _evaluated(run, keep=True))
        self._since = (time.perf_counter(), run.progress.step)

    def __call__(self, run: Trainer) -> None:
        """One row for all that is due at this step.

        The diagnosis comes first: it leaves no trace, so both can be done again where a signal ends one of them.
        """
        config = run.config
        run.progress.pending = True
        diagnosed: dict[str, float] = {}
        if run.diagnoser is not None and config.diagnose and run.due(config.diagnose):
            diagnosed = run.diagnoser(run.state, run.replay, run.progress.step)
        evaluated = _evaluated(run, keep=True) if run.due(config.eval_every) else {}
        run.progress.pending = False
        if evaluated or run.due(config.log_every):
            self._row(run, evaluated | diagnosed)
        elif diagnosed:  # a row of its own, which takes nothing from the rows that a run without diagnoses writes
            run.record({"step": run.progress.step, "updates": run.progress.updates, **diagnosed, **_clocks()})

    def finish(self, run: Trainer) -> None:
        """A last evaluation, unless the schedule just made one."""
        if run.eval_env is not None and run.config.eval_episodes and not run.due(run.config.eval_every):
            self._row(run, _evaluated(run, keep=False))

    def _row(self, run: Trainer, found: dict[str, Any]) -> None:
        now, (began, first_step) = time.perf_counter(), self._since
        row: dict[str, Any] = {"step": run.progress.step, "updates": run.progress.updates, **run.collector.drain(), **found}
        row |= {name: float(value) for name, value in run.metrics.items()}
        rate = (run.progress.step - first_step) / max(now - began, 1e-9)
        if run.config.events:
            row["events"] = len(run.progress.done)
        row |= {**_clocks(), "time/steps_per_second": rate}
        self._since = (now, run.progress.step)
        run.record(row)


def _clocks() -> dict[str, float]:
    """When it is, and how much work this process has done: on a busy machine the first says little about the second."""
    return {"time/wall": time.time(), "time/processor": time.process_time()}


def _evaluated(run: Trainer, keep: bool) -> dict[str, Any]:
    result = run.evaluate(keep)
    return result.row() if result else {}


class Renew(Event):
    """Parts of the agent begin anew at the first decision that reaches a step: networks, their targets and optimisers.

    Replay, temperature, statistics and counters stay as they are.
    """

    def __init__(self, parts: Sequence[str], step: int) -> None:
        self.parts, self.step = tuple(parts), step
        self.name = f"renew {','.join(self.parts)}@{step}"

    def __call__(self, run: Trainer) -> None:
        """Once."""
        if run.progress.step >= self.step and self.name not in run.progress.done:
            run.state = run.agent.renew(run.state, self.parts, run.clock)
            run.progress.done.append(self.name)


class LoadPrior(Event):
    """Rows enter the replay, in every lane between the two episodes of its first reset at or after a step.

    `rows` has the rows of each lane, as `Replay.extend` takes them.
    """

    def __init__(self, rows: Sequence[Mapping[str, NDArray]], step: int) -> None:
        self.rows, self.step = tuple(rows), step

    def between(self, run: Trainer, lane: int) -> None:
        """Once in each lane."""
        name = f"load_prior@{self.step} lane {lane}"
        if run.progress.step >= self.step and name not in run.progress.done:
            run.replay.extend(lane, self.rows[lane])
            run.progress.done.append(name)


class Checkpoint(Event):
    """Save every `checkpoint_every` steps; the last event, so that a checkpoint always lies before a decision."""

    def __call__(self, run: Trainer) -> None:
        """Save where it is due."""
        if run.due(run.config.checkpoint_every):
            run.save()
