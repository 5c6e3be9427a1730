"""What the terminal shows while a run goes on: a live bar on a terminal, one line per row elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from beeline.loop import Trainer
from beeline.run.plan import Plan


class Display(Protocol):
    """Shows rows until closed."""

    def close(self) -> None:
        """Give the terminal back."""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Rows:
    """Remembers the last value of what a user watches."""

    WATCHED = (("return", "eval/return"), ("train", "train/return"), ("success", "eval/success"), ("Q", "q/mean"),
               ("λ", "lambda"), ("α", "alpha"))  # fmt: skip

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}

    def take(self, row: dict[str, Any]) -> None:
        self.latest |= {name: row[key] for name, key in self.WATCHED if row.get(key) is not None}

    def text(self) -> str:
        return "  ".join(f"{name} {_number(self.latest[name])}" for name, _ in self.WATCHED if name in self.latest)


class LineDisplay:
    """One line per recorded row."""

    def __init__(self, trainer: Trainer, plan: Plan) -> None:
        self.rows, self.total, self.trainer = _Rows(), plan.train.steps, trainer
        self.began, self.first = time.perf_counter(), trainer.progress.step
        print(f"{plan.algo} on {plan.env}, seed {plan.train.seed}, {self.total:,} environment steps", flush=True)
        if trainer.folder:
            print(f"run folder: {trainer.folder}", flush=True)
        trainer.on_row = self.show

    def show(self, row: dict[str, Any]) -> None:
        """Print a row."""
        self.rows.take(row)
        step = row["step"]
        rate = (step - self.first) / max(time.perf_counter() - self.began, 1e-9)
        left = _duration((self.total - step) / rate) if rate > 0 and step > self.first else "–"
        line = f"step {step:>9,} ({step / self.total:4.0%})  {rate:5.0f} steps/s  ETA {left}  {self.rows.text()}"
        try:
            print(line, flush=True)
        except BrokenPipeError:
            raise
        except OSError:  # the log may lie on a disk that is full; the run need not end with it
            self.trainer.on_row = lambda row: None

    def close(self) -> None:
        """Nothing to put back."""


class BarDisplay:
    """A live bar with ETA, steps/s and the watched values."""

    def __init__(self, trainer: Trainer, plan: Plan) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.text import Text

        self.rows, self.trainer = _Rows(), trainer
        # No markup: a task's name and a path are the user's, brackets included.
        self.bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False), TimeElapsedColumn(), TextColumn("ETA", markup=False),
            TimeRemainingColumn(), TextColumn("{task.fields[values]}", markup=False), refresh_per_second=4,
            speed_estimate_period=120,
        )  # fmt: skip
        step = trainer.progress.step
        self.task = self.bar.add_task(f"{plan.algo} {plan.env}", total=plan.train.steps, completed=step, rate="", values="")
        self.began, self.first, self.shown = time.perf_counter(), step, 0.0
        self.bar.start()
        if trainer.folder:
            self.bar.console.print(Text(f"run folder: {trainer.folder}"), soft_wrap=True)
        trainer.on_row = self.show
        trainer.on_decision = self.tick

    def tick(self) -> None:
        """Move the bar a few times a second."""
        now = time.perf_counter()
        if now - self.shown < 0.25:
            return
        self.shown = now
        step = self.trainer.progress.step
        rate = (step - self.first) / max(now - self.began, 1e-9)
        self.bar.update(self.task, completed=step, rate=f"{rate:,.0f} steps/s")

    def show(self, row: dict[str, Any]) -> None:
        """Take over a row's values."""
        self.rows.take(row)
        self.bar.update(self.task, values=self.rows.text())

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self.bar.update(self.task, completed=self.trainer.progress.step)
        self.bar.stop()


def make_display(trainer: Trainer, plan: Plan) -> Display:
    """A bar on a terminal, lines elsewhere."""
    return BarDisplay(trainer, plan) if sys.stdout.isatty() else LineDisplay(trainer, plan)
