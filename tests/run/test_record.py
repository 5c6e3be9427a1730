"""The record: a table that can be cut, events that can be read, a curve, and nothing lost on the way."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from whole_runs import small

import beeline
from beeline import files
from beeline.errors import CheckpointError, RunFolderError
from beeline.run.record import MetricsTable, Recorder, read_metrics
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


def test_the_table_is_cut_to_a_length_it_had(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table.append({"step": 1, "a": 0.5})
    size = table.sync()
    assert size == table.path.stat().st_size
    table.append({"step": 2, "a": 0.5})
    with table.path.open("ab") as file:
        file.write(b"3,0.")  # the process died here
    assert [row["step"] for row in read_metrics(table.path)] == [1, 2]
    assert [row["step"] for row in read_metrics(table.path, size)] == [1]
    table.cut(size)
    assert table.path.stat().st_size == size
    with pytest.raises(CheckpointError, match="rows were lost"):
        table.cut(size + 1)


def test_a_table_keeps_the_columns_it_began_with(tmp_path: Path) -> None:
    MetricsTable(tmp_path / "m.csv", ["step", "a"])
    table = MetricsTable(tmp_path / "m.csv", ["step", "new", "a"])
    table.append({"step": 1, "new": 7, "a": 2.0})
    assert read_metrics(table.path) == [{"step": 1, "a": 2.0}]


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
    from beeline.agents.actor_critic import ActorCritic
    from beeline.agents.base import Spaces
    from beeline.agents.options import BACConfig
    from beeline.run.record import LOOP_COLUMNS

    return {*LOOP_COLUMNS, *ActorCritic(BACConfig(), Spaces(2, (-1.0,), (1.0,))).metric_names}


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
    assert all(folder.name.endswith(name) for folder in run.path.glob("wandb/offline-run-*"))


def test_a_full_disk_does_not_hide_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(operation: str, path: Path) -> None:
        if path.name.startswith("metrics") and operation == "write":
            raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        MetricsTable(tmp_path / "metrics.csv", ["step"])
        patch.setattr(files, "fault", full)
        with pytest.raises(RunFolderError, match=r"cannot write .*metrics\.csv: Input/output error"):
            MetricsTable(tmp_path / "metrics.csv", ["step"]).append({"step": 1})


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
