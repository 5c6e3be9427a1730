"""The random walk against the specification's numbers (§25.1), and its pieces against geometry."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from beeline.studies import random_walk as walk

# root mean square error to V* after 100, 200 and 500 iterations: (λ, policy) -> three numbers
RMSE = {
    (0.0, "uniform"): (0.592, 0.592, 0.591),
    (0.5, "uniform"): (0.386, 0.288, 0.284),
    (1.0, "uniform"): (0.046, 0.047, 0.047),
    (0.0, "softmax"): (0.488, 0.477, 0.476),
    (0.5, "softmax"): (0.231, 0.159, 0.159),
}
REACHED = {(0.0, "uniform"): (0.04, 0.05, 0.05), (0.5, "uniform"): (0.74, 1.0, 1.0)}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict:
    out = tmp_path_factory.mktemp("walk") / "new" / "folder"
    return walk.run(out, buffers=2) | {"out": out}


def test_errors_and_reach_are_those_of_the_specification(result: dict) -> None:
    rows = {(row["lambda"], row["policy"]): row for row in result["rows"]}
    assert rows.keys() == RMSE.keys()
    for setting, expected in RMSE.items():
        measured = [rows[setting][f"rmse_{n}"] for n in walk.CHECKPOINTS]
        assert measured == pytest.approx(expected, rel=0.1)
    for setting, expected in REACHED.items():
        measured = [rows[setting][f"reached_{n}"] for n in walk.CHECKPOINTS]
        assert measured == pytest.approx(expected, rel=0.1)
    assert result["seen_pairs"] == pytest.approx(0.993, abs=0.001)


def test_mean_and_spread_are_over_the_buffers(result: dict) -> None:
    errors = [walk.learn(walk.sample_buffer(seed), 0.5)[1][99] for seed in range(2)]
    row = result["rows"][1]
    assert row["rmse_100_mean"] == pytest.approx(np.mean(errors), abs=1e-4)
    assert row["rmse_100_std"] == pytest.approx(np.std(errors, ddof=1), abs=1e-4)


def test_table_and_figure_are_written(result: dict) -> None:
    out: Path = result["out"]
    assert json.loads((out / "random_walk.json").read_text())["rows"] == result["rows"]
    with (out / "random_walk.csv").open() as file:
        assert [float(row["rmse_500"]) for row in csv.DictReader(file)] == [r["rmse_500"] for r in result["rows"]]
    assert (out / "random_walk.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "random_walk.svg").read_text()[:600]
    assert not list(out.glob(".*"))


def test_the_buffer_holds_exactly_ten_hits_all_beside_the_hole() -> None:
    buffer = walk.sample_buffer(3)
    assert len(buffer.hit) == 100_000 and buffer.hit.sum() == 10
    cells = buffer.pair[buffer.hit == 1] // walk.DIRECTIONS
    x, y = (cells // walk.CELLS + 0.5) * 0.2, (cells % walk.CELLS + 0.5) * 0.2
    # a start lies within step + radius of the hole, a cell's centre within half a diagonal of the start
    assert np.all(np.hypot(x - 10.0, y - 5.0) <= 0.2 + 0.1 * np.sqrt(2) + 1e-9)
    assert np.all(np.abs(buffer.following - buffer.pair // walk.DIRECTIONS) <= walk.CELLS + 1)


def test_cells_are_numbered_by_x_then_y_and_the_border_belongs_inside() -> None:
    np.testing.assert_array_equal(walk.cell(np.array([[0.0, 0.0], [0.0, 0.3], [0.3, 0.0], [10.0, 10.0]])), [0, 1, 50, 2499])


def test_true_values_count_the_steps_to_the_hole() -> None:
    value = walk.true_value().reshape(walk.CELLS, walk.CELLS)
    # the cell centred at (9.9, 4.9) is .1414 away: one step; (9.9, 5.5) is .5099 away: five
    assert value[49, 24] == 1.0
    assert value[49, 27] == pytest.approx(0.99**4)
    assert value.min() == pytest.approx(0.99 ** (np.ceil((np.hypot(9.9, 4.9) - 0.1) / 0.1) - 1))


def test_policy_values_by_hand() -> None:
    q = np.array([[0.0, 0.05]])
    assert walk.policy_value(q, "uniform")[0] == pytest.approx(0.025)
    assert walk.policy_value(q, "softmax")[0] == pytest.approx(0.05 * np.e / (1 + np.e))
