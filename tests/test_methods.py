"""The matrices of docs/methods.md plan what the page says, and its tables are truthful where only some runs are kept."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from beeline.agents import OWN
from beeline.bench import plan as bench_plan
from beeline.bench.plan import BenchRun
from beeline.run.plan import Plan

ROOT = Path(__file__).parents[1]


def runs_of(name: str) -> list[BenchRun]:
    return bench_plan.expand(bench_plan.merge(bench_plan.read_file(ROOT / "benchmarks" / f"{name}.toml"), {}))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/generate_tables.py, whose records are in a folder of the test's."""
    spec = importlib.util.spec_from_file_location("generate_tables_of_methods", ROOT / "docs" / "generate_tables.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RECORDS", tmp_path)
    return module


def keep(folder: Path, returns: list[tuple[BenchRun, list[float]]]) -> None:
    """Records of finished runs: an evaluation at the start, and so on to the end, one every six minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    bench_plan.record(folder, [run for run, _ in returns])
    for run, found in returns:
        every = run.steps // (len(found) - 1)
        lines = [f"{number * every},{value},{360 * number}" for number, value in enumerate(found)]
        (folder / run.folder).mkdir(parents=True)
        (folder / run.folder / "metrics.csv").write_text("\n".join(["step,eval/return,time/wall", *lines]) + "\n")


def test_all_model_free_methods_are_on_hopper() -> None:
    runs = [*runs_of("methods_hopper"), *runs_of("methods_grac")]
    model_free = {name for name, entry in OWN.items() if entry.group != "model-based"}
    assert sorted(run.algo for run in runs) == sorted(model_free)
    assert {(run.task, run.seed, run.preset) for run in runs} == {("gym/Hopper-v5", 0, "best")}
    assert {run.algo for run in runs if run.steps == 20_000} == {"grac", "bee-grac"}
    updates = {run.options.get("critic_updates_per_step") for run in runs if OWN[run.algo].group != "on-policy"}
    assert updates == {1}


def test_pairs_differ_in_lambda_alone(tables: ModuleType) -> None:
    runs = [*runs_of("methods_pairs"), *runs_of("methods_pairs_rrs")]
    planned = {(run.algo, run.task, run.seed): run for run in runs}
    assert len(planned) == 42
    for without, with_it in tables.PAIRS:
        for (algo, task, seed), run in planned.items():
            if algo == without:
                other = planned[with_it, task, seed]
                options = [Plan.make(each.algo, task, each.preset, dict(each.options)).agent.to_dict() for each in (run, other)]
                assert {name for name, value in options[0].items() if options[1][name] != value} == {"lam"}
                assert (options[0]["critic_updates_per_step"], options[0]["policy_updates_per_step"]) == (2, 1)


def test_tables_without_records_say_so(tables: ModuleType) -> None:
    assert "kept yet" in tables.methods_hopper() and "kept yet" in tables.methods_pairs()


def test_the_table_of_hopper_has_what_is_there(tables: ModuleType, tmp_path: Path) -> None:
    chosen = {run.algo: run for run in runs_of("methods_hopper")}
    keep(tmp_path / "methods-hopper", [(chosen["bac"], [5.0, 100.0, 900.0, 300.0, 400.0, 700.0])])
    grac = next(run for run in runs_of("methods_grac") if run.algo == "grac")
    keep(tmp_path / "methods-grac", [(grac, [1.0, 2.0, 8.0])])
    lines = tables.methods_hopper().splitlines()
    assert lines[0] == "| method | 20k steps | 50k steps | 100k steps | best | minutes per 100k steps |"
    assert lines[2:4] == ["| `bac` | 100 | – | 700 | 900 | 30 |", "| `grac` | 8 | – | – | 8 | 60 |"]
    assert [line.split(" | ")[0] for line in lines[4:]] == [f"| {title}" for *_, title in tables.HOPPER_BESIDE]
    assert all("–" not in line.split(" | ")[2:4] for line in lines[4:])


def test_pairs_are_compared_on_the_seeds_that_both_have(tables: ModuleType, tmp_path: Path) -> None:
    runs = {(run.algo, run.task, run.seed): run for run in runs_of("methods_pairs")}
    spin, walk = "dmc/finger-spin", "dmc/walker-run"
    ends = {
        ("sac", spin, 0): 100.0, ("bac", spin, 0): 130.0, ("sac", spin, 1): 200.0, ("bac", spin, 1): 250.0,
        ("sac", walk, 0): 50.0, ("bac", walk, 0): 40.0, ("sac", walk, 1): 60.0, ("td3", walk, 0): 7.0,
    }  # fmt: skip
    keep(tmp_path / "methods-pairs", [(runs[key], [0.0, value]) for key, value in ends.items()])
    lines = tables.methods_pairs().splitlines()[2:]
    assert lines[1] == "| `sac` → `bac` | dmc/walker-run | 1 | 50 | 40 | −10 | – | – |"
    assert lines[0].startswith("| `sac` → `bac` | dmc/finger-spin | 2 | 150 | 190 | +40 | [+30, +50] | ")
    # by hand: variances 5000 and 7200, pooled 6100, t(.975; 2) + t(.8; 2) = 4.3027 + 1.0607
    assert int(lines[0].split("|")[8]) == round(5.3634 * 6100**0.5) and len(lines) == 2
