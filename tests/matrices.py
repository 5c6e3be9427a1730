"""What the tests of matrices share: small matrices as commands, and what goes on in their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whole_runs import flags, small

import beeline as api
from beeline.bench import plan as bench_plan
from beeline.bench.plan import BenchRun

TASKS = ("gym/Pendulum-v1", "gym/MountainCarContinuous-v0?limit=60")


def words(out: Path, algos: str, tasks: str, seeds: int = 1, **changes: Any) -> list[str]:
    """A matrix as a command."""
    options = small("sac", **changes)
    return ["bench", "--algos", algos, "--tasks", tasks, "--seeds", str(seeds), "--out", str(out), *flags(options)]


def uninterrupted(out: Path, **changes: Any) -> list[BenchRun]:
    """BAC and SAC on both tasks with two seeds, run one after the other in this process: what every matrix must equal."""
    options = small(**changes)
    given = {name: options.pop(name) for name in ("steps", "preset")}
    runs = bench_plan.expand({"algos": "bac,sac", "tasks": list(TASKS), "seeds": 2, "options": options} | given)
    for run in runs:
        api.train(run.algo, run.task, preset=run.preset, out=out / run.folder, steps=run.steps, seed=run.seed, **run.options)
    return runs


def lines_in(out: Path) -> int:
    """Rows and headers of all metrics tables below a folder."""
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*/*/*/metrics.csv"))


def workers_of(out: Path) -> list[int]:
    """Worker processes that still run for a matrix."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"beeline.bench.worker" in arguments and str(out).encode() in arguments:
            found.append(int(path.parent.name))
    return found
