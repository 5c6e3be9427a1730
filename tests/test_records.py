"""The records behind the documentation are whole, and `keep_records` keeps what is finished and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch
from beeline.run.record import read_metrics

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Kept as their runs are finished; their pages say so where there is none.
GOING_ON = [
    name
    for name in ("defaults-table", "dkitty-walk", "methods-grac", "methods-hopper", "methods-pairs", "methods-pairs-rrs")
    if (BENCHMARKS / "records" / name).exists()
]
MATRICES = ("bac-against-sac", "defaults-probe", "defaults-probe-start", "starting-temperature", "underestimation", *GOING_ON)


def test_no_other_records_are_kept() -> None:
    assert {path.name for path in (BENCHMARKS / "records").iterdir() if path.is_dir()} == set(MATRICES)


@pytest.mark.parametrize("name", MATRICES)
def test_every_planned_run_is_there_to_its_end(name: str) -> None:
    matrix = BENCHMARKS / "records" / name
    runs = bench_plan.recorded(matrix)
    assert runs
    for run in runs:
        assert bench_watch.look(matrix, run).state in ("finished", *(("stopped",) if name in GOING_ON else ())), run.folder
        config = json.loads((matrix / run.folder / "config.json").read_text())
        options = config["agent"] | config["train"]
        assert (config["algo"], config["env"], config["seed"]) == (run.algo, run.task, run.seed)
        assert {name: options[name] for name in run.options} == dict(run.options), run.folder
        rows = read_metrics(matrix / run.folder / "metrics.csv")
        evaluated = [row["step"] for row in rows if row["eval/return"] is not None]
        assert 0 < (reached := int(rows[-1]["step"])) <= run.steps and (reached == run.steps or name in GOING_ON)
        assert evaluated == list(range(0, reached + 1, options["eval_every"])), run.folder
        if options["diagnose"]:
            diagnosed = [row["step"] for row in rows if row["diag/gap_min"] is not None]
            assert diagnosed == list(range(options["diagnose"], run.steps + 1, options["diagnose"])), run.folder


def test_only_finished_runs_are_kept_and_without_what_is_large(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("keep_records", BENCHMARKS / "keep_records.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    matrix, records = tmp_path / "matrix", tmp_path / "records"
    matrix.mkdir()
    runs = bench_plan.expand({"algos": "sac", "tasks": "gym/Pendulum-v1", "seeds": 2, "steps": 3000})
    bench_plan.record(matrix, runs)
    for run, state in zip(runs, ("finished", "running")):
        folder = matrix / run.folder
        (folder / "replay").mkdir(parents=True)
        for name, content in {"config.json": "{}", "metrics.csv": "step\n3000\n", "policy.npz": "large"}.items():
            (folder / name).write_text(content)
        (folder / "status.json").write_text(json.dumps({"state": state, "step": 3000}))
    assert script.keep(matrix, records) == (1, 2)
    kept = {str(path.relative_to(records)) for path in records.rglob("*") if path.is_file()}
    assert kept == {"matrix.json", *(f"{runs[0].folder}/{name}" for name in ("config.json", "metrics.csv", "status.json"))}
    assert bench_plan.recorded(records) == runs[:1]
    bench_plan.record(records, runs)  # the whole plan is one that only adds to it
    assert [bench_watch.look(records, run).state for run in runs] == ["finished", "waiting"]
    assert script.keep(matrix, records, so_far=True) == (2, 2)
    assert [bench_watch.look(records, run).state for run in runs] == ["finished", "stopped"]
