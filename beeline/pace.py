"""How fast a run is, and how long it has to go.

The speed is that of now, and the time left is reckoned from the recent speed of learning and from what evaluations, diagnoses and
checkpoints take here. What JAX compiles is heard and left out.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable

NOW = 10.0  # seconds that the speed shown is taken over
RECENT = 60.0  # seconds that the time left is reckoned from
ROUNDS = 8  # of an agent that works between decisions: the time left is reckoned from as many, and from RECENT at least
COMPILED = "/jax/core/compile/backend_compile_duration"


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
