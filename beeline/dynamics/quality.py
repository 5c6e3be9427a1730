"""How good a model is: its error after one step and after k, whether its intervals hold, and what it predicts badly.

Everything is measured on transitions that the model was not trained on. Of N rows with targets t = [Δs, r], and the mean μ and
deviation σ of the elites' mixture, for each dimension that varies:

    R²          1 - Σ(t - μ)² / Σ(t - mean t)²
    error       √mean((t - μ)²) / deviation of t
    NLL         mean ½((t - μ)²/σ² + log 2πσ²), in nats
    coverage    share of rows and elites with |t - μ_e| ≤ z_p σ_e, each elite by its own Gaussian, which a rollout draws from;
                a calibrated model has p

    k-step      √mean_dims(((ŝ_k - s_k) / deviation of s)²) for sampled ŝ along the real actions, the median over starts
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline import rng
from beeline.dynamics.world import World, by_elite, mixture, rollout
from beeline.memory import TRANSITION, Batch

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
STARTS = 2_000  # of k-step predictions, at most
POOR = 0.5  # an R² below this is a dimension predicted badly
STILL = 1e-8  # a deviation below this does not vary


@dataclasses.dataclass(frozen=True)
class Quality:
    """What was measured; dimensions are those of the observation, and the reward is the last."""

    rows: int
    r2: list[float | None]  # of each dimension; none: it does not vary
    error: list[float | None]
    nll: float  # nats for each dimension
    coverage: dict[str, float]  # by level
    coverage_by: list[list[float] | None]  # of each dimension, by level
    steps: list[float]  # error after 1 … k steps
    steps_by: list[float | None]  # of each dimension of the observation, after k steps
    starts: int

    @property
    def poor(self) -> list[int]:
        """The dimensions predicted badly, the worst first; the reward's number is that of the observations."""
        found = [(each, number) for number, each in enumerate(self.r2) if each is not None and each < POOR]
        return [number for _, number in sorted(found)]

    @property
    def mean_r2(self) -> float:
        """The mean over all dimensions of the observation that vary."""
        found = [each for each in self.r2[:-1] if each is not None]
        return float(np.mean(found)) if found else float("nan")


def name_of(number: int, obs_dim: int) -> str:
    """How a dimension of [Δs, r] is called."""
    return "reward" if number == obs_dim else f"obs[{number}]"


# --- what is kept apart -----------------------------------------------------------------------------------------------


def paths(flags: NDArray) -> list[range]:
    """The row numbers of the transitions of every path: between two of them lies a final observation."""
    going = np.concatenate([[False], (flags & TRANSITION) != 0, [False]])
    starts, stops = np.flatnonzero(~going[:-1] & going[1:]), np.flatnonzero(going[:-1] & ~going[1:])
    return [range(int(start), int(stop)) for start, stop in zip(starts, stops)]


def kept_apart(found: Sequence[range], share: float, seed: int) -> tuple[list[range], list[range]]:
    """Paths to train on and paths to judge by, whole; those longer than a tenth of all transitions are cut into such pieces."""
    total = sum(map(len, found))
    longest = max(total // 10, 1)
    cut = [each[start : start + longest] for each in found for start in range(0, len(each), longest)]
    order = rng.stream(seed, "model/apart").permutation(len(cut))
    judged, have = set[int](), 0
    for number in order:
        if have >= share * total or len(judged) == len(cut) - 1:
            break
        judged.add(int(number))
        have += len(cut[number])
    return [each for n, each in enumerate(cut) if n not in judged], [each for n, each in enumerate(cut) if n in judged]


def transitions(columns: Any, chosen: Sequence[range]) -> Batch:
    """The transitions of some paths; what an action led to lies in the row after it."""
    index = np.concatenate([np.arange(each.start, each.stop) for each in chosen]) if chosen else np.zeros(0, np.int64)
    obs = columns["obs"]
    return Batch(obs[index], columns["action"][index], columns["reward"][index], np.ones(len(index), np.float32), obs[index + 1])


# --- measures ---------------------------------------------------------------------------------------------------------


def measured(world: World, columns: Any, judged: Sequence[range], horizon: int, seed: int = 0) -> Quality:
    """Measure a model on paths that it was not trained on; actions of the columns are in [-1, 1]."""
    rows = transitions(columns, judged)
    means, deviations = by_elite(world.model, world.elites, rows.obs, rows.action)
    mean, deviation = mixture(means, deviations)
    target = np.concatenate([rows.next_obs - rows.obs, rows.reward[:, None]], axis=1).astype(np.float64)
    far, sigma = target - mean, deviation.astype(np.float64)
    spread = target.std(axis=0)
    varies = spread > STILL
    squares = np.square(far).mean(axis=0)
    r2 = [1.0 - float(squares[n] / spread[n] ** 2) if varies[n] else None for n in range(len(spread))]
    error = [float(np.sqrt(squares[n]) / spread[n]) if varies[n] else None for n in range(len(spread))]
    each = 0.5 * (np.square(far / sigma) + np.log(2.0 * np.pi * np.square(sigma)))
    inside = np.stack([covered(target - means, deviations, level) for level in LEVELS])
    steps, by, starts = along(world, columns, judged, horizon, seed)
    return Quality(
        len(far), r2, error, float(each[:, varies].mean()),
        {f"{level:g}": float(share) for level, share in zip(LEVELS, inside[:, varies].mean(axis=1))},
        [inside[:, n].tolist() if varies[n] else None for n in range(len(spread))], steps, by, starts,
    )  # fmt: skip


def covered(far: NDArray, sigma: NDArray, level: float) -> NDArray[np.float64]:
    """The share of errors `[elites, n, d + 1]` within the interval of that level, for each dimension."""
    return (np.abs(far) <= NormalDist().inv_cdf(0.5 + level / 2.0) * sigma).mean(axis=(0, 1))


def along(
    world: World, columns: Any, judged: Sequence[range], horizon: int, seed: int
) -> tuple[list[float], list[float | None], int]:
    """The error of 1 … k sampled steps along the real actions, that of each dimension after k, and from how many starts."""
    possible = [np.arange(each.start, each.stop - horizon + 1) for each in judged if len(each) >= horizon]
    if not possible:
        return [], [], 0
    start = np.concatenate(possible)
    start = rng.stream(seed, "model/starts").permutation(start)[:STARTS]
    index = start[:, None] + np.arange(horizon + 1)
    real, unit = columns["obs"][index], columns["action"][index[:, :-1]]
    low, high = np.array(world.action_low), np.array(world.action_high)
    found = rollout(world, real[:, 0], (low + high) / 2 + unit * (high - low) / 2, seed=seed)
    spread = columns["obs"].std(axis=0, dtype=np.float64)
    varies = spread > STILL
    far = (found.obs[:, 1:].astype(np.float64) - real[:, 1:])[:, :, varies] / spread[varies]
    after = np.median(np.sqrt(np.square(far).mean(axis=2)), axis=0)
    each = iter(np.median(np.abs(far[:, -1]), axis=0))
    return after.tolist(), [float(next(each)) if one else None for one in varies], len(start)
