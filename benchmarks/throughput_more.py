"""What else the throughput benchmark measures, ours alone, BAC `light`: seeds, growing costs, starting, checkpoints."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from throughput_link import Worker
from throughput_table import Check

ALGO = "bac"
SEEDS = 4
RINGS = (10_000, 100_000, 1_000_000)
UPDATES = (1, 4, 20)
ENVS = (1, 4, 16)


def _ours(spec: dict[str, Any], folder: Path, name: str, env: dict[str, str] | None = None) -> Worker:
    full = {"algo": ALGO, "folder": str(folder / name), **spec}
    return Worker(sys.executable, "throughput_ours.py", full, folder / f"{name}.log", env)


def measure(folder: Path, rounds: int, seconds: float) -> list[Check]:
    """All of it."""
    single, made = many_seeds(folder, rounds, seconds)
    made += ring_growth(folder, rounds, seconds)
    made += updates_per_step(folder, rounds, seconds)
    made += environments(folder, rounds, seconds)
    made += starting(folder, rounds)
    made += checkpoints(folder, rounds, single)
    return made


def many_seeds(folder: Path, rounds: int, seconds: float) -> tuple[float, list[Check]]:
    """Four runs as `beeline bench` trains them, one per core at a time, against one run that has all cores.

    Also returns the steps/s of the one run. Two runs that share a core take more time than one after the other.
    """
    cores = sorted(os.sched_getaffinity(0))
    alone, together = [], []
    with ExitStack() as stack:
        one = stack.enter_context(_ours({"mode": "train"}, folder, "single"))
        one.read()
        crew = []
        for seed in range(SEEDS):
            options = {"seed": seed, "threads": 1}
            spec = {"mode": "train", "cores": [cores[seed % len(cores)]], "options": options}
            crew.append(stack.enter_context(_ours(spec, folder, f"seed{seed}")))
            crew[-1].read()
        waves = [crew[first : first + len(cores)] for first in range(0, SEEDS, len(cores))]
        for _ in range(rounds):
            alone.append(one.ask(do="train", seconds=seconds)["per_s"])
            totals = []
            for wave in waves:
                for worker in wave:
                    worker.send(do="train", seconds=seconds)
                totals.append(sum(worker.read()["per_s"] for worker in wave))
            together.append(sum(totals) / len(totals))
    return max(alone), [
        Check("one run, whole training", max(alone), unit="steps/s"),
        Check(f"{SEEDS} seeds, one per core at a time, in all", max(together), unit="steps/s"),
        Check(f"{SEEDS} seeds / one run", max(together) / max(alone), ">=", 1.15),
    ]


def ring_growth(folder: Path, rounds: int, seconds: float) -> list[Check]:
    """Drawing and updating from rings of several sizes."""
    rates: dict[int, list[float]] = {rows: [] for rows in RINGS}
    memory: dict[int, float] = {}
    with _ours({"mode": "lab"}, folder, "rings") as lab:
        lab.read()
        for rows in RINGS:
            memory[rows] = lab.ask(do="ring", rows=rows, seconds=0.5)["megabytes"]  # also fills and compiles
        for _ in range(rounds):
            for rows in RINGS:
                rates[rows].append(lab.ask(do="ring", rows=rows, seconds=seconds / 2)["per_s"])
    best = {rows: max(found) for rows, found in rates.items()}
    made = [Check(f"updates from a ring of {rows:,}", best[rows], unit="/s") for rows in RINGS]
    made += [Check(f"memory of a ring of {rows:,}", memory[rows], unit="MB") for rows in RINGS]
    return [*made, Check("slowest / fastest of these rings", min(best.values()) / max(best.values()), ">=", 0.9)]


def updates_per_step(folder: Path, rounds: int, seconds: float) -> list[Check]:
    """Several updates in one call: the time of each, and of compiling them with an empty cache."""
    rates: dict[int, list[float]] = {count: [] for count in UPDATES}
    compiled: dict[int, float] = {}
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache-updates")}
    with _ours({"mode": "lab"}, folder, "updates", cache) as lab:
        lab.read()
        for count in UPDATES:
            compiled[count] = lab.ask(do="many", updates=count, seconds=0.5)["compile_s"]
        for _ in range(rounds):
            for count in UPDATES:
                rates[count].append(lab.ask(do="many", updates=count, seconds=seconds / 2)["per_s"])
    times = {count: 1e3 / max(found) for count, found in rates.items()}
    made = [Check(f"time per update, {count} per step", times[count], unit="ms") for count in UPDATES]
    made += [Check(f"compiling, {count} updates per step", compiled[count], unit="s") for count in UPDATES]
    most = UPDATES[-1]
    return [
        *made,
        Check(f"time per update, {most} per step / 1", times[most] / times[1], "<=", 1.05),
        Check(f"compiling, {most} per step / 1", compiled[most] / compiled[1], "<=", 1.25),
    ]


def environments(folder: Path, rounds: int, seconds: float) -> list[Check]:
    """Whole training with several environments side by side; updates are scaled with them."""
    rates: dict[int, list[float]] = {count: [] for count in ENVS}
    with ExitStack() as stack:
        workers = {}
        for count in ENVS:
            spec = {"mode": "train", "options": {"num_envs": count}}
            workers[count] = stack.enter_context(_ours(spec, folder, f"envs{count}"))
            workers[count].read()
        for _ in range(rounds):
            for count, worker in workers.items():
                rates[count].append(worker.ask(do="train", seconds=seconds)["per_s"])
    return [Check(f"{count} environments, whole training", max(rates[count]), unit="steps/s") for count in ENVS]


def starting(folder: Path, rounds: int) -> list[Check]:
    """Processor time of `beeline --help`; wall time from process start to the first update, both as caches stand."""
    program = Path(sys.executable).with_name("beeline")
    helps = []
    for _ in range(rounds):
        process = subprocess.Popen([str(program), "--help"], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{program} --help ended with {process.returncode}")
        helps.append(used.ru_utime + used.ru_stime)
    cold, warm = [], []
    for number in range(max(1, rounds // 2)):
        cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"cache-{number}")}
        for turn, times in enumerate((cold, warm)):
            began = time.perf_counter()
            with _ours({"mode": "first"}, folder, f"first-{number}-{turn}", cache) as worker:
                worker.read()
                times.append(time.perf_counter() - began)
    return [
        Check("beeline --help, processor time", min(helps), "<=", 0.6, unit="s"),
        Check("first update from process start, cold", min(cold), "<=", 8.0, unit="s"),
        Check("first update from process start, warm cache", min(warm), "<=", 4.0, unit="s"),
    ]


def checkpoints(folder: Path, rounds: int, steps_per_s: float) -> list[Check]:
    """The share of training time that a checkpoint at its default interval takes with a full ring of a million rows."""
    with _ours({"mode": "lab"}, folder, "checkpoints") as lab:
        lab.read()
        told = lab.ask(do="checkpoint", rows=1_000_000, saves=max(3, rounds))
    typical = statistics.median(told["seconds"])
    training = told["every"] / steps_per_s
    return [
        Check("the first checkpoint of a full ring, all rows", told["first_s"], unit="s"),
        Check(f"a checkpoint after {told['every']:,} steps", typical, unit="s"),
        Check("checkpoints / training time", typical / (training + typical), "<=", 0.02),
    ]
