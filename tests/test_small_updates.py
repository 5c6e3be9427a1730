"""The benchmark of small updates: its products are those that are counted elsewhere, and it runs. No time is judged here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TINY: dict[str, Any] = {"hidden": (8, 8), "policy_hidden": (4, 4), "batch_size": 8}


@pytest.fixture(scope="module")
def small() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import small_updates

        yield small_updates
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("critics", [1, 2])
def test_products_are_those_of_the_operation_count(small: ModuleType, lam: float, critics: int) -> None:
    from flops import update_flops

    config = small.agent_of(lam).config
    counted = update_flops(
        24, 6, config.hidden, config.batch_size,
        exploit=lam > 0, critics=critics, actor_delay=config.policy_interval, policy_hidden=config.policy_hidden,
    )  # fmt: skip
    assert sum(each.flops for each in small.products(config, critics=critics)) == pytest.approx(counted, rel=1e-12)
    assert counted == pytest.approx({(0.0, 1): 0.1043e9, (0.5, 1): 0.1952e9}.get((lam, critics), counted), rel=1e-3)


def test_products_of_unit_sizes_by_hand(small: ModuleType) -> None:
    config = small.agent_of(0.0, hidden=(3,), policy_hidden=(2,), batch_size=5).config
    p = small.Product
    policy, critic = [p(5, 24, 2), p(5, 2, 12)], [p(5, 30, 3), p(5, 3, 1)]
    learnt = [p(30, 5, 3, "TN"), p(3, 5, 1, "TN"), p(5, 1, 3, "NT")]
    late = [*policy, p(24, 5, 2, "TN"), p(2, 5, 12, "TN"), p(5, 12, 2, "NT"), *critic, p(5, 3, 6, "NT"), p(5, 1, 3, "NT")]
    assert small.products(config) == policy + critic + critic + learnt + [each._replace(share=0.5) for each in late]


def test_factors_lie_in_memory_as_they_are_named(small: ModuleType) -> None:
    left, right, out = small.Product(2, 3, 4, "TN").ready(np.random.default_rng(0))
    assert (left.shape, right.shape, out.shape) == ((2, 3), (3, 4), (2, 4))
    assert left.flags.f_contiguous and right.flags.c_contiguous
    small.multiply([(left, right, out)])
    np.testing.assert_allclose(out, left @ right)
    assert small.Product(2, 3, 4, "NT").ready(np.random.default_rng(0))[1].flags.f_contiguous


def test_the_ratio_is_the_median_of_pairs_and_the_first_two_rounds_do_not_count(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, cost = 0.0, {"one": [50.0, 50.0, 2.0, 4.0, 9.0], "other": [1.0, 1.0, 1.0, 2.0, 3.0]}
    monkeypatch.setattr(small.time, "process_time", lambda: now)

    def work(name: str) -> None:
        nonlocal now
        now += cost[name].pop(0)

    assert small.in_turn(lambda: work("one"), lambda: work("other"), 3) == (4.0, 2.0, 2.0)
    assert cost == {"one": [], "other": []}


def test_updates_and_steps_are_measured(small: ModuleType) -> None:
    found = small.updates(0.5, 1, count=4, **TINY)
    assert found["lam"] == 0.5 and found["gflop"] > 0
    assert found["ratio"] == pytest.approx(found["update_ms"] / found["products_ms"])
    took = small.steps(0.5, 2, 3, random_steps=20, learn_after=20, eval_env=None, **TINY)
    assert all(took[name] > 0 for name in ("step_ms", "updates_ms", "env_ms", "ratio"))
    made = small.checks({"updates": [found], "steps": [took], "start": {"cold": 11.0, "warm": 1.0}})
    assert [check.holds for check in made[-2:]] == [False, True]
    assert (made[0].bound, made[0].aim, made[1].bound) == (2.0, 1.8, 1.15)
