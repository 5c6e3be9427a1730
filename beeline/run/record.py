"""The record of a run: the metrics table, the status, and the sinks that its rows go to beside them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import files
from beeline.errors import CheckpointError, RunFolderError
from beeline.run.sinks import Curve, Sink, Sinks, TensorBoard, WeightsAndBiases

LOOP_COLUMNS = (
    "step", "episodes", "updates", "train/return", "train/length", "train/success",
    "eval/return", "eval/return_std", "eval/length", "eval/success", "eval/success_any",
)  # fmt: skip
STATUS_BYTES = 4096  # of status.json at least, so that the end of a run can be told in place on a full disk
TIME_COLUMNS = ("time/wall", "time/steps_per_second")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else repr(float(value))


class MetricsTable:
    """An append-only CSV file. `size` is what a checkpoint remembers; `cut` takes the file back to it."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, list(columns)
        if path.exists():  # the columns stay those the table began with, whatever a later version would add
            with path.open() as file:
                self.columns = file.readline().rstrip("\n").split(",")
        else:
            files.write_atomic(path, self.header)

    @property
    def header(self) -> bytes:
        """The first line."""
        return (",".join(self.columns) + "\n").encode()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; columns without a value stay empty."""
        line = ",".join(_cell(row.get(name)) for name in self.columns) + "\n"
        with files.explained(self.path):
            files.fault("write", self.path)
            with self.path.open("ab") as file:
                file.write(line.encode())

    def sync(self) -> int:
        """Make the rows durable; return the table's length in bytes."""
        with files.explained(self.path), self.path.open("ab") as file:
            files.fault("fsync", self.path)
            os.fsync(file.fileno())
            return file.tell()

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are in the file."""
        return read_metrics(self.path)

    def cut(self, size: int) -> None:
        """Drop everything after `size` bytes."""
        have = self.path.stat().st_size if self.path.exists() else 0
        if have < size:
            raise CheckpointError(f"{self.path} has {have} bytes where the checkpoint knows {size}: rows were lost.")
        with self.path.open("r+b") as file:
            file.truncate(size)


def read_metrics(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The rows of a metrics table, or of its first `size` bytes; a half-written last line is left out."""
    text = path.read_bytes()[:size].decode()
    complete = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(complete.splitlines())
    return [{name: float(cell) if cell else None for name, cell in row.items()} for row in rows]


class Recorder:
    """Writes a run folder's record, or keeps rows in memory where there is no folder."""

    def __init__(
        self, folder: Path | None, metric_names: Sequence[str], *, tensorboard: bool, wandb: bool, config: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        self.columns = [*LOOP_COLUMNS, *metric_names, *TIME_COLUMNS]
        self.rows: list[dict[str, Any]] = []
        self.table = MetricsTable(folder / "metrics.csv", self.columns) if folder else None
        chosen: list[Sink] = []
        if folder and tensorboard:
            chosen.append(TensorBoard(folder / "tensorboard"))
        if folder and wandb:
            chosen.append(WeightsAndBiases(folder, config))
        if self.table:
            chosen.append(Curve(self.table.path.parent, self.table.rows))
        self.sinks = Sinks(chosen)

    def open(self, step: int) -> None:
        """Begin to write rows from `step` on."""
        self.sinks.open(step)

    def write(self, row: dict[str, Any]) -> None:
        """Record one row."""
        self.rows.append(row)
        if self.table:
            self.table.append(row)
        self.sinks.write(row)

    def status(self, state: str, step: int, reason: str = "") -> None:
        """Say in the run folder how the run stands."""
        if not self.folder:
            return
        path, told = self.folder / "status.json", {"state": state, "step": step, "reason": reason, "pid": os.getpid()}
        try:
            files.write_atomic(path, json.dumps(told, indent=1).encode().ljust(STATUS_BYTES))
        except RunFolderError:  # the file has room of its own, which a full disk cannot take
            short = " ".join(reason.split()).encode("ascii", "replace").decode()[: STATUS_BYTES // 3]
            files.overwrite(path, json.dumps(told | {"reason": short}, indent=1).encode())

    def sync(self) -> int:
        """Make the table durable; return its length."""
        return self.table.sync() if self.table else 0

    def cut(self, size: int) -> None:
        """Take the record back to a checkpoint."""
        if self.table:
            self.table.cut(size)

    def restart(self) -> None:
        """Take the record back to its header."""
        if self.table:
            self.table.cut(len(self.table.header))

    def close(self, good: bool = True) -> None:
        """Close the sinks and draw the learning curve; after a run that did not end well nothing is waited for."""
        self.sinks.close(good)

