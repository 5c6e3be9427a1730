"""Where the runs of a matrix are executed: what the matrix asks of such a place, and processes on this machine."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from beeline import runtime
from beeline.bench.plan import BenchRun
from beeline.bench.worker import log_path, open_log
from beeline.errors import BeelineError, ConfigError, RunFolderError


@dataclasses.dataclass(frozen=True)
class Ended:
    """A run whose worker has ended."""

    run: BenchRun
    reason: str = ""  # of an end that the run's folder knows nothing of
    lost: bool = False  # not the run ended but what executed it: it may go on from its checkpoint


class Executor(Protocol):
    """Executes runs, several at a time; `poll` is called often and must not wait."""

    trouble: BeelineError | None
    """What makes it impossible to go on with any run."""

    @property
    def size(self) -> int:
        """How many runs can be executed at a time, as far as it is known."""

    def free(self) -> bool:
        """Whether another run can be taken."""

    def busy(self) -> bool:
        """Whether a run that was taken has not ended."""

    def submit(self, run: BenchRun) -> None:
        """Take a run: begin it or go on with it when there is room."""

    def running(self) -> list[BenchRun]:
        """The runs that have begun and not ended."""

    def poll(self) -> list[Ended]:
        """The runs that have ended since the last call."""

    def stop(self) -> None:
        """Tell all runs to write a checkpoint and end."""

    def close(self) -> None:
        """End at once whatever has not ended."""


def why(code: int, log: Path) -> str:
    """The reason of an end that a worker could not write down itself; its run is open and goes on at the next start."""
    name = signal_name(code)
    return f"the process {f'was ended by {name}' if name else f'ended with code {code}'}; see {log}"


def signal_name(code: int) -> str:
    """The signal that an exit code tells of, as the system or a shell gives it; empty where there was none."""
    number = -code if code < 0 else code - 128
    return signal.Signals(number).name if number in list(signal.Signals) else ""


def slots(threads: int, workers: int | None) -> list[str]:
    """The cores of each worker, as the worker is told: one slot per `threads` cores, or as many as the user wants."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(runtime.cores()))
    groups = [mine[first : first + threads] for first in range(0, len(mine) - threads + 1, threads)] or [mine]
    count = len(groups) if workers is None else workers
    if count < 1:
        raise ConfigError(f"workers = {workers} is out of range; allowed: >= 1.")
    return [",".join(map(str, groups[n % len(groups)])) for n in range(count)]


@dataclasses.dataclass
class _Worker:
    run: BenchRun
    process: subprocess.Popen[bytes]
    slot: str


class LocalProcesses:
    """One process per run on this machine, each bound to cores of its own; they end with this process."""

    def __init__(self, out: Path, slots: Sequence[str], lock: int) -> None:
        self.out, self.lock = out, lock
        self.slots, self.size = list(slots), len(slots)
        self.active: list[_Worker] = []
        self.trouble: BeelineError | None = None

    def free(self) -> bool:
        """Whether a slot is empty."""
        return bool(self.slots)

    def busy(self) -> bool:
        """Whether a process has not ended."""
        return bool(self.active)

    def submit(self, run: BenchRun) -> None:
        """Start a process; it inherits the lock of the matrix, which is free only when the last of them is gone."""
        with open_log(self.out / run.folder) as log:
            slot = self.slots[0]
            # A session of its own: Ctrl-C reaches the runs through this process alone, as SIGTERM.
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "beeline.bench.worker", str(self.out), run.folder, slot, run.module],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=(self.lock,), start_new_session=True,
                )  # fmt: skip
            except OSError as error:  # no more processes, files or memory for this user
                raise RunFolderError(f"no process can be started for {run.folder}: {error.strerror}.") from error
        self.slots.remove(slot)
        self.active.append(_Worker(run, process, slot))

    def running(self) -> list[BenchRun]:
        """The runs of all processes."""
        return [worker.run for worker in self.active]

    def poll(self) -> list[Ended]:
        """Take over the processes that have ended."""
        ended = [worker for worker in self.active if worker.process.poll() is not None]
        for worker in ended:
            self.active.remove(worker)
            self.slots.append(worker.slot)
            if worker.process.stdin:
                worker.process.stdin.close()
        return [Ended(worker.run, why(worker.process.returncode, log_path(self.out / worker.run.folder))) for worker in ended]

    def stop(self) -> None:
        """SIGTERM to every process."""
        for worker in self.active:
            worker.process.terminate()

    def give_up(self, runs: Sequence[BenchRun]) -> None:
        """SIGTERM to the processes of some runs."""
        for worker in self.active:
            if worker.run in runs:
                worker.process.terminate()

    def close(self) -> None:
        """SIGKILL to every process."""
        for worker in self.active:
            worker.process.kill()
            worker.process.wait()
