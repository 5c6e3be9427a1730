"""`beeline bench`: run a matrix with one process per run, and go on with it however it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from beeline import files, runtime
from beeline.errors import ConfigError, MissingExtraError, RunFolderError
from beeline.experiments.bench_plan import BenchRun, record
from beeline.experiments.bench_watch import View, counts, eta, look, make_display
from beeline.experiments.bench_worker import log_path

PAUSE = 0.1  # seconds between two looks at the workers
REFRESH = 1.0  # seconds between two looks at the folders


def run(out: Path, runs: Sequence[BenchRun], *, workers: int | None = None, retry_failed: bool = False) -> int:
    """Run every run of a matrix that is not finished into folders below `out`; the exit code."""
    files.make_folder(out)
    with _lock(out) as lock:
        record(out, runs)
        cores = _slots(max(item.threads for item in runs), workers)
        crew = Crew(out, runs, cores, lock.fileno(), retry_failed)
        with _signals(crew):
            crew.work()
        if crew.stopped_by:
            print(f"stopped; every run that had begun can go on. Go on with: beeline bench --out {out}", file=sys.stderr)
            return 128 + crew.stopped_by
        return _conclude(out, list(crew.views.values()))


def _slots(threads: int, workers: int | None) -> list[str]:
    """The cores of each worker, as the worker is told: one slot per `threads` cores, or as many as the user wants."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(runtime.cores()))
    groups = [mine[first : first + threads] for first in range(0, len(mine) - threads + 1, threads)] or [mine]
    count = len(groups) if workers is None else workers
    if count < 1:
        raise ConfigError(f"workers = {workers} is out of range; allowed: >= 1.")
    return [",".join(map(str, groups[n % len(groups)])) for n in range(count)]


@contextlib.contextmanager
def _lock(out: Path) -> Iterator[IO[str]]:
    """One matrix at a time in a folder. Workers inherit the lock, so it is free only when the last of them is gone."""
    path = out / ".lock"
    with files.explained(path):
        handle = path.open("a+")
    with handle:
        end = time.monotonic() + 30
        while not _locked(handle):
            handle.seek(0)
            owner = handle.read().strip()
            if time.monotonic() > end or (owner.isdigit() and _alive(int(owner))):
                raise RunFolderError(f"{out} is in use by process {owner or 'unknown'}; a matrix has one at a time.")
            time.sleep(PAUSE)  # its workers end a moment after it
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield handle


def _locked(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _signals(crew: Crew) -> Iterator[None]:
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


@dataclasses.dataclass
class _Worker:
    run: BenchRun
    process: subprocess.Popen[bytes]
    slot: str


class Crew:
    """The worker processes of a matrix and what is known of its runs."""

    def __init__(self, out: Path, runs: Sequence[BenchRun], slots: Sequence[str], lock: int, retry_failed: bool) -> None:
        self.out, self.free, self.lock, self.size = out, list(slots), lock, len(slots)
        self.active: list[_Worker] = []
        self.stopped_by, self.at_once = 0, False
        self.views = {run.folder: look(out, run) for run in runs}
        begun = [view for view in self.views.values() if view.state == "stopped"]
        fresh = [view for view in self.views.values() if view.state == "waiting"]
        again = [view for view in self.views.values() if view.state == "failed" and retry_failed]
        self.queue = [view.run for view in (*begun, *fresh, *again)]
        for run in self.queue:
            self._set(run, "waiting")

    def _set(self, run: BenchRun, state: str, reason: str = "") -> None:
        self.views[run.folder] = dataclasses.replace(look(self.out, run), state=state, reason=reason)

    def work(self) -> None:
        """Run until the queue is empty or a signal came, and all workers have ended."""
        print(f"{len(self.views)} runs ({counts(list(self.views.values()))}) with {self.size} workers in {self.out}", flush=True)
        display, told, shown = make_display(), False, 0.0
        try:
            while self.active or (self.queue and not self.stopped_by):
                if self.stopped_by and not told:
                    told = True
                    for worker in self.active:
                        worker.process.terminate()
                while self.queue and self.free and not self.stopped_by:
                    self._start(self.queue.pop(0))
                changed = self._collect()
                if changed or time.monotonic() - shown > REFRESH:
                    for worker in self.active:
                        self._set(worker.run, "running")
                    display.show(list(self.views.values()), eta(list(self.views.values()), self.size))
                    shown = time.monotonic()
                if self.at_once:
                    break
                time.sleep(PAUSE)
            display.show(list(self.views.values()), eta(list(self.views.values()), self.size))
        finally:
            display.close()
            for worker in self.active:
                worker.process.kill()
                worker.process.wait()

    def _start(self, run: BenchRun) -> None:
        folder, slot = self.out / run.folder, self.free.pop(0)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with files.explained(log_path(folder)), log_path(folder).open("ab") as log:
            # A session of its own: Ctrl-C reaches the runs through this process alone, as SIGTERM.
            process = subprocess.Popen(
                [sys.executable, "-m", "beeline.experiments.bench_worker", str(self.out), run.folder, slot],
                stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=(self.lock,), start_new_session=True,
            )  # fmt: skip
        self.active.append(_Worker(run, process, slot))
        self._set(run, "running")

    def _collect(self) -> bool:
        """Take over the workers that have ended; whether there was one."""
        ended = [worker for worker in self.active if worker.process.poll() is not None]
        for worker in ended:
            self.active.remove(worker)
            self.free.append(worker.slot)
            if worker.process.stdin:
                worker.process.stdin.close()
            view = look(self.out, worker.run)
            if view.state not in ("finished", "failed") and not self.stopped_by:
                view = dataclasses.replace(view, state="failed", reason=self._why(worker))
            self.views[worker.run.folder] = view
        return bool(ended)

    def _why(self, worker: _Worker) -> str:
        """The reason of an end that a worker could not write down itself; its run is open and goes on at the next start."""
        code, log = worker.process.returncode, log_path(self.out / worker.run.folder)
        number = -code if code < 0 else code - 128
        if number in list(signal.Signals):
            return f"the process was ended by {signal.Signals(number).name}; see {log}"
        return f"the process ended with code {code}; see {log}"


def _conclude(out: Path, views: Sequence[View]) -> int:
    """Write the results table and say what there is."""
    failed = [view for view in views if view.state == "failed"]
    print(f"{len(views) - len(failed)} of {len(views)} runs are finished{', these failed:' if failed else '.'}")
    for view in failed:
        print(f"  {view.run.folder}: {view.reason}")
    if failed:
        print(f"try them again with: beeline bench --out {out} --retry-failed")
    for path in write_results(out, [view.run for view in views]):
        print(f"results: {path}")
    print(f"make the report with: beeline report {out} -o {out / 'report.html'}", flush=True)
    return 1 if failed else 0


def write_results(out: Path, runs: Sequence[BenchRun]) -> list[Path]:
    """One row per run and evaluation in results.csv, and in results.parquet where Polars is installed."""
    from beeline.report import results, write_table

    rows = []
    for item in runs:
        if (out / item.folder / "config.json").exists():
            rows += [{"run": item.folder, "variant": item.variant, **_without_run(row)} for row in results(out / item.folder)]
    written = [write_table(rows, out / "results.csv")]
    with contextlib.suppress(MissingExtraError):
        written.append(write_table(rows, out / "results.parquet"))
    return written


def _without_run(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "run"}  # a folder's name is only its seed
