"""Bring the runs of one line onto shared steps: mean, band and number of seeds at every step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beeline.report.runs import Series
from beeline.report.statistics import FEW_SEEDS

Floats = NDArray[np.float64]
MAX_POINTS = 160


@dataclasses.dataclass(frozen=True)
class Line:
    """Mean over seeds. The band: a 95 % bootstrap interval of the mean from five seeds, else the range."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    count: NDArray[np.int64]
    runs: Floats  # [runs, steps], NaN where a run has not come so far

    @property
    def complete(self) -> float:
        """The last step that all runs have reached."""
        return float(self.steps[self.count == self.count.max()][-1]) if self.steps.size else 0.0


def shared_steps(series: Sequence[Series], most: int = MAX_POINTS) -> Floats:
    """The union of the runs' steps, thinned evenly to `most` points; the first and the last step stay."""
    steps = np.unique(np.concatenate([one.steps for one in series])) if series else np.empty(0)
    if steps.size > most:
        steps = steps[np.unique(np.linspace(0, steps.size - 1, most).round().astype(int))]
    return steps


def onto(one: Series, steps: Floats) -> Floats:
    """A run's values at `steps`: linear in between, NaN before its first and after its last value."""
    if not one.steps.size:
        return np.full(steps.size, np.nan)
    return np.interp(steps, one.steps, one.values, left=np.nan, right=np.nan)


def binned(one: Series, edges: Floats) -> Floats:
    """A run's mean value in every bin (noisy signals: picking points would show the noise); NaN in empty bins."""
    place = np.digitize(one.steps, edges[1:-1], right=True)
    sums = np.bincount(place, one.values, edges.size - 1)
    counts = np.bincount(place, minlength=edges.size - 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def band(values: Floats, reps: int = 1000) -> tuple[Floats, Floats]:
    """Low and high end at every step of `[runs, steps]`: bootstrap of the mean from five runs, else the range."""
    low, high = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    present = np.isfinite(values)
    # Steps that the same runs have reached are resampled together: there are few such groups.
    masks, group = np.unique(present, axis=1, return_inverse=True)
    for number, mask in enumerate(masks.T):
        places = np.flatnonzero(group.reshape(-1) == number)
        chosen = values[np.ix_(mask, places)]
        if len(chosen) >= FEW_SEEDS:
            generator = np.random.Generator(np.random.Philox(len(chosen)))
            weights = generator.multinomial(len(chosen), np.full(len(chosen), 1 / len(chosen)), reps) / len(chosen)
            low[places], high[places] = np.percentile(weights @ chosen, [2.5, 97.5], axis=0)
        elif len(chosen) >= 2:
            low[places], high[places] = chosen.min(axis=0), chosen.max(axis=0)
    return low, high


def _line(steps: Floats, values: Floats) -> Line:
    count = np.isfinite(values).sum(axis=0)
    there = count > 0
    steps, values, count = steps[there], values[:, there], count[there]
    low, high = band(values)
    return Line(steps, np.nansum(values, axis=0) / count, low, high, count, values)


def evaluation_line(series: Sequence[Series]) -> Line:
    """Evaluations of several runs on the union of their steps."""
    series = [one for one in series if one.steps.size]
    if not series:
        return Line(np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty((0, 0)))
    steps = shared_steps(series)
    return _line(steps, np.stack([onto(one, steps) for one in series]))


def signal_line(series: Sequence[Series], most: int = 80) -> Line:
    """A training signal of several runs, averaged in up to `most` bins of steps."""
    series = [one for one in series if one.steps.size]
    steps = shared_steps(series, 10**9)
    if steps.size <= most:
        return evaluation_line(series)
    edges = np.linspace(0.0, steps[-1], most + 1)
    return _line(edges[1:], np.stack([binned(one, edges) for one in series]))


def window_score(one: Series, horizon: float, window: float = 0.1) -> float | None:
    """Mean of the evaluations in the last tenth before `horizon`; the last one before it where the tenth has none."""
    before = one.steps <= horizon
    if not before.any():
        return None
    inside = before & (one.steps > (1.0 - window) * horizon)
    return float(one.values[inside].mean()) if inside.any() else float(one.values[before][-1])
