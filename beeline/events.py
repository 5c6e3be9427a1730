"""What happens between two decisions, as values: evaluate, diagnose, record, renew networks, and last of all the checkpoint.

An event is called after every decision, in the order in which a run has them. As each is a function of the config and of how
far the run is, a resumed run meets the same ones at the same steps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.loop import Trainer


class Event:
    """Subclass and override what you need."""

    def start(self, run: Trainer) -> None:
        """Before the first decision of a process."""

    def __call__(self, run: Trainer) -> None:
        """After every decision."""

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
            run.record({"step": run.progress.step, "updates": run.progress.updates, **diagnosed, "time/wall": time.time()})

    def finish(self, run: Trainer) -> None:
        """A last evaluation, unless the schedule just made one."""
        if run.eval_env is not None and run.config.eval_episodes and not run.due(run.config.eval_every):
            self._row(run, _evaluated(run, keep=False))

    def _row(self, run: Trainer, found: dict[str, Any]) -> None:
        now, (began, first_step) = time.perf_counter(), self._since
        row: dict[str, Any] = {"step": run.progress.step, "updates": run.progress.updates, **run.collector.drain(), **found}
        row |= {name: float(value) for name, value in run.metrics.items()}
        rate = (run.progress.step - first_step) / max(now - began, 1e-9)
        row |= {"time/wall": time.time(), "time/steps_per_second": rate}
        self._since = (now, run.progress.step)
        run.record(row)


def _evaluated(run: Trainer, keep: bool) -> dict[str, Any]:
    result = run.evaluate(keep)
    return result.row() if result else {}


class Checkpoint(Event):
    """Save every `checkpoint_every` steps; the last event, so that a checkpoint always lies before a decision."""

    def __call__(self, run: Trainer) -> None:
        """Save where it is due."""
        if run.due(run.config.checkpoint_every):
            run.save()
