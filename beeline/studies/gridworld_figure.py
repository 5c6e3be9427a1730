"""The mazes with learned values and wrong actions in the paper's manner, and the sweep as small multiples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, Rectangle

from beeline.studies import gridworld
from beeline.studies.gridworld import Bools, Floats, Ints, Snapshot, World
from beeline.studies.output import COLOURS, WRONG

TITLES = {"exploit": "(a) exploit only, λ = 1", "explore": "(b) explore only, λ = 0", "bee": "(c) BEE, λ = ½"}
LABELS = {"exploit": "exploit only", "explore": "explore only", "bee": "BEE"}
_SHADES, _SCALE = colormaps["Blues"], Normalize(-0.15, 1.15)  # the ends stay free for text and arrows
_WALL = "#404040"


def _maze(axes: Axes, world: World, value: Floats, action: Ints, known: Bools, title: str) -> None:
    """Draw one maze: shades for values, arrows for greedy actions, red and bold where wrong, '?' where unseen."""
    size = len(gridworld.MAZE)
    axes.add_patch(Rectangle((0, 0), size, size, facecolor=_WALL))
    for k, (i, j) in enumerate(world.cells):
        is_goal, is_known = k == world.goal, known[k]
        shade = _SHADES(_SCALE(np.clip(value[k], 0.0, 1.0))) if is_known and not is_goal else "white"
        axes.add_patch(Rectangle((j, i), 1, 1, facecolor=shade, edgecolor="white", linewidth=0.8))
        if is_goal:
            axes.text(j + 0.5, i + 0.5, "G", ha="center", va="center", fontsize=11, fontweight="bold")
        elif not is_known:
            axes.text(j + 0.5, i + 0.5, "?", ha="center", va="center", fontsize=10, color="#555555")
        else:
            wrong = not world.optimal[k, action[k]]
            down, right = (0.3 * step for step in gridworld.MOVES[action[k]])
            dark = value[k] > 0.62
            axes.add_patch(
                FancyArrow(
                    j + 0.5 - right,
                    i + 0.42 - down * 0.8,
                    2 * right,
                    1.6 * down,
                    width=0.11 if wrong else 0.04,
                    head_width=0.34 if wrong else 0.22,
                    head_length=0.24 if wrong else 0.18,
                    length_includes_head=True,
                    facecolor=WRONG if wrong else "white" if dark else "#303030",
                    edgecolor="white" if wrong else "none",
                    linewidth=0.5,
                )
            )
            text = f"{value[k]:.2f}".replace("0.", ".", 1)
            colour = "white" if dark else "#303030"
            axes.text(j + 0.95, i + 0.93, text, ha="right", va="bottom", fontsize=5, color=colour)
        if k == world.start:
            axes.add_patch(Rectangle((j + 0.04, i + 0.04), 0.92, 0.92, fill=False, edgecolor="black", linewidth=1.6))
            axes.text(j + 0.08, i + 0.08, "S", ha="left", va="top", fontsize=6, fontweight="bold")
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)


def draw_mazes(shown: Mapping[str, Snapshot], seed: int) -> Figure:
    """Return what the three operators learned with one seed, and the optimum, side by side."""
    world = gridworld.make_world()
    figure = Figure(figsize=(11.0, 3.7), layout="constrained")
    panels = figure.subplots(1, 4)
    for axes, (name, title) in zip(panels, TITLES.items()):
        best, action, known = gridworld.values(shown[name])
        measures = gridworld.measure(shown[name], world)
        wrong = round(float(measures["wrong"][seed] * (known[seed].sum())))
        unseen = len(world.cells) - 1 - int(known[seed].sum())
        _maze(axes, world, best[seed], action[seed], known[seed], f"{title}\n{wrong} wrong, {unseen} unseen")
    everywhere = np.ones(len(world.cells), bool)
    _maze(panels[3], world, world.value, world.optimal.argmax(axis=1), everywhere, "(d) optimum\n")
    figure.supxlabel(
        "number and shade: learned value of the best action seen   ·   bold red arrow: not optimal   ·   ?: never seen",
        fontsize=8,
    )
    return figure


def draw_sweep(rows: Sequence[Mapping[str, Any]], steps: int = 2000) -> Figure:
    """Return three measures over β, a column per initial Q, with 95 % intervals over seeds."""
    measures = {
        "wrong": "wrong actions\n(of visited cells)",
        "correct": "correct actions\n(of all cells)",
        "error_path": "value error\non the optimal path",
    }
    figure = Figure(figsize=(8.5, 6.2), layout="constrained")
    grid = figure.subplots(len(measures), len(gridworld.START_VALUES), sharex=True, sharey="row")
    positions = np.arange(len(gridworld.BONUSES))
    for line, (measure, label) in zip(grid, measures.items()):
        for axes, q0 in zip(line, gridworld.START_VALUES):
            for shift, (name, marker) in enumerate(zip(LABELS, "so^")):
                chosen = [r for r in rows if (r["operator"], r["q0"], r["steps"]) == (name, q0, steps)]
                mean = np.array([r[measure] for r in chosen])
                spread = [mean - [r[f"{measure}_low"] for r in chosen], [r[f"{measure}_high"] for r in chosen] - mean]
                axes.errorbar(
                    positions + 0.07 * (shift - 1),
                    mean,
                    np.maximum(spread, 0.0),
                    label=LABELS[name],
                    color=COLOURS[name],
                    marker=marker,
                    markersize=5,
                    linewidth=1.3,
                    capsize=2.5,
                )
            if measure == "error_path":
                axes.axhline(0.0, color="#888888", linewidth=0.8, zorder=0)
                axes.set_xlabel("β (weight of the bonus)", fontsize=8)
            axes.set_xticks(positions, [str(beta) for beta in gridworld.BONUSES])
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel(label, fontsize=9)
    for axes, q0 in zip(grid[0], gridworld.START_VALUES):
        axes.set_title(f"initial Q = {q0:g}", fontsize=10)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure
