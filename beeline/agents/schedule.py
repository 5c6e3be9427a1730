"""Several updates in one compiled call: which of them touch the policy and the targets is known when it is compiled.

No branch is computed in vain, and compile time does not grow with the number of updates: they run in scans, over whole periods
of the delays, and inside a period over equal neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

import jax
from jax import Array

S = TypeVar("S")
Due = tuple[bool, bool]  # whether an update touches the policy, and whether it touches the targets
One = Callable[..., tuple[S, dict[str, Array]]]


def due(first: int, count: int, policy_interval: int, target_interval: int) -> list[Due]:
    """What each of `count` updates touches, the one before them being number `first`."""
    numbers = range(first + 1, first + count + 1)
    return [(number % policy_interval == 0, number % target_interval == 0) for number in numbers]


def run(one: One[S], state: S, data: Any, dues: Sequence[Due], period: int) -> tuple[S, dict[str, Array]]:
    """Apply `one(state, rows, policy, target)` to every row of `data`; the metrics of the last update that reports each."""
    count = len(dues)
    periods = count // period
    if period == 1 or periods < 2:
        return _neighbours(one, state, data, dues)
    whole = periods * period
    stacked = jax.tree.map(lambda x: x[:whole].reshape(periods, period, *x.shape[1:]), data)
    state, metrics = jax.lax.scan(lambda state, part: _neighbours(one, state, part, dues[:period]), state, stacked)
    metrics = jax.tree.map(lambda x: x[-1], metrics)
    if whole < count:
        state, rest = _neighbours(one, state, jax.tree.map(lambda x: x[whole:], data), dues[whole:])
        metrics |= rest
    return state, metrics


def _neighbours(one: One[S], state: S, data: Any, dues: Sequence[Due]) -> tuple[S, dict[str, Array]]:
    """One scan over each run of updates that touch the same."""
    metrics: dict[str, Array] = {}
    offset = 0
    for (policy, target), group in groupby(dues):
        length = len(list(group))

        def each(state: S, rows: Any, policy: bool = policy, target: bool = target) -> tuple[S, dict[str, Array]]:
            return one(state, rows, policy, target)

        part = jax.tree.map(lambda x, o=offset, n=length: x[o : o + n], data)
        if length == 1:
            state, latest = each(state, jax.tree.map(lambda x: x[0], part))
        else:
            state, stacked = jax.lax.scan(each, state, part)
            latest = jax.tree.map(lambda x: x[-1], stacked)
        metrics |= latest
        offset += length
    return state, metrics
