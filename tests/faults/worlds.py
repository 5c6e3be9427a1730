"""Environments that misbehave: what is wrong is refused by a sentence, never stored, and the run goes on with a mended one."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import toys
from outcome import Outcome, Shown, Trial, of_call
from trials import WALK, Case, Place, heard, options
from whole_runs import arrays, table

import beeline
from beeline.errors import BeelineError

KIND = "worlds"
LANES = (1, 3)
MOMENTS = (1, 45)  # calls of step (or reset) of one instance


def _raise(error: BaseException) -> Any:
    raise error


Answer = Callable[[tuple[Any, ...]], Any]

# What `step` returns instead of the five values that it should.
STEPS: dict[str, Answer] = {
    "nan in the observation": lambda five: (five[0] * np.nan, *five[1:]),
    "infinite observation": lambda five: (five[0] + np.inf, *five[1:]),
    "observation beyond float32": lambda five: (five[0] * 0 + 1e300, *five[1:]),
    "one number for two": lambda five: (five[0][:1], *five[1:]),
    "three numbers for two": lambda five: (np.append(five[0], 0.0), *five[1:]),
    "a scalar": lambda five: (0.5, *five[1:]),
    "a row": lambda five: (five[0][None], *five[1:]),
    "no observation": lambda five: (None, *five[1:]),
    "text for an observation": lambda five: ("ab", *five[1:]),
    "objects": lambda five: (np.array([None, {}]), *five[1:]),
    "complex numbers": lambda five: (five[0] + 1j, *five[1:]),
    "a dict": lambda five: ({"a": five[0]}, *five[1:]),
    "a list": lambda five: (list(five[0]), *five[1:]),
    "a view that is read-only": lambda five: (np.broadcast_to(five[0], five[0].shape), *five[1:]),
    "another order in memory": lambda five: (np.stack([five[0], five[0]])[::-1][0], *five[1:]),
    "reward nan": lambda five: (five[0], np.nan, *five[2:]),
    "reward infinite": lambda five: (five[0], -np.inf, *five[2:]),
    "reward beyond float32": lambda five: (five[0], 1e39, *five[2:]),
    "reward none": lambda five: (five[0], None, *five[2:]),
    "reward text": lambda five: (five[0], "1", *five[2:]),
    "reward complex": lambda five: (five[0], 1j, *five[2:]),
    "reward of two numbers": lambda five: (five[0], np.zeros(2), *five[2:]),
    "reward in an array": lambda five: (five[0], np.array(five[1]), *five[2:]),
    "reward as float16 of nan": lambda five: (five[0], np.float16(np.nan), *five[2:]),
    "terminated text": lambda five: (*five[:2], "False", *five[3:]),
    "terminated none": lambda five: (*five[:2], None, *five[3:]),
    "terminated of two": lambda five: (*five[:2], np.array([True, False]), *five[3:]),
    "terminated numpy": lambda five: (*five[:2], np.bool_(five[2]), *five[3:]),
    "truncated two": lambda five: (*five[:3], 2, five[4]),
    "info none": lambda five: (*five[:4], None),
    "info list": lambda five: (*five[:4], [1]),
    "info without end": lambda five: (*five[:4], {"x": "y" * 100_000}),
    "four values": lambda five: five[:4],
    "six values": lambda five: (*five, 1),
    "nothing": lambda five: None,
    "an error": lambda five: _raise(RuntimeError("the motor is hot [/x]")),
    "an error without words": lambda five: _raise(ValueError()),
    "an error of memory": lambda five: _raise(MemoryError()),
    "recursion": lambda five: _raise(RecursionError("too deep")),
    "the end of Python": lambda five: _raise(SystemExit(3)),
    "stop iteration": lambda five: _raise(StopIteration()),
    "a system error": lambda five: _raise(OSError(5, "Input/output error")),
    "an error of Beeline's name": lambda five: _raise(BeelineError("not ours")),
}  # fmt: skip

RESETS: dict[str, Answer] = {
    "nan at reset": lambda two: (two[0] * np.nan, two[1]),
    "one number at reset": lambda two: (two[0][:1], two[1]),
    "no info at reset": lambda two: two[0],
    "three values at reset": lambda two: (*two, 0),
    "nothing at reset": lambda two: None,
    "an error at reset": lambda two: _raise(RuntimeError("the motor is cold")),
    "info none at reset": lambda two: (two[0], None),
    "text at reset": lambda two: ("ab", two[1]),
}


class Odd(toys.Walk):
    """A walk that misbehaves once, at one call of `step` or `reset` of each instance."""

    def __init__(self, fault: str = "", at: int = 1) -> None:
        super().__init__()
        self.odd, self.when, self.calls = fault, at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed=seed, options=options)
        return RESETS[self.odd](found) if self.odd in RESETS and self.resets == self.when else found

    def step(self, action: np.ndarray) -> Any:
        found = super().step(action)
        return STEPS[self.odd](found) if self.odd in STEPS and self.steps == self.when else found


def cases(seed: int) -> Iterator[Case]:
    """Every fault at every moment with one lane and with three."""
    for moment in MOMENTS:
        for lanes in LANES:
            for fault in (*STEPS, *RESETS):
                at = moment if fault in STEPS else 1 + moment // 20
                yield _case(fault, at, lanes)


def _case(fault: str, at: int, lanes: int) -> Case:
    name = f"{fault} at call {at}, {lanes} lanes"
    return Case(KIND, name, lambda place: act(place, name, fault, at, lanes))


def act(place: Place, name: str, fault: str, at: int, lanes: int) -> Trial:
    """Train on it; what it ends with is a sentence, or the same as without the fault; then go on with a mended one."""
    whole = place.whole("sac", num_envs=lanes)
    path = place.folder() / "run"
    said = io.StringIO()

    def make(**more: Any) -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(Odd(fault, at), toys.LIMIT)

    def train() -> Shown:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), heard():
            beeline.train("sac", make, out=path, **options("sac", num_envs=lanes))
        return Shown(table(path))

    try:
        trial = of_call(name, train, table(whole), 60.0, quotes=True)
    except SystemExit as error:  # the user's code asks for the end of the program
        trial = Trial(name, Outcome.CLEAR, f"SystemExit {error.code}")
    if trial.outcome == Outcome.CLEAR:
        trial = _mended(name, path, trial)
    shutil.rmtree(path.parent, ignore_errors=True)
    return trial


def _mended(name: str, path: Path, before: Trial) -> Trial:
    """What was refused is nowhere in what was saved, and a mended environment goes on from there."""
    if not (path / "config.json").exists():
        return before  # it was refused before there was a run
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        def env() -> Any:
            return gymnasium.make(WALK.partition(":")[2])

        goes_on = of_call(name, lambda: Shown(bool(beeline.resume(path, env=env, report=lambda text: None))), True, 60.0)
    if goes_on.outcome != Outcome.HELD:
        return Trial(name, Outcome.LOST if goes_on.outcome == Outcome.CLEAR else goes_on.outcome, f"mended: {goes_on.detail}")
    stored = arrays(path)
    bad = [key for key, data in stored.items() if key.endswith((" obs", " reward", " action")) and not _finite(data)]
    return Trial(name, Outcome.SILENT, f"not finite in the replay: {bad}") if bad else before


def _finite(data: bytes) -> bool:
    return bool(np.isfinite(np.frombuffer(data, np.float32)).all())


