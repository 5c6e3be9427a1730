"""The grid world: pure exploitation, pure exploration and BEE on a maze, with the sweep that their order depends on.

Q-learning from replay in an 8 x 8 maze. Exploration is a count bonus, `ω(s, a) = −β/√(N(s, a) + 1)`, and π is ε-greedy in
`Q − ω`; exploitation takes the maximum over the actions seen so far. Where it learns alone it is also greedy among these alone,
and ε is its chance of an action that it has not seen.
All settings and seeds learn side by side as lanes of arrays; a seed has the same random numbers in every setting.
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
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

MAZE = (
    "G...#...",
    ".##...#.",
    ".#..#.#.",
    "...##.#.",
    ".#....#.",
    ".####.#.",
    ".......#",
    "##.S....",
)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right
DISCOUNT, EPISODE, EPSILON = 0.95, 60, 0.1
STEP_SIZE, UPDATES = 0.2, 8
OPERATORS = {"exploit": 1.0, "explore": 0.0, "bee": 0.5}
START_VALUES, BONUSES, HORIZONS = (0.0, 0.5, 1.0), (0.05, 0.1, 0.2), (1000, 2000, 4000)
SHOWN = {"q0": 0.5, "beta": 0.1, "steps": 2000}  # the setting of the figure
MEASURES = ("visited", "wrong", "correct", "error_path", "error_off", "hits")
_UNSEEN = -1e3  # below every value, and near enough to leave the tie-breaking noise its digits
_TIE = 1e-9


@dataclass(frozen=True)
class World:
    """The maze as arrays over its free cells: where each move leads, V*, the optimal moves, and the shortest paths."""

    cells: list[tuple[int, int]]
    following: Ints
    start: int
    goal: int
    value: Floats
    optimal: Bools
    path: Bools


def make_world() -> World:
    """Read the maze and solve it."""
    cells = [(i, j) for i, row in enumerate(MAZE) for j, mark in enumerate(row) if mark != "#"]
    number = {cell: k for k, cell in enumerate(cells)}
    following = np.array([[number.get((i + di, j + dj), k) for di, dj in MOVES] for k, (i, j) in enumerate(cells)])
    marks = [MAZE[i][j] for i, j in cells]
    goal, start = marks.index("G"), marks.index("S")
    to_goal, from_start = (_distances(following, source) for source in (goal, start))
    value = np.where(to_goal > 0, DISCOUNT ** (to_goal - 1.0), 0.0)
    path = to_goal + from_start == to_goal[start]
    path[goal] = False
    return World(cells, following, start, goal, value, to_goal[following] == to_goal[:, None] - 1, path)


def _distances(following: Ints, source: int) -> Ints:
    """Return the number of moves between `source` and every cell; moves can be undone, so it is the same both ways."""
    distance = np.full(len(following), len(following))
    distance[source] = 0
    for _ in range(len(following)):
        distance = np.minimum(distance, distance[following].min(axis=1) + 1)
    return distance


@dataclass(frozen=True)
class Setting:
    """One operator with its initial Q and weight of the bonus; pure exploitation has no bonus."""

    operator: str
    q0: float
    beta: float


@dataclass(frozen=True)
class Snapshot:
    """What the lanes have learned: Q and seen actions `[lanes, cells, 4]`, visited cells, and goals reached."""

    q: Floats
    seen: Bools
    visited: Bools
    hits: Ints


class _Tables:
    """The tables of all lanes, `[4, lanes * cells]`, so that a maximum over actions runs along the lanes.

    Row `offset + cell` belongs to a lane's cell; a pair numbers an entry of the flattened table.
    """

    def __init__(self, settings: Sequence[Setting], seeds: int, world: World) -> None:
        each = lambda values: np.repeat(np.asarray(values, np.float64), seeds)  # noqa: E731
        self.lanes, self.cells = len(settings) * seeds, len(world.cells)
        self.lam, self.beta = each([OPERATORS[s.operator] for s in settings]), each([s.beta for s in settings])
        self.seen_only = self.lam == 1.0
        self.offset = np.arange(self.lanes) * self.cells
        wide = lambda values: np.tile(np.repeat(values, self.cells), (4, 1))  # noqa: E731
        self.q = wide(each([s.q0 for s in settings]))
        self.q[:, self.offset + world.goal] = 0.0
        self.count = np.zeros_like(self.q)
        self.unseen = np.full_like(self.q, _UNSEEN)
        self.bonus = wide(self.beta)
        self.act_term = np.where(wide(self.seen_only), self.unseen, self.bonus)

    def act(self, row: Ints, draw: Floats) -> Ints:
        """Return the ε-greedy action in `Q − ω`, or in Q over the seen actions; ties are broken at random.

        The random action of pure exploitation is one of those it has not seen here, as long as there are any.
        """
        greedy = (self.q[:, row] + self.act_term[:, row] + _TIE * draw[2:6]).argmax(axis=0)
        new = (draw[2:6] - self.unseen[:, row]).argmax(axis=0)
        any_new = self.seen_only & (self.unseen[:, row] == _UNSEEN).any(axis=0)
        return np.where(draw[0] < EPSILON, np.where(any_new, new, (4 * draw[1]).astype(np.int64)), greedy)

    def see(self, pair: Ints) -> None:
        """Count one more visit of a pair in every lane."""
        self.count.reshape(-1)[pair] += 1.0
        self.unseen.reshape(-1)[pair] = 0.0
        bonus = self.beta / np.sqrt(self.count.reshape(-1)[pair] + 1.0)
        self.bonus.reshape(-1)[pair] = bonus
        self.act_term.reshape(-1)[pair] = np.where(self.seen_only, 0.0, bonus)

    def update(self, pair: Ints, following: Ints, reward: Floats) -> None:
        """Move Q towards `λ T_exploit + (1 − λ) T_explore` for one transition per lane; the goal (reward 1) is terminal."""
        at_next = self.q[:, following]
        in_sample = (at_next + self.unseen[:, following]).max(axis=0)
        in_sample[in_sample < 0.5 * _UNSEEN] = 0.0  # nothing seen there yet
        hopeful = at_next + self.bonus[:, following]
        of_policy = (1.0 - EPSILON) * hopeful.max(axis=0) + EPSILON * hopeful.mean(axis=0)
        blended = self.lam * in_sample + (1.0 - self.lam) * of_policy
        target = reward + DISCOUNT * (1.0 - reward) * blended
        flat = self.q.reshape(-1)
        flat[pair] += STEP_SIZE * (target - flat[pair])

    def by_lane(self, table: Floats) -> Floats:
        """Return a copy of a table as `[lanes, cells, 4]`."""
        return table.reshape(4, self.lanes, self.cells).transpose(1, 2, 0).copy()


def learn(settings: Sequence[Setting], seeds: Sequence[int], horizons: Sequence[int]) -> dict[int, Snapshot]:
    """Learn with every setting and seed; return a snapshot after each horizon, with lanes setting by setting."""
    world = make_world()
    tables = _Tables(settings, len(seeds), world)
    steps, lanes, lane = max(horizons), tables.lanes, np.arange(tables.lanes)
    streams = [np.random.default_rng(seed).random((steps, 6 + UPDATES)) for seed in seeds]
    stream = np.stack(streams, axis=2)  # [steps, draws, seeds]
    pairs, reached = np.zeros((steps, lanes), np.int64), np.zeros((steps, lanes), np.int64)
    paid = np.zeros((steps, lanes))
    visited = np.zeros(lanes * tables.cells, bool)
    hits, age = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    cell = np.full(lanes, world.start)
    visited[tables.offset + cell] = True
    snapshots = {}
    for step in range(steps):
        draw = np.tile(stream[step], (1, len(settings)))
        row = tables.offset + cell
        action = tables.act(row, draw)
        cell = world.following[cell, action]
        hit = cell == world.goal
        pairs[step], reached[step], paid[step] = action * (lanes * tables.cells) + row, tables.offset + cell, hit
        tables.see(pairs[step])
        visited[reached[step]] = True
        for update in range(UPDATES):
            chosen = (draw[6 + update] * (step + 1)).astype(np.int64)
            tables.update(pairs[chosen, lane], reached[chosen, lane], paid[chosen, lane])
        hits += hit
        age += 1
        over = hit | (age >= EPISODE)
        cell = np.where(over, world.start, cell)
        age[over] = 0
        if step + 1 in horizons:
            seen = tables.by_lane(tables.count) > 0
            snapshots[step + 1] = Snapshot(tables.by_lane(tables.q), seen, visited.reshape(lanes, -1).copy(), hits.copy())
    return snapshots


def values(snapshot: Snapshot) -> tuple[Floats, Ints, Bools]:
    """Return, for every lane and cell, the best seen value, its action, and whether any action was seen."""
    masked = np.where(snapshot.seen, snapshot.q, -np.inf)
    return masked.max(axis=2), masked.argmax(axis=2), np.asarray(snapshot.seen.any(axis=2))


def measure(snapshot: Snapshot, world: World) -> dict[str, Floats]:
    """Return each measure per lane; docs/toys.md has the definitions."""
    best, action, known = values(snapshot)
    inner = np.arange(len(world.cells)) != world.goal
    known = known & inner
    right = world.optimal[np.arange(len(world.cells)), action]
    error = np.where(known, best - world.value, 0.0)
    mean_over = lambda cells: error[:, cells].sum(axis=1) / np.maximum(known[:, cells].sum(axis=1), 1)  # noqa: E731
    return {
        "visited": snapshot.visited.mean(axis=1),
        "wrong": (known & ~right).sum(axis=1) / known.sum(axis=1),
        "correct": (known & right).sum(axis=1) / inner.sum(),
        "error_path": mean_over(world.path),
        "error_off": mean_over(inner & ~world.path),
        "hits": snapshot.hits.astype(np.float64),
    }


def interval(samples: Floats, resamples: int = 2000) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean over seeds."""
    rng = np.random.default_rng(0)
    means = samples[rng.integers(len(samples), size=(resamples, len(samples)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


Sweep = dict[tuple[str, float, float, int], dict[str, Floats]]


def sweep(seeds: int, horizons: Sequence[int] = HORIZONS) -> tuple[Sweep, dict[str, Snapshot]]:
    """Return the measures per seed at every (operator, q0, β, steps), and the snapshots of the setting that is shown."""
    settings = [
        Setting(operator, q0, beta)
        for operator in OPERATORS
        for q0 in START_VALUES
        for beta in ((0.0,) if operator == "exploit" else BONUSES)
    ]
    world = make_world()
    results: Sweep = {}
    shown: dict[str, Snapshot] = {}
    for steps, snapshot in learn(settings, range(seeds), horizons).items():
        measures = measure(snapshot, world)
        for index, setting in enumerate(settings):
            lanes = slice(index * seeds, (index + 1) * seeds)
            for beta in BONUSES if setting.operator == "exploit" else (setting.beta,):
                results[setting.operator, setting.q0, beta, steps] = {k: v[lanes] for k, v in measures.items()}
                if {"q0": setting.q0, "beta": beta, "steps": steps} == SHOWN:
                    shown[setting.operator] = Snapshot(
                        snapshot.q[lanes], snapshot.seen[lanes], snapshot.visited[lanes], snapshot.hits[lanes]
                    )
    return results, shown


def table(results: Sweep) -> list[dict[str, Any]]:
    """Return a row per setting: the mean over seeds of every measure with its interval."""
    rows = []
    for (operator, q0, beta, steps), measures in results.items():
        row: dict[str, Any] = {"operator": operator, "q0": q0, "beta": beta, "steps": steps}
        for name in MEASURES:
            low, high = interval(measures[name])
            row |= {name: float(measures[name].mean()), f"{name}_low": low, f"{name}_high": high}
        rows.append({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
    return rows


def orderings(results: Sweep) -> list[dict[str, Any]]:
    """Return BEE minus each other operator, seed by seed, with interval and verdict, at every setting.

    `wrong` and the size of `error_path` are better when lower, `correct` and `hits` when higher.
    """
    rows = []
    for (operator, q0, beta, steps), bee in results.items():
        if operator != "bee":
            continue
        for other in ("exploit", "explore"):
            rival = results[other, q0, beta, steps]
            for name, sign in (("wrong", -1), ("correct", 1), ("error_path", -1), ("hits", 1)):
                size = np.abs if name == "error_path" else np.asarray
                difference = size(bee[name]) - size(rival[name])
                low, high = interval(difference)
                better, worse = (low > 0, high < 0) if sign > 0 else (high < 0, low > 0)
                row = {"q0": q0, "beta": beta, "steps": steps, "against": other, "measure": name}
                row |= {"difference": round(float(difference.mean()), 4), "low": round(low, 4), "high": round(high, 4)}
                rows.append(row | {"bee_is": "better" if better else "worse" if worse else "unclear"})
    return rows


def typical_seed(shown: dict[str, Snapshot]) -> int:
    """Return the seed whose three panels are together nearest to the means of visited and wrong."""
    world = make_world()
    measures = [measure(snapshot, world) for snapshot in shown.values()]
    return int(np.argmin(sum((m[k] - m[k].mean()) ** 2 for m in measures for k in ("visited", "wrong"))))


def run(out: Path, seeds: int = 30, quick: bool = False) -> dict[str, Any]:
    """Run the sweep, print its shown steps, and write gridworld.{json,csv,png,svg} and gridworld-sweep.{png,svg}.

    `quick` stops at 2000 steps with at most 5 seeds.
    """
    from beeline.studies import gridworld_figure  # matplotlib is slow to import

    began = time.perf_counter()
    output.make_folder(out)
    results, shown = sweep(min(seeds, 5) if quick else seeds, HORIZONS[:2] if quick else HORIZONS)
    rows, order, seed = table(results), orderings(results), typical_seed(shown)
    result = {
        "seeds": len(next(iter(results.values()))["wrong"]),
        "rows": rows,
        "orderings": order,
        "shown_seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
    }
    output.save_json(out, "gridworld", result)
    output.save_csv(out, "gridworld", rows)
    output.save_csv(out, "gridworld-orderings", order)
    output.save_figure(out, "gridworld", gridworld_figure.draw_mazes(shown, seed))
    output.save_figure(out, "gridworld-sweep", gridworld_figure.draw_sweep(rows))
    names = ("operator", "q0", "beta", "steps", *MEASURES)
    print(output.as_text([{name: row[name] for name in names} for row in rows if row["steps"] == SHOWN["steps"]]))
    return result
