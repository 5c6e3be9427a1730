"""Environments that misbehave once. Nothing heavy is imported: they also run in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import toys

from beeline.errors import BeelineError

WHAT, WHEN = "ODD_FAULT", "ODD_AT"  # variables that tell `make` in a process of its own


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


def make() -> gymnasium.Env[Any, Any]:
    """What the variables of this process say; a sound environment where they say nothing."""
    return gymnasium.wrappers.TimeLimit(Odd(os.environ.get(WHAT, ""), int(os.environ.get(WHEN, "1"))), toys.LIMIT)
