"""What is seen while a run goes on: a live line on a terminal and in a notebook, one line per row elsewhere.

Whatever is shown comes from a `Pace`, which is told of every decision and of what happened after it: the speed is that of now,
and the time left is reckoned from the recent speed of learning and from what evaluations, diagnoses and checkpoints take here.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from beeline import screen
from beeline.events import Event

if TYPE_CHECKING:
    from beeline.loop import Trainer
    from beeline.run.plan import Plan

NOW = 10.0  # seconds that the speed shown is taken over
RECENT = 60.0  # seconds that the time left is reckoned from
PATIENCE = 30.0  # seconds of work between two decisions before a line is printed of it
LEAST = 3.0  # seconds of learning before it is said what was measured
ROUNDS = 8  # of an agent that works between decisions: the time left is reckoned from as many, and from RECENT at least
WATCHED = {
    "return": "eval/return", "success": "eval/success", "train": "train/return", "Q": "q/mean", "λ": "lambda", "α": "alpha",
}  # fmt: skip
COMPILED = "/jax/core/compile/backend_compile_duration"


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


class Compiler:
    """Whether JAX compiles at this moment, heard from its own monitoring; `changed` is called when that changes."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        from jax import monitoring

        self.busy, self.count, self.seconds, self.changed = False, 0, 0.0, changed
        monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Tracing and lowering have ended when they are told of, and XLA begins; its end is told of too."""
        if not event.startswith("/jax/core/compile/"):
            return
        before, self.busy = self.busy, event != COMPILED
        if event == COMPILED:
            self.count, self.seconds = self.count + 1, self.seconds + duration_secs
        if self.busy != before:
            self.changed()

    def close(self) -> None:
        """Listen no more."""
        from jax import monitoring

        self.changed = lambda: None
        with contextlib.suppress(AttributeError, AssertionError, ValueError):  # older versions keep their listeners for ever
            monitoring.unregister_event_duration_listener(self._hear)


class Pace:
    """How fast a run is now, and how long it has to go.

    `every` has the steps between evaluations, diagnoses and checkpoints. What these take is reckoned apart from the decisions,
    each by the last one that was made; decisions before the first update, and those that compiled something, are not learning
    and are left out. Where an agent works between decisions, training a model say, the speed of learning is that of whole rounds
    from one such work to the next.
    """

    def __init__(self, total: int, every: dict[str, int], clock: Callable[[], float] = time.perf_counter) -> None:
        self.total, self.every, self.clock = total, every, clock
        self.costs: dict[str, float] = {}
        self.step = self.updates = 0
        self.learning = False
        self._since = self._began = clock()
        self._busy = 0.0  # seconds of decisions
        self._marks: deque[tuple[float, int, int]] = deque()  # busy seconds, step and updates of moments a quarter second apart
        self._rounds: deque[tuple[float, int, int]] = deque()  # the same, where work between decisions began

    @property
    def since(self) -> float:
        """When the decision under way began, by its clock."""
        return self._since

    def begin(self, step: int, updates: int) -> None:
        """The first decision of a process comes now."""
        self.step, self.updates, self._since = step, updates, self.clock()
        self._marks = deque([(self._busy, step, updates)])
        self._first = self._marks[0]

    def decided(self, step: int, updates: int, compiled: bool, worked: bool = False) -> None:
        """A decision was made; where something was compiled for it, its time is no measure. `worked`: after work before it."""
        now = self.clock()
        first = (worked or updates > self.updates) and not self.learning
        if worked:
            self._rounds.append((self._busy, self.step, self.updates))
            while len(self._rounds) > ROUNDS + 1 and self._busy - self._rounds[1][0] > RECENT:
                self._rounds.popleft()
        self._busy += now - self._since
        self._since, self.step, self.updates = now, step, updates
        self.learning |= first
        if first or compiled:  # what was before is no measure of what comes
            self._marks = deque([(self._busy, step, updates)])
        elif self._busy - self._marks[-1][0] >= 0.25:
            self._marks.append((self._busy, step, updates))
            while self._busy - self._marks[1][0] > RECENT:
                self._marks.popleft()

    def happened(self, due: list[str]) -> None:
        """What was due after the decision is done; where nothing was, it belongs to the decision."""
        now = self.clock()
        spent, self._since = now - self._since, now
        if not due:
            self._busy += spent
            return
        known = {kind: self.costs.get(kind) for kind in due}
        new = [kind for kind, cost in known.items() if cost is None]
        before = sum(cost for cost in known.values() if cost is not None)
        if new:
            self.costs |= {kind: max(spent - before, 0.0) / len(new) for kind in new}
        else:
            self.costs |= {kind: spent * (cost or 0.0) / before if before else spent / len(due) for kind, cost in known.items()}

    def _over(self, seconds: float) -> tuple[float, int, int]:
        """Seconds, steps and updates of the last `seconds` of decisions, or of as many as there are."""
        first = next(mark for mark in self._marks if self._busy - mark[0] <= seconds or mark is self._marks[-1])
        if first is self._marks[-1] and len(self._marks) > 1:
            first = self._marks[-2]
        return self._busy - first[0], self.step - first[1], self.updates - first[2]

    @property
    def rate(self) -> float | None:
        """Environment steps per second of decisions, now."""
        seconds, steps, _ = self._over(NOW) if self._marks else (0.0, 0, 0)
        return steps / seconds if seconds > 0 and steps > 0 else None

    @property
    def measured(self) -> tuple[float, float, float]:
        """Seconds of learning that were measured, and updates and steps per second in them."""
        if len(self._rounds) > 1:
            seconds, steps, updates = (now - before for now, before in zip(self._rounds[-1], self._rounds[0]))
        elif self._rounds:  # how long a round is is not known yet
            seconds, steps, updates = (now - before for now, before in zip((self._busy, self.step, self.updates), self._first))
        else:
            seconds, steps, updates = self._over(RECENT) if self.learning else (0.0, 0, 0)
        return (seconds, updates / seconds, steps / seconds) if seconds > 0 else (0.0, 0.0, 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds to go, what comes between decisions included; None before anything was learnt."""
        if self.step >= self.total:
            return 0.0
        rate = self.measured[2]
        if not rate:
            return None
        seconds = (self.total - self.step) / rate
        for kind, cost in self.costs.items():
            every = self.every[kind]
            ahead = self.total // every - self.step // every
            last = kind == "evaluating" and self.total % every > 0  # a run evaluates at its end
            seconds += cost * (ahead + last)
        return seconds


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
