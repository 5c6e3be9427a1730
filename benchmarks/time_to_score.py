"""Processor time to a score, beside stable-baselines3 SAC, SBX SAC and SBX CrossQ.

    python benchmarks/time_to_score.py [--out FOLDER] [--seeds N] [--cap SECONDS] [--tasks A,B] [--table] [--figure PATH]

Every training is a process of its own, pinned to one core, two side by side, seed by seed and task by task through all systems.
Ours is the default; the peers have the RL Zoo's tuned values where it has them for the task, and their defaults elsewhere. An
evaluation of five episodes, the same for all, comes every hundredth of a task's budget of steps and is outside the clock; the
clock has imports and compilation in it, without a compilation cache. A run that has not reached the score within the cap counts
as the cap and is marked. Finished runs are kept in FOLDER, so a command that was ended goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
from throughput import HERE, ROOT, limits, peers_python

from beeline import runtime

SYSTEMS = {"beeline": "Beeline `bac`", "sb3-sac": "SB3 SAC", "sbx-sac": "SBX SAC", "sbx-crossq": "SBX CrossQ"}
AIMS = {"sb3-sac": 3.0, "sbx-sac": 2.0, "sbx-crossq": 1.2}
# Task: the score, and the budget of which every hundredth is evaluated.
TASKS: dict[str, tuple[float, int]] = {
    "gym/Pendulum-v1": (-180.0, 20_000),
    "dmc/cartpole-swingup": (800.0, 100_000),
    "dmc/reacher-easy": (900.0, 100_000),
    "dmc/finger-spin": (800.0, 100_000),
    "dmc/walker-stand": (900.0, 100_000),
}
# What the RL Zoo (hyperparams/sac.yml, crossq.yml) has for these tasks; it has nothing for the others.
ZOO: dict[tuple[str, str], dict[str, Any]] = {
    ("sb3-sac", "gym/Pendulum-v1"): {"learning_rate": 1e-3},
    ("sbx-sac", "gym/Pendulum-v1"): {"learning_rate": 1e-3},
    ("sbx-crossq", "gym/Pendulum-v1"): {"policy_delay": 2, "policy_kwargs": {"net_arch": [256, 256]}},
}
EPISODES = 5


def plan(seeds: int, tasks: list[str]) -> list[dict[str, Any]]:
    """All trainings: seed by seed, so that what is there after a while is fair to everybody."""
    return [
        {"system": system, "task": task, "seed": seed} for seed in range(seeds) for task in tasks for system in SYSTEMS
    ]


def path(folder: Path, run: dict[str, Any]) -> Path:
    """Where a finished run is kept."""
    return folder / f"{run['task'].replace('/', '-')}-{run['system']}-seed{run['seed']}.json"


def train(run: dict[str, Any], cap: float, algo: str, core: int, peers: Path, folder: Path) -> dict[str, Any]:
    """One training in a process of its own."""
    threshold, budget = TASKS[run["task"]]
    ours = run["system"] == "beeline"
    with tempfile.TemporaryDirectory(prefix="time-to-score-") as name:
        spec = run | {
            "algo": algo, "threshold": threshold, "budget": budget, "cap": cap, "episodes": EPISODES, "core": core,
            "folder": str(Path(name) / "run"), "options": ZOO.get((run["system"], run["task"]), {}),
        }  # fmt: skip
        env = os.environ | limits(1) | {"PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(Path(name) / "xla")}
        log = path(folder, run).with_suffix(".log")
        with log.open("wb") as errors:
            done = subprocess.run(
                [sys.executable if ours else str(peers), str(HERE / "time_to_score_run.py"), json.dumps(spec)],
                stdout=subprocess.PIPE, stderr=errors, env=env, check=False,
            )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{run['system']} on {run['task']} failed:\n{log.read_text(errors='replace')[-2000:]}")
    log.unlink()
    seen = json.loads(done.stdout)
    return run | {"algo": algo if ours else "", "threshold": threshold, "cap": cap, "cpu": runtime.processor()} | seen


def measure(folder: Path, runs: list[dict[str, Any]], cap: float, algo: str) -> None:
    """What is not there yet, as many side by side as there are cores."""
    waiting = [run for run in runs if not path(folder, run).exists()]
    peers = peers_python()
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def one(run: dict[str, Any]) -> None:
        core = cores.get()
        try:
            seen = train(run, cap, algo, core, peers, folder)
        finally:
            cores.put(core)
        path(folder, run).write_text(json.dumps(seen) + "\n")
        what = f"{seen['seconds']:.0f} s" if seen["reached"] else f"not within {cap:.0f} s"
        name = f"{seen['system']:10} {seen['task']:22} seed {seen['seed']}"
        print(f"{name}  {what} ({seen['score']:.0f} at step {seen['step']})", flush=True)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(one, waiting))


def seconds(seen: dict[str, Any]) -> float:
    """The time of a run; the cap where the score was not reached."""
    return min(seen["seconds"], seen["cap"]) if seen["reached"] else seen["cap"]


def found(folder: Path, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is there of the planned runs."""
    return [json.loads(path(folder, run).read_text()) for run in runs if path(folder, run).exists()]


def ratios(seen: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """Geometric mean of (their time / our time) over the pairs of task and seed that both have, and how many these are."""
    times = {(each["system"], each["task"], each["seed"]): seconds(each) for each in seen}
    means = {}
    for system in AIMS:
        pairs = [
            times[system, task, seed] / ours for (who, task, seed), ours in times.items()
            if who == "beeline" and (system, task, seed) in times
        ]  # fmt: skip
        if pairs:
            means[system] = (float(np.exp(np.mean(np.log(pairs)))), len(pairs))
    return means


def table(seen: list[dict[str, Any]]) -> str:
    """Seconds of every seed by task and system; ">" marks the cap."""
    lines = ["| task | score | " + " | ".join(SYSTEMS.values()) + " |", "|---|---|" + "---|" * len(SYSTEMS)]
    for task, (threshold, _) in TASKS.items():
        cells = []
        for system in SYSTEMS:
            runs = sorted((each for each in seen if (each["task"], each["system"]) == (task, system)), key=lambda e: e["seed"])
            cells.append(", ".join(f"{'' if each['reached'] else '> '}{seconds(each):.0f}" for each in runs) or "–")
        lines.append(f"| {task} | {threshold:g} | " + " | ".join(cells) + " |")
    for system, (mean, pairs) in ratios(seen).items():
        what = "holds" if mean >= AIMS[system] else f"not {AIMS[system]:g}"
        lines.append(f"\n{SYSTEMS[system]} takes {mean:.2f} times our time (geometric mean of {pairs} pairs): {what}.")
    return "\n".join(lines)


def figure(seen: list[dict[str, Any]], where: Path) -> None:
    """Return over processor time, a panel a task, a line a run; the score is dashed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = dict(zip(SYSTEMS, ("#d95f02", "#1b6ca8", "#5a5a5a", "#2b8a57")))
    tasks = [task for task in TASKS if any(each["task"] == task for each in seen)]
    page, axes = plt.subplots(1, len(tasks), figsize=(3.2 * len(tasks), 3.0), squeeze=False, layout="constrained")
    for axis, task in zip(axes[0], tasks):
        for system, label in SYSTEMS.items():
            for number, each in enumerate(one for one in seen if (one["task"], one["system"]) == (task, system)):
                curve = np.array(each["curve"])
                name = None if number else label.replace("`", "")
                axis.plot(curve[:, 1], curve[:, 2], color=colours[system], lw=1.2, label=name)
                if each["reached"]:
                    axis.plot(curve[-1, 1], curve[-1, 2], "o", color=colours[system], ms=4)
        axis.axhline(TASKS[task][0], ls="--", lw=0.8, color="#888888")
        axis.set(title=task, xlabel="processor seconds")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return")
    axes[0][-1].legend(frameon=False, fontsize=8)
    where.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(where, dpi=150)
    plt.close(page)


def main() -> None:
    """Measure what is missing, then show what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "time-to-score", help="where finished runs are kept")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--cap", type=float, default=600.0, help="seconds of processor time after which a run is given up")
    parser.add_argument("--tasks", default=",".join(TASKS), help="of: " + ", ".join(TASKS))
    parser.add_argument("--algo", default="bac", help="ours [bac]")
    parser.add_argument("--table", action="store_true", help="train nothing, show what is there")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw the curves here")
    given = parser.parse_args()
    tasks = given.tasks.split(",")
    if unknown := set(tasks) - set(TASKS):
        parser.error(f"unknown tasks {', '.join(sorted(unknown))}; known: {', '.join(TASKS)}")
    runs = plan(given.seeds, tasks)
    if not given.table:
        given.out.mkdir(parents=True, exist_ok=True)
        measure(given.out, runs, given.cap, given.algo)
    seen = found(given.out, runs)
    print(f"\n{table(seen)}")
    if given.figure:
        figure(seen, given.figure)


if __name__ == "__main__":
    main()
