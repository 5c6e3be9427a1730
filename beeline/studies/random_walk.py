"""The random-walk particle: how fast 10 lucky transitions among 100 000 reach the values of all states.

A particle in [0, 10]² moves by 0.1 in a direction it chooses; only the hole of radius 0.1 at (10, 5) pays, once. The
buffer comes from a random policy. Q lives on 50 x 50 cells and 8 directions, and one iteration replaces every Q(s, a)
by the mean over its transitions of `r + γ (1 − d) v(s')`, where v blends the best action in the buffer and the policy:
`v = λ max_{a seen} Q + (1 − λ) E_π Q`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline.studies import output

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIZE, STEP, RADIUS = 10.0, 0.1, 0.1
HOLE = np.array([10.0, 5.0])
DISCOUNT = 0.99
CELLS, DIRECTIONS = 50, 8
TRANSITIONS, HITS = 100_000, 10
CHECKPOINTS = (100, 200, 500)
FOUND = 0.01  # a cell has heard of the hole when its value exceeds this
SOFTMAX_TEMPERATURE = 0.05
SETTINGS: tuple[tuple[str, float, str], ...] = (
    ("standard", 0.0, "uniform"),
    ("BEE", 0.5, "uniform"),
    ("exploit only", 1.0, "uniform"),
    ("standard", 0.0, "softmax"),
    ("BEE", 0.5, "softmax"),
)


@dataclass(frozen=True)
class Buffer:
    """Transitions as table entries: the (cell, direction) they start in, the cell they reach, and whether it paid."""

    pair: Ints
    following: Ints
    hit: Floats

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Return which actions of each cell the buffer holds, `[cells, directions]`."""
        return (np.bincount(self.pair, minlength=CELLS * CELLS * DIRECTIONS) > 0).reshape(-1, DIRECTIONS)


def in_hole(position: Floats) -> NDArray[np.bool_]:
    """Return whether each position lies in the hole."""
    return np.hypot(position[:, 0] - HOLE[0], position[:, 1] - HOLE[1]) <= RADIUS


def cell(position: Floats) -> Ints:
    """Return the number of the cell of each position; x counts in rows of 50."""
    inside = np.minimum((position / SIZE * CELLS).astype(np.int64), CELLS - 1)
    return inside[:, 0] * CELLS + inside[:, 1]


def sample_buffer(seed: int = 0, chunk: int = 200_000) -> Buffer:
    """Draw states and directions uniformly until there are exactly 10 hits and 99 990 misses."""
    rng = np.random.default_rng(seed)
    kept: dict[bool, list[Floats]] = {True: [], False: []}
    missing = {True: HITS, False: TRANSITIONS - HITS}
    while any(missing.values()):
        start = rng.uniform(0.0, SIZE, (chunk, 2))
        angle = rng.uniform(-np.pi, np.pi, chunk)
        outside = ~in_hole(start)
        start, angle = start[outside], angle[outside]
        move = STEP * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        end = np.clip(start + move, 0.0, SIZE)
        hit = in_hole(end)
        for kind in (True, False):
            chosen = np.flatnonzero(hit == kind)[: missing[kind]]
            kept[kind].append(np.column_stack([start, angle, end, hit])[chosen])
            missing[kind] -= len(chosen)
    rows = np.concatenate(kept[True] + kept[False])
    turn = (rows[:, 2] + np.pi) / (2.0 * np.pi)
    direction = np.minimum((turn * DIRECTIONS).astype(np.int64), DIRECTIONS - 1)
    return Buffer(cell(rows[:, :2]) * DIRECTIONS + direction, cell(rows[:, 3:5]), rows[:, 5])


def true_value() -> Floats:
    """Return `V*(s) = γ^(n − 1)` at the centre of every cell, with n the least number of steps into the hole."""
    centre = (np.arange(CELLS) + 0.5) * SIZE / CELLS
    x, y = np.meshgrid(centre, centre, indexing="ij")
    distance = np.hypot(x - HOLE[0], y - HOLE[1])
    steps = np.maximum(np.ceil((distance - RADIUS) / STEP), 1.0)
    return (DISCOUNT ** (steps - 1.0)).ravel()


def policy_value(q: Floats, policy: str) -> Floats:
    """Return `E_π Q` for the uniform policy, or the softmax of Q that is refreshed in every iteration."""
    if policy == "uniform":
        return q.mean(axis=1)
    weight = np.exp((q - q.max(axis=1, keepdims=True)) / SOFTMAX_TEMPERATURE)
    return np.sum(weight * q, axis=1) / weight.sum(axis=1)


def learn(buffer: Buffer, lam: float, policy: str = "uniform") -> tuple[dict[int, Floats], Floats]:
    """Return `max_{a seen} Q` of every cell at the checkpoints, and its error against V* after every iteration."""
    pairs = CELLS * CELLS * DIRECTIONS
    count = np.bincount(buffer.pair, minlength=pairs)
    seen, truth = buffer.seen, true_value()
    onward = DISCOUNT * (1.0 - buffer.hit)
    q = np.zeros((CELLS * CELLS, DIRECTIONS))
    best = np.zeros(CELLS * CELLS)
    maps, errors = {}, np.zeros(max(CHECKPOINTS))
    for iteration in range(1, max(CHECKPOINTS) + 1):
        value = lam * best + (1.0 - lam) * policy_value(q, policy)
        target = buffer.hit + onward * value[buffer.following]
        total = np.bincount(buffer.pair, weights=target, minlength=pairs)
        q = (total / np.maximum(count, 1)).reshape(q.shape)
        best = np.where(seen, q, -np.inf).max(axis=1)
        errors[iteration - 1] = np.sqrt(np.mean((best - truth) ** 2))
        if iteration in CHECKPOINTS:
            maps[iteration] = best
    return maps, errors


def measure(
    name: str, lam: float, policy: str, buffers: Sequence[Buffer]
) -> tuple[dict[str, Any], dict[int, Floats], Floats]:
    """Return the row of the table for one setting, with the maps and the errors on the first buffer."""
    learned = [learn(buffer, lam, policy) for buffer in buffers]
    row: dict[str, Any] = {"operator": name, "lambda": lam, "policy": policy}
    for iteration in CHECKPOINTS:
        row[f"rmse_{iteration}"] = round(float(learned[0][1][iteration - 1]), 4)
    for iteration in CHECKPOINTS:
        row[f"reached_{iteration}"] = round(float(np.mean(learned[0][0][iteration] > FOUND)), 4)
    for iteration in CHECKPOINTS:
        errors = np.array([error[iteration - 1] for _, error in learned])
        row[f"rmse_{iteration}_mean"] = round(float(errors.mean()), 4)
        row[f"rmse_{iteration}_std"] = round(float(errors.std(ddof=1)), 4) if len(buffers) > 1 else 0.0
    return row, learned[0][0], learned[0][1]


def run(out: Path, buffers: int = 10) -> dict[str, Any]:
    """Learn with every setting, print the table, and write random_walk.{json,csv,png,svg}; return the table.

    The main numbers and the figure are of buffer 0; mean and standard deviation are over `buffers` buffers.
    """
    from beeline.studies import random_walk_figure

    began = time.perf_counter()
    output.make_folder(out)
    sampled = [sample_buffer(seed) for seed in range(buffers)]
    measured = [measure(*setting, sampled) for setting in SETTINGS]
    rows = [row for row, _, _ in measured]
    result = {
        "rows": rows,
        "buffers": buffers,
        "seen_pairs": round(float(sampled[0].seen.mean()), 4),
        "seconds": round(time.perf_counter() - began, 1),
    }
    output.save_json(out, "random_walk", result)
    output.save_csv(out, "random_walk", rows)
    figure = random_walk_figure.draw(
        maps={"Standard operator": measured[0][1], "BEE operator": measured[1][1]},
        errors={"standard": measured[0][2], "BEE": measured[1][2], "exploit only": measured[2][2]},
    )
    output.save_figure(out, "random_walk", figure)
    main = [{key: value for key, value in row.items() if not key.endswith(("_mean", "_std"))} for row in rows]
    print(output.as_text(main))
    return result
