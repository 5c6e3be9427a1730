"""The record of a run: the metrics table, TensorBoard events, Weights & Biases, and the learning curve."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import files
from beeline.errors import CheckpointError, MissingExtraError, UnreadableError
from beeline.run import metrics

LOOP_COLUMNS = (
    "step", "episodes", "updates", "train/return", "train/length", "train/success",
    "eval/return", "eval/return_std", "eval/length", "eval/success", "eval/success_any",
)  # fmt: skip
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

    def cut(self, size: int) -> None:
        """Drop everything after `size` bytes."""
        have = self.path.stat().st_size if self.path.exists() else 0
        if have < size:
            raise CheckpointError(f"{self.path} has {have} bytes where the checkpoint knows {size}: rows were lost.")
        with self.path.open("r+b") as file:
            file.truncate(size)


def read_metrics(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The rows of a metrics table, or of its first `size` bytes; a half-written last line is left out, damage is an error."""
    found = metrics.parse(files.read_regular(path)[:size])
    if found.damage:
        raise UnreadableError(f"{path} is damaged ({found.trouble}).")
    return found.rows()


class Recorder:
    """Writes a run folder's record, or keeps rows in memory where there is no folder."""

    def __init__(
        self, folder: Path | None, metric_names: Sequence[str], *, tensorboard: bool, wandb: bool, config: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        self.columns = [*LOOP_COLUMNS, *metric_names, *TIME_COLUMNS]
        self.rows: list[dict[str, Any]] = []
        self.table = MetricsTable(folder / "metrics.csv", self.columns) if folder else None
        self._use_tensorboard = tensorboard and folder is not None
        self._use_wandb = wandb and folder is not None
        self._config = dict(config)
        self._events: Any = None
        self._wandb: Any = None

    def open(self, step: int) -> None:
        """Begin to write rows from `step` on; events that an interrupted run wrote there are marked as void."""
        if self._use_tensorboard and self.folder:
            from tensorboardX import SummaryWriter

            # A file is named by the second: without a suffix, a run resumed within it would write over its own events.
            own = f".{step}.{os.getpid()}"
            folder = str(self.folder / "tensorboard")
            self._events = SummaryWriter(folder, purge_step=step, flush_secs=30, filename_suffix=own)
        if self._use_wandb and self.folder:
            mode: Any = os.environ.get("WANDB_MODE", "offline")
            self._wandb = import_wandb().init(
                project="beeline", dir=str(self.folder), mode=mode, config=self._config, name=self.folder.name, resume="allow",
                id=self._wandb_id(),
            )  # fmt: skip

    def _wandb_id(self) -> str:
        """One id per run folder, so that a resumed run goes on in the same place."""
        assert self.folder is not None
        path = self.folder / "wandb-id"
        if not path.exists():
            files.write_atomic(path, secrets.token_hex(4).encode())
        return path.read_text()

    def write(self, row: dict[str, Any]) -> None:
        """Record one row."""
        self.rows.append(row)
        if self.table:
            self.table.append(row)
        numbers = {name: float(value) for name, value in row.items() if name != "step" and value is not None}
        if self._events:
            for name, value in numbers.items():
                self._events.add_scalar(name, value, row["step"])
        if self._wandb:
            self._wandb.log(numbers, step=row["step"])

    def status(self, state: str, step: int, reason: str = "") -> None:
        """Say in the run folder how the run stands."""
        if self.folder:
            text = json.dumps({"state": state, "step": step, "reason": reason, "pid": os.getpid()}, indent=1)
            files.write_atomic(self.folder / "status.json", text.encode())

    def sync(self) -> int:
        """Make the table durable and hand the events on; return the table's length."""
        if self._events:
            self._events.flush()
        return self.table.sync() if self.table else 0

    def cut(self, size: int) -> None:
        """Take the record back to a checkpoint."""
        if self.table:
            self.table.cut(size)

    def restart(self) -> None:
        """Take the record back to its header."""
        if self.table:
            self.table.cut(len(self.table.header))

    def close(self) -> None:
        """Close the writers and draw the learning curve."""
        if self._events:
            self._events.close()
            self._events = None
        if self._wandb:
            self._wandb.finish()
            self._wandb = None
        if self.folder and self.table:
            draw_curve(read_metrics(self.table.path), self.folder / "curve.png", self.folder.name)


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
    ax.set_title(title, loc="left", fontsize=10)
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
    temporary = path.with_name(".curve.tmp.png")
    figure.savefig(temporary)
    temporary.replace(path)
