"""What is seen while a run goes on: a live line on a terminal and in a notebook, one line per row elsewhere.

How fast a run is and how long it has to go comes from a `Pace`, which is told of every decision and of what happened after it.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from beeline import screen
from beeline.events import Event
from beeline.pace import Compiler, Pace

if TYPE_CHECKING:
    from beeline.loop import Trainer
    from beeline.run.plan import Plan

PATIENCE = 30.0  # seconds of work between two decisions before a line is printed of it
LEAST = 3.0  # seconds of learning before it is said what was measured
WATCHED = {
    "return": "eval/return", "success": "eval/success", "train": "train/return", "Q": "q/mean", "λ": "lambda", "α": "alpha",
}  # fmt: skip


class Display(Protocol):
    """Shows a run until closed."""

    def close(self) -> None:
        """Give the terminal back."""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Clock(Event):
    """Tells a view when the events of a decision are over; the last of a trainer's events."""

    def __init__(self, view: View) -> None:
        self.view = view

    def start(self, run: Trainer) -> None:
        """What comes before the first decision, such as the first evaluation, is over."""
        self.view.started()

    def __call__(self, run: Trainer) -> None:
        """What came after a decision is over."""
        self.view.over()


class View:
    """What every display has: the pace, what goes on at this moment, and the last value of what a user watches."""

    def __init__(self, trainer: Trainer, plan: Plan) -> None:
        config, progress = plan.train, trainer.progress
        self.trainer, self.plan, self.total = trainer, plan, plan.train.steps
        every = {"evaluating": config.eval_every} if trainer.eval_env is not None and config.eval_episodes else {}
        if trainer.diagnoser is not None and config.diagnose:
            every["diagnosing"] = config.diagnose
        if trainer.store is not None:
            every["saving"] = config.checkpoint_every
        self.pace = Pace(self.total, every)
        self.latest: dict[str, float] = {}
        self.phase = "evaluating" if "evaluating" in every and not progress.rows else "starting"
        self.work = ""  # of an agent before its next decision
        self.said = False
        self._due: list[str] = []
        self._first = not progress.rows
        self.compiler = Compiler(self.refresh)
        self._compiled = 0
        trainer.on_row, trainer.on_decision, trainer.on_work = self.row, self.decided, self.working
        self._clock = _Clock(self)
        trainer.events.append(self._clock)
        self.say(f"{plan.algo} on {plan.env}, seed {config.seed}, {self.total:,} environment steps")
        if trainer.folder:
            self.say(f"run folder: {trainer.folder}")

    # --- what a display does of its own

    def say(self, text: str) -> None:
        """Show a line that stays."""
        raise NotImplementedError

    def refresh(self) -> None:
        """What goes on has changed."""

    def closed(self) -> None:
        """Put back what was changed on the screen."""

    # --- what the trainer tells

    def started(self) -> None:
        """The first decision comes next."""
        pace, progress = self.pace, self.trainer.progress
        if self._first and self.phase == "evaluating":
            pace.costs["evaluating"] = max(pace.elapsed - self.compiler.seconds, 0.0)
        self.phase, self._compiled = "", self.compiler.count
        pace.begin(progress.step, progress.updates)
        self.refresh()

    def decided(self) -> None:
        """After every decision, before its events."""
        trainer, count, worked = self.trainer, self.compiler.count, bool(self.work)
        self.work = ""
        self.pace.decided(trainer.progress.step, trainer.progress.updates, count != self._compiled, worked)
        self._compiled = count
        self._due = [kind for kind, every in self.pace.every.items() if trainer.due(every)]
        if self._due:
            self.phase = self._due[0]
            self.refresh()

    def working(self, words: str) -> None:
        """An agent says what it does before its next decision."""
        self.work = words
        self.refresh()

    def over(self) -> None:
        """After the events of a decision."""
        self.pace.happened(self._due)
        self._compiled = self.compiler.count  # what an evaluation compiles is no part of the next decision
        if self._due:
            self._due, self.phase = [], "finishing" if self.pace.step >= self.total else ""
        if not self.said and self.pace.learning:
            self._say_measured()

    def _say_measured(self) -> None:
        seconds, updates, steps = self.pace.measured
        left = self.pace.left
        if seconds >= LEAST and left is not None:
            self.said = True
            speed = f"{updates:,.0f} updates/s, {steps:,.0f} steps/s" if updates else f"{steps:,.0f} steps/s"
            if self._first:  # what is gone included, such as the warm-up
                whole = f"{self.total:,} steps in about {_in_words(self.pace.elapsed + left)}"
            else:
                whole = f"about {_in_words(left)} to go"
            self.say(f"measured here: {speed}; {whole}")

    def row(self, row: dict[str, Any]) -> None:
        """Take over a row's values."""
        self.latest |= {name: row[key] for name, key in WATCHED.items() if row.get(key) is not None}
        self.refresh()

    # --- what there is to show

    @property
    def doing(self) -> str:
        """What goes on, if it is not decisions; else their speed."""
        if self.compiler.busy:
            return "compiling"
        if self.work:
            return self.work
        rate = self.pace.rate
        return self.phase or ("" if rate is None else f"{rate:,.0f} steps/s")

    @property
    def eta(self) -> str:
        """The time left."""
        left = self.pace.left
        return f"ETA {'–' if left is None else _duration(left)}"

    def values(self) -> dict[str, str]:
        """The watched values that are known, by name, as text."""
        return {name: f"{name} {_number(self.latest[name])}" for name in WATCHED if name in self.latest}

    def line(self, width: int) -> str:
        """The run in one line of at most `width` characters: the bar gives way first, then what is less watched."""
        step = self.trainer.progress.step
        values = self.values()
        parts = {"step": f"{step:,}/{self.total:,}", "eta": self.eta, **values, "doing": self.doing}
        parts["elapsed"] = f"{_duration(self.pace.elapsed)} gone"
        kept: list[str] = []
        room = width
        for name in ("step", "eta", "return", "λ", "α", "doing", "bar", "success", "train", "Q", "elapsed"):
            needed = 12 if name == "bar" else len(parts.get(name, "")) + 2
            if needed > 2 and needed - (not kept) * 2 <= room:
                kept.append(name)
                room -= needed - (len(kept) == 1) * 2
        if "bar" in kept:
            full = min(10 + room, 40)
            done = round(full * min(step / self.total, 1.0))
            parts["bar"] = "━" * done + "╌" * (full - done)
        order = ("bar", "step", "doing", "eta", *WATCHED, "elapsed")
        return "  ".join(parts[name] for name in order if name in kept)

    def close(self) -> None:
        """Leave the last state on the screen, and the trainer as it was."""
        trainer = self.trainer
        trainer.on_row, trainer.on_decision, trainer.on_work = lambda row: None, lambda: None, lambda words: None
        trainer.events = [event for event in trainer.events if event is not self._clock]
        self.phase, self.compiler.busy = "", False
        self.compiler.close()
        self.closed()


class LineDisplay(View):
    """One line per recorded row, for logs and pipes, and one every half minute of an agent's work between two decisions."""

    _told = 0.0

    def working(self, words: str) -> None:
        """Print what goes on, where it takes long."""
        super().working(words)
        now = time.perf_counter()
        if now - max(self._told, self.pace.since) >= PATIENCE:
            self._told = now
            self.say(f"step {self.trainer.progress.step:>9,}: {words}")

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def row(self, row: dict[str, Any]) -> None:
        """Print a row."""
        super().row(row)
        step, rate = row["step"], self.pace.rate
        speed = "" if rate is None else f"  {rate:5.0f} steps/s"
        values = "  ".join(self.values().values())
        try:
            print(f"step {step:>9,} ({step / self.total:4.0%}){speed}  {self.eta}  {values}", flush=True)
        except BrokenPipeError:
            raise
        except OSError:  # the log may lie on a disk that is full; the run need not end with it
            self.trainer.on_row = lambda row: None


class BarDisplay(View):
    """A line that is redrawn in place, on a terminal."""

    def __init__(self, trainer: Trainer, plan: Plan) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console()
        self.live: Live | None = None
        super().__init__(trainer, plan)
        self.live = Live(console=self.console, get_renderable=self._text, refresh_per_second=4)
        self.live.start()

    def _text(self) -> Any:
        from rich.text import Text

        # No markup: a task's name and a path are the user's, brackets included.
        text = Text(self.line(self.console.width), no_wrap=True, overflow="crop")
        text.highlight_regex("━+", "green")
        text.highlight_words(["compiling", "evaluating", "diagnosing", "saving", "finishing"], "cyan")
        return text

    def say(self, text: str) -> None:
        """Print a line above the live one."""
        from rich.text import Text

        self.console.print(Text(screen.broken(text, self.console.width)), soft_wrap=True)

    def closed(self) -> None:
        """Leave the last line on the screen."""
        if self.live is not None:
            self.live.stop()


class NotebookDisplay(View):
    """A line that is replaced in the output of a notebook's cell."""

    WIDTH = 110

    def __init__(self, trainer: Trainer, plan: Plan) -> None:
        self.ipython: Any = importlib.import_module("IPython.display")
        self.lines: list[str] = []
        self.handle: Any = None
        self.shown = 0.0
        super().__init__(trainer, plan)
        self.handle = self.ipython.display(self._content(), raw=True, display_id=True)

    def _content(self) -> dict[str, str]:
        return {"text/plain": "\n".join([*self.lines, self.line(self.WIDTH)])}

    def say(self, text: str) -> None:
        """Add a line above the one that is replaced."""
        self.lines.append(text)
        self.refresh()

    def refresh(self) -> None:
        """Replace what is shown."""
        if self.handle is not None:
            self.shown = time.perf_counter()
            self.handle.update(self._content(), raw=True)

    def over(self) -> None:
        """After the events of a decision: twice a second."""
        super().over()
        if time.perf_counter() - self.shown > 0.5:
            self.refresh()

    def closed(self) -> None:
        """Leave the last state."""
        self.refresh()


def make_display(trainer: Trainer, plan: Plan) -> Display:
    """A live line on a terminal, lines elsewhere: what commands show."""
    return BarDisplay(trainer, plan) if sys.stdout.isatty() else LineDisplay(trainer, plan)


def automatic(trainer: Trainer, plan: Plan) -> Display | None:
    """What Python shows by default: a live line in a notebook and on a terminal, nothing elsewhere."""
    if _in_notebook():
        return NotebookDisplay(trainer, plan)
    return BarDisplay(trainer, plan) if sys.stdout.isatty() else None


def _in_notebook() -> bool:
    """Whether the code runs in the kernel of a notebook, whoever shows it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
