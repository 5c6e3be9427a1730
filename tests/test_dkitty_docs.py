"""The tables and curves of docs/dkitty.md, from records and labels made by hand: none, some of them, all."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from beeline.bench import plan as bench_plan

ROOT = Path(__file__).parents[1]
HEAD = "step,eval/return,eval/return_std,eval/success\n"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def generator(tmp_path: Path) -> ModuleType:
    """The generator, with empty folders for records and policies."""
    module = loaded("generate_tables")
    module.WALK_RECORDS, module.POLICIES = tmp_path / "records", tmp_path / "policies"
    module.WALK_CURVES = tmp_path / "curves.png"
    module.POLICIES.mkdir()
    (module.POLICIES / "labels.json").write_text("{}")
    return module


def record(folder: Path, tables: list[list[tuple[int, float, float]]]) -> None:
    """The first runs of the plan, with (step, return, success) of their evaluations and a row between without any."""
    runs = bench_plan.expand(bench_plan.read_file(ROOT / "benchmarks" / "dkitty_walk.toml"))[: len(tables)]
    folder.mkdir()
    bench_plan.record(folder, runs)
    for run, rows in zip(runs, tables):
        (folder / run.folder).mkdir(parents=True)
        lines = [f"{step},{score},1.0,{success}\n" for step, score, success in rows]
        (folder / run.folder / "metrics.csv").write_text(HEAD + "1000,,,\n" + "".join(lines))


def test_without_records_nothing_is_claimed(generator: ModuleType) -> None:
    assert generator.dkitty_walk() == "None of the 2 runs of the plan is recorded yet, so there is nothing to show."
    assert generator.dkitty_policies().startswith("None yet")
    assert generator.dkitty_terrains() == "Nothing has walked there yet."
    assert loaded("draw_dkitty").draw(generator.WALK_RECORDS) is None


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_came(generator: ModuleType) -> None:
    record(generator.WALK_RECORDS, [[(0, -803.1, 0.0), (25_000, -135.4, 0.05)]])
    text = generator.dkitty_walk()
    assert text.splitlines()[0] == "| task | algorithm | seed | 25,000 steps |"
    assert "| dkitty/walk-medium | bac | 0 | 5%, −135 |" in text and "| dkitty/walk-hard | bac | 0 | – |" in text
    assert text.endswith("when this was written, dkitty/walk-medium (seed 0) had come to step 25,000 of 300,000, and "
                         "1 of the 2 planned runs had not begun.")  # fmt: skip
    assert "![" not in text, "no picture was drawn"


def test_finished_runs_have_a_column_for_some_evaluations_and_the_last(generator: ModuleType, tmp_path: Path) -> None:
    rows = [(step, step / 1000, step / 300_000) for step in range(0, 300_001, 25_000)]
    record(generator.WALK_RECORDS, [rows, [(step, -1.0, 1.0) for step, *_ in rows]])
    figure = loaded("draw_dkitty").draw(generator.WALK_RECORDS)
    lines = [[tuple(line.get_ydata()) for line in axes.lines] for axes in figure.axes]
    returns, successes = (tuple(row[place] for row in rows) for place in (1, 2))
    assert lines == [[successes], [(1.0,) * 13], [returns], [(-1.0,) * 13]]
    assert list(figure.axes[0].lines[0].get_xdata()) == [step / 1000 for step, *_ in rows]
    figure.savefig(generator.WALK_CURVES)
    text = generator.dkitty_walk()
    assert text.startswith("![Success and return while training](images/curves.png)\n\n| task ")
    shown = [f"{step:,} steps" for step in (25_000, 75_000, 125_000, 175_000, 225_000, 275_000, 300_000)]
    assert f"| seed | {' | '.join(shown)} |" in text
    assert "| dkitty/walk-medium | bac | 0 | 8%, 25 | 25%, 75 |" in text and text.endswith("| 100%, −1 |")


def test_policies_and_terrains(generator: ModuleType) -> None:
    label = {"algo": "bac", "step": 275_000, "success": 0.83, "fallen": 0.02, "walked": 1.1, "walked_std": 0.35, "episodes": 100}
    (generator.POLICIES / "labels.json").write_text(json.dumps({"walk-medium": label}))
    assert generator.dkitty_policies().splitlines()[-1] == "| `walk-medium` | bac | 275,000 | 83% | 2% | 1.10 ± 0.35 m | 100 |"
    row = {"policy": "medium", "terrain": "grassland", "target": 1.0, "episodes": 10, "walked": -0.06, "walked_std": 0.087,
           "success": 0.1, "fallen": 0.9}  # fmt: skip
    (generator.POLICIES / "terrains").mkdir()
    (generator.POLICIES / "terrains" / "terrains.json").write_text(json.dumps({"summary": [row]}))
    assert generator.dkitty_terrains().splitlines()[-1] == "| medium | grassland | 1 m | −0.06 ± 0.09 m | 10% | 90% | 10 |"
