"""Reading run folders, naming their lines, and the tables made of them."""

import json

import numpy as np
import pytest
from report_fixtures import make_matrix, make_run

from beeline import report
from beeline.errors import ConfigError, RunFolderError, UnknownNameError
from beeline.report import runs


def test_a_run_is_read_back(tmp_path):
    run = runs.read_run(make_run(tmp_path, "bac", "dmc/walker-run", 3, steps=20_000))
    assert (run.algo, run.task, run.seed, run.state, run.step, run.planned, run.repeat) == (
        "bac", "dmc/walker-run", 3, "finished", 20_000, 20_000, 2)
    assert run.series("eval/return").steps.tolist() == [5000, 10_000, 15_000, 20_000]
    assert run.series("train/return").steps.size == 20
    assert run.series("no/such").steps.size == 0
    assert not run.has("eval/success")


@pytest.mark.parametrize("tail", ["21000,55", "21000," + "," * 17, "\0\0\0\0", "21000,1,2\n", "21000" + ",x" * 18 + "\n"])
def test_a_half_written_last_line_is_left_out(tmp_path, tail):
    whole = runs.read_run(make_run(tmp_path, steps=20_000, name="whole"))
    cut = runs.read_run(make_run(tmp_path, steps=20_000, name="cut", tail=tail))
    for name in ("eval/return", "train/return", "q/mean"):
        np.testing.assert_array_equal(cut.series(name).values, whole.series(name).values)


def test_every_cut_of_the_table_can_be_read(tmp_path):
    path = make_run(tmp_path, steps=6000)
    text = (path / "metrics.csv").read_bytes()
    full = runs.read_run(path).series("train/return").values
    for cut in range(0, len(text), 7):
        (path / "metrics.csv").write_bytes(text[:cut])
        seen = runs.read_run(path).series("train/return").values
        np.testing.assert_array_equal(seen, full[: seen.size])


def test_missing_or_broken_files(tmp_path):
    path = make_run(tmp_path)
    (path / "metrics.csv").unlink()
    (path / "status.json").write_text('{"state": "runn')
    run = runs.read_run(path)
    assert (run.state, run.step, run.columns) == ("unknown", 0, {})
    (path / "config.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"no readable config\.json"):
        runs.read_run(path)
    assert runs.read_all([tmp_path]) == []
    with pytest.raises(RunFolderError, match="does not exist"):
        runs.find([tmp_path / "nowhere"])


def test_a_repeated_step_counts_once_and_the_later_row_wins(tmp_path):
    path = make_run(tmp_path, steps=5000)
    with (path / "metrics.csv").open("a") as file:
        file.write("5000,,,,,,123.0" + "," * 12 + "\n")
    series = runs.read_run(path).series("eval/return")
    assert (series.steps.tolist(), series.values.tolist()) == ([5000], [123.0])


def test_action_repeat_is_the_option_or_the_ids_or_one(tmp_path):
    def repeat(env, given, name):
        return runs.read_run(make_run(tmp_path, env=env, repeat=given, name=name, steps=5000)).repeat

    assert repeat("dmc/walker-run?repeat=4", None, "a") == 4
    assert repeat("dmc/walker-run", None, "b") == 1
    assert repeat("dmc/walker-run", 2, "c") == 2


def test_find_takes_each_run_once(tmp_path):
    make_matrix(tmp_path, seeds=1, steps=5000)
    assert len(runs.find([tmp_path, tmp_path, next(tmp_path.iterdir())])) == 4


def test_lines_split_only_where_options_differ_within_a_task(tmp_path):
    make_run(tmp_path, "bac", "dmc/walker-run", 0, agent={"batch": 256}, steps=5000)
    make_run(tmp_path, "bac", "dmc/dog-run", 0, agent={"batch": 2048}, steps=5000)
    found = runs.read_all([tmp_path])
    assert set(runs.labels(found)) == {"bac"}
    make_run(tmp_path, "bac", "dmc/dog-run", 1, agent={"batch": 2048, "lam": 0.0}, steps=5000)
    found = runs.read_all([tmp_path])
    assert sorted(set(runs.labels(found))) == ["bac lam 0", "bac lam 0.5"]


def test_differences_do_not_confuse_one_with_true(tmp_path):
    make_run(tmp_path, "bac", seed=0, agent={"utd": 1, "double": True}, steps=5000)
    make_run(tmp_path, "sac", seed=0, agent={"utd": 2, "double": False}, steps=5000)
    found = runs.read_all([tmp_path])
    table = {row["field"]: row["values"] for row in runs.differences(found, runs.labels(found))}
    assert table == {"agent.lam": ["0.5", "0"], "agent.utd": ["1", "2"], "agent.double": ["yes", "no"]}


def test_runs_table_filters_and_sorts(tmp_path):
    make_matrix(tmp_path, seeds=2, steps=10_000)
    make_run(tmp_path, "td3", "dmc/walker-run", 0, done=3000, steps=10_000, state="failed", reason="NaN")
    rows = report.runs_table(tmp_path)
    assert len(rows) == 9
    assert len(report.runs_table(tmp_path, ["algo=bac"])) == 4
    assert len(report.runs_table(tmp_path, ["task~WALKER", "seed=0"])) == 3
    assert len(report.runs_table(tmp_path, ["state!=failed"])) == 8
    assert all(row["return"] > 300 for row in report.runs_table(tmp_path, ["return>300"]))
    assert 0 < len(report.runs_table(tmp_path, ["return>300"])) < 9
    assert report.runs_table(tmp_path, ["algo==bac"]) == report.runs_table(tmp_path, ["algo=bac"]) != []
    ordered = report.runs_table(tmp_path, sort="-return")
    assert ordered[-1]["algo"] == "td3"  # no evaluation: last either way
    assert report.runs_table(tmp_path, sort="return")[-1]["algo"] == "td3"
    values = [row["return"] for row in ordered[:-1]]
    assert values == sorted(values, reverse=True)
    keys = [(row["algo"], -row["seed"]) for row in report.runs_table(tmp_path, sort="algo,-seed")]
    assert keys == sorted(keys)
    with pytest.raises(UnknownNameError, match="algo"):
        report.runs_table(tmp_path, ["algos=bac"])
    with pytest.raises(UnknownNameError):
        report.runs_table(tmp_path, sort="score")
    with pytest.raises(ConfigError, match="filter"):
        report.runs_table(tmp_path, ["bac"])
    with pytest.raises(ConfigError, match="not both are numbers"):
        report.runs_table(tmp_path, ["algo>3"])


def test_results_table_is_read_by_polars_and_duckdb(tmp_path):
    make_matrix(tmp_path / "runs", seeds=2, steps=10_000)
    rows = report.results(tmp_path / "runs")
    assert len(rows) == 8 * 2
    path = report.write_table(rows, tmp_path / "results.csv")
    assert path.read_text().splitlines()[0] == "run,algo,task,seed,preset,step,return,return_std,length,success"
    pl = pytest.importorskip("polars")
    path = report.write_table(rows, tmp_path / "results.parquet")
    table = pl.read_parquet(path)
    assert table.height == 16
    assert table.schema["step"] == pl.Int64
    assert table.schema["return"] == pl.Float64
    assert table["success"].null_count() == 16
    duckdb = pytest.importorskip("duckdb")
    for name in ("results.parquet", "results.csv"):
        query = f"select count(*), max(step) from '{tmp_path / name}' where algo = 'bac'"
        assert duckdb.sql(query).fetchall() == [(8, 10_000)]


def test_tables_of_other_kinds_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv or \.parquet"):
        report.write_table([], tmp_path / "results.xlsx")
    assert json.dumps(report.write_table([], tmp_path / "empty.csv").read_text().split(",")[0]) == '"run"'
