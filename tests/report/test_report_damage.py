"""One damaged run is one line of warning, on the page, in the tables and in the live view; all the others are shown."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_fixtures import make_run
from whole_runs import no_longer_than, small

import beeline
from beeline import report
from beeline.cli.commands import main
from beeline.errors import RunFolderError, UnreadableError
from beeline.report import export, page
from beeline.report.live import Watched
from beeline.report.runs import read_all
from beeline.run.metrics import parse
from beeline.run.record import read_metrics


def data_of(path: Path) -> dict[str, Any]:
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])


def config(run: Path, **changes: Any) -> None:
    found = json.loads((run / "config.json").read_text())
    for name, value in changes.items():
        section, _, key = name.rpartition("__")
        (found[section] if section else found)[key] = value
    (run / "config.json").write_text(json.dumps(found))


def rows(run: Path, change: Callable[[list[str]], list[str]]) -> None:
    lines = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("\n".join(change(lines)) + "\n")


def step(text: str) -> Callable[[Path], None]:
    """Write something else under `step` in the last row."""
    return lambda run: rows(run, lambda lines: [*lines[:-1], text + lines[-1][lines[-1].index(",") :]])


def returns(text: str) -> Callable[[Path], None]:
    """Write something else under `eval/return` in the last row."""

    def change(lines: list[str]) -> list[str]:
        cells = lines[-1].split(",")
        return [*lines[:-1], ",".join([*cells[:6], text, *cells[7:]])]

    return lambda run: rows(run, change)


def header(old: str, new: str) -> Callable[[Path], None]:
    return lambda run: rows(run, lambda lines: [lines[0].replace(old, new), *lines[1:]])


def replaced(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return change


def status(**changes: Any) -> Callable[[Path], None]:
    return lambda run: (run / "status.json").write_text(json.dumps({"state": "finished", "step": 5000, "reason": ""} | changes))


def dangling(path: Path) -> None:
    path.symlink_to("nothing")


DEEP = "[" * 100_000
CASES: dict[str, tuple[Callable[[Path], Any], str, bool]] = {  # what is done, what is said, whether the run is shown
    "step inf": (step("inf"), "line 6 has no number of steps", True),
    "step nan": (step("nan"), "line 6 has no number of steps", True),
    "step 1e300": (step("1e300"), "line 6 has", True),
    "step back": (step("3"), "it goes back to step 3", True),
    "no step column": (header("step,", "stap,"), "no column 'step'", True),
    "column twice": (header("alpha", "q/mean"), "'q/mean' twice", True),
    "no returns": (header("eval/return,", "eval/retusn,"), "no column 'eval/return'", True),
    "a comma too many": (lambda run: rows(run, lambda lines: [*lines[:3], lines[3] + ",", *lines[4:]]), "line 4 has 20", True),
    "a long field": (returns("1" * 200_000), "line 6 has no number under 'eval/return'", True),
    "return 1.7e308": (returns("1.7e308"), "line 6 has 1.7e308 under 'eval/return'", True),
    "return -1.7e308": (returns("-1.7e308"), "line 6 has -1.7e308 under 'eval/return'", True),
    "return 1e999": (returns("1e999"), "line 6 has 1e999 under 'eval/return'", True),
    "return in other digits": (returns("١٢"), "line 6 has no number under 'eval/return'", True),
    "a high bit": (lambda run: flip(run / "metrics.csv", 40), "its header is no text", True),
    "metrics cut": (lambda run: os.truncate(run / "metrics.csv", 300), "the end of its last line is lost", True),
    "metrics lost": (lambda run: (run / "metrics.csv").unlink(), "metrics.csv is missing or empty", True),
    "status lost": (lambda run: (run / "status.json").unlink(), "status.json is missing", True),
    "config lost": (lambda run: (run / "config.json").unlink(), "config.json is missing", False),
    "steps infinite": (lambda run: config(run, train__steps=float("inf")), "steps is inf", False),
    "steps nan": (lambda run: config(run, train__steps=float("nan")), "steps is nan", False),
    "seed huge": (lambda run: config(run, seed=2**70), "seed is", False),
    "seed true": (lambda run: config(run, seed=True), "seed is True", False),
    "agent a list": (lambda run: config(run, agent=[1]), "agent is a list, no section", False),
    "env a number": (lambda run: config(run, env=5), "env is 5, no name", False),
    "no algo": (lambda run: config(run, algo=None), "algo is None, no name", False),
    "nested options": (lambda run: config(run, agent={"x": json.loads("[" * 400 + "]" * 400)}), "nested more than", False),
    "nested config": (lambda run: (run / "config.json").write_text(DEEP), "nested too deeply", False),
    "half a character": (lambda run: config(run, algo="a\ud800"), "is no Unicode text", False),
    "half a character in an option": (lambda run: config(run, agent={"x": ["\udfff"]}), "is no Unicode text", False),
    "config cut": (lambda run: os.truncate(run / "config.json", 100), "config.json is damaged", False),
    "status step": (status(step="600"), "step is '600', no number of steps", True),
    "status state": (status(state="finishde"), "state is 'finishde'", True),
    "status reason": (status(reason={"a": 1}), "reason is a section, no text", True),
    "status nested": (lambda run: (run / "status.json").write_text(DEEP), "status.json is damaged", True),
    "video a broken link": (replaced("videos/x.mp4", dangling), "videos/x.mp4 cannot be read", True),
    "video a loop": (replaced("videos/x.mp4", lambda path: path.symlink_to(path)), "videos/x.mp4 cannot be read", True),
    "video a folder": (replaced("videos/x.mp4", lambda path: path.mkdir()), "videos/x.mp4 is not a regular file", True),
    "video a pipe": (replaced("videos/x.mp4", os.mkfifo), "videos/x.mp4 is not a regular file", True),
    "config a pipe": (replaced("config.json", os.mkfifo), "config.json cannot be read: not a regular file", False),
    "status a pipe": (replaced("status.json", os.mkfifo), "status.json cannot be read: not a regular file", True),
    "metrics a pipe": (replaced("metrics.csv", os.mkfifo), "metrics.csv cannot be read: not a regular file", True),
    "config a folder": (replaced("config.json", lambda path: path.mkdir()), "config.json cannot be read", False),
    "config a broken link": (replaced("config.json", dangling), "config.json is a link to nothing", False),
    "metrics a link out": (replaced("metrics.csv", lambda path: path.symlink_to("/etc/passwd")), "leads out of its folder", True),
}  # fmt: skip


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] |= 0x80
    path.write_bytes(data)


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_run_is_one_warning_and_the_others_are_shown(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message, shown = CASES[case]
    root = tmp_path / "runs"
    make_run(root, "sac", "gym/A-v1", steps=5000, name="good")
    bad = make_run(root, "bac", "gym/A-v1", steps=5000, name="bad")
    change(bad)
    with no_longer_than(30):
        data = data_of(report.build([root], tmp_path / "r.html", export=tmp_path / "figures", note=lambda damage: None))
        live = Watched(root).data()
        page.render(live)
        assert main(["runs", str(root)]) == 0
        said = capsys.readouterr()
        table = report.runs_table(root, note=lambda damage: None)
        written = report.write_table(report.results(root, note=lambda damage: None), tmp_path / "results.parquet")
    for found in (data, live):
        own = [text for text in found["warnings"] if text.startswith("bad: ")]
        assert len(own) == 1 and message in own[0] and str(tmp_path) not in own[0], found["warnings"]
        assert [run["name"] for run in found["runs"]] == (["bad", "good"] if shown else ["good"])
        good = next(number for number, line in enumerate(found["lines"]) if line["name"] == "sac")
        assert next(curve for curve in found["tasks"][0]["curves"] if curve["line"] == good)["steps"] == [5000]
    assert [line for line in said.err.splitlines() if message in line and str(bad) in line], said.err
    assert len(said.err.splitlines()) == 1
    assert [row["run"] for row in table] == (["bad", "good"] if shown else ["good"])
    assert written.exists()


def test_sound_runs_give_no_warning(tmp_path: Path) -> None:
    make_run(tmp_path, steps=5000)
    make_run(tmp_path, "sac", steps=5000, done=3000, state="running", tail="4000,1")
    damaged: list[Any] = []
    assert len(read_all([tmp_path], damaged.append)) == 2 and damaged == []


def test_a_finished_run_whose_last_rows_are_lost_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path, env="dmc/walker-run?repeat=4", repeat=None, steps=8000, log=1000)
    config(run, train__log_every=1000, train__num_envs=2)
    damaged: list[Any] = []
    rows(run, lambda lines: lines[:-1])  # 7000: less than 1000 + 2 x 4 before the end, as in a run that is not evaluated
    read_all([tmp_path], damaged.append)
    assert damaged == []
    rows(run, lambda lines: lines[:-1])
    read_all([tmp_path], damaged.append)
    assert "it ends at step 6,000, but the run finished at step 8,000" in damaged[0].reason


def test_a_config_of_another_run_is_said(tmp_path: Path) -> None:
    """Each is as it was written, but they are not of one run: a page would show its curve under another seed."""
    runs = [tmp_path / f"seed{seed}" for seed in (0, 1)]
    for seed, run in enumerate(runs):
        beeline.train("sac", "toys:Walk-v0", out=run, **small("sac", seed=seed))
    beeline.resume(runs[1], steps=150, report=lambda text: None)  # the config of a run that goes on has other steps
    said: list[str] = []
    assert len(read_all([tmp_path], lambda damage: said.append(str(damage)))) == 2 and not said
    shutil.copy(runs[0] / "config.json", runs[1])
    read_all([tmp_path], lambda damage: said.append(str(damage)))
    assert said == [f"{runs[1]}: config.json is not that of the run that ended here (status.json has the SHA-256 of another)."]


def test_a_config_of_something_else_is_passed_over_without_a_word(tmp_path: Path) -> None:
    make_run(tmp_path, steps=5000)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"layers": 3}')
    damaged: list[Any] = []
    assert len(read_all([tmp_path], damaged.append)) == 1 and damaged == []
    (tmp_path / "model" / "metrics.csv").write_text("step\n")  # a run's record beside it: then it was a run
    assert len(read_all([tmp_path], damaged.append)) == 1
    assert [damage.reason for damage in damaged] == ["config.json is damaged (it has no algo). The run is left out."]


def test_where_every_run_is_damaged_the_error_says_how(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=5000)
    config(run, algo="")
    with pytest.raises(RunFolderError, match=f"that can be read. {run}: config.json is damaged .algo is '', no name"):
        report.build([tmp_path], tmp_path / "r.html")


def test_a_folder_that_cannot_be_listed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path, steps=5000)
    (tmp_path / "locked").mkdir()
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    damaged: list[Any] = []
    assert len(read_all([tmp_path], damaged.append)) == 1
    assert [str(damage) for damage in damaged] == [f"{tmp_path / 'locked'}: the folder cannot be listed (Permission denied)."]


def test_an_odd_repeat_in_an_id_is_no_number(tmp_path: Path) -> None:
    for number, env in enumerate(["dmc/walker-run?repeat=²", "dmc/walker-run?repeat=" + "9" * 5000, "dmc/walker-run?limit=²",
                                  "dmc/walker-run?limit=0"]):  # fmt: skip
        make_run(tmp_path / "runs", env=env, repeat=None, steps=5000, name=f"run{number}")
    found = read_all([tmp_path / "runs"])
    assert [run.repeat for run in found] == [None, None, 1, 1]
    data = data_of(report.build([tmp_path / "runs"], tmp_path / "r.html"))
    assert [task["scale"] for task in data["tasks"]] == [1000] * 4


# --- whose video it is ------------------------------------------------------------------------------------------------


def matrix_with_videos(root: Path) -> dict[str, Path]:
    """Two algorithms with a run of one name each, as in every matrix, and a video of each."""
    made = {algo: make_run(root / "gym-A-v1" / algo, algo, "gym/A-v1", steps=5000, name="seed0") for algo in ("sac", "td3")}
    for algo, run in made.items():
        (run / "videos").mkdir()
        (run / "videos" / "step-1.mp4").write_bytes(f"film of {algo}".encode())
    return made


def test_every_line_shows_its_own_video(tmp_path: Path) -> None:
    import base64

    matrix_with_videos(tmp_path / "m")
    data = data_of(report.build([tmp_path / "m"], tmp_path / "r.html"))
    films = {data["lines"][one["line"]]["name"]: base64.b64decode(one["src"].partition(",")[2]) for one in data["videos"]}
    assert films == {"sac": b"film of sac", "td3": b"film of td3"}
    live = Watched(tmp_path / "m").data()
    links = {live["lines"][one["line"]]["name"]: one["src"] for one in live["videos"]}
    assert links == {algo: f"video/gym-A-v1/{algo}/seed0/videos/step-1.mp4" for algo in ("sac", "td3")}


def test_runs_are_called_by_their_paths(tmp_path: Path) -> None:
    matrix_with_videos(tmp_path / "m")
    names = ["sac/seed0", "td3/seed0"]
    assert [run["name"] for run in data_of(report.build([tmp_path / "m"], tmp_path / "r.html"))["runs"]] == names
    assert [row["run"] for row in report.runs_table(tmp_path / "m")] == names
    assert [row["run"] for row in report.results(tmp_path / "m")] == names
    assert [row["run"] for row in report.runs_table(tmp_path / "m" / "gym-A-v1" / "sac")] == ["seed0"]


def test_a_new_video_is_seen_although_no_number_has_changed(tmp_path: Path) -> None:
    made = matrix_with_videos(tmp_path / "m")
    watched = Watched(tmp_path / "m")
    before = watched.data()["version"]
    (made["sac"] / "videos" / "step-2.mp4").write_bytes(b"later")
    os.utime(made["sac"] / "videos" / "step-1.mp4", (1, 1))
    assert watched.data()["version"] != before
    assert sorted(one["name"] for one in watched.data()["videos"]) == ["step-1.mp4", "step-2.mp4"]


@pytest.mark.parametrize("link", ["the video", "the folder of videos"])
def test_what_a_link_points_at_outside_the_run_is_not_embedded(link: str, tmp_path: Path) -> None:
    made = matrix_with_videos(tmp_path / "m")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.mp4").write_bytes(b"PRIVATE KEY")
    shutil.rmtree(made["sac"] / "videos")
    if link == "the video":
        (made["sac"] / "videos").mkdir()
        (made["sac"] / "videos" / "key.mp4").symlink_to(tmp_path / "secrets" / "key.mp4")
    else:
        (made["sac"] / "videos").symlink_to(tmp_path / "secrets")
    for size in (page.SMALL_VIDEO, 1):  # embedded, and linked to
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(page, "SMALL_VIDEO", size)
            out = report.build([tmp_path / "m"], tmp_path / "r.html", note=lambda damage: None)
        data = data_of(out)
        assert [data["lines"][one["line"]]["name"] for one in data["videos"]] == ["td3"]
        assert "UFJJVkFURSBLRVk" not in out.read_text() and "key.mp4" not in str(data["videos"])
        assert any("videos/key.mp4 leads out of its folder" in text for text in data["warnings"])
    assert len(Watched(tmp_path / "m").data()["videos"]) == 1


def test_a_link_to_another_file_of_the_same_run_is_shown(tmp_path: Path) -> None:
    made = matrix_with_videos(tmp_path / "m")
    (made["sac"] / "best.bin").write_bytes(b"best")
    os.utime(made["sac"] / "videos" / "step-1.mp4", (1, 1))
    (made["sac"] / "videos" / "z.mp4").symlink_to("../best.bin")
    data = data_of(report.build([tmp_path / "m"], tmp_path / "r.html"))
    assert any(one["src"].endswith("YmVzdA==") for one in data["videos"])


# --- names and text of the user's world -------------------------------------------------------------------------------


def test_brackets_in_a_reason_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for number, reason in enumerate(["see [/x] there", "[bold]loud[/bold]", "[link=http://x]y", ":smile: \x1b[31mred"]):
        make_run(tmp_path, "b[/]c", seed=number, steps=5000, state="failed", reason=reason, name=f"run{number}")
    assert main(["runs", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("see [/x] there", "[bold]loud[/bold]", "[link=http://x]y", ":smile: \ufffd[31mred", "b[/]c"):
        assert part in text
    assert "\x1b" not in text


def test_folders_with_names_that_are_no_text_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "runs", steps=5000, name="plain")
    odd = Path(os.fsdecode(os.fsencode(tmp_path / "runs") + b"/caf\xe9"))
    run.rename(odd)
    (odd / "videos").mkdir()
    (odd / "videos" / "a.mp4").write_bytes(b"x" * 10)
    data = data_of(report.build([tmp_path / "runs"], tmp_path / "r.html"))
    assert data["runs"][0]["name"] == "caf\ufffd"
    assert main(["runs", str(tmp_path / "runs"), "--save", str(tmp_path / "results.csv")]) == 0
    assert "caf\ufffd" in (tmp_path / "results.csv").read_text()
    assert report.write_table(report.results(tmp_path / "runs"), tmp_path / "results.parquet").exists()
    watched = Watched(tmp_path / "runs")
    [video] = watched.data()["videos"]
    assert video["src"] == "video/caf%E9/videos/a.mp4"


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", r"a$\frac$", r"gym/$\frac$" + "x" * 300, steps=5000, name="one")
    make_run(tmp_path / "runs", "b", r"gym/$\frac$" + "x" * 300, steps=5000, name="two")
    report.build([tmp_path / "runs"], tmp_path / "r.html", export=tmp_path / "figures")
    assert export.slug(r"gym/$\frac$" + "x" * 300) == "gym-frac-" + "x" * 91


# --- the parser -------------------------------------------------------------------------------------------------------


def test_the_table_by_hand() -> None:
    found = parse(b"step,a,b\r\n0,1.5,\r\n1,nan,-inf\r\n2,x,7\r\n3,1\r\n4,2,3,\r\n,1,2\r\n5,1_0,1e3\r\n6,1e+101,8\r\n7,1")
    assert found.names == ("step", "a", "b") and found.cut
    assert found.rows()[0] == {"step": 0.0, "a": 1.5, "b": None}
    assert [row["step"] for row in found.rows()] == [0, 1, 2, 5, 6]
    assert [row["b"] for row in found.rows()] == [None, float("-inf"), 7, 1000, 8]
    assert [row["a"] for row in found.rows()][2:] == [None, None, None]
    assert found.damage == (
        "line 4 has no number under 'a'",
        "line 5 has 2 cells where the header has 3", "line 6 has 4 cells where the header has 3",
        "line 7 has no number of steps", "line 8 has no number under 'a'", "line 9 has 1e+101 under 'a'",
    )  # fmt: skip
    assert found.trouble == "line 4 has no number under 'a' (and 5 more such lines)"
    assert parse(b"").rows() == [] and parse(b"step,a").rows() == [] and parse(b"step,a\n").rows() == []


def test_whoever_trusts_every_row_is_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,a\n0,1.5\n1,1.5,\n")
    with pytest.raises(UnreadableError, match=r"metrics\.csv is damaged \(line 3 has 3 cells"):
        read_metrics(tmp_path / "metrics.csv")
