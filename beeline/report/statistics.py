"""Aggregate statistics over runs and tasks, after Agarwal et al., "Deep RL at the Edge of the Statistical Precipice".

Scores are given as `[runs, tasks]`, or as one array per task where tasks have unequal numbers of runs; every score is
already normalised (`beeline.report.normalise`). Definitions are in docs/statistics.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beeline.errors import ConfigError

Floats = NDArray[np.float64]
Scores = ArrayLike | Sequence[ArrayLike]
Statistic = Callable[[list[Floats]], Floats]

FEW_SEEDS = 5
CHUNK = 4_000_000  # resampled scores held in memory at once


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A point estimate and its percentile interval; `low` and `high` are None where one run allows no interval."""

    value: float
    low: float | None
    high: float | None
    seeds: int
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3f} (no interval: one seed)" if self.low is None else (
            f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
        )


def strata(scores: Scores) -> list[Floats]:
    """One float array of runs per task; refuses empty tasks and scores that are not finite."""
    if isinstance(scores, np.ndarray):
        if scores.ndim != 2:
            raise ConfigError(f"scores must have the axes [runs, tasks], not {scores.ndim} axes.")
        columns = [np.asarray(column, float) for column in scores.T]
    else:
        columns = [np.asarray(column, float).reshape(-1) for column in scores]  # type: ignore[union-attr]
    if not columns or any(column.size == 0 for column in columns):
        raise ConfigError("scores need at least one task, and at least one run of every task.")
    if not all(np.isfinite(column).all() for column in columns):
        raise ConfigError("scores hold NaN or infinity: leave unfinished runs out.")
    return columns


def seeds_note(seeds: int) -> str:
    """What a reader must know about a comparison with this many seeds; empty from five upwards."""
    if seeds < 1:
        return "No finished runs."
    if seeds == 1:
        return "One seed: no interval can be given, and differences may be luck."
    if seeds < FEW_SEEDS:
        return f"{seeds} seeds: fewer than {FEW_SEEDS}, so intervals are rough and tend to be too narrow."
    return ""


# Statistics of a list of `[..., runs]` arrays, one per task; leading axes are bootstrap replicates or steps.
def _iqm(columns: list[Floats]) -> Floats:
    """Mean of the middle half of all scores: floor(N/4) are cut at either end."""
    pooled = np.concatenate(columns, axis=-1)
    size = pooled.shape[-1]
    cut = int(0.25 * size)
    if cut:
        pooled = np.partition(pooled, (cut, size - cut - 1), axis=-1)[..., cut : size - cut]
    return pooled.mean(axis=-1)


def _task_means(columns: list[Floats]) -> Floats:
    return np.stack([column.mean(axis=-1) for column in columns], axis=-1)


def _median(columns: list[Floats]) -> Floats:
    """Median over tasks of the mean over runs."""
    return np.median(_task_means(columns), axis=-1)


def _mean(columns: list[Floats]) -> Floats:
    """Mean over tasks of the mean over runs."""
    return _task_means(columns).mean(axis=-1)


def _optimality_gap(columns: list[Floats]) -> Floats:
    """1 - mean(min(score, 1)) over all scores: how far from a normalised score of 1."""
    return 1.0 - np.minimum(np.concatenate(columns, axis=-1), 1.0).mean(axis=-1)


STATISTICS: dict[str, Statistic] = {
    "iqm": _iqm,
    "median": _median,
    "mean": _mean,
    "optimality_gap": _optimality_gap,
}


def iqm(scores: Scores) -> float:
    """Interquartile mean over all runs and tasks."""
    return float(_iqm(strata(scores)))


def median(scores: Scores) -> float:
    """Median over tasks of the per-task mean."""
    return float(_median(strata(scores)))


def mean(scores: Scores) -> float:
    """Mean over tasks of the per-task mean."""
    return float(_mean(strata(scores)))


def optimality_gap(scores: Scores) -> float:
    """1 - mean(min(score, 1))."""
    return float(_optimality_gap(strata(scores)))


def _resamples(columns: list[Floats], reps: int, generator: np.random.Generator) -> Iterator[list[Floats]]:
    """Stratified bootstrap: in each replicate every task's runs are drawn again, with replacement, by themselves.

    A column has the shape `[..., runs]`; a resample has `[reps, ..., runs]` and draws whole runs (all steps at once).
    """
    width = sum(column.size for column in columns)
    for start in range(0, reps, max(1, CHUNK // width)):
        size = min(max(1, CHUNK // width), reps - start)
        drawn = []
        for column in columns:
            runs = column.shape[-1]
            index = generator.integers(0, runs, (size, runs), dtype=np.int32)
            drawn.append(np.moveaxis(column[..., index], -2, 0))
        yield drawn


def _tails(level: float) -> list[float]:
    if not 0.0 < level < 1.0:
        raise ConfigError(f"level = {level} is out of range; allowed: between 0 and 1, such as 0.95.")
    return [50.0 * (1.0 - level), 50.0 * (1.0 + level)]


def estimates(
    scores: Scores, *, reps: int = 50_000, level: float = 0.95, seed: int = 0, which: Sequence[str] = tuple(STATISTICS)
) -> dict[str, Estimate]:
    """Aggregate statistics with percentile intervals of one stratified bootstrap shared by all of them."""
    columns, tails = strata(scores), _tails(level)
    seeds = min(column.size for column in columns)
    points = {name: float(STATISTICS[name](columns)) for name in which}
    if seeds < 2:
        return {name: Estimate(value, None, None, seeds, level) for name, value in points.items()}
    generator = np.random.Generator(np.random.Philox(seed))
    drawn: dict[str, list[Floats]] = {name: [] for name in which}
    for resample in _resamples(columns, reps, generator):
        for name in which:
            drawn[name].append(STATISTICS[name](resample))
    ends = {name: np.percentile(np.concatenate(parts), tails) for name, parts in drawn.items()}
    return {name: Estimate(points[name], float(ends[name][0]), float(ends[name][1]), seeds, level) for name in which}


def mean_interval(values: ArrayLike, *, reps: int = 50_000, level: float = 0.95, seed: int = 0) -> Estimate:
    """Mean of one task's runs with a percentile bootstrap interval."""
    return estimates([values], reps=reps, level=level, seed=seed, which=("mean",))["mean"]


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Floats:
    """Fraction of runs that score above each threshold, F(τ) = mean 1(score > τ) over all runs and tasks."""
    return _profile(strata(scores), np.asarray(thresholds, float))


def _profile(columns: list[Floats], thresholds: Floats) -> Floats:
    pooled = np.sort(np.concatenate(columns, axis=-1), axis=-1)
    if pooled.ndim == 1:
        return 1.0 - np.searchsorted(pooled, thresholds, side="right") / pooled.size
    return np.stack([1.0 - np.searchsorted(row, thresholds, side="right") / row.size for row in pooled])


def profile_band(
    scores: Scores, thresholds: ArrayLike, *, reps: int = 2000, level: float = 0.95, seed: int = 0
) -> tuple[Floats, Floats] | None:
    """Pointwise percentile band of the performance profile; None where one run allows none."""
    columns, tails = strata(scores), _tails(level)
    if min(column.size for column in columns) < 2:
        return None
    generator = np.random.Generator(np.random.Philox(seed))
    grid = np.asarray(thresholds, float)
    drawn = np.concatenate([_profile(part, grid) for part in _resamples(columns, reps, generator)])
    low, high = np.percentile(drawn, tails, axis=0)
    return low, high


def probability_of_improvement(first: Scores, second: Scores) -> float:
    """P(a run of `first` beats a run of `second`), ties counting one half, averaged over tasks (Mann-Whitney U)."""
    return float(_improvement(strata(first), strata(second)))


def _improvement(first: list[Floats], second: list[Floats]) -> Floats:
    if len(first) != len(second):
        raise ConfigError(f"both sides of a comparison need the same tasks, not {len(first)} and {len(second)} .")
    tasks = []
    for x, y in zip(first, second):
        difference = x[..., :, None] - y[..., None, :]
        tasks.append((0.5 * (1.0 + np.sign(difference))).mean(axis=(-2, -1)))
    return np.mean(tasks, axis=0)


def improvement_interval(
    first: Scores, second: Scores, *, reps: int = 10_000, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Probability of improvement with an interval; both sides are resampled independently."""
    x, y, tails = strata(first), strata(second), _tails(level)
    value = float(_improvement(x, y))
    seeds = min(column.size for column in x + y)
    if seeds < 2:
        return Estimate(value, None, None, seeds, level)
    generator = np.random.Generator(np.random.Philox(seed))
    parts = [_improvement(part[: len(x)], part[len(x) :]) for part in _resamples(x + y, reps, generator)]
    low, high = np.percentile(np.concatenate(parts), tails)
    return Estimate(value, float(low), float(high), seeds, level)


def efficiency_curve(
    curves: Sequence[ArrayLike], *, statistic: str = "iqm", reps: int = 2000, level: float = 0.95, seed: int = 0
) -> tuple[Floats, Floats | None, Floats | None]:
    """A statistic at every step with its band: `curves` holds one `[runs, steps]` array per task, on shared steps."""
    columns = [np.asarray(curve, float).T for curve in curves]  # [steps, runs]
    if not columns or len({column.shape[0] for column in columns}) != 1:
        raise ConfigError("an efficiency curve needs every task's runs on the same steps.")
    value = STATISTICS[statistic](columns)
    if min(column.shape[-1] for column in columns) < 2:
        return value, None, None
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = np.concatenate([STATISTICS[statistic](part) for part in _resamples(columns, reps, generator)])
    low, high = np.percentile(drawn, _tails(level), axis=0)
    return value, low, high


def resolvable_difference(first: ArrayLike, second: ArrayLike, *, level: float = 0.95, power: float = 0.8) -> float:
    """Smallest difference of means that these many runs, with this spread, show at `level` with probability `power`.

    (t_{level, df} + t_{power, df}) · s · sqrt(1/n + 1/m), s² the pooled variance, df = n + m - 2.
    Infinite where a side has fewer than two runs.
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    if min(x.size, y.size) < 2:
        return math.inf
    from scipy.stats import t  # imported here: scipy.stats takes a second to load

    freedom = x.size + y.size - 2
    pooled = ((x.size - 1) * x.var(ddof=1) + (y.size - 1) * y.var(ddof=1)) / freedom
    reach = t.ppf(0.5 * (1.0 + level), freedom) + t.ppf(power, freedom)
    return float(reach * math.sqrt(pooled * (1.0 / x.size + 1.0 / y.size)))
