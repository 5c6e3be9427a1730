"""One run of a matrix in a process of its own: `python -m beeline.bench.worker OUT FOLDER CORES MODULE [CLAIM]`.

`run_one` is all that a run needs, wherever it is run; the rest of this file ties the process to the one that started it, to
its cores (numbers, or `free:N` for N that no other run of this host has) and to its claim, where it has one. MODULE is the one
that the user lets its task import, or empty: the plan and the run folder are files, and name nothing (see envs/trust.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from beeline.bench.plan import BenchRun

LOCK_WAIT = 180.0  # seconds; NFS 4 servers free the locks of a machine that is gone after 90
STILL_LOCKED = 75  # exit code


def run_one(folder: Path, run: BenchRun) -> int:
    """Begin or go on with a run; its exit code: 0 finished, 1 failed (the reason is beside the folder), 128 + signal."""
    from beeline import api
    from beeline.envs import trust
    from beeline.errors import BeelineError

    failure_path(folder).unlink(missing_ok=True)
    try:
        if (folder / "config.json").exists():
            api.resume(folder, steps=run.steps, report=lambda message: print(f"note: {message}", flush=True))
        else:
            task = trust.Recorded(run.task)
            api.train(run.algo, task, preset=run.preset, out=folder, steps=run.steps, seed=run.seed, **run.options)
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


def log_path(folder: Path) -> Path:
    """Where a worker's messages go."""
    return folder.with_name(f"{folder.name}.log")


def _write_failure(folder: Path, reason: str) -> None:
    from beeline import files

    folder.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(failure_path(folder), json.dumps({"reason": reason}, indent=1).encode())


def _end_with_parent() -> None:
    """Die when standard input ends: its other end is held by the parent alone, so it ends however the parent does."""

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


_held: list[IO[str]] = []  # locks that end with the process


def _locked(path: Path, wait: bool = False) -> bool:
    """Take the lock of a file for as long as this process lives; whether it is ours."""
    handle = path.open("a")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        handle.close()
        return False
    _held.append(handle)
    return True


def free_cores(count: int, folder: Path | None = None) -> set[int]:
    """Cores of this host that no other run has, held until this process ends; none where there are not enough of them."""
    folder = folder or Path(tempfile.gettempdir()) / f"beeline-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    before = len(_held)
    _locked(folder / "choosing", wait=True)
    mine = [core for core in sorted(os.sched_getaffinity(0)) if len(_held) - before - 1 < count and _locked(folder / str(core))]
    _held.pop(before).close()
    if len(mine) == count:
        return set(mine)
    for handle in _held[before:]:
        handle.close()
    del _held[before:]
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
        if _locked(folder / ".lock"):
            _held.pop().close()
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
    from beeline.bench import claim as bench_claim
    from beeline.bench.plan import recorded
    from beeline.envs import trust

    trust.inherit([module])
    if len(arguments) > 4:
        bench_claim.keep(out / folder, arguments[4])
        if not _last_writer_is_gone(out / folder, LOCK_WAIT):
            print(f"{out / folder} is still locked by a worker that was lost {LOCK_WAIT:g} s ago", file=sys.stderr, flush=True)
            return STILL_LOCKED
    [run] = [run for run in recorded(out) if run.folder == folder]
    return run_one(out / folder, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
