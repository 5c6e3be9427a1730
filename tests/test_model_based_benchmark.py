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


def test_the_share_of_a_checkpoint_by_hand(sizes: ModuleType) -> None:
    told = {"seconds": [9.0, 1.0, 2.0], "every": 10_000, "length": 3, "rows": 1_200, "megabytes": 5.0}
    row = sizes.checkpoint_share(told, 9.8)
    assert (row["seconds"], row["training"], row["share"]) == (2.0, 98.0, 0.02) and row["holds"]
    assert "1,200 imagined rows (k = 3, 5 MB): 2.00 s, 2.00% of the 98 s" in sizes.checkpoint_text(row)
    more = sizes.checkpoint_share(told, 9.7)
    assert not more["holds"] and sizes.checkpoint_text(more).endswith("FAILS")


@pytest.mark.slow
def test_a_checkpoint_writes_all_that_was_imagined_since_the_last(sizes: ModuleType, tmp_path: Path) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from model_based_ours import Saving

        tiny = sizes.Sizes(members=3, elites=2, hidden=8, policy=8, batch=8, rows=60, branches=250)
        told = Saving(tiny, tmp_path / "run", 2).measured(2)
    finally:
        sys.path.remove(str(BENCHMARKS))
    assert (len(told["seconds"]), told["length"], told["rows"], told["every"]) == (2, 2, 2_000, 10_000)
    assert told["megabytes"] == pytest.approx(2_000 * (4 * (2 * 11 + 3 + 1) + 1) / 1e6)
    written = [file.stat().st_size for file in (tmp_path / "run" / "replay").iterdir()]
    assert max(written) > 10_000 * 4 * (11 + 3 + 1) and sum(written) > told["megabytes"] * 1e6


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
