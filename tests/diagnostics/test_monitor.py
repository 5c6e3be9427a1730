"""A diagnosed run trains as one that is not, resumes to the same bytes, and can be read when it is finished."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Walk
from whole_runs import arrays, same_run, small

import beeline as api
from beeline import agents, trees
from beeline.agents.base import Spaces
from beeline.cli import main
from beeline.diagnostics import delta, monitor, plots
from beeline.errors import ConfigError, EnvError, RunFolderError
from beeline.run.diagnose import crossings, diagnose_run, draw_q_bands, relative

WALK = "toys:Walk-v0"
OPTIONS = small("bac", blend="ada", diagnose=30)  # 60 and 120 are rows of the log as well, 30 and 90 are not


@pytest.fixture(scope="module", autouse=True)
def _little_effort() -> Any:
    """Fewer pairs and rows than users get; everything else as it is."""
    patch = pytest.MonkeyPatch()
    short = delta.Fit(steps=20, batch=32, rate=1e-3)
    patch.setattr(monitor.Effort.__init__, "__defaults__", (60, 256, 2, short))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train("bac", WALK, out=tmp_path_factory.mktemp("runs") / "diagnosed", **OPTIONS).path


def diagnoses(path: Path) -> list[dict[str, Any]]:
    return [row for row in api.Run(path).metrics if row["diag/q_min"] is not None]


def plain_columns(path: Path) -> list[dict[str, Any]]:
    """The rows without what a diagnosis adds: its columns, and the rows that are its own."""
    rows = [
        {name: value for name, value in row.items() if not name.startswith(("diag/", "time/"))} for row in api.Run(path).metrics
    ]
    return [row for row in rows if row["step"] % 20 == 0 or row["step"] % 50 == 0]


def test_a_diagnosed_run_trains_bit_identically(diagnosed: Path, tmp_path: Path) -> None:
    plain = api.train("bac", WALK, out=tmp_path / "plain", **(OPTIONS | {"diagnose": None})).path
    assert not [name for name in api.Run(plain).metrics[0] if "diag" in name]
    assert plain_columns(plain) == plain_columns(diagnosed)
    ours, theirs = arrays(plain), arrays(diagnosed)
    ours.pop("meta"), theirs.pop("meta")  # the count of rows differs, and nothing else of the state
    assert ours == theirs
    for name in ("policy.npz", "policy-best.npz"):
        assert (plain / name).read_bytes() == (diagnosed / name).read_bytes()


def test_every_column_is_filled_at_every_diagnosis_and_at_no_other_step(diagnosed: Path) -> None:
    rows = api.Run(diagnosed).metrics
    names = [name for name in rows[0] if name.startswith("diag/")] + ["time/diagnose"]
    assert len(names) == 25
    assert [row["step"] for row in diagnoses(diagnosed)] == [30, 60, 90, 120]
    for row in rows:
        assert [name for name in names if row[name] is not None] in ([], names)
    last = diagnoses(diagnosed)[-1]
    assert last["step"] == 120 and last["diag/pairs"] >= 60 and last["time/diagnose"] > 0
    quantiles = [last[f"diag/lambda_p{each}"] for each in monitor.QUANTILES]
    assert quantiles == sorted(quantiles) and 0 <= quantiles[0] < quantiles[-1] <= 1
    assert 0 < last["diag/better"] < 1
    assert last["diag/gap_mean"] >= last["diag/gap_min"]


def test_resume_is_exact_with_diagnoses(diagnosed: Path, tmp_path: Path) -> None:
    class Stop(api.Callback):
        def on_step(self, event: api.StepEvent) -> bool:
            return event.step < 70

    run = api.train("bac", WALK, out=tmp_path / "run", callbacks=[Stop()], **OPTIONS).path
    assert [row["step"] for row in diagnoses(run)] == [30, 60]
    api.resume(run)
    same_run(diagnosed, run)


def test_a_finished_run_is_read(diagnosed: Path, capsys: pytest.CaptureFixture) -> None:
    before = {path: path.read_bytes() for path in diagnosed.rglob("*") if path.is_file() and "diagnostics" not in path.parts}
    assert main(["diagnose", str(diagnosed), "--pairs", "60", "--fit", "5"]) == 0
    text = capsys.readouterr().out
    assert "gap_min" in text and "delta, fitted, expectile 0.95" in text and "sign of soft_gap_min" in text
    result = json.loads((diagnosed / "diagnostics" / "diagnostics.json").read_text())
    assert result["step"] == 120 and list(result["fitted_delta"]) == ["0.7", "0.9", "0.95"]
    # the same state, replay, seed and step as the run's own last diagnosis: the same numbers, from the checkpoint alone
    recorded = {name: value for name, value in diagnoses(diagnosed)[-1].items() if name.startswith("diag/")}
    assert result["latest"] == recorded
    assert [row["step"] for row in result["history"]] == [30, 60, 90, 120]
    for name in ("bias.png", "delta.png"):
        assert (diagnosed / "diagnostics" / name).read_bytes()[:4] == b"\x89PNG"
    assert before == {path: path.read_bytes() for path in before}


def test_bands_over_seeds(diagnosed: Path, tmp_path: Path) -> None:
    assert draw_q_bands([diagnosed, diagnosed], tmp_path / "bands.png").read_bytes()[:4] == b"\x89PNG"
    seeds = {1: 2.0, 2: 4.0, 3: 9.0}, {1: 4.0, 2: 4.0}
    rows = [[{"step": step, "diag/q_min": value} for step, value in each.items()] for each in seeds]
    steps, mean, spread = plots.band(rows, "diag/q_min")
    np.testing.assert_allclose(np.stack([steps, mean, spread]), [[1, 2], [3, 4], [np.sqrt(2), 0]])
    np.testing.assert_allclose(plots.band(rows[:1], "diag/q_min")[2], 0.0)


def test_figures_mark_what_they_should() -> None:
    gaps = enumerate([4.0, 2.0, -2.0])
    rows = [{"step": 10.0 * n, "diag/gap_min": gap, "diag/delta": gap - 1, "diag/q_min": 1.0} for n, gap in gaps]
    assert crossings(rows) == {"diag/gap_min": [{"step": 15.0, "to_under": True}]}
    texts = [text.get_text() for axes in plots.bias_figure(rows, "t").axes for text in axes.texts]
    assert texts == ["over → under\n15"]
    from matplotlib.colors import to_hex

    bars = plots.delta_figure(rows, "t").axes[0].patches
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [plots.BLUE, plots.BLUE, plots.ORANGE]
    plots.delta_figure(rows[:1], "one diagnosis is drawn as well")


def test_relative_values_by_hand() -> None:
    rows = [{"step": 1, "diag/q_min": 6.0, "diag/return": 4.0}, {"step": 2, "diag/q_min": -2.0, "diag/return": -8.0}]
    assert relative(rows) == [{"step": 1, "q_min": 0.75, "return": 0.5}, {"step": 2, "q_min": -0.25, "return": -1.0}]
    assert relative([]) == []


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_a_diagnosis_fills_its_columns_and_changes_nothing(algo: str) -> None:
    model = api.SAC if algo == "sac" else api.TD3
    trainer = model(WALK, **small(algo, diagnose=15, num_envs=2, normalize_obs=True)).learn(60).trainer
    assert trainer.diagnoser is not None
    before = trees.to_arrays(trainer.state)
    drawn = trainer.replay.sample(0, 7, 1, 8)
    row = trainer.diagnoser(trainer.state, trainer.replay, 60)
    assert tuple(row) == trainer.diagnoser.columns
    assert trainer.recorder.rows[-1].keys() >= row.keys()
    assert {name: trainer.recorder.rows[-1][name] for name in row if "time" not in name} == {
        name: value for name, value in row.items() if "time" not in name
    }
    after = trees.to_arrays(trainer.state)
    assert all(after[name].tobytes() == before[name].tobytes() for name in before)
    for ours, theirs in zip(drawn[:5], trainer.replay.sample(0, 7, 1, 8)[:5]):
        np.testing.assert_array_equal(ours, theirs)


def test_mistakes_are_told(diagnosed: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="diagnose needs an environment of its own"):
        api.train("bac", Walk(), out=tmp_path / "a", **OPTIONS)
    shared = Walk()
    made = iter([Walk(), shared, shared])
    with pytest.raises(EnvError, match="must make a new one"):
        api.train("bac", lambda: next(made), out=tmp_path / "b", **OPTIONS)
    with pytest.raises(ConfigError, match="diagnose = 0 is out of range"):
        api.train("bac", WALK, out=tmp_path / "c", **(OPTIONS | {"diagnose": 0}))
    with pytest.raises(ConfigError, match="pairs = 0"):
        diagnose_run(diagnosed, pairs=0)
    with pytest.raises(RunFolderError, match="no diagnoses"):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "config.json").write_bytes((diagnosed / "config.json").read_bytes())
        draw_q_bands([tmp_path / "d"], tmp_path / "d.png")
    assert not any((tmp_path / each).exists() for each in "abc")


def test_the_page_has_a_formula_for_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnostics.md").read_text()
    formulas = set(re.findall(r"^\| `([^`]+)` \| .+ \|$", page, re.MULTILINE))
    names = {
        name
        for algo in agents.OWN
        if agents.OWN[algo].group != "on-policy" and algo not in ("pets", "slbo")  # they have no Q
        for name in monitor.columns(agents.get(algo).build(agents.get(algo).config(hidden=(8, 8)), Spaces(2, (-1.0,), (1.0,))))
    }
    assert names == formulas
