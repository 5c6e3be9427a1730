"""The record: a table that can be cut, events that can be read, a curve, and nothing lost on the way."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from whole_runs import small

import beeline
from beeline import files
from beeline.errors import RunFolderError, UnreadableError
from beeline.run.record import MetricsTable, Recorder, parse_metrics, read_metrics
from beeline.run.sinks import TensorBoard, draw_curve

WALK = "toys:Walk-v0"


def test_numbers_survive_the_table(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a", "b", "c"])
    table.append({"step": 10**12, "a": 0.1 + 0.2, "b": None})
    table.append({"step": 2, "a": math.nan, "b": -math.inf, "c": 1e-300, "unknown": 5})
    first, second = read_metrics(table.path)
    assert first == {"step": 1e12, "a": 0.1 + 0.2, "b": None, "c": None}
    assert math.isnan(second["a"]) and second["b"] == -math.inf and second["c"] == 1e-300
    assert "1000000000000," in table.path.read_text()


def test_a_checkpoint_vouches_for_the_rows_it_has_seen(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table.append({"step": 1, "a": 0.5})
    vouched = {"table": table.sync()}
    assert vouched["table"] == {"bytes": 13, "sha256": hashlib.sha256(b"step,a\n1,0.5\n").hexdigest()}
    table.append({"step": 2, "a": 0.5})
    with table.path.open("ab") as file:
        file.write(b"3,0.")  # the process died here
    assert [row["step"] for row in read_metrics(table.path)] == [1, 2]
    assert table.recover(vouched) == b"step,a\n1,0.5\n"
    assert parse_metrics(table.recover(vouched)) == [{"step": 1, "a": 0.5}]


def test_a_table_keeps_the_columns_it_began_with(tmp_path: Path) -> None:
    MetricsTable(tmp_path / "m.csv", ["step", "a"]).append({"step": 0, "a": 1.0})
    table = MetricsTable(tmp_path / "m.csv", ["step", "new", "a"])
    table.begin(table.path.read_bytes())
    table.append({"step": 1, "new": 7, "a": 2.0})
    assert read_metrics(table.path) == [{"step": 0, "a": 1.0}, {"step": 1, "a": 2.0}]


ROWS = b"step,a\n1,0.5\n2,1.5\n"


def damage_table(path: Path, how: str) -> None:
    """What a user, an editor or a disk may do to a table."""
    text = path.read_bytes()
    if how == "deleted":
        path.unlink()
    elif how == "fifo":
        path.unlink()
        os.mkfifo(path)
    elif how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))
    else:
        changed = {
            "high bit": text[:3] + bytes([text[3] | 128]) + text[4:], "header": text.replace(b"a", b"b", 1),
            "digit": text.replace(b"0.5", b"0.7"), "point": text.replace(b"0.5", b"0.."), "comma": text.replace(b"1,", b"1,,"),
            "lost byte": text[:9] + text[10:], "CRLF": text.replace(b"\n", b"\r\n"), "cut": text[:10], "empty": b"",
        }  # fmt: skip
        path.write_bytes(changed[how])


DAMAGES = ["deleted", "fifo", "link", "high bit", "header", "digit", "point", "comma", "lost byte", "CRLF", "cut", "empty"]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
def test_a_table_that_is_damaged_while_it_is_written_is_as_it_was_in_the_end(how: str, synced: bool, tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table.append({"step": 1, "a": 0.5})
    if synced:
        table.sync()
    damage_table(table.path, how)
    table.append({"step": 2, "a": 1.5})
    table.verify()
    assert table.path.read_bytes() == ROWS and not table.path.is_symlink()
    assert table.sync()["sha256"] == hashlib.sha256(ROWS).hexdigest()
    assert table.copy.read_bytes() == ROWS


def test_a_copy_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table.append({"step": 1, "a": 0.5})
    table.sync()
    table.copy.write_bytes(b"short")
    table.append({"step": 2, "a": 1.5})
    table.sync()
    assert table.copy.read_bytes() == ROWS
    table.copy.unlink()
    table.path.unlink()
    with pytest.raises(RunFolderError, match=r"m\.csv and its copy .* were changed or removed .*rows are lost"):
        table.append({"step": 3})


def test_a_hard_linked_copy_of_a_table_is_its_own(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table.append({"step": 1, "a": 0.5})
    table.sync()
    for path in (table.path, table.copy):
        os.link(path, tmp_path / f"other-{path.parent.name}")
    table.append({"step": 2, "a": 1.5})
    table.sync()
    assert table.path.read_bytes() == table.copy.read_bytes() == ROWS
    assert all(path.read_bytes() == ROWS[:13] for path in tmp_path.glob("other-*"))


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(b"step,a\n1,2,3\n", "line 2 has 3 cells"), (b"step\nx\n", "no number"), (b"\xff\n", "no column 'step'"),
     (b"step,a\n1\n", "1 cells")],
)
def test_a_damaged_table_is_named(content: bytes, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(content)
    with pytest.raises(UnreadableError, match=rf"m\.csv is damaged \(.*{wrong}"):
        read_metrics(tmp_path / "m.csv")


def test_the_run_folder_says_how_it_was_made(tmp_path: Path) -> None:
    run = beeline.train("bac", WALK, out=tmp_path / "run", **small("bac", tensorboard=True))
    config = run.config
    assert config["algo"] == "bac" and config["env"] == WALK and config["seed"] == 0
    assert config["agent"]["hidden"] == [8, 8] and config["train"]["threads"] == 1
    assert {"jax", "jaxlib", "numpy", "gymnasium", "python"} <= set(config["versions"]) and config["cpu"]
    with (run.path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "20", "40", "50", "60", "80", "100", "120", "120"]
    assert all(name.startswith("time/") or name in config_columns() for name in rows[0])
    assert (run.path / "curve.png").read_bytes().startswith(b"\x89PNG")
    width, height = struct.unpack(">II", (run.path / "curve.png").read_bytes()[16:24])
    assert width > 600 and height > 300
    assert json.loads((run.path / "status.json").read_text())["state"] == "finished"
    events = scalars(run.path)
    for name in ("eval/return", "loss/critic", "q/mean", "lambda"):
        expected = [(int(row["step"]), float(row[name])) for row in rows if row[name]]
        assert [(step, pytest.approx(value)) for step, value in expected] == events[name]


def config_columns() -> set[str]:
    from beeline.agents import get
    from beeline.agents.base import Spaces
    from beeline.run.record import LOOP_COLUMNS

    return {*LOOP_COLUMNS, *get("bac").build(get("bac").config(), Spaces(2, (-1.0,), (1.0,))).metric_names}


def scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would show: events in the order of their files, those after a restart's step taken back."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted((path / "tensorboard").iterdir(), key=lambda file: file.stat().st_mtime):
        data = file.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            if event.session_log.status == SessionLog.START:
                found = {name: [pair for pair in pairs if pair[0] < event.step] for name, pairs in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_events_of_a_resumed_run_are_those_of_the_table(tmp_path: Path) -> None:
    class Stop(beeline.Callback):
        def on_step(self, event: beeline.StepEvent) -> bool:
            return event.step != 70

    run = beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[Stop()], **small("sac", tensorboard=True))
    killed = TensorBoard(run.path / "tensorboard")
    killed.open(71)
    killed.write({"step": 80, "q/mean": 9.0})  # what a killed run wrote after its last checkpoint
    killed.close(False)
    beeline.resume(run.path)
    expected = [(int(row["step"]), pytest.approx(row["q/mean"])) for row in run.metrics if row["q/mean"] is not None]
    assert scalars(run.path)["q/mean"] == expected


def test_events_reach_the_disk_with_every_checkpoint(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Look(beeline.Callback):
        def on_step(self, event: beeline.StepEvent) -> None:
            if event.step % 30 == 1:
                [file] = (event.trainer.folder / "tensorboard").iterdir()  # type: ignore[operator]
                sizes.append(len(scalars(event.trainer.folder).get("q/mean", [])))  # type: ignore[arg-type]
                assert file.stat().st_size

    beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[Look()], **small("sac", tensorboard=True))
    assert sizes == sorted(sizes) and sizes[1] >= 1 and sizes[-1] >= 4


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs the extra wandb")
@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = beeline.train("sac", WALK, out=tmp_path / "run", wandb=True, **small("sac"))
    assert list(run.path.glob("wandb/offline-run-*/*.wandb"))
    name = (run.path / "wandb-id").read_text()
    beeline.resume(run.path, steps=140)
    assert (run.path / "wandb-id").read_text() == name
    assert all(name in folder.name for folder in run.path.glob("wandb/offline-run-*"))


def test_a_full_disk_does_not_hide_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(operation: str, path: Path) -> None:
        if path.name.startswith("metrics") and operation == "write":
            raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        table = MetricsTable(tmp_path / "metrics.csv", ["step"])
        table.begin()
        patch.setattr(files, "fault", full)
        with pytest.raises(RunFolderError, match=r"cannot write .*metrics\.csv: Input/output error"):
            table.append({"step": 1})


@pytest.mark.parametrize("success", [None, 0.5])
def test_curves(success: Any, tmp_path: Path) -> None:
    draw_curve([], tmp_path / "none.png", "nothing")
    assert not (tmp_path / "none.png").exists()
    row = {"step": 0, "eval/return": 1.0, "eval/return_std": None, "eval/success": success, "train/return": 0.5}
    draw_curve([row, row | {"step": 5}], tmp_path / "c.png", "title")
    assert (tmp_path / "c.png").stat().st_size > 5_000
    assert [path.name for path in tmp_path.iterdir()] == ["c.png"]


def test_a_run_resumed_within_the_same_second_keeps_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    for step in (0, 10):
        recorder = Recorder(tmp_path, ["alpha"], tensorboard=True, wandb=False, config={})
        recorder.open(step)
        recorder.write({"step": step, "alpha": 0.5})
        recorder.close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
