"""Where rows go beside the record: TensorBoard, Weights & Biases, the learning curve.

A sink is a convenience. It may fail as it likes: `Sinks` drops it with one sentence and the run goes on; none can hold the
run up. TensorBoard events are therefore written here and now, not by a thread behind a queue that nobody empties once the
thread has died, and Weights & Biases, whose calls may wait for anything, has a thread of its own that is never waited for.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from beeline import files, screen
from beeline.errors import BeelineError, MissingExtraError

Row = Mapping[str, Any]


class Sink(Protocol):
    """Takes rows; whatever it raises ends the sink and not the run."""

    what: str
    """What a user loses with it, in the plural."""

    def open(self, step: int) -> None:
        """Begin with rows from `step` on."""

    def write(self, row: Row) -> None:
        """Take a row; must not wait."""

    def close(self, good: bool) -> None:
        """End; after a run that did not end well there is no time to wait."""


class Sinks:
    """All sinks of a run behind one guard."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.active = list(sinks)

    def open(self, step: int) -> None:
        """Begin with rows from `step` on."""
        self._each(lambda sink: sink.open(step))

    def write(self, row: Row) -> None:
        """Hand a row to all of them."""
        self._each(lambda sink: sink.write(row))

    def close(self, good: bool) -> None:
        """End all of them."""
        self._each(lambda sink: sink.close(good))
        self.active = []

    def _each(self, act: Callable[[Sink], None]) -> None:
        for sink in list(self.active):
            try:
                act(sink)
            except Exception as error:  # whatever a sink may do, the record and the checkpoints are what counts
                self.active.remove(sink)
                tell(f"{sink.what} are given up; metrics.csv does not need them. {reason(error)}")
                with contextlib.suppress(Exception):
                    sink.close(False)


def reason(error: Exception) -> str:
    """An error as a sentence."""
    text = str(error) if isinstance(error, BeelineError) else f"{type(error).__name__}: {error}"
    text = text.strip()[:1000].partition("\n")[0]
    return text if text.endswith(".") else f"{text}."


def tell(message: str) -> None:
    """Say something that must not fail: standard error may lie on the disk that is full."""
    with contextlib.suppress(OSError, ValueError):
        screen.complain(f"note: {message}")


class TensorBoard:
    """TensorBoard events, written and flushed row by row."""

    what = "TensorBoard events"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path: Path = folder
        self._file: io.BufferedWriter | None = None

    def open(self, step: int) -> None:
        """Begin a file of its own; events that an interrupted run wrote from `step` on are marked as void."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        files.own_folder(self.folder)
        # A file is named by the second: without a suffix, a run resumed within it would write over its own events.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{step}.{os.getpid()}"
        self._path = self.folder / name
        with files.explained(self._path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._file = io.BufferedWriter(io.FileIO(files.open_regular(self._path, flags), "w"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._write(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def write(self, row: Row) -> None:
        """One event with all numbers of a row."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers(row).items()]
        self._write(Event(wall_time=time.time(), step=row["step"], summary=Summary(value=values)))

    def _write(self, event: Any) -> None:
        from tensorboardX.record_writer import masked_crc32c

        assert self._file is not None
        data: bytes = event.SerializeToString()
        size = struct.pack("<Q", len(data))
        with files.explained(self._path):
            files.fault("write", self._path)
            for part in (size, struct.pack("<I", masked_crc32c(size)), data, struct.pack("<I", masked_crc32c(data))):
                self._file.write(part)
            self._file.flush()

    def close(self, good: bool) -> None:
        """Close the file, from which nothing is missing."""
        file, self._file = self._file, None
        if file is not None:
            with files.explained(self._path):
                file.close()


class WeightsAndBiases:
    """Weights & Biases, offline unless WANDB_MODE says otherwise; only its thread ever waits for it."""

    what = "rows for Weights & Biases"
    WAITING = 1000  # rows that may wait for it
    PATIENCE = 600.0  # seconds that it gets at the end of a good run, for the last upload
    HASTE = 1.0  # seconds that it gets at any other end

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder, self.config = folder, dict(config)
        self._run: Any = None
        self._rows: queue.Queue[Row | None] = queue.Queue(self.WAITING)
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="wandb rows")

    def open(self, step: int) -> None:
        """Begin its run, or go on with the one that this folder had."""
        files.own_folder(self.folder / "wandb")
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        said = self.config.get("train", {})
        self._run = import_wandb().init(
            project=said.get("wandb_project", "beeline"), name=said.get("wandb_name") or self.folder.name,
            group=said.get("wandb_group"), tags=said.get("wandb_tags"), dir=str(self.folder), mode=mode, config=self.config,
            resume="allow", id=self._id(),
        )  # fmt: skip
        self._thread.start()

    def _id(self) -> str:
        """One id per run folder, so that a resumed run goes on in the same place."""
        path = self.folder / "wandb-id"
        try:
            return files.read_regular(path, 100).decode("ascii").strip()
        except FileNotFoundError:
            name = secrets.token_hex(4)
            files.write_atomic(path, name.encode())
            return name

    def _work(self) -> None:
        try:
            while (row := self._rows.get()) is not None:
                self._run.log(numbers(row), step=row["step"])
            self._run.finish()
        except Exception as error:
            self._failure = error

    def write(self, row: Row) -> None:
        """Leave a row to the thread."""
        self._check()
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            raise RuntimeError(f"it has not taken {self.WAITING} rows") from None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive():
            raise RuntimeError("its thread has died")

    def close(self, good: bool) -> None:
        """Let the thread finish, for as long as there is time."""
        if not self._thread.is_alive():
            return self._check() if self._thread.ident else None
        with contextlib.suppress(queue.Full):
            self._rows.put_nowait(None)
        seconds = self.PATIENCE if good else self.HASTE
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive() and good:
            raise RuntimeError(f"it did not finish within {seconds:g} s")
        return None


class Curve:
    """The learning curve, drawn at the end."""

    what = "learning curves (curve.png)"

    def __init__(self, folder: Path, rows: Callable[[], Sequence[Row]]) -> None:
        self.folder, self.rows = folder, rows

    def open(self, step: int) -> None:
        """Nothing to prepare."""

    def write(self, row: Row) -> None:
        """Nothing to do yet."""

    def close(self, good: bool) -> None:
        """Draw the whole table."""
        if self.folder.is_dir():  # it may have been moved away
            draw_curve(self.rows(), self.folder / "curve.png", self.folder.name)


def numbers(row: Row) -> dict[str, float]:
    """The values of a row, without its step and what it has no value for."""
    return {name: float(value) for name, value in row.items() if name != "step" and value is not None}


def import_wandb() -> Any:
    """The wandb module, or the error that says how to install it."""
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("logging to Weights & Biases", "wandb") from None
    return wandb


def draw_curve(rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """Return (and success, where there is one) over environment steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    evaluations = [row for row in rows if row.get("eval/return") is not None]
    if not evaluations:
        return
    has_success = any(row.get("eval/success") is not None for row in evaluations)
    figure = Figure(figsize=(7.0, 3.6 if not has_success else 5.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 if has_success else 1, 1, sharex=True, squeeze=False)[:, 0]
    steps = [row["step"] for row in evaluations]
    mean = [row["eval/return"] for row in evaluations]
    spread = [row.get("eval/return_std") or 0.0 for row in evaluations]
    training = [(row["step"], row["train/return"]) for row in rows if row.get("train/return") is not None]
    ax = axes[0]
    if training:
        ax.plot(*zip(*training), color="#999999", lw=0.8, alpha=0.7, label="training episodes")
    ax.fill_between(steps, [m - s for m, s in zip(mean, spread)], [m + s for m, s in zip(mean, spread)],
                    color="#0072B2", alpha=0.18, lw=0)  # fmt: skip
    ax.plot(steps, mean, color="#0072B2", lw=1.8, marker="o", ms=3, label="evaluation, mean ± std over episodes")
    ax.set_ylabel("return")
    ax.set_title(title, loc="left", fontsize=10, parse_math=False)  # the name of a folder, dollars and all
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    if has_success:
        axes[1].plot(steps, [row.get("eval/success") for row in evaluations], color="#D55E00", lw=1.8, marker="o", ms=3)
        axes[1].set_ylim(-0.02, 1.02)
        axes[1].set_ylabel("success")
    axes[-1].set_xlabel("environment steps")
    axes[-1].xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}k" if x else "0")
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, lw=0.5)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    files.write_atomic(path, image.getbuffer())
