"""The metrics table as it is read: one parser, for whoever trusts every row and whoever shows what is left of a damaged one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_STEPS = 2**53  # beyond it, floats no longer count
LARGEST = 1e100  # beyond it, sums of squares leave the floats; returns and losses that were computed are far below

# What `str` of an integer and `repr` of a float are made of: no spaces, no underscores, no digits of other scripts.
_NUMBER = re.compile(r"-?(?:[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?|inf|nan)")


@dataclasses.dataclass(frozen=True)
class Metrics:
    """The rows of a metrics table that can be read, and what is wrong with the others."""

    names: tuple[str, ...] = ()
    values: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.empty((0, 0)))  # [rows, names], NaN where empty
    empty: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.empty((0, 0), bool))
    damage: tuple[str, ...] = ()  # one entry per line or column that cannot be trusted
    cut: bool = False  # the last line has no end: it is being written, or was lost; it is no row

    @property
    def trouble(self) -> str:
        """The damage in a few words; empty where there is none."""
        more = f" (and {len(self.damage) - 1} more such lines)" if len(self.damage) > 1 else ""
        return f"{self.damage[0]}{more}" if self.damage else ""

    def column(self, name: str) -> NDArray[np.float64]:
        """One column; empty where the table has none of that name."""
        return self.values[:, self.names.index(name)] if name in self.names else np.empty(0)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Every column under its name."""
        return {name: self.values[:, place] for place, name in enumerate(self.names)}

    def rows(self) -> list[dict[str, Any]]:
        """Every row as a mapping; None where a cell is empty."""
        pairs = zip(self.values.tolist(), self.empty.tolist())
        return [
            {name: None if gap else value for name, value, gap in zip(self.names, values, gaps)} for values, gaps in pairs
        ]


def parse(data: bytes) -> Metrics:
    """Read a table's bytes. A line that is no row of numbers is left out or, where only a cell is bad, read without it."""
    whole, newline, rest = data.rpartition(b"\n")
    lines = [line.removesuffix("\r") for line in whole.decode("utf-8", "replace").split("\n")] if newline else []
    cut = bool(rest)
    if not lines:
        return Metrics(cut=cut)
    names = tuple(lines[0].split(","))
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None or "step" not in names:
        damage = f"its header names {twice!r} twice" if twice is not None else "its header has no column 'step'"
        return Metrics(damage=(damage,), cut=cut)
    return _table(names, lines[1:], cut)


def _table(names: tuple[str, ...], lines: Sequence[str], cut: bool) -> Metrics:
    damage: dict[int, str] = {}  # by line, the header being the first
    if any("\ufffd" in name for name in names):
        damage[1] = "its header is no text"
    numbers: list[int] = []
    rows: list[list[float]] = []
    gaps: list[list[bool]] = []
    for number, line in enumerate(lines, 2):
        cells = line.split(",")
        if len(cells) != len(names):
            damage[number] = f"line {number} has {len(cells)} cells where the header has {len(names)}"
            continue
        bad = [name for name, cell in zip(names, cells) if cell and not _NUMBER.fullmatch(cell)]
        if bad:
            damage[number] = f"line {number} has no number under {bad[0]!r}"
        rows.append([float(cell) if cell and name not in bad else np.nan for name, cell in zip(names, cells)])
        gaps.append([not cell or name in bad for name, cell in zip(names, cells)])
        numbers.append(number)
    values = np.array(rows, float).reshape(-1, len(names))
    empty = np.array(gaps, bool).reshape(-1, len(names))
    for row, place in np.argwhere(np.abs(values) > LARGEST):
        cell = lines[numbers[row] - 2].split(",")[place]
        if not cell.endswith("inf"):  # infinity is what a diverging network gives; 1e999 is not written by anybody
            damage.setdefault(numbers[row], f"line {numbers[row]} has {cell} under {names[place]!r}")
            values[row, place], empty[row, place] = np.nan, True
    steps = values[:, names.index("step")]
    counts = np.isfinite(steps) & (steps >= 0) & (steps <= MOST_STEPS) & (steps == np.floor(steps))
    for row in np.flatnonzero(~counts):
        damage.setdefault(numbers[row], f"line {numbers[row]} has no number of steps")
    return Metrics(names, values[counts], empty[counts], tuple(damage[number] for number in sorted(damage)), cut)
