"""How fast whole training is, beside stable-baselines3 and SBX, and which share of the processor's limit it reaches.

    python benchmarks/throughput.py [--json PATH] [--rounds N] [--quick] [--size N] [--against PATH] [--methods [A,B]]

Environment steps per second on gym/Walker2d-v5 with one update per step, for two sizes of networks and batch, with the
same ReLU networks everywhere. Every system runs with one thread and with two, in a worker process of its own that is
compiled and warm; in each round every worker trains for a few seconds, one at a time, and the best round counts. The
roof is OpenBLAS's matrix product with two threads in the same rounds. The peers live in .venv-peers, made on first use.

With --against PATH the one peer is Beeline itself as it lies in that work tree (`git worktree add --detach PATH COMMIT`), with
one thread: round by round both train in turn, and the median of the pairwise ratios is shown with its 90 % interval.

With --methods every registered method is compared with SAC instead: see throughput_methods.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import throughput_methods
import throughput_more
import throughput_table as tables
from throughput_link import HERE, Worker
from throughput_table import OURS, PEERS, SIZES, Samples

from beeline import runtime

ROOT = HERE.parent
PEERS_VENV = ROOT / ".venv-peers"
# torch first and by exactly this version: without one, the newest brings several GB of CUDA packages.
PEERS_PACKAGES = (
    ("torch==2.13.0",),
    ("stable-baselines3==2.9.2", "sbx-rl==0.28.0", "jax==0.10.2", "gymnasium[mujoco]>=1.2.3,<1.3", "mujoco==3.11.0",
     "dm-control==1.0.44"),
)
THREADS = (1, 2)
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def peers_python() -> Path:
    """The interpreter of the peers' environment, which is made if it is not there yet."""
    python = PEERS_VENV / "bin" / "python"
    done = PEERS_VENV / ".installed"
    wanted = "\n".join(" ".join(packages) for packages in PEERS_PACKAGES)
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"making {PEERS_VENV} for the peers; this takes minutes the first time", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(PEERS_VENV)], check=True)
    for packages in PEERS_PACKAGES:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    done.write_text(wanted)
    return python


def limits(threads: int) -> dict[str, str]:
    """The environment that gives a process this many threads; NPROC is what XLA's CPU client reads."""
    return {"NPROC": str(threads), **dict.fromkeys(BLAS, str(threads))}


def start(samples: Samples, peers: Path, folder: Path) -> Worker:
    """The worker that fills these samples."""
    name = f"{samples.subject}-{samples.algo}-{samples.size}-{samples.threads}"
    log, env = folder / f"{name}.log", limits(samples.threads)
    size = samples.size
    if samples.subject != "beeline":
        spec = {"subject": samples.subject, "algo": samples.algo, "hidden": size, "batch": size}
        spec["threads"] = samples.threads
        return Worker(peers, "throughput_peers.py", spec, log, env)
    options = {"network": "mlp", "hidden": [size, size], "batch_size": size, "threads": samples.threads}
    spec = {"mode": "train", "algo": samples.algo, "folder": str(folder / name), "options": options}
    return Worker(sys.executable, "throughput_ours.py", spec, log, env)


def measure(
    size: int, peers: Path, folder: Path, rounds: int, seconds: float, versions: dict[str, dict[str, str]]
) -> tuple[list[Samples], list[float]]:
    """All systems at one size, round by round; also the roof of every round. Versions are noted as they are told."""
    systems = [*(("beeline", algo) for algo in OURS), *PEERS]
    samples = [Samples(subject, algo, size, threads) for subject, algo in systems for threads in THREADS]
    with ExitStack() as stack:
        blas = stack.enter_context(
            Worker(sys.executable, "throughput_ours.py", {"mode": "roof"}, folder / "roof.log", limits(max(THREADS)))
        )
        versions["roof"] = blas.read()["versions"]

        def warm(each: Samples) -> tuple[Worker, dict[str, Any]]:
            worker = start(each, peers, folder)
            stack.callback(worker.close)
            return worker, worker.read()

        with ThreadPoolExecutor(runtime.cores()) as pool:
            warmed = list(pool.map(warm, samples))
        for each, (_, told) in zip(samples, warmed):
            versions[each.subject] = told["versions"]
        roofs: list[float] = []
        for number in range(rounds):
            began = time.perf_counter()
            roofs.append(blas.ask(do="roof", n=size, seconds=1.0)["gflops"])
            time.sleep(0.5)  # OpenBLAS's threads go on spinning for a while, which would slow down the first in line
            # Every other round goes backwards, so that nobody always comes after the same neighbour.
            for each, (worker, _) in list(zip(samples, warmed))[:: -1 if number % 2 else 1]:
                each.steps.append(worker.ask(do="train", seconds=seconds)["per_s"])
                if each.subject == "beeline":
                    each.updates.append(worker.ask(do="update", seconds=seconds / 2)["per_s"])
                    each.env.append(worker.ask(do="env", seconds=0.3)["per_s"])
            took = time.perf_counter() - began
            done = f"size {size}, round {number + 1} of {rounds}"
            print(f"{done}: {took:.0f} s, roof {roofs[-1]:.0f} GFLOP/s", flush=True)
    return samples, roofs


def against(tree: Path, folder: Path, size: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Each of our algorithms now and as it was in another work tree, round by round in turn; ratios above 1 are faster now."""
    found = []
    for algo in OURS:
        options = {"network": "mlp", "hidden": [size, size], "batch_size": size, "threads": 1}
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for name, root in (("now", ROOT), ("before", tree)):
                spec = {"mode": "train", "algo": algo, "folder": str(folder / f"{algo}-{name}"), "options": options}
                env = limits(1) | {"PYTHONPATH": str(root)}
                log = folder / f"{algo}-{name}.log"
                workers[name] = Worker(sys.executable, "throughput_ours.py", spec, log, env, root / "benchmarks")
                stack.callback(workers[name].close)
                workers[name].read()
            ratios, speeds = [], []
            for number in range(rounds):
                order = ("now", "before") if number % 2 else ("before", "now")
                speed = {name: workers[name].ask(do="train", seconds=seconds)["per_s"] for name in order}
                ratios.append(speed["now"] / speed["before"])
                speeds.append(speed["now"])
        draws = np.random.default_rng(0).choice(ratios, (10_000, rounds))
        low, high = np.percentile(np.median(draws, axis=1), [5, 95])
        median = float(np.median(ratios))
        row = {"algo": algo, "size": size, "median": median, "low": float(low), "high": float(high), "rounds": rounds}
        holds = median >= 0.97 or low <= 1.0 <= high
        found.append(row | {"steps_per_s": float(np.median(speeds)), "holds": bool(holds)})
        verdict = "holds" if holds else "SLOWER"
        print(f"{algo:8} {median:.3f}  [{low:.3f}, {high:.3f}]  {np.median(speeds):.0f} steps/s  {verdict}", flush=True)
    return found


def main() -> None:
    """Measure, print, write; the exit code says whether everything holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything here")
    parser.add_argument("--rounds", type=int, help="rounds of every measurement [6; with --quick 2]")
    parser.add_argument("--quick", action="store_true", help="short rounds of the main table only")
    parser.add_argument("--size", type=int, choices=SIZES, help="one size of networks and batch alone [both]")
    parser.add_argument("--against", type=Path, metavar="PATH", help="a work tree of another commit, the one peer then")
    parser.add_argument("--methods", nargs="?", const="", metavar="A,B", help="all methods, or these, relative to SAC")
    given = parser.parse_args()
    if given.methods is not None:
        if os.environ.get("NPROC") != "1":  # XLA and BLAS read it when they start
            os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | limits(1))
        rounds, seconds = given.rounds or (2 if given.quick else 8), 1.0 if given.quick else 3.0
        print(f"{runtime.processor()}, load {os.getloadavg()[0]:.1f}, {rounds} rounds, one thread", flush=True)
        chosen = [name for name in given.methods.split(",") if name]
        rows = throughput_methods.measure(given.size or min(SIZES), rounds, seconds, chosen)
        print(f"\n{throughput_methods.text(rows)}")
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")
        raise SystemExit(any(row["holds"] is False for row in rows))
    if given.against:
        rounds, seconds = given.rounds or 15, 2.0 if given.quick else 4.0
        print(f"{runtime.processor()}, load {os.getloadavg()[0]:.1f}, {rounds} rounds against {given.against}", flush=True)
        with tempfile.TemporaryDirectory(prefix="throughput-") as name:
            rows = against(given.against.absolute(), Path(name), given.size or min(SIZES), rounds, seconds)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")
        raise SystemExit(not all(row["holds"] for row in rows))
    rounds = given.rounds or (2 if given.quick else 6)
    seconds = 2.0 if given.quick else 4.0
    peers = peers_python()
    cpu, cores = runtime.processor(), runtime.cores()
    print(f"{cpu}, {cores} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds", flush=True)

    samples: list[Samples] = []
    roofs: dict[int, float] = {}
    versions: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        for size in SIZES if given.size is None else (given.size,):
            found, measured = measure(size, peers, folder, rounds, seconds, versions)
            samples += found
            roofs[size] = max(measured)
        about = {subject: {"cpu": cpu, "versions": told} for subject, told in versions.items()}
        table = tables.rows(samples, roofs, about)
        checks = tables.checks(table)
        print(f"\n{tables.table_text(table)}\n")
        if not given.quick:
            checks += throughput_more.measure(folder, rounds, seconds)
    print(f"{tables.checks_text(checks)}\n")
    for subject, told in versions.items():
        print(f"{subject}: {', '.join(f'{package} {version}' for package, version in told.items())}")
    if given.json:
        content = {
            "cpu": cpu,
            "cores": cores,
            "load": os.getloadavg(),
            "rounds": rounds,
            "versions": versions,
            "roofs": {str(size): roof for size, roof in roofs.items()},
            "rows": table,
            "checks": [check.to_json() for check in checks],
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n")
    raise SystemExit(any(check.holds is False for check in checks))


if __name__ == "__main__":
    main()
