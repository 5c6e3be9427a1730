"""What is known of a matrix while it runs: the state of every run from its folder, rates, ETA, and how it is shown."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from beeline import files
from beeline.bench.plan import BenchRun
from beeline.bench.worker import failure_path
from beeline.run.record import read_metrics

STATES = ("running", "failed", "stopped", "finished", "waiting")  # as they are sorted where not all rows fit
STYLES = {"running": "cyan", "failed": "red", "stopped": "yellow", "finished": "green", "waiting": "dim"}
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


def rate(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Environment steps per second over the last rows: Σ steps / Σ seconds; None where nothing was measured."""
    steps = seconds = 0.0
    recent = rows[-RECENT - 1 :]
    for before, row in zip(recent, recent[1:]):
        done, speed = (row["step"] or 0) - (before["step"] or 0), row.get("time/steps_per_second") or 0
        if done > 0 and speed > 0:
            steps, seconds = steps + done, seconds + done / speed
    return steps / seconds if seconds else None


def look(out: Path, run: BenchRun) -> View:
    """Read a run's folder: finished, failed (with its reason), stopped (begun, to go on) or waiting."""
    folder = out / run.folder
    status = files.read_json(folder / "status.json")
    try:
        rows = read_metrics(folder / "metrics.csv")
    except (OSError, ValueError):
        rows = []
    scores = [row["eval/return"] for row in rows if row.get("eval/return") is not None]
    step = int(rows[-1]["step"] or 0) if rows else 0
    found = View(run, "waiting", step, rate(rows), scores[-1] if scores else None)
    if status.get("state") == "finished" and status.get("step", 0) >= run.steps:
        return dataclasses.replace(found, state="finished", step=status["step"])
    if failure_path(folder).exists():
        reason = str(files.read_json(failure_path(folder)).get("reason", "unknown"))
        return dataclasses.replace(found, state="failed", reason=reason)
    return dataclasses.replace(found, state="stopped") if (folder / "config.json").exists() else found


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
    left = "–" if seconds_left is None else str(datetime.timedelta(seconds=round(seconds_left)))
    return f"{len(views)} runs: {counts(views)}; {done:.0%} of all steps, ETA {left}"


def _cells(view: View) -> list[str]:
    return [
        view.run.task, view.run.variant, str(view.run.seed), view.state, f"{view.step:,}",
        "–" if view.rate is None or view.state != "running" else f"{view.rate:,.0f}",
        "–" if view.score is None else f"{view.score:,.1f}",
    ]  # fmt: skip


class Lines:
    """A line when a run's state changes, and one for the whole now and then."""

    def __init__(self, every: float = 60.0) -> None:
        self.states: dict[str, str] = {}
        self.every, self.shown = every, time.monotonic()

    def show(self, views: Sequence[View], seconds_left: float | None) -> None:
        """Print what is new."""
        for view in views:
            before = self.states.get(view.run.folder, "waiting")
            self.states[view.run.folder] = view.state
            if view.state != before:
                score = "" if view.score is None else f", return {view.score:,.1f}"
                reason = f": {view.reason}" if view.reason else ""
                print(f"{view.run.folder}: {view.state} at step {view.step:,}{score}{reason}", flush=True)
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
        self.live.update(table(views, seconds_left, self.live.console.height - 4), refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self.live.stop()


def table(views: Sequence[View], seconds_left: float | None, height: int) -> Any:
    """The runs as a table of at most `height` rows, with the whole below it."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    shown = sorted(views, key=lambda view: (view.run.task, view.run.variant, view.run.seed))
    if len(shown) > height:
        shown = sorted(shown, key=lambda view: STATES.index(view.state))[: max(height - 1, 1)]
    there = {view.run.folder for view in shown}
    hidden = [view for view in views if view.run.folder not in there]
    caption = whole(views, seconds_left) + (f" (not shown: {counts(hidden)})" if hidden else "")
    found = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("task", "variant", "seed", "state", "step", "steps/s", "return"):
        right = name in ("seed", "step", "steps/s", "return")
        found.add_column(name, justify="right" if right else "left", no_wrap=True)
    found.add_column("reason", no_wrap=True, overflow="ellipsis")
    for view in shown:
        cells = [escape(cell) for cell in _cells(view)]
        cells[3] = f"[{STYLES[view.state]}]{view.state}[/]"
        found.add_row(*cells, escape(view.reason.partition("\n")[0]))
    return Group(found, Text(caption))


def make_display() -> Display:
    """A live table on a terminal, lines elsewhere."""
    return Live() if sys.stdout.isatty() else Lines()
