"""One run of a matrix in a process of its own: `python -m beeline.bench.worker OUT FOLDER CORES MODULE [CLAIM]`.

`run_one` is all that a run needs, wherever it is run; the rest of this file ties the process to the one that started it, to
its cores (numbers, or `free:N` for N that no other run of this host has) and to its claim, where it has one. MODULE is the one
that the user lets its task import, or empty: the plan and the run folder are files, and name nothing (see envs/trust.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from beeline import files

if TYPE_CHECKING:
    from beeline.bench.plan import BenchRun

LOCK_WAIT = 180.0  # seconds; NFS 4 servers free the locks of a machine that is gone after 90
STILL_LOCKED = 75  # exit code


def run_one(folder: Path, run: BenchRun) -> int:
    """Begin or go on with a run; its exit code: 0 finished, 1 failed (the reason is beside the folder), 128 + signal."""
    from beeline import api
    from beeline.envs import trust
    from beeline.errors import BeelineError

    forget_failure(folder)
    try:
        if (folder / "config.json").exists():
            api.resume(folder, steps=run.steps, verbose=0, report=lambda message: print(f"note: {message}", flush=True))
        else:
            task = trust.Recorded(run.task)
            api.train(run.algo, task, preset=run.preset, out=folder, steps=run.steps, seed=run.seed, verbose=0, **run.options)
    except KeyboardInterrupt as error:
        return 128 + int(getattr(error, "signal_number", signal.SIGINT))
    except Exception as error:
        known = isinstance(error, BeelineError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        if known:
            print(reason, file=sys.stderr, flush=True)
        else:
            traceback.print_exc()
        _write_failure(folder, reason)
        return 1
    return 0


def failure_path(folder: Path) -> Path:
    """Where the reason of a failure is: beside the folder, because some runs fail before there is one."""
    return folder.with_name(f"{folder.name}.failed.json")


def forget_failure(folder: Path) -> None:
    """Take the reason of an earlier failure away: the run is tried again."""
    with files.explained(failure_path(folder)):
        failure_path(folder).unlink(missing_ok=True)


def log_path(folder: Path) -> Path:
    """Where a worker's messages go."""
    return folder.with_name(f"{folder.name}.log")


def open_log(folder: Path) -> BinaryIO:
    """The log of a worker, to write at its end; the folder that it lies in is made."""
    files.make_folder(folder.parent)
    with files.explained(log_path(folder)):
        return os.fdopen(files.open_regular(log_path(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _write_failure(folder: Path, reason: str) -> None:
    """Leave the reason of a failure; where no space is left for it, the worker's end alone must tell."""
    from beeline.errors import BeelineError

    try:
        files.make_folder(folder.parent)
        files.write_atomic(failure_path(folder), json.dumps({"reason": reason}, indent=1).encode())
    except BeelineError as error:
        print(error, file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    """Die when standard input ends: its other end is held by the parent alone, so it ends however the parent does."""

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


_held: list[files.Lock] = []  # locks that end with the process


def free_cores(count: int, folder: Path | None = None) -> set[int]:
    """Cores of this host that no other run has, held until this process ends; none where there are not enough of them."""
    folder = folder or Path(tempfile.gettempdir()) / f"beeline-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return set()  # where everybody may write, a folder of that name can be another user's
    taken: dict[int, files.Lock] = {}
    choosing = files.take_lock(folder / "choosing", wait=True)
    for core in sorted(os.sched_getaffinity(0)):
        if len(taken) < count and (lock := files.take_lock(folder / str(core))):
            taken[core] = lock
    if choosing:
        choosing.close()
    if len(taken) == count:
        _held.extend(taken.values())
        return set(taken)
    for lock in taken.values():
        lock.close()
    return set()


def _bind(cores: str) -> None:
    """Keep to the cores that a worker is told."""
    if cores and hasattr(os, "sched_setaffinity"):
        wanted = cores.removeprefix("free:")
        found = free_cores(int(wanted)) if wanted != cores else {int(core) for core in cores.split(",")}
        if found:
            os.sched_setaffinity(0, found)


def _last_writer_is_gone(folder: Path, seconds: float) -> bool:
    """Wait until nobody has the lock of a run folder: a file server frees that of a lost machine after a while."""
    end = time.monotonic() + seconds
    while folder.is_dir():
        if lock := files.take_lock(folder / ".lock"):
            lock.close()
            break
        if time.monotonic() >= end:
            return False
        time.sleep(0.2)
    return True


def main(arguments: list[str]) -> int:
    """The worker process: bound to its parent and its cores before anything counts them."""
    _end_with_parent()
    out, folder, cores, module = Path(arguments[0]), *arguments[1:4]
    _bind(cores)
    from beeline.errors import BeelineError

    try:
        return _work(out, folder, module, arguments[4] if len(arguments) > 4 else "")
    except BeelineError as error:
        print(error, file=sys.stderr, flush=True)
        _write_failure(out / folder, str(error))
        return 1


def _work(out: Path, folder: str, module: str, claim: str) -> int:
    from beeline.bench import claim as bench_claim
    from beeline.bench.plan import recorded
    from beeline.envs import trust

    trust.inherit([module])
    if claim:
        bench_claim.keep(out / folder, claim)
        if not _last_writer_is_gone(out / folder, LOCK_WAIT):
            print(f"{out / folder} is still locked by a worker that was lost {LOCK_WAIT:g} s ago", file=sys.stderr, flush=True)
            return STILL_LOCKED
    [run] = [run for run in recorded(out) if run.folder == folder]
    return run_one(out / folder, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
