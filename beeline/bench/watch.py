"""What is known of a matrix while it runs: the state of every run from its folder, rates, ETA, and how it is shown."""

from __future__ import annotations

import dataclasses
import datetime
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from beeline import files, screen
from beeline.bench.plan import BenchRun
from beeline.bench.worker import failure_path
from beeline.run import reading
from beeline.run.metrics import Metrics
from beeline.screen import Column

STATES = ("running", "failed", "stopped", "finished", "pruned", "waiting")  # as they are sorted where not all rows fit
STYLES = {"running": "cyan", "failed": "red", "stopped": "yellow", "finished": "green", "pruned": "dim", "waiting": "dim"}
LONGEST = 1e10  # seconds; what would take centuries was not measured but read from a damaged table
RECENT = 10  # rows that a rate is taken from: the warm-up is faster than what follows


@dataclasses.dataclass(frozen=True)
class View:
    """A run as its folder shows it."""

    run: BenchRun
    state: str
    step: int = 0
    rate: float | None = None
    score: float | None = None
    reason: str = ""
    warning: str = ""  # what of its folder is damaged

    @property
    def remark(self) -> str:
        """Why it is as it is, and what is wrong with its folder, in one line."""
        first = self.reason.partition("\n")[0]
        return "; ".join(reading.legible(text) for text in (first, self.warning) if text)


def rate(table: Metrics) -> float | None:
    """Environment steps per second over the last rows: Σ steps / Σ seconds; None where nothing was measured."""
    steps, speed = table.column("step"), table.column("time/steps_per_second")
    done, speed = np.diff(steps)[-RECENT:], speed[1:][-RECENT:]
    measured = (done > 0) & (speed > 0) & np.isfinite(speed) if speed.size else np.empty(0, bool)
    return float(done[measured].sum() / (done[measured] / speed[measured]).sum()) if measured.any() else None


def look(out: Path, run: BenchRun) -> View:
    """Read a run's folder: finished, failed (with its reason), stopped (begun, to go on) or waiting; damage is a warning."""
    folder = out / run.folder
    said: list[str] = []
    status, table = reading.record(folder, said.append, run.task, run.options)
    steps, scores = table.column("step"), table.column("eval/return")
    scores = scores[np.isfinite(scores)]
    found = View(
        run, "waiting", int(steps[-1]) if steps.size else 0, rate(table), float(scores[-1]) if scores.size else None,
        warning=" ".join(said),
    )  # fmt: skip
    if status.state == "finished" and status.step is not None and status.step >= run.steps:
        return dataclasses.replace(found, state="finished", step=status.step)
    if os.path.lexists(failure_path(folder)):
        reason = "unknown"
        with reading.guard(folder.parent, said.append):
            reason = str(files.load_json(failure_path(folder)).get("reason", reason))
        return dataclasses.replace(found, state="failed", reason=reason, warning=" ".join(said))
    return dataclasses.replace(found, state="stopped") if os.path.lexists(folder / "config.json") else found


def _mean_rates(views: Sequence[View]) -> dict[tuple[str, ...], float]:
    """The mean rate of all measured runs, under (), of each task's, and of each task's and variant's."""
    found: dict[tuple[str, ...], list[float]] = {}
    for view in views:
        if view.rate:
            for key in ((), (view.run.task,), (view.run.task, view.run.variant)):
                found.setdefault(key, []).append(view.rate)
    return {key: sum(rates) / len(rates) for key, rates in found.items()}


def eta(views: Sequence[View], workers: int) -> float | None:
    """Seconds until all are done: the work left over the workers, but not less than the longest run.

    A run without a rate of its own is given the mean of its task's runs, or of all; None before any was measured.
    """
    means = _mean_rates(views)
    if () not in means:
        return None
    left = []
    for view in views:
        if view.state in ("running", "waiting"):
            task, variant = view.run.task, view.run.variant
            speed = view.rate or means.get((task, variant)) or means.get((task,)) or means[()]
            left.append(max(view.run.steps - view.step, 0) / speed)
    return max(sum(left) / workers, max(left, default=0.0))


# --- showing ----------------------------------------------------------------------------------------------------------


class Display(Protocol):
    """Shows the matrix until closed."""

    def show(self, views: Sequence[View], seconds_left: float | None) -> None:
        """Take over the present state."""

    def close(self) -> None:
        """Give the terminal back."""


def counts(views: Sequence[View]) -> str:
    """How many runs are in which state."""
    found = Counter(view.state for view in views)
    return ", ".join(f"{found[state]} {state}" for state in STATES if found[state])


def whole(views: Sequence[View], seconds_left: float | None) -> str:
    """The matrix in one line."""
    done = sum(min(view.step, view.run.steps) for view in views) / max(sum(view.run.steps for view in views), 1)
    if seconds_left is None or seconds_left > LONGEST:
        left = "–"
    else:
        left = str(datetime.timedelta(seconds=round(seconds_left)))
    return f"{len(views)} runs: {counts(views)}; {done:.0%} of all steps, ETA {left}"


def _cells(view: View) -> list[str]:
    return [
        view.run.task, view.run.variant, str(view.run.seed), view.state, f"{view.step:,}",
        "–" if view.rate is None or view.state != "running" else f"{view.rate:,.0f}",
        "–" if view.score is None else f"{view.score:,.1f}", view.remark,
    ]  # fmt: skip


COLUMNS = (
    Column("task"), Column("variant"), Column("seed", right=True), Column("state"), Column("step", right=True, goes=2),
    Column("steps/s", right=True, goes=1), Column("return", right=True), Column("reason", goes=3, prose=True),
)  # fmt: skip


class Lines:
    """A line when a run's state changes, and one for the whole now and then."""

    def __init__(self, every: float = 60.0) -> None:
        self.states: dict[str, tuple[str, str]] = {}
        self.every, self.shown = every, time.monotonic()

    def show(self, views: Sequence[View], seconds_left: float | None) -> None:
        """Print what is new."""
        for view in views:
            before = self.states.get(view.run.folder, ("waiting", ""))
            now = self.states[view.run.folder] = (view.state, view.warning)
            if now != before:
                score = "" if view.score is None else f", return {view.score:,.1f}"
                remark = f": {view.remark}" if view.remark else ""
                print(f"{view.run.folder}: {view.state} at step {view.step:,}{score}{remark}", flush=True)
        if time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            print(whole(views, seconds_left), flush=True)

    def close(self) -> None:
        """Nothing to put back."""


class Live:
    """A table of every run, redrawn in place; where the screen is too low, what runs or failed comes first."""

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self.live = RichLive(auto_refresh=False)
        self.live.start()

    def show(self, views: Sequence[View], seconds_left: float | None) -> None:
        """Redraw."""
        self.live.update(table(views, seconds_left, self.live.console.height - 5, self.live.console.width), refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self.live.stop()


def table(views: Sequence[View], seconds_left: float | None, height: int, width: int | None = None) -> Any:
    """The runs as a table of at most `height` rows, with the whole below it."""
    from rich.text import Text

    shown = sorted(views, key=lambda view: (view.run.task, view.run.variant, view.run.seed))
    if len(shown) > height:
        shown = sorted(shown, key=lambda view: STATES.index(view.state))[: max(height - 1, 1)]
    there = {view.run.folder for view in shown}
    hidden = [view for view in views if view.run.folder not in there]
    caption = screen.broken(whole(views, seconds_left) + (f"; not shown: {counts(hidden)}" if hidden else ""), width)
    rows = [_cells(view) for view in shown]
    columns = COLUMNS if any(view.remark for view in shown) else COLUMNS[:-1]
    heading, *lines = screen.lines(columns, rows, width)
    sizes = screen.fit(columns, rows, width)
    before = sum(size + screen.GAP for place, size in sizes.items() if columns[place].name in ("task", "variant", "seed"))
    text = Text(heading, style="bold", no_wrap=True)  # never markup: names and reasons are of the user's world
    for view, line in zip(shown, lines):
        found = Text(line, style="not bold")
        found.stylize(STYLES[view.state], before, before + len(view.state))
        text.append("\n").append(found)
    return text.append(f"\n{caption}", "not bold")


def make_display() -> Display:
    """A live table on a terminal, lines elsewhere."""
    return Live() if sys.stdout.isatty() else Lines()
