"""What came of a fault. Every test of faults classifies by this module, so that their figures can be added up.

    held     what was shown or computed is what it would have been without the fault
    clear    an error or a warning of ours says what is wrong; whatever is shown besides may be less, but not wrong
    silent   something else was shown or computed, and nothing said so
    raw      an error that is not ours, or one of ours that only hides it; a crash
    hang     it did not come to an end
    lost     what was there before is gone
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
import subprocess
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from whole_runs import Hung, no_longer_than

from beeline.errors import BeelineError

PATIENCE = 30.0  # seconds; nothing that is tried takes one


def patient(seconds: float) -> float:
    """So many seconds of a machine that has nothing else to do, at its load: whatever is slower than that hangs."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


# A guard that catches everything must not be needed: what it says of an error that nobody foresaw counts as that error.
DISGUISED = re.compile(r"cannot be read \(\w+: |^\w+Error: |: \w+Error: ")


class Outcome(enum.StrEnum):
    """How a trial ended, from the best to the worst."""

    HELD = "held"
    CLEAR = "clear"
    SILENT = "silent"
    RAW = "raw"
    HANG = "hang"
    LOST = "lost"


BAD = (Outcome.SILENT, Outcome.RAW, Outcome.HANG, Outcome.LOST)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One fault and what came of it."""

    name: str
    outcome: Outcome
    detail: str = ""
    count: int = 1  # faults in this trial, such as the kills of a chain

    def __str__(self) -> str:
        return f"{self.outcome}: {self.name}{f': {self.detail}' if self.detail else ''}"


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a reader gave: everything that a user would see of the data, and the warnings beside it."""

    content: Any
    warnings: Sequence[str] = ()


def worst(name: str, trials: Iterable[Trial]) -> Trial:
    """One fault that was met by several users, as the worst of what came of it."""
    order = list(Outcome)
    found = max(trials, key=lambda trial: order.index(trial.outcome))
    return dataclasses.replace(found, name=name, detail=f"{found.name}: {found.detail}" if found.detail else found.name)


def of_call(name: str, act: Callable[[], Shown], sound: Any, seconds: float = PATIENCE, quotes: bool = False) -> Trial:
    """Try something in this process; `sound` is the content that it gives without the fault.

    `quotes` says that the error may be one of the user's own code, which is to be named as it is.
    """
    try:
        with no_longer_than(patient(seconds)):
            found = act()
    except Hung as error:
        return Trial(name, Outcome.HANG, str(error))
    except BeelineError as error:
        return Trial(name, Outcome.CLEAR, str(error)) if quotes else _said(name, [str(error)])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Trial(name, Outcome.RAW, f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")
    if found.warnings:
        return _said(name, found.warnings)
    return Trial(name, Outcome.HELD if found.content == sound else Outcome.SILENT)


def _said(name: str, said: Sequence[str]) -> Trial:
    for text in said:
        if DISGUISED.search(text):
            return Trial(name, Outcome.RAW, text)
    return Trial(name, Outcome.CLEAR, said[0])


def of_process(name: str, words: Sequence[str], same: Callable[[str], bool], seconds: float = PATIENCE, **more: Any) -> Trial:
    """Try a command in a process of its own; `same` says of its output whether it is that without the fault."""
    try:
        more |= {"capture_output": True, "text": True, "errors": "replace", "check": False}
        done = subprocess.run(words, timeout=patient(seconds), **more)
    except subprocess.TimeoutExpired:
        return Trial(name, Outcome.HANG, f"no end after {seconds:g} s")
    if "Traceback (most recent call last)" in done.stderr or done.returncode < 0:
        return Trial(name, Outcome.RAW, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    said = [line for line in done.stderr.splitlines() if line.startswith(("beeline: ", "note: "))]
    if said:
        return _said(name, said)
    if done.returncode:
        return Trial(name, Outcome.RAW, f"exit code {done.returncode} without a word")
    return Trial(name, Outcome.HELD if same(done.stdout) else Outcome.SILENT)


class Tally:
    """Trials, counted."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def add(self, trial: Trial) -> None:
        """Take a trial into the count."""
        self.trials.append(trial)

    def counts(self) -> dict[Outcome, int]:
        """How many trials ended how; every outcome is there."""
        found = Counter(trial.outcome for trial in self.trials)
        return {outcome: found[outcome] for outcome in Outcome}

    def require_none(self, outcomes: Iterable[Outcome]) -> None:
        """Fail with the first few trials that ended so."""
        bad = [trial for trial in self.trials if trial.outcome in set(outcomes)]
        assert not bad, f"{self}\n" + "\n".join(map(str, bad[:10]))

    def __str__(self) -> str:
        return f"{len(self.trials)} trials: " + ", ".join(f"{count} {outcome}" for outcome, count in self.counts().items())
