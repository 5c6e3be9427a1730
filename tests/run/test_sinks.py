"""Sinks and signals: whatever fails, fills up or hangs beside the record, a run ends by itself and says why."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_runs import Zygote, flags, small, table

import beeline as api  # `beeline` is the fixture that runs the command
from beeline import files
from beeline.errors import ConfigError, DiskFullError, RunFolderError
from beeline.run.record import Recorder
from beeline.run.sinks import Sinks, WeightsAndBiases

WALK = "toys:Walk-v0"


def status(path: Path) -> dict[str, Any]:
    return json.loads((path / "status.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.train("sac", WALK, out=tmp_path_factory.mktemp("whole") / "run", **small("sac")).path


def test_a_sink_that_fails_is_dropped_with_one_sentence(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = 0

    def full(operation: str, path: Path) -> None:
        nonlocal seen
        seen += "tfevents" in path.name
        if seen >= 4 and "tfevents" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "fault", full)
    run = api.train("sac", WALK, out=tmp_path / "run", **small("sac", tensorboard=True)).path
    assert table(run) == table(whole) and status(run)["state"] == "finished" and (run / "curve.png").exists()
    said = capfd.readouterr().err
    assert said.count("TensorBoard events are given up") == 1 and "tensorboard/events.out" in said and seen == 4


class Odd:
    what = "odd things"

    def __init__(self, fails_in: str) -> None:
        self.fails_in, self.calls = fails_in, list[str]()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails_in:
            raise RuntimeError(f"no more {name}")

    def open(self, step: int) -> None:
        self._call("open")

    def write(self, row: Any) -> None:
        self._call("write")

    def close(self, good: bool) -> None:
        self._call("close")


@pytest.mark.parametrize("moment", ["open", "write", "close"])
def test_no_sink_harms_another(moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = Odd(moment), Odd("")
    sinks = Sinks([bad, good])
    sinks.open(0)
    sinks.write({"step": 1})
    sinks.write({"step": 2})
    sinks.close(True)
    assert good.calls == ["open", "write", "write", "close"]
    assert bad.calls.count(moment) <= 2 and bad.calls[-1] == "close"
    said = capsys.readouterr().err
    assert said.count("odd things are given up; metrics.csv does not need them.") == 1
    assert f"RuntimeError: no more {moment}." in said


class Stuck:
    """Weights & Biases on a day on which nothing answers."""

    def __init__(self) -> None:
        self.never = threading.Event()

    def init(self, **more: Any) -> Stuck:
        return self

    def log(self, row: Any, step: int) -> None:
        self.never.wait()

    def finish(self) -> None:
        self.never.wait()


def test_a_sink_that_hangs_does_not_hang_the_run(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stuck = Stuck()
    module = types.ModuleType("wandb")
    module.init = stuck.init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    for waiting, reason in ((3, "it has not taken 3 rows"), (1000, "it did not finish within 0.05 s")):
        monkeypatch.setattr(WeightsAndBiases, "WAITING", waiting)
        monkeypatch.setattr(WeightsAndBiases, "PATIENCE", 0.05)
        monkeypatch.setattr(WeightsAndBiases, "HASTE", 0.01)
        run = api.train("sac", WALK, out=tmp_path / f"run{waiting}", wandb=True, **small("sac")).path
        assert table(run) == table(whole) and status(run)["state"] == "finished"
        said = capfd.readouterr().err
        assert said.count("rows for Weights & Biases are given up") == 1 and reason in said
    stuck.never.set()


def test_weights_and_biases_gets_project_name_group_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []

    class Run:
        def log(self, row: Any, step: int) -> None: ...
        def finish(self) -> None: ...

    module = types.ModuleType("wandb")
    module.init = lambda **more: (told.append(more), Run())[1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    run = api.train("sac", WALK, out=tmp_path / "plain", wandb=True, **small("sac")).path
    said = {"wandb_project": "legs", "wandb_name": "first", "wandb_group": "walk", "wandb_tags": "a,b"}
    other = api.train("sac", WALK, out=tmp_path / "named", wandb=True, **said, **small("sac")).path
    assert [[call[name] for name in ("project", "name", "group", "tags")] for call in told] == [
        ["beeline", "plain", None, None], ["legs", "first", "walk", ["a", "b"]]
    ]  # fmt: skip
    assert table(run) == table(other)
    with pytest.raises(ConfigError, match=r"wandb_group = 'walk' is for Weights & Biases: give wandb as well\."):
        api.train("sac", WALK, out=tmp_path / "none", wandb_group="walk", **small("sac"))


def test_the_name_of_a_folder_is_no_formula(tmp_path: Path) -> None:
    run = api.train("sac", WALK, out=tmp_path / "lr$\\frac$", **small("sac")).path
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_status_is_told_in_place_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, [], tensorboard=False, wandb=False, config={})
    recorder.status("running", 3)
    number = (tmp_path / "status.json").stat().st_ino

    def full(operation: str, path: Path) -> None:
        if path.name.endswith(".tmp"):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "fault", full)
    recorder.status("failed", 7, "no space\n" * 1000 + '"\\' * 100)
    told = status(tmp_path)
    assert (told["state"], told["step"]) == ("failed", 7) and told["reason"].startswith("no space no space")
    assert (tmp_path / "status.json").stat().st_ino == number
    os.link(tmp_path / "status.json", tmp_path / "copy")  # a hard-linked copy's status is not ours to write
    with pytest.raises(DiskFullError):
        recorder.status("failed", 8)
    assert json.loads((tmp_path / "copy").read_text())["step"] == 7


def test_a_limit_of_file_size_is_a_sentence(whole: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, hard))
    try:
        with pytest.raises(RunFolderError, match=r"cannot write .*: File too large\. .*ulimit -f"):
            api.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status(tmp_path / "run")["state"] == "failed" and "ulimit -f" in status(tmp_path / "run")["reason"]
    api.resume(tmp_path / "run")
    assert table(tmp_path / "run") == table(whole)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own, which a test may fill."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "beeline-test", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip("needs the right to mount")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def test_a_full_disk_ends_the_run_and_the_status_says_so(beeline: Zygote, disk: Path) -> None:
    run = disk / "run"
    words = flags(small("sac", steps=100_000, log_every=5, checkpoint_every=100_000, eval_every=100_000, tensorboard=True))
    process = beeline.start("train", "sac", WALK, *words, "--out", run)
    process.until(lambda: (run / "metrics.csv").exists() and (run / "metrics.csv").read_bytes().count(b"\n") > 15)
    fill(disk)
    end = time.monotonic() + 60  # it hung for ever, and SIGTERM did not help
    while process.alive() and time.monotonic() < end:
        time.sleep(0.01)
    if process.alive():
        process.signal(signal.SIGKILL)
    assert process.wait() == 2, process.err
    assert "beeline: no space left while writing" in process.err and "Traceback" not in process.err
    assert status(run)["state"] == "failed" and "no space left" in status(run)["reason"]
    assert not [path.name for path in run.rglob("*") if "tmp" in path.name]
    (disk / "filler").unlink()
    again = beeline.start("resume", run)
    again.until(lambda: status(run)["state"] == "running")
    again.signal(signal.SIGTERM)
    assert again.wait() == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_on_a_full_disk(number: int, beeline: Zygote, disk: Path) -> None:
    run = disk / "run"
    quiet = flags(small("sac", steps=10_000_000, log_every=5, eval_every=10_000_000, checkpoint_every=10_000_000))
    process = beeline.start("train", "sac", WALK, *quiet[:-1], "--tensorboard", "--log-every", 10_000_000, "--out", run)
    process.until(lambda: (run / "policy.npz").exists() and (run / "metrics.csv").read_bytes().count(b"\n") == 2)
    fill(disk)
    process.signal(number)
    assert process.wait() == 2, process.err
    assert "no space left" in process.err and status(run)["state"] == "failed"


def test_a_second_sigterm_ends_a_step_that_hangs(beeline: Zygote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = beeline.start("train", "sac", WALK, *flags(small("sac")), "--out", run, env={"TOY_HANG": "1:70"})
    process.until(lambda: "hanging" in process.out)
    process.signal(signal.SIGTERM)
    time.sleep(0.2)
    assert process.alive()  # the step might end
    process.signal(signal.SIGTERM)
    assert process.wait() == 143
    assert "SIGTERM twice" in process.err
    assert status(run)["state"] == "stopped" and "no checkpoint" in status(run)["reason"]
    beeline.run("resume", run)


def test_a_second_ctrl_c_leaves_word(beeline: Zygote, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = beeline.start("train", "sac", WALK, *flags(small("sac")), "--out", run, env={"TOY_HANG": "1:70"})
    process.until(lambda: "hanging" in process.out)
    process.signal(signal.SIGINT)
    process.until(lambda: "Ctrl-C again" in process.err)
    process.signal(signal.SIGINT)
    assert process.wait() == 130
    assert status(run)["state"] == "stopped" and "Ctrl-C twice" in status(run)["reason"]
    assert "stopped by SIGINT at step 60" in process.err  # the last checkpoint is what there is
