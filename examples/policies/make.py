"""Make the policies of the D'Kitty that come with Beeline from the runs of a matrix: choose, export, label, try on the terrains.

    python examples/policies/make.py runs/dkitty-walk [--unfinished] [--episodes N] [--out FOLDER]

For `dkitty/walk-medium` and `dkitty/walk-hard` every finished run offers its best evaluated and its latest policy. Each is
exported as `beeline export` does, and walks 20 episodes in onnxruntime under the controller of `beeline deploy`; the one that
arrives most often is taken (of equals, the one that comes further). Its label is made from other episodes, so that it is
not the luck of the choice. Then follows what `beeline paper terrains` does with both.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beeline import api
from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch
from beeline.deploy import OnnxPolicy, Outcome
from beeline.studies import terrains

TASKS = ("walk-medium", "walk-hard")
CHOICE, CHOOSING = 1000, 20  # first seed and number of the episodes that choose
LABEL, LABELLING = 2000, 100  # of those that label


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A policy that a run offers, its exported form, and how the choosing episodes went."""

    file: Path
    onnx: Path
    outcomes: Sequence[Outcome]

    @property
    def rank(self) -> tuple[float, float]:
        """Success first, then the distance walked."""
        return mean(self.outcomes, "success"), mean(self.outcomes, "walked")


def mean(outcomes: Sequence[Outcome], name: str) -> float:
    """The mean of a field over episodes."""
    return float(np.mean([getattr(outcome, name) for outcome in outcomes]))


def walked(onnx: Path, task: str, first: int, count: int) -> list[Outcome]:
    """Episodes of a task, by the seeds from `first` on."""
    policy = OnnxPolicy(onnx)
    return [terrains.episode(policy, task, seed) for seed in range(first, first + count)]


def candidates(matrix: Path, task: str, where: Path, *, unfinished: bool = False) -> list[Candidate]:
    """What the runs of a task offer."""
    found = []
    for run in bench_plan.recorded(matrix):
        folder = matrix / run.folder
        if run.task != f"dkitty/{task}" or not (unfinished or bench_watch.look(matrix, run).state == "finished"):
            continue
        for file in (folder / "policy-best.npz", folder / "policy.npz"):
            if file.exists():
                onnx = where / f"{task}-{len(found)}.onnx"
                api.export(file, onnx)
                found.append(Candidate(file, onnx, walked(onnx, task, CHOICE, CHOOSING)))
    return found


def label(onnx: Path, task: str, episodes: int) -> dict[str, Any]:
    """What a policy does, by episodes that did not choose it, and where it comes from."""
    outcomes, meta = walked(onnx, task, LABEL, episodes), OnnxPolicy(onnx).meta
    return {
        **{name: meta[name] for name in ("algo", "env", "step", "beeline")},
        "task": f"dkitty/{task}",
        "episodes": episodes,
        "first_seed": LABEL,
        "success": round(mean(outcomes, "success"), 3),
        "fallen": round(float(np.mean([outcome.kind == "fallen" for outcome in outcomes])), 3),
        "walked": round(mean(outcomes, "walked"), 3),
        "walked_std": round(float(np.std([outcome.walked for outcome in outcomes], ddof=1)), 3),
    }


def make(matrix: Path, out: Path, *, unfinished: bool = False, episodes: int = LABELLING) -> dict[str, Any]:
    """Write policies, labels and terrain table for the tasks that have a run; the labels."""
    labels = {}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as where:
        for task in TASKS:
            offered = candidates(matrix, task, Path(where), unfinished=unfinished)
            if not offered:
                continue
            chosen = max(offered, key=lambda each: each.rank)
            shutil.copy(chosen.file, out / f"{task}.npz")
            shutil.copy(chosen.onnx, out / f"{task}.onnx")
            files = {kind: hashlib.sha256((out / f"{task}.{kind}").read_bytes()).hexdigest() for kind in ("npz", "onnx")}
            source = str(chosen.file.relative_to(matrix))
            labels[task] = label(out / f"{task}.onnx", task, episodes) | {"from": source, "sha256": files}
    (out / "labels.json").write_text(json.dumps(labels, indent=1) + "\n")
    if labels:
        terrains.run(out / "terrains", {task.removeprefix("walk-"): out / f"{task}.onnx" for task in labels})
    return labels


def main() -> None:
    """Make them, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=Path, help="the folder of the matrix, with its runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where to write [this folder]")
    parser.add_argument("--unfinished", action="store_true", help="also take what runs have so far; the label has the step")
    parser.add_argument("--episodes", type=int, default=LABELLING, help=f"that label a policy, at least 20 [{LABELLING}]")
    given = parser.parse_args()
    if given.episodes < 20:
        parser.error("a label needs at least 20 episodes.")
    labels = make(given.matrix, given.out, unfinished=given.unfinished, episodes=given.episodes)
    if not labels:
        parser.error(f"{given.matrix} has no finished run of {' or '.join(TASKS)} (see --unfinished).")
    for task, found in labels.items():
        share = f"{found['success']:.0%} in {found['episodes']} episodes"
        print(f"{task}: {found['algo']} of step {found['step']:,}, success {share}")


if __name__ == "__main__":
    main()
