"""The study of late underestimation: its matrix, its numbers from metrics made by hand, and a tiny one from end to end."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from whole_runs import HERE, small

from beeline.bench import plan as bench_plan
from beeline.cli import main
from beeline.errors import RunFolderError, UnknownNameError
from beeline.studies import underestimation as study

WALK = "toys:Walk-v0"
TINY = small("td3", diagnose=60)
STEPS = TINY.pop("steps")
assert TINY.pop("preset") == study.PRESET


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_the_study_is_every_algorithm_with_two_critics_and_with_one(tmp_path: Path) -> None:
    runs = study.plan(tmp_path)
    assert len(runs) == 2 * 10
    assert {(run.variant, run.algo, run.options.get("double_q", "on")) for run in runs if "lam0" not in run.variant} == {
        (algo + end, algo, "off" if end else "on") for algo in ("sac", "bac", "td3", "bee-td3") for end in ("", "-single")
    }
    assert {run.options["lam"] for run in runs if "lam0" in run.variant} == {0.0}
    assert {run.algo for run in runs if run.options.get("alpha") == 0.1} == {"sac", "bac"}  # only they have a temperature
    assert {(run.steps, run.options["diagnose"], run.threads) for run in runs} == {(100_000, 5_000, 1)}


def test_the_discount_is_one_per_environment_step(tmp_path: Path) -> None:
    assert study.discount("gym/Hopper-v5") == 0.99
    assert study.discount("dmc/walker-run?repeat=2") == 0.9801
    [run] = study.plan(tmp_path, task="dmc/walker-run?repeat=4", algos="sac", seeds=1)
    assert run.options["gamma"] == 0.9606


def test_what_is_not_given_is_as_recorded_and_a_plan_may_grow(tmp_path: Path) -> None:
    first = study.plan(tmp_path, task="gym/A-v1", steps=5_000, algos="sac,td3-single", seeds="3,")
    bench_plan.record(tmp_path, first)
    assert study.plan(tmp_path) == first
    longer = study.plan(tmp_path, steps="6e3")
    assert [(run.folder, run.steps) for run in longer] == [(run.folder, 6_000) for run in first]
    more = study.plan(tmp_path, seeds="3,4")
    assert [(run.variant, run.seed) for run in more] == [("sac", 3), ("td3-single", 3), ("sac", 4), ("td3-single", 4)]
    bench_plan.record(tmp_path, more)
    with pytest.raises(RunFolderError, match="another plan"):
        bench_plan.record(tmp_path, study.plan(tmp_path, task="gym/B-v1"))


def test_a_matrix_of_something_else_is_left_alone(tmp_path: Path) -> None:
    other = {"algos": "mine", "variant": {"mine": {"algo": "bac"}}, "tasks": "gym/A-v1"}
    bench_plan.record(tmp_path, bench_plan.expand(other))
    with pytest.raises(RunFolderError, match="none of this study"):
        study.plan(tmp_path)


def test_an_unknown_variant_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown variant 'sac-singel'\. Did you mean 'sac-single'"):
        study.plan(tmp_path, algos="sac-singel")


# --- numbers ----------------------------------------------------------------------------------------------------------


def metrics(gaps: list[float], soft: bool = False, first: int = 30, **more: list[float]) -> list[dict[str, Any]]:
    """The rows of a run with a diagnosis every 30 steps, and a row of the log between."""
    rows: list[dict[str, Any]] = [{"step": 0, "eval/return": 1.0, "diag/q_min": None}, {"step": 5, "eval/return": None}]
    for number, gap in enumerate(gaps):
        row = {"step": first + 30 * number, "diag/q_min": 9.0, "diag/delta": 0.5, "diag/delta_norm": 0.25, "diag/better": 0.5}
        for name in study.GAPS if soft else study.GAPS[:2]:
            row |= {f"diag/{name}": gap, f"diag/{name}_norm": gap / 10}
        rows.append(row | {f"diag/{name}": values[number] for name, values in more.items()})
    return [*rows, {"step": 125, "eval/return": 7.0}]


def test_sign_changes_are_the_first_to_under_and_the_one_that_stays() -> None:
    def changes(*gaps: float) -> tuple[float | None, float | None]:
        return study.to_under(metrics(list(gaps)), "diag/gap_min")

    assert changes(2.0, -2.0, 1.0, -3.0) == (45.0, 97.5)  # under, over at 80, under for good
    assert changes(2.0, -2.0, -1.0, 3.0) == (45.0, None)  # over at the end
    assert changes(3.0, -1.0, -1.0) == (52.5, 52.5)
    assert changes(-1.0, -2.0) == (None, None) == changes(1.0, 2.0) == changes()
    assert changes(-1.0, 1.0, 2.0) == (None, None)


def test_the_numbers_of_a_run_are_those_of_metrics_made_by_hand() -> None:
    found = study.measure(metrics([2.0, -2.0, 1.0, -3.0], delta=[-1.0, 1.0, 2.0, 4.0], better=[0.1, 0.2, 0.3, 0.6]))
    assert found["step"] == 120 and found["return"] == 7.0
    assert (found["gap_min_under"], found["gap_min_under_stays"]) == (45.0, 97.5)
    assert (found["gap_min_late"], found["gap_min_late_norm"]) == (-1.0, -0.1)  # of steps 90 and 120: those after 80
    assert (found["delta"], found["delta_late"], found["delta_positive"]) == (1.5, 3.0, 0.75)
    assert (found["better"], found["better_late"]) == (0.3, 0.45)
    assert (found["delta_norm"], found["gap_mean_late"]) == (0.25, -1.0)
    assert found["soft_gap_min_late"] is found["soft_gap_min_under"] is None
    assert study.measure(metrics([1.0], soft=True))["soft_gap_min_late_norm"] == 0.1


def rows_of(late: dict[tuple[str, int], float]) -> list[dict[str, Any]]:
    """Rows of the table of runs whose gap is constant."""
    found = []
    for (variant, seed), gap in late.items():
        own = {"variant": variant, "algo": variant.removesuffix(study.SINGLE), "double_q": not variant.endswith(study.SINGLE)}
        found.append(own | {"seed": seed} | study.measure(metrics([gap] * 3)))
    return found


def test_the_summary_is_over_seeds() -> None:
    first, second = study.summarise(rows_of({("sac", 0): -2.0, ("sac", 1): -4.0, ("bac", 0): 1.0}))
    assert (first["variant"], first["seeds"], first["gap_min_late"]) == ("sac", 2, -3.0)
    assert first["gap_min_late_std"] == pytest.approx(2**0.5, abs=1e-4)
    assert (second["seeds"], second["gap_min_late"], second["gap_min_late_std"]) == (1, 1.0, None)
    assert (first["gap_min_under"], first["gap_min_under_seeds"]) == (None, 0)


def test_the_comparison_is_seed_by_seed() -> None:
    late = {("sac", 0): -2.0, ("sac", 1): -4.0, ("sac", 2): 5.0, ("bac", 0): -1.0, ("bac", 1): 5.0, ("td3-single", 0): 1.0}
    found = study.compare(rows_of(late))
    assert {(row["without"], row["with"]) for row in found} == {("sac", "bac")}
    shown = [("gap_min", "q"), ("gap_min", "return"), ("gap_mean", "q"), ("gap_mean", "return")]
    assert [(row["gap"], row["unit"]) for row in found] == shown
    raw, row = found[:2]
    assert (raw["late_without"], raw["late_with"], raw["difference"]) == (-3.0, 2.0, 5.0)
    assert (row["seeds"], row["late_without"], row["late_with"], row["difference"]) == (2, -0.3, 0.2, 0.5)
    assert row["difference_std"] == pytest.approx(0.5657, abs=1e-4)  # of .1 and .9
    assert (row["under_without"], row["lessened"]) == (2, 1)  # seed 1 overshoots: 5 is farther from zero than -4


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_bias_figure_marks_where_the_mean_over_seeds_changes_its_sign() -> None:
    from beeline.studies import underestimation_figure

    runs = {"sac": [metrics([2.0, -1.0], soft=True), metrics([4.0, -2.0], soft=True)], "td3-single": [metrics([-1.0, -1.0])]}
    grid = underestimation_figure.draw_bias(runs, "a task").axes
    assert len(grid) == 6  # two rows, two kinds of return for SAC and one for TD3
    marks = [[line for line in axes.lines if line.get_marker() == "v"] for axes in grid]
    assert [len(found) for found in marks] == [1, 1, 0, 0, 0, 0]
    assert marks[0][0].get_xdata()[0] == pytest.approx(50.0)  # 30 + 30 * 3 / 4.5
    assert [axes.get_title()[:12] for axes in grid] == ["SAC: against", "SAC: against", "TD3: against", "", "", ""]
    assert grid[3].get_xlabel() == "environment steps" and grid[3].xaxis.get_major_formatter()(20_000, 0) == "20k"
    assert [bool(axes.collections) for axes in grid] == [True, True, False, False, False, True]  # bands


def test_the_delta_figure_has_blue_bars_above_and_orange_below() -> None:
    from matplotlib.colors import to_hex

    from beeline.diagnostics.plots import BLUE, ORANGE
    from beeline.studies import underestimation_figure

    runs = {"sac": [metrics([0.0, 0.0], delta=[-1.0, 3.0]), metrics([0.0, 0.0], delta=[-2.0, 1.0])]}
    [axes] = underestimation_figure.draw_delta(runs, "a task").axes
    bars = [(bar.get_height(), to_hex(bar.get_facecolor()).upper()) for bar in axes.patches]
    assert axes.get_title() == "SAC" and axes.get_xlabel() == "environment steps"
    assert bars == [(-1.5, ORANGE), (2.0, BLUE)]


# --- from end to end --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a study."""
    out = tmp_path_factory.mktemp("study") / "new"
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", f"{HERE}:{HERE.parent}")  # for the workers, which import toys
    assert study.run(out, task=WALK, steps=STEPS, seeds=1, algos="sac,bee-td3-single", options=TINY) == 0
    patch.undo()
    return out


def stamps(out: Path) -> dict[str, int]:
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in sorted(out.glob("*/*/seed*/metrics.csv"))}


def test_tables_and_figures_are_written(tiny: Path) -> None:
    found = json.loads((tiny / "underestimation.json").read_text())
    assert (found["task"], found["gamma"], found["runs"], found["finished"]) == (WALK, 0.99, 2, 2)
    assert [(row["variant"], row["double_q"], row["seed"], row["step"]) for row in found["rows"]] == [
        ("sac", True, 0, STEPS), ("bee-td3-single", False, 0, STEPS)
    ]  # fmt: skip
    sac, bee = found["rows"]
    assert sac["soft_gap_min_late"] is not None and bee["soft_gap_min_late"] is None
    assert bee["gap_min_late"] == bee["gap_mean_late"]  # it has one critic
    assert 0.0 <= sac["better"] <= 1.0 and sac["delta"] is not None and sac["return"] < 0.0
    with (tiny / "underestimation.csv").open() as file:
        assert [float(row["gap_min_late"]) for row in csv.DictReader(file)] == [row["gap_min_late"] for row in found["rows"]]
    for name in ("bias", "delta"):
        assert (tiny / f"underestimation-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tiny / f"underestimation-{name}.svg").read_text()[:600]


def test_started_again_it_repeats_nothing_and_more_seeds_are_added(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{HERE.parent}")
    before = stamps(tiny)
    assert main(["paper", "underestimation", "--out", str(tiny)]) == 0
    said = capsys.readouterr().out
    assert "2 runs (2 finished)" in said and "running" not in said and stamps(tiny) == before
    assert study.run(tiny, seeds=2, options=TINY) == 0
    after = stamps(tiny)
    assert len(after) == 4 and {name: after[name] for name in before} == before
    assert [row["seeds"] for row in json.loads((tiny / "underestimation.json").read_text())["variants"]] == [2, 2]


def test_drawing_alone_trains_nothing(tiny: Path, capsys: pytest.CaptureFixture) -> None:
    before = stamps(tiny)
    (tiny / "underestimation-bias.png").unlink()
    assert main(["paper", "underestimation", "--out", str(tiny), "--draw", "--algos", "sac"]) == 0
    assert {row["variant"] for row in json.loads((tiny / "underestimation.json").read_text())["rows"]} == {"sac"}
    assert (tiny / "underestimation-bias.png").exists() and stamps(tiny) == before


def test_there_must_be_something_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["paper", "underestimation", "--out", str(tmp_path), "--draw"]) == 2
    assert f"there is no study in {tmp_path} to draw: train first, without --draw" in capsys.readouterr().err
    bench_plan.record(tmp_path, study.plan(tmp_path, task="gym/A-v1"))
    assert main(["paper", "underestimation", "--out", str(tmp_path), "--draw"]) == 2
    assert "has a diagnosis yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["random-walk", "--draw"], "--draw is no option of random-walk; it is one of underestimation"),
        (["underestimation", "--quick"], "--quick is no option of underestimation; it is one of gridworld"),
        (["random-walk", "--seeds", "3"], "it is one of gridworld and underestimation"),
        (["underestimation", "--draw", "--steps", "9"], "has no other options than --out and --algos"),
        (["gridworld", "--seeds", "few"], "seeds = 'few' is no number of seeds"),
        (["underestimation", "--seeds", "few"], "seeds = 'few' is neither"),
    ],
)
def test_options_of_another_study_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["paper", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
