"""Bias of Q over time, a column per backbone and kind of return and a row per number of critics, and Δ(μ, π) as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from beeline.diagnostics.bias import sign_changes
from beeline.diagnostics.plots import DELTA_COLOURS, Rows, band, delta_bars, series, show_steps
from beeline.studies.output import COLOURS
from beeline.studies.underestimation import SINGLE, VARIANTS

LABELS = {"sac": "SAC", "bac": "BAC", "bac-lam0": "BAC, λ = 0", "td3": "TD3", "bee-td3": "BEE-TD3"}
STYLES = {  # without the exploit part, with it, and the control
    "sac": (COLOURS["explore"], "-"),
    "td3": (COLOURS["explore"], "-"),
    "bac": (COLOURS["bee"], "-"),
    "bee-td3": (COLOURS["bee"], "-"),
    "bac-lam0": ("#777777", "--"),
}
SOFT, HARD = ("sac", "bac", "bac-lam0"), ("td3", "bee-td3")
COLUMNS = (  # what is drawn, of whom, and over which title
    ("diag/soft_gap_min_norm", SOFT, "SAC: against the return with entropy"),
    ("diag/gap_min_norm", SOFT, "SAC: against the plain return"),
    ("diag/gap_min_norm", HARD, "TD3: against the return"),
)
CRITICS = {"": "two critics, their minimum", SINGLE: "one critic"}

Runs = Mapping[str, Sequence[Rows]]


def draw_bias(runs: Runs, task: str) -> Figure:
    """Q − Q_MC over max(|Q_MC|, 10), mean ± deviation over seeds; changes of the mean's sign are marked on the zero line."""
    columns = [column for column in COLUMNS if any(name + end in runs for name in column[1] for end in CRITICS)]
    endings = [ending for ending in CRITICS if any(name.endswith(SINGLE) == (ending == SINGLE) for name in runs)]
    size = (1.2 + 3.5 * len(columns), 1.1 + 2.5 * len(endings))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(endings), len(columns), sharex=True, sharey=True, squeeze=False)
    for line, ending in zip(grid, endings):
        line[0].set_ylabel(f"{CRITICS[ending]}\n(Q − return) / |return|", fontsize=9)
        for axes, (column, names, _) in zip(line, columns):
            axes.axhline(0.0, color="black", lw=0.8)
            for name in names:
                if name + ending in runs:
                    _gap(axes, runs[name + ending], column, *STYLES[name])
            _dress(axes)
    for top, bottom, (_, _, title) in zip(grid[0], grid[-1], columns):
        top.set_title(title, fontsize=9)
        show_steps(bottom)
    present = [name for name in LABELS if any(name + ending in runs for ending in CRITICS)]
    handles = [Line2D([], [], color=STYLES[name][0], ls=STYLES[name][1], label=LABELS[name]) for name in present]
    marks = {"v": "becomes underestimation (dotted: for good)", "^": "becomes overestimation"}
    handles += [Line2D([], [], color="#333333", ls="none", marker=marker, label=text) for marker, text in marks.items()]
    beside = len(handles) if len(columns) == len(COLUMNS) else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=beside, frameon=False, fontsize=8)
    figure.suptitle(f"Bias of Q on {task}{_seeds(runs)}", fontsize=10)
    return figure


def _gap(axes: Axes, runs: Sequence[Rows], column: str, colour: str, style: str) -> None:
    """One variant: its mean, its band, the changes of sign, and a line where underestimation begins that stays."""
    steps, mean, spread = band(runs, column)
    axes.plot(steps, mean, style, color=colour, lw=1.6)
    axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.16, lw=0)
    changes = sign_changes(list(steps), list(mean))
    if changes and changes[-1].to_under:
        axes.axvline(changes[-1].step, color=colour, lw=1.0, ls=":")
    for change in changes:
        axes.plot([change.step], [0.0], "v" if change.to_under else "^", color=colour, ms=6, mec="white", mew=0.6, zorder=4)


def draw_delta(runs: Runs, task: str) -> Figure:
    """Δ(μ, π) (proxy, in units of Q) of every diagnosis: blue where the buffer's actions are better, orange where not."""
    names = [name for name in LABELS if any(name + ending in runs for ending in CRITICS)]
    endings = [ending for ending in CRITICS if any(name + ending in runs for name in names)]
    figure = Figure(figsize=(1.0 + 2.2 * len(names), 1.2 + 1.7 * len(endings)), layout="constrained")
    grid = figure.subplots(len(endings), len(names), sharex=True, sharey=True, squeeze=False)
    for line, ending in zip(grid, endings):
        line[0].set_ylabel(f"{CRITICS[ending].partition(',')[0]}\nΔ(μ, π)", fontsize=9)
        for axes, name in zip(line, names):
            own = runs.get(name + ending, ())
            if own:
                steps, mean, _ = band(own, "diag/delta")
                delta_bars(axes, steps, mean)
                for rows in own:
                    axes.plot(*series(rows, "diag/delta"), ".", color="#333333", ms=2)
            _dress(axes)
    for top, bottom, name in zip(grid[0], grid[-1], names):
        top.set_title(LABELS[name], fontsize=9)
        show_steps(bottom)
    handles: list[Any] = [Line2D([], [], color=colour, lw=6, label=text) for colour, text in DELTA_COLOURS.items()]
    handles.append(Line2D([], [], color="#333333", ls="none", marker=".", label="single seeds"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(f"Δ(μ, π) on {task}{_seeds(runs)}", fontsize=10)
    return figure


def _dress(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)
    axes.tick_params(labelsize=8)


def _seeds(runs: Runs) -> str:
    counts = sorted({len(runs[name]) for name in VARIANTS if name in runs})
    return f", {counts[0]}{'' if len(counts) == 1 else f' to {counts[-1]}'} seed{'' if counts == [1] else 's'}"
