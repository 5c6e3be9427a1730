"""How fast the parts of MBPO are at the published sizes of Hopper, beside a plain PyTorch form of mbrl-lib's loops.

    python benchmarks/model_based.py [--json PATH] [--rounds N] [--threads N] [--quick] [--checkpoints]

Batches of the model's training (7 members of 4 x 200, 256 rows), rollouts (100,000 branches of a step, policy of 256), SAC
updates (256 wide, batch 256, G = 20), and the learner's work of steps at these sizes: a training of 20 epochs on 20,000 rows and
a rollout every 250 steps, 20 updates a step; a quarter of 1,000 steps is measured. Each system is a worker that is compiled and
warm; in every round each is asked in turn, and the median of the rounds' ratios counts. The roof is OpenBLAS's matrix product of
256 in the same rounds. Checkpoints are those of a run of these sizes with full memories, at the shortest and the longest
rollouts; their share is of the time of 10,000 steps as it was measured. `--checkpoints` measures them, and for them our steps,
alone. The peers live in .venv-peers, made on first use; mbrl-lib itself no longer installs from the package index. A round
takes minutes: `--quick` has tiny sizes, whose figures mean nothing, and shows that everything runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import model_based_sizes as sizes
from throughput import limits, peers_python
from throughput_link import Worker

PARTS = ("model", "rollout", "sac")
QUICK = sizes.Sizes(members=3, elites=2, hidden=16, policy=16, batch=16, rows=200, branches=100, updates=2, epochs=1)


def checkpoints(worker: Worker, steps: int, rates: list[float], saves: int = 3) -> list[dict[str, Any]]:
    """What checkpoints take of the time of our own steps; `rates` are the thousands of steps a second that were measured."""
    if not rates:
        rates.append(steps / 1_000 / worker.ask(do="whole", steps=steps)["seconds"])
    told = [worker.ask(do="checkpoint", length=length, saves=saves) for length in sizes.LENGTHS]
    return [sizes.checkpoint_share(each, 1.0 / max(rates)) for each in told]


def alone(chosen: sizes.Sizes, threads: int, steps: int, folder: Path) -> list[dict[str, Any]]:
    """Checkpoints without anything else."""
    spec = {"sizes": asdict(chosen), "threads": threads, "folder": str(folder)}
    with Worker(sys.executable, "model_based_ours.py", spec, folder / "ours.log", limits(threads)) as worker:
        worker.read()
        return checkpoints(worker, steps, [])


def measure(
    chosen: sizes.Sizes, threads: int, rounds: int, seconds: float, steps: int, peers: Path | str, folder: Path
) -> dict[str, Any]:
    """The rates of both systems, round by round, the roof of each, and what checkpoints take."""
    found: dict[str, Any] = {name: {part: [] for part in (*PARTS, "whole")} for name in ("ours", "torch")} | {"roof": []}
    with ExitStack() as stack:
        spec = {"sizes": asdict(chosen), "threads": threads, "folder": str(folder)}
        pairs = (("ours", sys.executable, "model_based_ours.py"), ("torch", peers, "model_based_peers.py"))
        workers = {}
        for name, python, script in pairs:
            workers[name] = stack.enter_context(Worker(python, script, spec, folder / f"{name}.log", limits(threads)))
        blas = stack.enter_context(
            Worker(sys.executable, "throughput_ours.py", {"mode": "roof"}, folder / "roof.log", limits(threads))
        )
        found["versions"] = {name: worker.read()["versions"] for name, worker in (*workers.items(), ("roof", blas))}
        for number in range(rounds):
            found["roof"].append(blas.ask(do="roof", n=256, seconds=min(seconds, 1.0))["gflops"])
            order = list(workers.items())[:: -1 if number % 2 else 1]
            for part in PARTS:
                for name, worker in order:
                    found[name][part].append(worker.ask(do=part, seconds=seconds)["per_s"])
            for name, worker in order:
                found[name]["whole"].append(steps / 1_000 / worker.ask(do="whole", steps=steps)["seconds"])
            print(f"round {number + 1} of {rounds}", flush=True)
        found["checkpoints"] = checkpoints(workers["ours"], steps, found["ours"]["whole"])
    return found


def main() -> None:
    """Measure, print a table, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write samples and rows there")
    parser.add_argument("--rounds", type=int, default=5, help="rounds [5]")
    parser.add_argument("--threads", type=int, default=1, help="threads of each worker [1]")
    parser.add_argument("--quick", action="store_true", help="one round of tiny sizes, which shows that it runs")
    parser.add_argument("--checkpoints", action="store_true", help="what checkpoints take of our own steps, and nothing else")
    given = parser.parse_args()
    chosen, rounds, seconds, steps = sizes.Sizes(), given.rounds, 5.0, 250
    if given.quick:
        chosen, rounds, seconds = QUICK, 1, 0.2
    with tempfile.TemporaryDirectory() as folder:
        if given.checkpoints:
            lines = alone(chosen, given.threads, steps, Path(folder))
            print(*map(sizes.checkpoint_text, lines), sep="\n")
            return
        found = measure(chosen, given.threads, rounds, seconds, steps, peers_python(), Path(folder))
    rows = sizes.ratios(found["ours"], found["torch"])
    print(sizes.text(rows))
    share = max(found["ours"]["model"]) * chosen.model_flops() / 1e9 / max(found["roof"])
    print(f"the model's training is at {share:.0%} of the OpenBLAS roof ({max(found['roof']):.0f} GFLOP/s)")
    print(*map(sizes.checkpoint_text, found["checkpoints"]), sep="\n")
    if given.json:
        told = {"sizes": asdict(chosen), "samples": found, "rows": rows, "roof_share": share}
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
