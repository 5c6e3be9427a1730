"""What may happen to a run folder between two commands, and what `resume` makes of it: it mends, or refuses and leaves all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_runs import same_run, small

import beeline
from beeline.errors import BeelineError, CheckpointError, RunFolderError

WALK = "toys:Walk-v0"


class Stop(beeline.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, event: beeline.StepEvent) -> bool:
        return event.step != self.step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    return beeline.train("sac", WALK, out=tmp_path_factory.mktemp("whole") / "run", **small("sac")).path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped after 70 steps; checkpoints of 30, 60 and 70."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    return beeline.train("sac", WALK, out=path, callbacks=[Stop(70)], **small("sac")).path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(path: Path) -> dict[str, str]:
    files = (each for each in path.rglob("*") if each.is_file() and each.name != ".lock")
    return {str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def resumed(path: Path, **more: Any) -> list[str]:
    said: list[str] = []
    beeline.resume(path, report=said.append, **more)
    return said


# --- the table --------------------------------------------------------------------------------------------------------


def flip(path: Path, place: int, bit: int = 7) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(bytes(data))


def lose(path: Path, place: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:place] + data[place + 1 :])


def replace(path: Path, old: bytes, new: bytes) -> None:
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


TABLES: dict[str, Callable[[Path], object]] = {
    "flipped high bit": lambda path: flip(path, 300),
    "flipped digit": lambda path: flip(path, path.read_bytes().index(b"\n20,") + 1, 0),
    "lost byte": lambda path: lose(path, 400),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "empty": lambda path: path.write_bytes(b""),
    "header": lambda path: replace(path, b"eval/return,", b"eval/retusn,"),
    "CRLF": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("harm", TABLES.values(), ids=TABLES.keys())
def test_a_damaged_table_is_rebuilt(harm: Callable[[Path], object], run: Path, whole: Path) -> None:
    harm(run / "metrics.csv")
    left = (run / "metrics.csv").read_bytes() if (run / "metrics.csv").exists() else b""
    [said] = resumed(run)
    assert "metrics.csv was damaged and is rebuilt from what the checkpoint of step 70 vouches for" in said
    same_run(whole, run)
    kept = [path.read_bytes() for path in run.glob("metrics-cut-70.csv")]
    assert kept == ([left] if left else [])


def test_a_model_is_loaded_from_a_run_with_a_damaged_table(run: Path) -> None:
    before = beeline.load(run).metrics
    flip(run / "metrics.csv", 300)
    assert beeline.load(run).metrics == before and len(before) == 5


def test_where_table_and_copy_are_damaged_an_older_checkpoint_is_taken(run: Path, whole: Path) -> None:
    for path in (run / "metrics.csv", run / "checkpoints" / "metrics.csv"):
        text = path.read_bytes()
        flip(path, text.index(b"\n40,") + 1, 0)  # after the checkpoint of step 30
    said = resumed(run)
    assert "step 70 is damaged: its rows of the record are lost (metrics.csv has another SHA-256" in said[0]
    assert len(said) == 2 and "step 60 is damaged" in said[1]
    assert (run / "metrics-cut-30.csv").read_bytes().count(b"\n") == 4  # the header and the rows of steps 40, 50 and 60
    same_run(whole, run)


def test_where_the_rows_are_lost_for_good_nothing_is_touched(run: Path) -> None:
    for path in (run / "metrics.csv", run / "checkpoints" / "metrics.csv"):
        path.write_bytes(b"step\n")
    before = contents(run)
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is intact: .*has 5 of \d+ bytes.*left as it is.*beeline eval"):
        resumed(run)
    assert contents(run) == before


def test_rows_that_are_cut_are_kept_beside_the_table(run: Path, whole: Path) -> None:
    with (run / "metrics.csv").open("ab") as file:
        file.write(b"80,1,2\n100,")  # what a run wrote between its last checkpoint and its end
    header = (run / "metrics.csv").read_bytes().partition(b"\n")[0]
    assert resumed(run) == []
    assert (run / "metrics-cut-70.csv").read_bytes() == header + b"\n80,1,2\n100,"
    same_run(whole, run)
    for _ in range(5):  # each time the closing evaluation is cut and made again
        resumed(run)
    assert len(list(run.glob("metrics-cut-*.csv"))) == 3
    same_run(whole, run)


def test_a_saved_model_goes_on_as_a_run(tmp_path: Path, whole: Path) -> None:
    model = beeline.SAC(WALK, **small("sac")).learn(70)
    model.save(tmp_path / "model")
    assert resumed(tmp_path / "model") == []
    same_run(whole, tmp_path / "model")


def test_a_hard_linked_copy_is_its_own(stopped: Path, whole: Path, tmp_path: Path) -> None:
    ours = Path(shutil.copytree(stopped, tmp_path / "ours"))
    theirs = Path(shutil.copytree(ours, tmp_path / "theirs", copy_function=os.link))
    before = contents(ours)
    assert resumed(theirs) == []
    same_run(whole, theirs)
    assert contents(ours) == before
    assert resumed(ours) == []
    same_run(whole, ours)


# --- no checkpoint ----------------------------------------------------------------------------------------------------


def test_a_run_without_its_checkpoints_is_not_begun_again(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "replay")
    before = contents(run)
    message = (
        r"no checkpoint to go on from, .* had begun: status\.json says finished at step 120, metrics\.csv has 9 rows, there is "
        r"policy\.npz, there is policy-best\.npz\. It is left as it is\. .*beeline eval .*run --video.*beeline train sac toys"
    )
    with pytest.raises(CheckpointError, match=message):
        resumed(run, steps=1000)
    assert contents(run) == before
    traces: dict[str, bytes] = {
        "status.json": b'{"state": "running", "step": 30}', "metrics.csv": b"step\n0\n", "policy.npz": b"",
        "policy-best.npz": b"", "replay/segment-000000000000.npz": b"",
    }  # fmt: skip
    for name, content in traces.items():  # any one of them will do
        alone = tmp_path / name.replace("/", "-")
        alone.mkdir()
        shutil.copy(run / "config.json", alone)
        (alone / name).parent.mkdir(exist_ok=True)
        (alone / name).write_bytes(content)
        with pytest.raises(CheckpointError, match="had begun"):
            resumed(alone)


def test_a_run_that_never_began_begins(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(whole / "config.json", run)
    (run / "metrics.csv").write_text("step\n")
    (run / "status.json").write_text(json.dumps({"state": "running", "step": 0}))
    [said] = resumed(run)
    assert "starts from the beginning" in said
    same_run(whole, run)


def test_where_every_checkpoint_is_damaged_nothing_is_touched(run: Path) -> None:
    for state in run.glob("checkpoints/step-*/state.npz"):
        flip(state, 1000)
    before = contents(run)
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is intact: .* The run is left as it is\. Evaluate or film"):
        resumed(run, steps=1000)
    assert contents(run) == before


# --- things in the place of files -------------------------------------------------------------------------------------

FILES = ["metrics.csv", "policy.npz", "status.json", ".lock"]


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file(name: str, run: Path) -> None:
    (run / name).unlink()
    (run / name).mkdir()
    with pytest.raises(RunFolderError, match=rf"{name}.*There is a folder where a file belongs: move it away"):
        resumed(run)


@pytest.mark.parametrize("name", ["checkpoints", "replay"])
def test_a_file_or_a_link_in_place_of_a_folder(name: str, run: Path, stopped: Path) -> None:
    shutil.rmtree(run / name)
    (run / name).write_text("")
    with pytest.raises(BeelineError):
        resumed(run)
    (run / name).unlink()
    (run / name).symlink_to(stopped / name)
    before = contents(stopped)
    with pytest.raises(BeelineError, match="is a link"):
        resumed(run)
    assert contents(stopped) == before


@pytest.mark.parametrize("name", [*FILES, "config.json"])
def test_no_file_is_read_or_written_through_a_link(name: str, run: Path, whole: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    shutil.move(run / name, precious)
    before = precious.read_bytes()
    (run / name).symlink_to(precious)
    if name in (".lock", "config.json"):
        with pytest.raises(RunFolderError, match="link"):
            resumed(run)
    else:
        resumed(run)
        same_run(whole, run)
    assert precious.read_bytes() == before


@pytest.mark.parametrize("name", [*FILES, "config.json"])
def test_no_pipe_is_waited_for(name: str, run: Path, whole: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    if name in (".lock", "config.json"):
        with pytest.raises(RunFolderError, match=r"not a regular file|no config"):
            resumed(run)
    else:
        resumed(run)
        same_run(whole, run)
