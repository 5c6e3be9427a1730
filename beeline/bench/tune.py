"""`beeline tune`: search options with Optuna; every trial is made of ordinary runs of a matrix, so that it can be killed.

The one process of a search asks its study (`bench/study.py`) for trials, watches the evaluations of their runs, gives up those
that fall behind, and tells the study how they ended. A trial that was open when the process died goes on with its runs, from
their checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from beeline import files, screen
from beeline.bench import outcome, space
from beeline.bench import plan as bench_plan
from beeline.bench.execute import Ended, Executor, LocalProcesses, slots
from beeline.bench.matrix import PAUSE, REFRESH, lock_matrix, stop_signals
from beeline.bench.plan import BenchRun
from beeline.bench.space import TunePlan
from beeline.bench.study import REASON, distributions, import_optuna, open_study, sampler
from beeline.bench.watch import View, eta, look, make_display
from beeline.envs import trust
from beeline.errors import BeelineError, RunFolderError, copyable
from beeline.report.curves import window_score
from beeline.report.runs import Series
from beeline.run import reading

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

HOPELESS = 3  # trials that fail one after the other at the beginning: then it is the task or the plan


class Places(Executor, Protocol):
    """Executes the runs of trials, some of which are given up."""

    def give_up(self, runs: Sequence[BenchRun]) -> None:
        """Tell some runs to end."""


@dataclasses.dataclass
class _Open:
    """A trial whose runs have not all ended."""

    number: int
    runs: list[BenchRun]
    reported: set[int]


class Search:
    """The trials of a study, and who executes their runs."""

    def __init__(self, out: Path, plan: TunePlan, study: Study, places: Places) -> None:
        self.out, self.plan, self.study, self.places = out, plan, study, places
        self.stopped_by, self.at_once = 0, False
        self.open: dict[int, _Open] = {}
        self.queue: list[BenchRun] = []
        self.views: dict[str, View] = {}
        for trial in study.get_trials(deepcopy=False):
            self._take_over(trial)
        self._record()

    def _take_over(self, trial: FrozenTrial) -> None:
        """Go on with a trial that was open when an earlier process ended; one that was half drawn is void."""
        if set(trial.params) != set(self.plan.search):
            if not trial.state.is_finished():
                self._tell(trial.number, "FAIL", reason="it was interrupted while it was drawn")
            return
        runs = self.plan.runs(trial.number, trial.params)
        for run in runs:
            self._view(run, "pruned" if trial.state.name == "PRUNED" else "")
        if not trial.state.is_finished():
            self._begin(trial.number, runs, set(trial.intermediate_values))

    def _begin(self, number: int, runs: list[BenchRun], reported: set[int]) -> None:
        self.open[number] = _Open(number, runs, reported)
        for run in runs:
            if look(self.out, run).state != "finished":
                self._view(run, "waiting")
                self.queue.append(run)

    def _view(self, run: BenchRun, state: str = "", reason: str = "") -> None:
        seen = look(self.out, run)
        self.views[run.folder] = dataclasses.replace(seen, state=state or seen.state, reason=reason or seen.reason)

    def _record(self) -> None:
        if self.views:
            bench_plan.record(self.out, [view.run for view in self.views.values()])

    def _drawn(self) -> list[FrozenTrial]:
        """The trials that count."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if set(trial.params) == set(self.plan.search)]

    def _ask(self) -> None:
        """Draw a trial and line its runs up; it is in the plan of the matrix before any of them begins."""
        self.study.sampler = sampler(self.plan, len(self.study.get_trials(deepcopy=False)), self.places.size)
        trial = self.study.ask(distributions(self.plan))
        runs = self.plan.runs(trial.number, trial.params)
        for run in runs:
            self._view(run, "waiting")
        self._record()
        self._begin(trial.number, runs, set())

    def _tell(self, number: int, state: str, value: float | None = None, reason: str = "") -> None:
        optuna = import_optuna()
        if reason:
            optuna.trial.Trial(self.study, self._id(number)).set_user_attr(REASON, reason)
        self.study.tell(number, value, state=optuna.trial.TrialState[state])

    def _id(self, number: int) -> int:
        return self.study.get_trials(deepcopy=False)[number]._trial_id

    @property
    def stopping(self) -> bool:
        """Whether no run is to be begun any more."""
        return bool(self.stopped_by)

    def work(self) -> None:
        """Search until all trials are told or a signal came, and all runs have ended."""
        display, told, shown = make_display(), False, 0.0
        try:
            while self.places.busy() or (self.open and not self.stopping) or self._wanting():
                if self.stopping and not told:
                    told = True
                    self.places.stop()
                while not self.stopping and self.places.free() and (self.queue or self._wanting()):
                    if not self.queue:
                        self._ask()
                    if self.queue:
                        self._submit(self.queue.pop(0))
                news = self.places.poll()
                for ended in news:
                    self._ended(ended)
                if news or time.monotonic() - shown > REFRESH:
                    self._follow()
                    self._show(display)
                    shown = time.monotonic()
                if self.at_once:
                    break
                self._check_hope()
                time.sleep(PAUSE)
            self._show(display)
        finally:
            display.close()
            self.places.close()

    def _wanting(self) -> bool:
        return not self.stopping and len(self._drawn()) < self.plan.trials

    def _show(self, display: Any) -> None:
        for run in self.places.running():
            if self.views[run.folder].state != "pruned":
                self._view(run, "running")
        views = list(self.views.values())
        display.show(views, eta(views, self.places.size))

    def _submit(self, run: BenchRun) -> None:
        try:
            self.places.submit(run)
            self._view(run, "running")
        except BeelineError as error:
            self._fail(self._trial_of(run), str(error))

    def _trial_of(self, run: BenchRun) -> _Open | None:
        return next((each for each in self.open.values() if run in each.runs), None)

    def _ended(self, ended: Ended) -> None:
        """Take over a run that has ended: with its trial, if that is still open."""
        trial = self._trial_of(ended.run)
        if trial is None or self.stopping:
            if self.views[ended.run.folder].state != "pruned":
                self._view(ended.run)
            return
        self._view(ended.run)
        view = self.views[ended.run.folder]
        if view.state != "finished":
            self._fail(trial, view.reason or ended.reason)

    def _fail(self, trial: _Open | None, reason: str) -> None:
        if trial is not None:
            for run in trial.runs:
                self._view(run, "failed", reason)
            self._end(trial)
            self._tell(trial.number, "FAIL", reason=reason)
            self.places.give_up(trial.runs)

    def _end(self, trial: _Open) -> None:
        del self.open[trial.number]
        self.queue = [run for run in self.queue if run not in trial.runs]

    def _follow(self) -> None:
        """Report the evaluations that are new, give up trials that fall behind, and tell those that have come to their end."""
        for trial in list(self.open.values()):
            finished = all(look(self.out, run).state == "finished" for run in trial.runs)
            found = [_evaluations(self.out, run, self.plan.metric) for run in trial.runs]
            if self._falls_behind(trial, found) and self.plan.prune and not finished:
                self._tell(trial.number, "PRUNED")  # before anything is ended: a search that is killed now knows it
                self._end(trial)
                for run in trial.runs:
                    self._view(run, "pruned")
                self.places.give_up(trial.runs)
            elif finished:
                scores = [window_score(one, self.plan.steps) for one in found]
                if None in scores:
                    self._fail(trial, f"no eval/{self.plan.metric} was recorded")
                    continue
                self._end(trial)
                self._tell(trial.number, "COMPLETE", float(np.mean([score for score in scores if score is not None])))

    def _falls_behind(self, trial: _Open, found: Sequence[Series]) -> bool:
        """Report the mean over the seeds at steps that all have evaluated; whether it is below the median of other trials."""
        live: Any = None
        warm_up = self._warm_up(trial)
        for step in sorted(set.intersection(*(set(map(int, one.steps)) for one in found)) - trial.reported):
            trial.reported.add(step)
            if step <= warm_up:  # nothing was learnt yet
                continue
            live = live or import_optuna().trial.Trial(self.study, self._id(trial.number))
            live.report(float(np.mean([one.values[np.flatnonzero(one.steps == step)[-1]] for one in found])), step)
        return live is not None and bool(live.should_prune())

    def _warm_up(self, trial: _Open) -> int:
        from beeline.run.plan import Plan

        run = trial.runs[0]
        return Plan.make(run.algo, run.task, run.preset, {**run.options, "steps": run.steps}).agent.warm_up[1]

    def _check_hope(self) -> None:
        """Where the first trials all failed, the next would as well."""
        states = [(trial.state.name, trial) for trial in self._drawn()]
        if len(states) >= HOPELESS and all(name == "FAIL" for name, _ in states):
            raise RunFolderError(
                f"the first {len(states)} trials have all failed, the last one so: {states[-1][1].user_attrs.get(REASON, '')} "
                "Mend that, and choose another folder with --out."
            )


def _evaluations(out: Path, run: BenchRun, metric: str) -> Series:
    """The evaluations of a run so far; damage is for the display to say."""
    _, table = reading.record(out / run.folder, lambda text: None, run.task, run.options)
    steps, values = table.column("step"), table.column(f"eval/{metric}")
    if not values.size:
        return Series(np.empty(0), np.empty(0))
    there = np.isfinite(values)
    return Series(steps[there], values[there])


# --- the command ------------------------------------------------------------------------------------------------------


def run(out: Path, plan: TunePlan, workers: int | None = None) -> int:
    """Search into a folder, or go on with the search there; the exit code."""
    import_optuna()
    first = plan.runs(0, {name: each.ends[0] for name, each in plan.space.items()})[0]
    trust.require(first.module, plan.task)
    threads = int(first.options.get("threads") or 1)
    places = slots(threads, workers)
    files.make_folder(out)
    with lock_matrix(out) as lock:
        space.record(out, plan)
        study = open_study(out, plan)
        with _said(out, plan, study):
            search = Search(out, plan, study, LocalProcesses(out, places, lock.fileno()))
            print(f"{len(search.views)} runs of {len(study.trials)} trials are there, {plan.trials} trials are wanted; "
                  f"{len(places)} workers in {out}", flush=True)  # fmt: skip
            with stop_signals(search):
                search.work()
        if search.stopped_by:
            screen.complain(f"stopped; the trials that had begun can go on. Go on with: {copyable('tune', '--out', out)}")
            return 128 + search.stopped_by
    return 0


@contextlib.contextmanager
def _said(out: Path, plan: TunePlan, study: Study) -> Iterator[None]:
    """Whatever ended a search, what it found is written and said."""
    try:
        yield
    finally:
        outcome.conclude(out, plan, study)


def known_plan(out: Path, given: Mapping[str, Any]) -> TunePlan | None:
    """The plan in a folder, with another number of trials if that is given."""
    before = space.recorded(out) if os.path.lexists(out / space.FILE) else None
    if before is None or given.get("trials") is None:
        return before
    changed = dataclasses.replace(before, trials=given["trials"])
    changed.check()
    return changed
