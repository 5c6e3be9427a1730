"""One run of a matrix in a process of its own: `python -m beeline.experiments.bench_worker OUT FOLDER CORES`.

`run_one` is all that a run needs, wherever it is run; the rest of this file ties the process to one that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beeline.experiments.bench_plan import BenchRun


def run_one(folder: Path, run: BenchRun) -> int:
    """Begin or go on with a run; its exit code: 0 finished, 1 failed (the reason is beside the folder), 128 + signal."""
    from beeline import api
    from beeline.errors import BeelineError

    failure_path(folder).unlink(missing_ok=True)
    try:
        if (folder / "config.json").exists():
            api.resume(folder, steps=run.steps, report=lambda message: print(f"note: {message}", flush=True))
        else:
            api.train(run.algo, run.task, preset=run.preset, out=folder, steps=run.steps, seed=run.seed, **run.options)
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


def main(arguments: list[str]) -> int:
    """The worker process: bound to its parent and its cores before anything counts them."""
    _end_with_parent()
    out, folder, cores = Path(arguments[0]), arguments[1], arguments[2]
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from beeline.experiments.bench_plan import recorded

    [run] = [run for run in recorded(out) if run.folder == folder]
    return run_one(out / folder, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
