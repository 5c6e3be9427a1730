"""The benchmark of time to a score: what counts as the time, what is compared, and when a training is over."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    import time_to_score

    yield time_to_score
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def worker(benchmark: ModuleType) -> Any:
    import time_to_score_run

    return time_to_score_run


def seen(system: str, seconds: float, reached: bool = True, task: str = "dmc/finger-spin", seed: int = 0) -> dict[str, Any]:
    return {"system": system, "task": task, "seed": seed, "seconds": seconds, "reached": reached, "cap": 600.0}


def test_a_run_that_did_not_get_there_counts_as_the_cap_and_is_marked(benchmark: Any) -> None:
    runs = [seen("beeline", 100.0), seen("sb3-sac", 640.0, reached=False), seen("sbx-sac", 200.0)]
    assert benchmark.seconds(runs[1]) == 600.0
    row = next(line for line in benchmark.table(runs).splitlines() if "finger-spin" in line)
    assert row == "| dmc/finger-spin | 800 | 100 | > 600 | 200 | – |"


def test_ratios_are_geometric_means_over_what_both_have(benchmark: Any) -> None:
    runs = [
        seen("beeline", 100.0), seen("sb3-sac", 400.0), seen("beeline", 50.0, seed=1), seen("sb3-sac", 50.0, seed=1),
        seen("beeline", 10.0, task="dmc/reacher-easy"), seen("sbx-sac", 1.0, seed=7),
    ]  # fmt: skip
    assert benchmark.ratios(runs) == {"sb3-sac": (pytest.approx(2.0), 2)}


def test_every_seed_goes_through_all_systems_before_the_next(benchmark: Any) -> None:
    runs = benchmark.plan(2, ["gym/Pendulum-v1", "dmc/finger-spin"])
    assert len(runs) == 2 * 2 * len(benchmark.SYSTEMS)
    assert [run["seed"] for run in runs] == [0] * 8 + [1] * 8
    assert [run["system"] for run in runs[:4]] == list(benchmark.SYSTEMS)


def test_the_clock_leaves_evaluations_out_and_ends_a_run_at_score_or_cap(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(worker.time, "process_time", lambda: now[0])
    judge = worker.Judge({"task": "gym/Pendulum-v1", "budget": 1000, "cap": 60.0, "threshold": -100.0, "episodes": 2})
    scores = iter([-900.0, -300.0, -500.0, -500.0, -90.0, -90.0])

    def episode(act: Any, seed: int) -> float:
        now[0] += 20.0  # evaluations take long
        return next(scores)

    monkeypatch.setattr(judge, "_episode", episode)
    act = np.zeros_like
    now[0] = 5.0
    assert not judge.due(9) and judge.due(10)
    assert judge.goes_on(10, act)
    assert judge.clock() == 5.0
    assert not judge.due(19)
    now[0] += 55.0
    assert judge.due(11), "the cap is looked at between evaluations too"
    assert not judge.goes_on(11, act)  # the cap
    assert not judge.goes_on(20, act)  # the score
    assert judge.curve == [(10, 5.0, -600.0), (11, 60.0, -500.0), (20, 60.0, -90.0)]
