"""Tables as they are seen at 80, 100 and 160 columns, and as rows where nobody looks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from whole_runs import HERE

from beeline import agents, screen
from beeline.cli import main
from beeline.envs.paper import PAPER_TASKS
from beeline.envs.tables import SUITES
from beeline.screen import Column

REASON = "environment 'gym/Tank-v0' failed in step(): RuntimeError: the pump is cold and nobody has looked after it for weeks"
TASKS = ("dmc/humanoid_CMU-run", "gym/HalfCheetah-v5", "metaworld/door-open")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: one is finished, one goes on, one failed."""
    for number, (task, state) in enumerate(zip(TASKS, ("finished", "running", "failed"))):
        folder = tmp_path / "runs" / f"bee-td3-{task.replace('/', '-')}-seed{number}"
        folder.mkdir(parents=True)
        config = {"format": 1, "algo": "bee-td3", "env": task, "seed": number, "preset": "paper", "train": {"steps": 1_000_000}}
        (folder / "config.json").write_text(json.dumps(config))
        status = {"state": state, "step": 345_678, "reason": REASON if state == "failed" else ""}
        (folder / "status.json").write_text(json.dumps(status))
        (folder / "metrics.csv").write_text("step,eval/return,eval/success\n0,-1.5,0.0\n345678,712.25,0.5\n")
    monkeypatch.chdir(tmp_path)
    return Path("runs")


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command prints on a terminal of some columns, without the bold heading's codes."""

    def see(columns: int, *words: Any) -> list[str]:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([str(word) for word in words]) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()

    return see


def test_a_run_that_goes_on_is_at_its_last_row(runs: Path, seen: Any) -> None:
    table = next(runs.glob("*HalfCheetah*")) / "metrics.csv"
    table.write_text(table.read_text() + "345999,713.5,0.5\n")
    assert "  345,999  " in next(line for line in seen(160, "runs", runs) if "running" in line)


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_a_run_is_a_line_with_its_whole_name(columns: int, runs: Path, seen: Any) -> None:
    lines = seen(columns, "runs", runs)
    assert len(lines) == 4 and max(map(len, lines)) <= columns
    for line, path in zip(lines[1:], sorted(runs.iterdir())):
        assert line.endswith(f"  {path}")
    assert [re.search(r"finished|running|failed", line)[0] for line in lines[1:]] == ["finished", "running", "failed"]  # type: ignore[index]
    assert "return" in lines[0] and all("712.2" in line for line in lines[1:])
    if columns >= 100:
        assert all(task in "\n".join(lines) for task in TASKS)


def test_a_reason_is_cut_between_words(runs: Path, seen: Any) -> None:
    lines = seen(200, "runs", runs, "--where", "state=failed")
    shown = re.search(r"environment .*?…", lines[1])
    assert shown and REASON.startswith(shown[0][:-1]) and REASON[len(shown[0]) - 1] in " :"


@pytest.mark.parametrize("columns", [80, 100, 160])
@pytest.mark.parametrize("words", [["algos"], ["algos", "bac"], ["envs"], ["envs", "dmc"], ["envs", "--paper"]], ids=" ".join)
def test_no_line_is_longer_than_the_terminal_and_no_name_is_cut(columns: int, words: list[str], seen: Any) -> None:
    lines = seen(columns, *words)
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    names = {
        "algos": list(agents.ALGORITHMS), "algos bac": [name.replace("_", "-") for name in agents.get("bac").config.names()],
        "envs": list(SUITES), "envs dmc": [f"dmc/{task}" for task in SUITES["dmc"].tasks],
        "envs --paper": [task.id for task in PAPER_TASKS],
    }[" ".join(words)]  # fmt: skip
    assert [name for name in names if not re.search(rf"(^|\s){re.escape(name)}(\s|$)", text)] == []


def test_what_is_not_installed_is_said_in_a_line_below(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beeline.envs.catalog.installed", lambda suite: suite.name not in ("adroit", "panda"))
    lines = seen(80, "envs")
    found = {words[0]: words[-1] for words in map(str.split, lines[1 : 1 + len(SUITES)])}
    assert found == {name: "no" if name in ("adroit", "panda") else "yes" for name in SUITES}
    assert lines[-2] == "To install adroit (another one: beeline envs SUITE):" and re.match(r"pip install .*\[hands\]", lines[-1])
    lines = seen(80, "envs", "panda")
    assert lines[-2] == "To install panda:" and re.match(r"pip install .*\[panda\]", lines[-1])
    assert "To install" not in "".join(seen(80, "envs", "dmc"))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_findings_are_broken_between_words_and_stand_below_each_other(columns: int, seen: Any) -> None:
    lines = seen(columns, "check-env", "toys:Walk-v0")
    assert max(map(len, lines)) <= columns and all(line[:8].strip() in ("ok", "warning", "") for line in lines)
    text = " ".join(line[8:] if not line[:8].strip() else line for line in lines)
    assert "actions in [-2, 3], [0, 1]" in text


def test_errors_and_notes_are_broken_between_words_and_commands_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["train", "sac", "gym/Pendulum-v1", "--policy-noise", "0.2"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and max(map(len, said)) <= 80
    assert " ".join(said).startswith("beeline: unknown option --policy-noise for sac. Here it is --smoothing-noise, an option of")
    again = f"beeline resume '{tmp_path}/a run with a name of many words, longer than any line of any terminal of 80 columns'"
    screen.complain(f"at step 12 of the run: it is over. A checkpoint is written; go on with: {again}")
    said = capsys.readouterr().err.splitlines()
    assert said == ["at step 12 of the run: it is over. A checkpoint is written; go on with:", again]
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    screen.complain("a sentence " * 20)
    assert capsys.readouterr().err.count("\n") == 1


def test_the_help_fits_80_columns(seen: Any) -> None:
    assert max(map(len, seen(80, "--help"))) <= 80


def piped(folder: Path, *words: Any) -> str:
    """What the command writes into a pipe of a narrow terminal."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent))), "COLUMNS": "60", "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "beeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=env).stdout


def test_a_pipe_gets_plain_rows_with_everything(runs: Path) -> None:
    lines = piped(Path(), "runs", runs).splitlines()
    names = ("algo", "task", "seed", "preset", "state", "step", "steps", "return", "success", "best", "reason", "path")
    assert tuple(lines[0].split()) == names
    assert len(lines) == 4 and REASON in lines[3] and "\x1b" not in "".join(lines)
    assert len({line.index(" runs/") for line in lines[1:]}) == 1  # aligned


def test_json(runs: Path) -> None:
    found = json.loads(piped(Path(), "runs", runs, "--json", "--where", "state=failed"))
    assert [(row["task"], row["return"], row["reason"]) for row in found] == [(TASKS[2], 712.25, REASON)]
    assert json.loads(piped(Path(), "runs", runs, "--json", "--where", "seed=9")) == []
    found = json.loads(piped(Path(), "algos", "--json"))
    assert {row["algorithm"] for row in found} == set(agents.ALGORITHMS)
    bac = agents.get("bac")
    assert found[0] == {
        "algorithm": "bac", "group": "BEE", "class": "BAC", "paper": "Ji et al. 2024", "held against": "the BAC release",
        "x SAC": bac.cost, "what it is": bac.summary,
    }  # fmt: skip
    assert all(row["paper"] and row["held against"] for row in found)
    options = {row["option"]: row for row in json.loads(piped(Path(), "algos", "sac", "--json"))}
    assert options["hidden"]["light"] == [256, 256] and options["tune-alpha"]["paper"] is True
    found = json.loads(piped(Path(), "envs", "--json"))
    assert [row["suite"] for row in found] == list(SUITES)
    tasks = {row["task"] for row in json.loads(piped(Path(), "envs", "dmc", "--json"))}
    assert tasks == {f"dmc/{task}" for task in SUITES["dmc"].tasks}


def test_algorithms_stand_in_their_groups_and_packages_that_failed_are_named(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {"theirs": "package theirs, theirs:ENTRY: ImportError: no [/module]"}
    monkeypatch.setattr(type(agents.ALGORITHMS), "failures", failures, raising=False)
    monkeypatch.setattr(agents.ALGORITHMS, "failures", failures, raising=False)
    lines = seen(100, "algos")
    found = [re.split(r"  +", line)[1] for line in lines[1 : len(agents.ALGORITHMS) + 1]]
    assert found == sorted(found, key=list(agents.GROUPS.values()).index) and found[0] == "BEE"
    assert "not usable: theirs (package theirs, theirs:ENTRY: ImportError: no [/module])" in lines


def test_options_of_an_algorithm(seen: Any) -> None:
    text = "\n".join(seen(200, "algos", "bee_td3"))
    assert re.search(r"\nrandom-steps +2500 +1000 +25000 +.*>= 0\b", text) and re.search(r"\nlam +0\.5 +0\.5 +0\.5 ", text)


# --- the layout -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("one two three", 13, "one two three"), ("one two three", 12, "one two…"), ("one two three", 8, "one two…"),
     ("one, two", 6, "one…"), ("immeasurable", 6, "…"), ("", 3, "")],
)  # fmt: skip
def test_sentences_are_cut_between_words(text: str, width: int, shown: str) -> None:
    assert screen.shorten(text, width) == shown


def test_prose_is_shortened_before_a_column_goes_and_takes_what_is_left() -> None:
    columns = [Column("name"), Column("more", goes=1), Column("why", goes=2, prose=True)]
    rows = [["abc", "x" * 10, "word " * 12 + "end"]]
    natural = {0: 4, 1: 10, 2: 63}
    assert screen.fit(columns, rows, None) == screen.fit(columns, rows, 200) == natural
    assert screen.fit(columns, rows, 60) == {0: 4, 1: 10, 2: 42}
    assert screen.fit(columns, rows, 42) == {0: 4, 1: 10, 2: 24}
    assert screen.fit(columns, rows, 41) == {0: 4, 2: 35}
    assert screen.fit(columns, rows, 18) == {0: 4, 2: 12}
    assert screen.fit(columns, rows, 17) == {0: 4, 1: 10}  # the narrow one is back
    assert screen.fit(columns, rows, 15) == {0: 4}
    assert screen.fit([*columns[:2], Column("why", goes=2, prose=True, comfort=40)], rows, 57) == {0: 4, 2: 51}
    assert screen.fit([Column("name"), Column("n", goes=1), Column("more", goes=2)], [["abc", "1", "x" * 90]], 80) == {0: 4, 1: 1}


def test_sentences_stand_below_rows_where_they_do_not_fit(seen: Any) -> None:
    lines = seen(80, "algos", "sac")
    place = next(number for number, line in enumerate(lines) if line.startswith("target-entropy "))
    assert lines[place + 1] == "    entropy to tune towards; none: as `target_entropy_per_action` says"
    assert any(re.search(r"^batch-size .* transitions per update$", line) for line in seen(250, "algos", "sac"))


def test_cells_hold_no_codes_and_no_lines() -> None:
    assert screen.cell("a\x1b[31m\nb") == "a�[31m b"
    assert (screen.cell(None), screen.cell(1234.56), screen.cell(12345)) == ("–", "1,234.6", "12,345")


def test_a_matrix_is_shown_with_whole_names() -> None:
    from beeline.bench import watch
    from beeline.bench.plan import BenchRun

    run = BenchRun("bee-td3-sparse", "bee-td3", "dmc/humanoid_CMU-run", 0, 1_000_000, "light", {})
    views = [watch.View(run, "failed", 5_000, 80.0, 712.25, REASON)]
    for width in (80, 100, 160):
        lines = watch.table(views, 65.0, 20, width).plain.splitlines()
        assert max(map(len, lines[:-1])) <= width and len(lines) == 3
        assert "dmc/humanoid_CMU-run  bee-td3-sparse" in lines[1] and "failed" in lines[1] and "712.2" in lines[1]
    assert REASON.startswith(re.search(r"environment .*(?=…)", lines[1])[0])  # type: ignore[index]
