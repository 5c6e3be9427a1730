"""Make golden.json: what rliable computes, to compare beeline.report.statistics with.

Run in an environment of its own (rliable==1.2.0, arch>=7.2,<8, pandas>=2.3,<3):  python make_golden.py
"""

import json
from pathlib import Path

import numpy as np
from rliable import library, metrics

REPS = 50_000


def aggregate(scores):
    return np.array(
        [
            metrics.aggregate_iqm(scores),
            metrics.aggregate_median(scores),
            metrics.aggregate_mean(scores),
            metrics.aggregate_optimality_gap(scores),
        ]
    )


def case(name, x, y):
    points, ends = library.get_interval_estimates(
        {"x": x, "y": y}, aggregate, reps=REPS, random_state=np.random.RandomState(1)
    )
    better, better_ends = library.get_interval_estimates(
        {"x,y": (x, y)}, metrics.probability_of_improvement, reps=2000, random_state=np.random.RandomState(2)
    )
    thresholds = np.linspace(0.0, 1.2, 13)
    profile, band = library.create_performance_profile({"x": x}, thresholds, reps=2000)
    return {
        "name": name,
        "x": x.tolist(),
        "y": y.tolist(),
        "names": ["iqm", "median", "mean", "optimality_gap"],
        "points": {k: v.tolist() for k, v in points.items()},
        "ends": {k: v.tolist() for k, v in ends.items()},
        "improvement": float(better["x,y"]),
        "improvement_ends": np.asarray(better_ends["x,y"]).reshape(-1).tolist(),
        "thresholds": thresholds.tolist(),
        "profile": profile["x"].tolist(),
        "band": band["x"].tolist(),
    }


def curve_case(rng):
    curves = np.cumsum(rng.uniform(0.0, 0.1, (5, 3, 6)), axis=-1)  # runs, tasks, steps
    statistic = lambda scores: np.array([metrics.aggregate_iqm(scores[..., t]) for t in range(scores.shape[-1])])  # noqa: E731
    points, ends = library.get_interval_estimates(
        {"x": curves}, statistic, reps=5000, random_state=np.random.RandomState(4)
    )
    return {"curves": curves.tolist(), "points": points["x"].tolist(), "ends": ends["x"].tolist()}


def main():
    rng = np.random.default_rng(0)
    ties = rng.integers(0, 11, (10, 6)) / 10.0  # success rates of ten episodes: many ties
    cases = [
        case("5x4", rng.beta(2, 2, (5, 4)), rng.beta(3, 2, (5, 4))),
        case("3x4", rng.beta(2, 5, (3, 4)), rng.beta(2, 2, (3, 4))),
        case("7x3, above one", rng.normal(0.9, 0.3, (7, 3)), rng.normal(0.8, 0.2, (7, 3))),
        case("10x6, ties", ties, np.roll(ties, 3, axis=0)),
    ]
    out = {"rliable": "1.2.0", "reps": REPS, "cases": cases, "curve": curve_case(rng)}
    Path(__file__).with_name("golden.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
