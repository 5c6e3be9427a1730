"""`beeline bench`: run a matrix, wherever its runs are executed, and go on with it however it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

from beeline import files, screen
from beeline.bench import claim as bench_claim
from beeline.bench.execute import Ended, Executor, LocalProcesses, slots
from beeline.bench.plan import BenchRun, record
from beeline.bench.watch import View, counts, eta, look, make_display
from beeline.bench.worker import forget_failure
from beeline.envs import trust
from beeline.errors import BeelineError, MissingExtraError, RunFolderError, copyable
from beeline.run.checkpoint import CheckpointStore
from beeline.run.reading import legible

PAUSE = 0.1  # seconds between two looks at the workers
REFRESH = 1.0  # seconds between two looks at the folders
PATIENCE = 5  # workers that may die one after the other without a new checkpoint: then it is the run that kills them


def run(
    out: Path, runs: Sequence[BenchRun], *, workers: int | None = None, retry_failed: bool = False, ray: str | None = None
) -> int:
    """Run every run of a matrix that is not finished into folders below `out`; the exit code.

    With `ray`, the runs are tasks of the Ray cluster at that address, or of one that is started here (`"local"`).
    """
    for item in runs:  # before anything is written: the workers are handed what is allowed here
        trust.require(item.module, item.task)
    threads = max(item.threads for item in runs)
    places = slots(threads, workers)
    again = copyable("bench", "--out", out, *(["--ray", ray] if ray else []))
    with contextlib.ExitStack() as stack:
        if ray is not None:
            from beeline.bench import ray as bench_ray

            stack.enter_context(bench_ray.connected(ray, threads * len(places)))
        files.make_folder(out)
        lock = stack.enter_context(lock_matrix(out))
        record(out, runs)
        bench_claim.settle(out / item.folder for item in runs)
        executor: Executor = LocalProcesses(out, places, lock.fileno())
        if ray is not None:
            executor = bench_ray.RayTasks(out, threads, workers)
        crew = Crew(out, runs, executor, retry_failed)
        with stop_signals(crew):
            crew.work()
        if executor.trouble:
            raise executor.trouble
        if crew.stopped_by:
            screen.complain(f"stopped; every run that had begun can go on. Go on with: {again}")
            return 128 + crew.stopped_by
        return _conclude(out, list(crew.views.values()), again)


def lock_matrix(out: Path) -> files.Lock:
    """One matrix at a time in a folder. Workers inherit the lock, so it is free only when the last of them is gone."""
    path, end = out / ".lock", time.monotonic() + 30
    while (lock := files.take_lock(path, owner=str(os.getpid()))) is None:
        owner = files.lock_owner(path)
        if time.monotonic() > end or (owner.isdecimal() and _alive(int(owner))):
            raise RunFolderError(f"{out} is in use by process {owner or 'unknown'}; a matrix has one at a time.")
        time.sleep(PAUSE)  # its workers end a moment after it
    return lock


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


class Stoppable(Protocol):
    """What works through runs and can be told to stop."""

    stopped_by: int
    at_once: bool


@contextlib.contextmanager
def stop_signals(crew: Stoppable) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the crew with checkpoints, a second Ctrl-C at once."""

    def handler(number: int, frame: FrameType | None) -> None:
        if crew.stopped_by and number == signal.SIGINT:
            crew.at_once = True
        if not crew.stopped_by:
            os.write(2, b"\nstopping: the runs write checkpoints; Ctrl-C again does not wait for them\n")
            crew.stopped_by = number

    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


class Crew:
    """The runs of a matrix, what is known of them, and who executes them."""

    def __init__(self, out: Path, runs: Sequence[BenchRun], executor: Executor, retry_failed: bool) -> None:
        self.out, self.executor = out, executor
        self.stopped_by, self.at_once = 0, False
        self.views = {run.folder: look(out, run) for run in runs}
        begun = [view for view in self.views.values() if view.state == "stopped"]
        fresh = [view for view in self.views.values() if view.state == "waiting"]
        again = [view for view in self.views.values() if view.state == "failed" and retry_failed]
        self.queue = [view.run for view in (*begun, *fresh, *again)]
        self.losses: dict[str, list[int]] = {}
        for run in self.queue:
            self._set(run, "waiting")

    def _set(self, run: BenchRun, state: str, reason: str = "") -> None:
        self.views[run.folder] = dataclasses.replace(look(self.out, run), state=state, reason=reason)

    @property
    def stopping(self) -> bool:
        """Whether no run is to be begun any more."""
        return bool(self.stopped_by or self.executor.trouble)

    def work(self) -> None:
        """Run until the queue is empty or a signal came, and all workers have ended."""
        size = self.executor.size
        print(f"{len(self.views)} runs ({counts(list(self.views.values()))}) with {size} workers in {self.out}", flush=True)
        display, told, shown = make_display(), False, 0.0
        try:
            while self.executor.busy() or (self.queue and not self.stopping):
                if self.stopping and not told:
                    told = True
                    self.executor.stop()
                while self.queue and not self.stopping and self.executor.free():
                    self._submit(self.queue.pop(0))
                news = self.executor.poll()
                for ended in news:
                    self._take(ended)
                if news or time.monotonic() - shown > REFRESH:
                    for run in self.executor.running():
                        self._set(run, "running")
                    display.show(list(self.views.values()), eta(list(self.views.values()), self.executor.size))
                    shown = time.monotonic()
                if self.at_once:
                    break
                time.sleep(PAUSE)
            display.show(list(self.views.values()), eta(list(self.views.values()), self.executor.size))
        finally:
            display.close()
            self.executor.close()

    def _submit(self, run: BenchRun) -> None:
        """Begin a run, or go on with it; one whose files cannot be written has failed, and the others go on."""
        try:
            forget_failure(self.out / run.folder)
            self.executor.submit(run)
        except BeelineError as error:
            self._set(run, "failed", str(error))

    def _take(self, ended: Ended) -> None:
        """Take over a run whose worker has ended: its folder says how, unless the worker could not."""
        view = look(self.out, ended.run)
        if view.state not in ("finished", "failed") and not self.stopping:
            if ended.lost and self._may_go_on(ended.run):
                self.queue.insert(0, ended.run)
                view = dataclasses.replace(view, state="waiting", reason=f"{ended.reason}; it goes on from its checkpoint")
            elif ended.lost:
                reason = f"{PATIENCE} workers died without a new checkpoint, at last: {ended.reason}"
                view = dataclasses.replace(view, state="failed", reason=reason)
            else:
                view = dataclasses.replace(view, state="failed", reason=ended.reason)
        self.views[ended.run.folder] = view

    def _may_go_on(self, run: BenchRun) -> bool:
        """Whether a run that lost its worker is begun again: always if it came further than the last time."""
        newest = max(CheckpointStore(self.out / run.folder).steps(), default=-1)
        losses = self.losses.setdefault(run.folder, [])
        losses.append(newest)
        return len(losses) < PATIENCE or losses[-PATIENCE] < newest


def _conclude(out: Path, views: Sequence[View], again: str) -> int:
    """Write the results table and say what there is."""
    failed = [view for view in views if view.state == "failed"]
    print(f"{len(views) - len(failed)} of {len(views)} runs are finished{', these failed:' if failed else '.'}")
    for view in failed:
        print(f"  {view.run.folder}: {legible(view.reason)}")
    if failed:
        print(f"try them again with: {again} --retry-failed")
    for path in write_results(out, [view.run for view in views]):
        print(f"results: {path}")
    print(f"make the report with: {copyable('report', out, '-o', out / 'report.html')}", flush=True)
    return 1 if failed else 0


def write_results(out: Path, runs: Sequence[BenchRun]) -> list[Path]:
    """One row per run and evaluation in results.csv, and in results.parquet where Polars is installed; damage is said."""
    from beeline.report import results, write_table

    rows = []
    for item in runs:
        if os.path.lexists(out / item.folder / "config.json"):
            own = results(out / item.folder, note=lambda damage: screen.complain(f"note: {damage}"))
            rows += [{"run": item.folder, "variant": item.variant, **_without_run(row)} for row in own]
    written = [write_table(rows, out / "results.csv")]
    with contextlib.suppress(MissingExtraError):
        written.append(write_table(rows, out / "results.parquet"))
    return written


def _without_run(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "run"}  # a folder's name is only its seed
