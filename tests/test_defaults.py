"""The tables and the figure of the default preset are true of what is finished, however little that is."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from beeline.bench import plan as bench_plan

ROOT = Path(__file__).parents[1]


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """BAC has two seeds of walker-run, SAC one; reacher-hard has nothing."""
    variant = {name: {"algo": "bac", "lam": lam} for name, lam in (("bac", 0.5), ("sac", 0.0))}
    runs = bench_plan.expand(
        {"algos": "bac,sac", "tasks": "dmc/walker-run,dmc/reacher-hard", "seeds": 2, "steps": 100_000, "variant": variant}
    )
    folder = tmp_path / "defaults-table"
    folder.mkdir()
    finished = [run for run in runs if run.task == "dmc/walker-run" and (run.variant, run.seed) != ("sac", 1)]
    bench_plan.record(folder, finished)
    for run in finished:
        place = folder / run.folder
        place.mkdir(parents=True)
        scale = {"bac": 100.0, "sac": 50.0}[run.variant] * (1 + run.seed)
        lines = [f"{step},{scale * step / 25_000},{60.0 * step / 2_500}" for step in range(0, 100_001, 5_000)]
        (place / "metrics.csv").write_text("\n".join(["step,eval/return,time/wall", *lines]) + "\n")
        (place / "status.json").write_text(json.dumps({"state": "finished", "step": 100_000}))
        (place / "config.json").write_text("{}")
    return folder


def test_the_table_has_means_of_what_is_finished_and_published_curves(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("docs/generate_tables.py")
    monkeypatch.setattr(tables, "RECORDS", records.parent)
    lines = tables.defaults_scores().splitlines()
    assert "| dmc/walker-run | **`bac`** | 2 | 150 | 300 | 600 | 40 |" in lines  # means of 100 and 200, 200 and 400, …
    assert "| dmc/walker-run | **`sac`** | 1 | 50 | 100 | 200 | 40 |" in lines
    assert not any("reacher" in line for line in lines)
    simba = next(line for line in lines if "| SimBa |" in line).split(" | ")
    assert simba[3] == "–" and 400 < float(simba[5]) < 600  # its points lie 50,000 steps apart: nothing is said of 25,000
    assert any("| BRO, 10 updates | 5 | " in line for line in lines)


def test_pairs_are_of_the_seeds_that_both_have(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("docs/generate_tables.py")
    monkeypatch.setattr(tables, "RECORDS", records.parent)
    assert tables.defaults_pairs().splitlines()[2:] == ["| dmc/walker-run | 1 | 200 | 400 | +200 | – | – |"]


def test_minutes_to_a_score_are_of_the_seeds_that_reach_it(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("docs/generate_tables.py")
    monkeypatch.setattr(tables, "RECORDS", records.parent)
    lines = tables.defaults_minutes().splitlines()
    assert lines[2:] == [  # seed 0 of BAC ends at 400, seed 1 is at 520 after 65,000 steps, at 0.4 minutes per thousand
        "| dmc/walker-run | 500 | `bac` | 1 of 2 | 65,000 | 26.0 |",
        "| dmc/walker-run | 500 | `bac --lam 0` | 0 of 1 | – | – |",
    ]


def test_minutes_are_of_the_processor_and_go_on_over_a_resume() -> None:
    tables = script("docs/generate_tables.py")
    used = (30.0, 90.0, 12.0, 42.0)
    walls = [{"step": step, "time/wall": 60.0 * step, "time/processor": each} for step, each in enumerate(used)]
    assert tables._spent(walls) == (60.0 + 12.0 + 30.0) / 60
    assert tables._spent([*walls, {"step": 4, "time/wall": 240.0}]) == 4.0  # a row without it: the clock on the wall


def test_the_interquartile_mean_is_over_tasks_that_all_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("docs/generate_tables.py")
    names = ["dmc/walker-run", "dmc/cheetah-run", "dmc/hopper-stand", "dmc/quadruped-walk"]
    ends = {"bac": (100.0, 200.0, 300.0, 800.0), "sac": (0.0, 100.0, 500.0, 900.0)}
    runs = {(task, name): {0: [{"step": 100_000, "eval/return": end}]} for name in ends for task, end in zip(names, ends[name])}
    monkeypatch.setattr(tables, "_runs", lambda matrix: runs)
    lines = tables.defaults_iqm().splitlines()
    assert lines[0] == "Tasks: walker-run, cheetah-run, hopper-stand, quadruped-walk."
    assert lines[4] == "| **`bac`**, λ = .5 | – | – | 0.250 | 0.78 |"  # one score cut at either end: (200 + 300) / 2
    assert lines[5] == "| **`bac`**, λ = 0 | – | – | 0.300 | 0.42 |"
    simba = next(iter(tables.published.curves(names[0], ["simba"], ["sac_simba"])))
    assert 0.4 < simba.mean[list(simba.steps).index(100_000)] / 1000 < 0.6
    assert any(line.startswith("| SimBa | – | 0.") and line.endswith("| 13 |") for line in lines)
    del runs[names[3], "sac"]
    assert "is kept: 3." in tables.defaults_iqm()


def test_without_records_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = script("docs/generate_tables.py")
    monkeypatch.setattr(tables, "RECORDS", tmp_path)
    assert "No run of" in tables.defaults_scores() and "No pair of" in tables.defaults_pairs()
    assert "is kept: 0." in tables.defaults_iqm()


def test_the_figure_shows_finished_runs_over_published_curves(records: Path) -> None:
    figures = script("benchmarks/defaults_figure.py")
    (records / "dmc-walker-run" / "bac" / "seed1" / "status.json").write_text(json.dumps({"state": "running", "step": 5_000}))
    found = figures.curves(records)
    assert list(found) == ["dmc/walker-run"]
    assert {name: len(runs) for name, runs in found["dmc/walker-run"].items()} == {"bac": 1, "sac": 1}
    figure = figures.draw(found)
    assert figure.axes[0].get_title() == "walker-run (our seeds: 1)"
    drawn = figure.axes[0].get_lines()
    assert max(line.get_ydata()[-1] for line in drawn if len(line.get_xdata()) == 21) >= 400.0
    assert len(drawn) == 2 + len(figures.THEIRS)
