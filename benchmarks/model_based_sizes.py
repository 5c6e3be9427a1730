"""What the model-based benchmark measures, and what it makes of it. Nothing is timed here; standard library only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Least ratios of rates, ours over the plain PyTorch form, with one thread each.
BOUNDS = {"model": 1.3, "rollout": 1.8, "sac": 1.5, "whole": 1.5}
CHECKPOINT = 0.02  # most of training time
LENGTHS = (1, 15)  # k at which checkpoints are measured: the first and the last of Hopper's rollouts
NAMES = {"model": "model batches", "rollout": "imagined transitions", "sac": "SAC updates", "whole": "1,000 steps"}


@dataclass(frozen=True)
class Sizes:
    """MBPO's published sizes on Hopper."""

    obs_dim: int = 11
    action_dim: int = 3
    members: int = 7
    elites: int = 5
    hidden: int = 200  # four layers of the model
    policy: int = 256  # two layers of policy and critics
    batch: int = 256
    rows: int = 20_000  # real transitions
    branches: int = 100_000  # of a rollout
    updates: int = 20  # G
    epochs: int = 20  # of a training of the model
    every: int = 250  # steps between two trainings

    def work(self, steps: int) -> dict[str, int]:
        """How many batches of the model, imagined transitions and updates so many steps have, k = 1."""
        trainings = steps // self.every
        batches = -(-self.rows * 4 // 5 // self.batch) * self.epochs
        return {"model": trainings * batches, "rollout": trainings * self.branches, "sac": steps * self.updates}

    def model_flops(self) -> int:
        """Floating point operations of a batch of the model's training: 2 a product, three passes (the first layer two)."""
        widths = (self.obs_dim + self.action_dim, *(self.hidden,) * 4, 2 * (self.obs_dim + 1))
        products = [2 * a * b for a, b in zip(widths, widths[1:])]
        return self.members * self.batch * (3 * sum(products) - products[0])


def ratios(ours: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """A row for each part: the best rate of each, the median of the rounds' ratios, and whether its bound is kept."""
    found = []
    for part, bound in BOUNDS.items():
        if not ours.get(part) or not peer.get(part):
            continue
        ratio = statistics.median(a / b for a, b in zip(ours[part], peer[part]))
        row = {"part": NAMES[part], "ours": max(ours[part]), "torch": max(peer[part]), "ratio": ratio, "bound": bound}
        found.append(row | {"holds": ratio >= bound})
    return found


def checkpoint_share(told: Mapping[str, Any], per_thousand: float) -> dict[str, Any]:
    """What a checkpoint is of training time, if 1,000 steps take so many seconds, and whether that is little enough.

    The later, longer rollouts are left out of the training time, so that the share is rather too high.
    """
    seconds, training = statistics.median(told["seconds"]), told["every"] / 1_000 * per_thousand
    share = seconds / (training + seconds)
    return {**told, "seconds": seconds, "training": training, "share": share, "holds": share <= CHECKPOINT}


def checkpoint_text(row: Mapping[str, Any]) -> str:
    """A line for it."""
    kept = "" if row["holds"] else "  FAILS"
    return (
        f"a checkpoint with {row['rows']:,} imagined rows (k = {row['length']}, {row['megabytes']:.0f} MB): "
        f"{row['seconds']:.2f} s, {row['share']:.2%} of the {row['training']:.0f} s of {row['every']:,} steps "
        f"(bound {CHECKPOINT:.0%}){kept}"
    )


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    lines = [f"{'a second':<24}{'ours':>12}{'torch':>12}{'ratio':>8}{'bound':>8}"]
    for row in rows:
        kept = "" if row["holds"] else "  FAILS"
        lines.append(f"{row['part']:<24}{row['ours']:>12.4g}{row['torch']:>12.4g}{row['ratio']:>8.2f}{row['bound']:>8.1f}{kept}")
    return "\n".join(lines)
