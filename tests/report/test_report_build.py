"""The report's numbers, its file and its exports."""

import csv
import json
import re

import numpy as np
import pytest
from report_fixtures import make_matrix, make_run

from beeline import report
from beeline.errors import RunFolderError, UnknownNameError
from beeline.report import curves, export, page, statistics
from beeline.report.model import model
from beeline.report.runs import Series, read_all


def data_of(html: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])


def test_window_score_by_hand():
    one = Series(np.array([80.0, 91.0, 95.0, 100.0, 120.0]), np.array([1.0, 2.0, 3.0, 7.0, 50.0]))
    assert curves.window_score(one, 100) == 4.0
    assert curves.window_score(one, 90) == 1.0
    assert curves.window_score(one, 50) is None
    assert curves.window_score(Series(np.array([10.0]), np.array([5.0])), 100) == 5.0


def test_line_by_hand():
    a = Series(np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 20.0]))
    b = Series(np.array([0.0, 10.0]), np.array([2.0, 20.0]))
    line = curves.evaluation_line([a, b])
    assert line.mean.tolist() == [1.0, 15.0, 20.0]
    assert line.count.tolist() == [2, 2, 1]
    assert (line.low[:2].tolist(), line.high[:2].tolist()) == ([0.0, 10.0], [2.0, 20.0])
    assert np.isnan(line.low[2])  # one run is left: no band
    assert line.complete == 10.0


def test_band_is_a_bootstrap_from_five_runs():
    values = np.random.default_rng(0).normal(size=(8, 3))
    low, high = curves.band(values, reps=20_000)
    for step in range(3):
        expected = statistics.mean_interval(values[:, step])
        assert low[step] == pytest.approx(expected.low, abs=0.03)
        assert high[step] == pytest.approx(expected.high, abs=0.03)


def test_signals_are_binned():
    one = Series(np.arange(1.0, 1001.0), np.arange(1.0, 1001.0))
    line = curves.signal_line([one], most=10)
    assert line.steps.tolist() == [100.0 * k for k in range(1, 11)]
    assert line.mean[0] == pytest.approx(50.5)


def test_long_curves_are_thinned_and_keep_their_ends():
    one = Series(np.arange(5000.0), np.arange(5000.0))
    line = curves.evaluation_line([one])
    assert line.steps.size <= curves.MAX_POINTS
    assert (line.steps[0], line.steps[-1]) == (0.0, 4999.0)
    np.testing.assert_array_equal(line.mean, line.steps)


def test_model_numbers_are_those_of_the_statistics(tmp_path):
    make_matrix(tmp_path, seeds=5, steps=20_000)
    runs = read_all([tmp_path])
    data = model(runs)
    assert [line["name"] for line in data["lines"]] == ["bac", "sac"]
    expected = {}
    for run in runs:
        one = run.series("eval/return")
        expected.setdefault((run.algo, run.task), []).append(one.values[one.steps > 18_000].mean())
    for task in data["tasks"]:
        for cell in task["final"]:
            scores = expected[data["lines"][cell["line"]]["name"], task["id"]]
            np.testing.assert_allclose(cell["scores"], scores)
            assert cell["value"] == pytest.approx(np.mean(scores))
            assert cell["low"] < cell["value"] < cell["high"]
    matrix = np.array([expected["bac", task["id"]] for task in data["tasks"]]).T / 1000
    assert data["aggregates"]["rows"][0]["iqm"]["value"] == pytest.approx(statistics.iqm(matrix))
    other = np.array([expected["sac", task["id"]] for task in data["tasks"]]).T / 1000
    pair = data["aggregates"]["improvement"][0]
    assert (pair["first"], pair["second"]) == (0, 1)
    assert pair["value"] == pytest.approx(statistics.probability_of_improvement(matrix, other))
    last = [curve["mean"][-1] for curve in data["aggregates"]["efficiency"]["curves"]]
    assert last[0] > last[1]
    assert data["warnings"] == []
    x, y = (np.array(expected[algo, data["tasks"][0]["id"]]) for algo in ("bac", "sac"))
    assert data["tasks"][0]["resolves"] == pytest.approx(statistics.resolvable_difference(x, y))


def test_few_seeds_failed_and_unfinished_runs_are_said(tmp_path):
    make_matrix(tmp_path, seeds=2, steps=20_000)
    make_run(tmp_path, "bac", "dmc/walker-run", 7, steps=20_000, done=6000, state="running")
    make_run(tmp_path, "sac", "dmc/walker-run", 8, steps=20_000, state="failed", reason="non-finite reward", level=0.01)
    data = model(read_all([tmp_path]))
    text = " ".join(data["warnings"])
    assert "2 seeds: fewer than 5" in text
    assert "1 run failed and counts in no score: non-finite reward." in text
    assert "1 run has not come" in text
    walker = next(task for task in data["tasks"] if task["id"] == "dmc/walker-run")
    assert [(cell["seeds"], cell["runs"]) for cell in walker["final"]] == [(2, 3), (2, 3)]
    assert [len(curve["runs"]) for curve in walker["curves"]] == [3, 2]  # a failed run is in no mean
    assert walker["curves"][0]["complete"] == 5000


def test_one_seed_gets_no_interval_anywhere(tmp_path):
    make_matrix(tmp_path, seeds=1, steps=20_000)
    data = model(read_all([tmp_path]))
    assert "no interval" in data["warnings"][0]
    assert {cell["low"] for task in data["tasks"] for cell in task["final"]} == {None}
    assert {value for task in data["tasks"] for curve in task["curves"] for value in curve["low"]} == {None}
    found = data["aggregates"]
    assert {row[key]["low"] for row in found["rows"] for key in statistics.STATISTICS} == {None}
    assert {pair["low"] for pair in found["improvement"]} == {None}
    assert found["profile"][0]["low"] == found["efficiency"]["curves"][0]["low"] == []
    assert {task["resolves"] for task in data["tasks"]} == {None}


def test_running_matrix_is_compared_where_all_have_come(tmp_path):
    make_run(tmp_path, "bac", seed=0, steps=100_000, done=30_000, state="running")
    make_run(tmp_path, "sac", seed=0, steps=100_000, done=21_000, state="running")
    data = model(read_all([tmp_path]))
    assert (data["tasks"][0]["horizon"], data["tasks"][0]["provisional"]) == (20_000, True)
    assert [cell["seeds"] for cell in data["tasks"][0]["final"]] == [1, 1]
    assert "provisional" in " ".join(data["warnings"])


def test_success_suites_are_scored_by_success(tmp_path):
    make_run(tmp_path, "bac", "metaworld/hammer", 0, steps=20_000, success=True)
    make_run(tmp_path, "bac", "adroit/door", 0, steps=20_000)  # never recorded a success
    tasks = {task["id"]: task for task in model(read_all([tmp_path]))["tasks"]}
    assert tasks["metaworld/hammer"]["metric"] == "success"
    assert max(tasks["metaworld/hammer"]["curves"][0]["mean"]) <= 1
    assert (tasks["adroit/door"]["metric"], tasks["adroit/door"]["scale"]) == ("return", None)


def test_aggregates_leave_out_what_cannot_be_compared(tmp_path):
    make_matrix(tmp_path, seeds=2, steps=20_000)
    make_run(tmp_path, "bac", "dmc/dog-run", 0, steps=20_000)
    make_run(tmp_path, "bac", "gym/Pendulum-v1", 0, steps=20_000)
    found = model(read_all([tmp_path]))["aggregates"]
    assert found["tasks"] == ["dmc/finger-spin", "dmc/walker-run"]
    assert found["left_out"] == ["dmc/dog-run", "gym/Pendulum-v1"]


def test_more_than_four_lines_are_compared_with_the_best(tmp_path):
    make_matrix(tmp_path, algos=("a", "b", "c", "d", "e"), tasks=("dmc/walker-run",), seeds=2, steps=20_000)
    data = model(read_all([tmp_path]))
    pairs = data["aggregates"]["improvement"]
    assert len(pairs) == 4
    assert {data["lines"][pair["first"]]["name"] for pair in pairs} == {"a"}


def test_signals_that_never_change_are_named_not_drawn(tmp_path):
    make_matrix(tmp_path, tasks=("dmc/walker-run",), seeds=1, steps=20_000)
    data = model(read_all([tmp_path]))
    assert [one["name"] for one in data["signals"]] == ["diag/bias", "diag/delta", "alpha", "loss/critic", "q/mean"]
    assert data["constant"] == ["lambda = 0.5 (bac), 0 (sac)"]


def test_overlays_are_off_unless_asked_for(tmp_path):
    make_run(tmp_path, steps=20_000)
    runs = read_all([tmp_path])
    shown = model(runs)["tasks"][0]["published"]
    assert len(shown) == 22
    assert not any(one["on"] for one in shown)
    shown = model(runs, ["bee_figures", "tdmpc2/sac"])["tasks"][0]["published"]
    assert {one["name"] for one in shown if one["on"]} == {
        "bee_figures/bac", "bee_figures/bee-td3", "bee_figures/sac", "bee_figures/td3", "tdmpc2/sac"}
    with pytest.raises(UnknownNameError):
        model(runs, ["bee_figure"])


def test_the_file_is_alone_in_the_world(tmp_path):
    make_matrix(tmp_path / "runs", seeds=2, steps=20_000)
    out = report.build([tmp_path / "runs"], tmp_path / "deep" / "report.html")
    html = out.read_text()
    assert out.parent.name == "deep"
    assert "default-src 'none'" in html
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"']*", html)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?!data:)", html)
    assert data_of(html)["summary"]["runs"] == 8


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = "</script><script>alert(1)</script><!--"
    make_run(tmp_path / "runs", "bac", "dmc/walker-run", 0, steps=20_000, agent={"note": evil}, name="plain")
    make_run(tmp_path / "runs", evil, "dmc/walker-run", 0, steps=20_000, name="evil")
    html = report.build([tmp_path / "runs"], tmp_path / "report.html").read_text()
    assert "<script>alert(1)" not in html
    assert not set("<>\u2028") & set(page.embed_json([evil, "\u2028"]))
    assert html.count("</script>") == 2
    assert evil in [line["name"] for line in data_of(html)["lines"]]


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        report.build([tmp_path], tmp_path / "report.html")


def test_small_videos_are_embedded_large_ones_linked(tmp_path, monkeypatch):
    first = make_run(tmp_path / "my runs", "bac", steps=20_000)
    second = make_run(tmp_path / "my runs", "sac", steps=20_000)
    for run, size in ((first, 1000), (second, 5000)):
        (run / "videos").mkdir()
        (run / "videos" / "step 1.mp4").write_bytes(b"x" * size)
    monkeypatch.setattr(page, "SMALL_VIDEO", 2000)
    videos = data_of(report.build([tmp_path / "my runs"], tmp_path / "out" / "r.html").read_text())["videos"]
    assert videos[0]["embedded"] is True
    assert videos[0]["src"].startswith("data:video/mp4;base64,eHh4")
    assert videos[1]["embedded"] is False
    assert videos[1]["src"] == "../my%20runs/sac-dmc-walker-run-0/videos/step%201.mp4"
    assert videos[1]["size"] == "5 kB"


def test_every_figure_is_exported(tmp_path):
    make_matrix(tmp_path / "runs", tasks=("dmc/walker-run",), seeds=2, steps=20_000, diag=False)
    folder = tmp_path / "figures"
    report.build([tmp_path / "runs"], tmp_path / "r.html", overlay=["tdmpc2/sac"], export=folder)
    stems = {"curve-dmc-walker-run", "profile", "improvement", "efficiency", "signal-alpha-dmc-walker-run",
             "signal-loss-critic-dmc-walker-run", "signal-q-mean-dmc-walker-run"}
    single = {"aggregate-iqm", "aggregate-median", "aggregate-mean", "aggregate-optimality-gap"}
    expected = {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg", "csv")}
    expected |= {f"{stem}.{kind}" for stem in single for kind in ("png", "svg")} | {"aggregates.csv", "final.csv"}
    assert {path.name for path in folder.iterdir()} == expected
    assert (folder / "profile.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (folder / "profile.svg").read_text()[:600]
    with (folder / "curve-dmc-walker-run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["line"], row["source"]) for row in rows} == {("bac", ""), ("sac", ""), ("sac", "tdmpc2")}
    with (folder / "final.csv").open() as file:
        final = list(csv.DictReader(file))
    assert [row["line"] for row in final] == ["bac", "sac"]
    assert float(final[0]["low"]) <= float(final[0]["value"]) <= float(final[0]["high"])


def test_nine_published_curves_can_be_told_apart():
    assert len({export.published_style(number) for number in range(9)}) == 9
