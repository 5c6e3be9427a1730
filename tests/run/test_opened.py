"""A run folder as a value: finished or going on, its rows in any table, and one line that says what it is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from whole_runs import small

import beeline
from beeline.errors import BeelineError, MissingExtraError, RunFolderError

WALK = "toys:Walk-v0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return beeline.train("sac", WALK, out=tmp_path_factory.mktemp("my runs") / "a run", **small("sac")).path


def test_a_finished_run(trained: Path) -> None:
    run = beeline.open(trained)
    assert run.status.state == "finished" and run.status.step == 120
    assert run.config["algo"] == "sac" and [row["step"] for row in run.rows][:3] == [0, 20, 40]
    assert run.rows == run.metrics and run.policies.keys() == {"latest", "best"}
    assert run.policy().meta["step"] == 120
    assert isinstance(run, beeline.Run) and beeline.open(str(trained)) == run


def test_a_run_that_goes_on_shows_what_it_has_now(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"algo": "bac", "env": "gym/Hopper-v5", "seed": 3}))
    run = beeline.open(tmp_path)
    assert run.rows == [] and run.final_return is None and run.status.state == "unknown" and run.policies == {}
    assert run.frame().shape == (0, 0)
    (tmp_path / "status.json").write_text(json.dumps({"state": "running", "step": 1000, "reason": ""}))
    (tmp_path / "metrics.csv").write_text("step,eval/return\n0,1.5\n1000,\n20")  # a row is being written
    assert run.rows == [{"step": 0, "eval/return": 1.5}, {"step": 1000, "eval/return": None}]
    assert repr(run) == f"Run({tmp_path}: bac on gym/Hopper-v5, seed 3, running at step 1,000, return 1.5)"
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("00,2.5\n")
    assert run.rows[-1] == {"step": 2000, "eval/return": 2.5}
    assert run.status.step == 2000  # the status is written with checkpoints, which are rarer than rows
    assert repr(run).endswith("running at step 2,000, return 2.5)")
    (tmp_path / "status.json").write_text(json.dumps({"state": "stopped", "step": 1000, "reason": ""}))
    assert run.status.step == 1000


def test_a_frame_for_polars(trained: Path) -> None:
    pl = pytest.importorskip("polars")
    run = beeline.open(trained)
    frame = run.frame()
    assert frame.height == len(run.rows) and frame.schema["step"] == pl.Int64 and frame.schema["eval/return"] == pl.Float64
    returns = [row["eval/return"] for row in run.rows if row["eval/return"] is not None]
    assert frame["eval/return"].drop_nulls().to_list() == returns
    assert pl.DataFrame(run.rows).height == frame.height  # rows are taken as they are, too


def test_a_frame_for_pandas(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas: Any = ModuleType("pandas")
    pandas.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    run = beeline.open(trained)
    found = run.pandas()
    assert found["step"] == [int(row["step"]) for row in run.rows] and isinstance(found["step"][0], int)
    assert found["eval/return"] == [row["eval/return"] for row in run.rows]


def test_a_library_that_is_missing_is_named(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("polars", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[stats\]'"):
        beeline.open(trained).frame()
    with pytest.raises(BeelineError, match="pip install pandas"):
        beeline.open(trained).pandas()


def test_what_is_no_run_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"there is no run folder .*Did you mean .*a run\?"):
        beeline.open(trained.parent / "a rum")
    with pytest.raises(RunFolderError, match="is not a run folder"):
        beeline.open(tmp_path)


def test_everything_is_one_line(trained: Path) -> None:
    run = beeline.open(trained)
    assert repr(run).startswith(f"Run({trained}: sac on toys:Walk-v0, seed 0, finished at step 120, return -")
    policy = run.policy(best=True)
    assert repr(policy).startswith(f"Policy(sac on toys:Walk-v0, step {policy.meta['step']}, return -")
    assert repr(policy).endswith("observations, 1 actions)") or repr(policy).endswith("observations, 2 actions)")
    model = beeline.SAC(WALK, **small("sac"))
    assert repr(model) == "SAC(toys:Walk-v0, seed 0, step 0)"
    model.learn(20)
    assert repr(model).startswith("SAC(toys:Walk-v0, seed 0, step 20, return -")
    assert not any("\n" in repr(each) for each in (run, policy, model))


def test_a_folder_that_is_gone_or_damaged_still_has_a_name(tmp_path: Path) -> None:
    assert repr(beeline.Run(tmp_path / "gone")) == f"Run({tmp_path / 'gone'})"
    (tmp_path / "config.json").write_text("{")
    assert repr(beeline.Run(tmp_path)) == f"Run({tmp_path})"


def test_opening_a_run_needs_no_jax(trained: Path) -> None:
    code = (
        f"import sys, beeline; run = beeline.open({str(trained)!r}); run.rows, run.status, repr(run); "
        "print({'jax', 'gymnasium', 'mujoco'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- commands printed for copying -------------------------------------------------------------------------------------


def commands_in(text: str) -> list[list[str]]:
    """The words of every `beeline …` that a shell would see."""
    found = []
    for start in range(len(text)):
        if text.startswith(("beeline resume ", "beeline eval ", "beeline train ", "beeline check-env "), start):
            with_end = text[start:].split(")")[0].split(";")[0].split("\n")[0]
            found.append(shlex.split(with_end))
    return found


def test_printed_commands_are_quoted(trained: Path, beeline: Any, tmp_path: Path) -> None:
    from beeline import training
    from beeline.run.folder import RunFolder

    with pytest.raises(RunFolderError) as caught:
        RunFolder.refuse_existing(trained)
    assert commands_in(str(caught.value)) == [["beeline", "resume", str(trained)]]
    folder = RunFolder.open(trained)
    evaluation, anew = commands_in(training._instead(folder.plan(), folder))
    assert evaluation == ["beeline", "eval", str(trained), "--video"] and anew[:4] == ["beeline", "train", "sac", WALK]


def test_the_command_to_go_on_is_quoted(beeline: Any, tmp_path: Path) -> None:
    import signal

    from whole_runs import flags

    out = tmp_path / "my run; rm"
    process = beeline.start("train", "sac", WALK, *flags(small("sac", steps=100_000)), "--out", out)
    process.until(lambda: (out / "metrics.csv").exists() and (out / "metrics.csv").read_text().count("\n") > 3)
    process.signal(signal.SIGINT)
    assert process.wait() == 130
    last = process.err.strip().splitlines()[-1]
    assert shlex.split(last.partition("Go on with: ")[2]) == ["beeline", "resume", str(out)]


def test_rows_are_numbers(trained: Path) -> None:
    assert all(np.isfinite(row["time/wall"]) for row in beeline.open(trained).rows)
