"""What the model-based benchmark makes of its samples, against numbers worked out by hand; nothing is timed here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def sizes() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import model_based_sizes

        yield model_based_sizes
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_the_work_of_a_thousand_steps_is_that_of_the_published_settings(sizes: ModuleType) -> None:
    # 16,000 of 20,000 rows are trained on: 63 batches an epoch, 20 epochs, four times.
    assert sizes.Sizes().work(1_000) == {"model": 5_040, "rollout": 400_000, "sac": 20_000}
    assert sizes.Sizes().work(250) == {"model": 1_260, "rollout": 100_000, "sac": 5_000}


def test_operations_of_a_batch_are_counted_by_products(sizes: ModuleType) -> None:
    tiny = sizes.Sizes(obs_dim=2, action_dim=1, members=2, hidden=4, batch=5)
    # Products 3·4, 3 x 4·4 and 4·6: 84 multiply-adds, 168 operations; three passes, but two through the first layer (24).
    assert tiny.model_flops() == 2 * 5 * (3 * 168 - 24)
    assert sizes.Sizes().model_flops() == pytest.approx(1.38e9, rel=0.02)


def test_a_ratio_is_the_median_of_the_rounds(sizes: ModuleType) -> None:
    ours = {"model": [10.0, 12.0, 30.0], "rollout": [9.0], "sac": [], "whole": [3.0, 3.0]}
    peer = {"model": [10.0, 10.0, 10.0], "rollout": [6.0], "sac": [1.0], "whole": [2.0, 1.0]}
    rows = {row["part"]: row for row in sizes.ratios(ours, peer)}
    assert set(rows) == {"model batches", "imagined transitions", "1,000 steps"}  # nothing is said of what was not measured
    model, rollout, whole = rows["model batches"], rows["imagined transitions"], rows["1,000 steps"]
    assert (model["ours"], model["torch"], model["ratio"], model["holds"]) == (30.0, 10.0, 1.2, False)
    assert (rollout["ratio"], rollout["bound"], rollout["holds"]) == (1.5, 1.8, False)
    assert (whole["ratio"], whole["holds"]) == (2.25, True)
    lines = sizes.text(list(rows.values())).splitlines()
    assert len(lines) == 4 and lines[1].endswith("FAILS") and not lines[3].endswith("FAILS")


@pytest.mark.slow
def test_every_part_of_ours_runs(sizes: ModuleType) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from model_based_ours import Ours
    finally:
        sys.path.remove(str(BENCHMARKS))
    tiny = sizes.Sizes(members=3, elites=2, hidden=8, policy=8, batch=8, rows=60, branches=20, updates=2, epochs=1)
    ours = Ours(tiny)
    assert (ours.model_batches(), ours.rollout(), ours.updates(), ours.updates()) == (64, 20, 2, 2)
