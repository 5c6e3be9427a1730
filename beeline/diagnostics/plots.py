"""Figures: Q and its bias over time with the sign changes marked, Δ as bars, and Q with bands over seeds."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beeline.diagnostics.bias import sign_changes
from beeline.files import write_atomic

Rows = Sequence[Mapping[str, Any]]

# Okabe and Ito's palette, told apart with any colour vision.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#555555"
DELTA_COLOURS = {BLUE: "the buffer's actions are better", ORANGE: "the policy's own are better"}
LINES = (BLUE, "#D55E00", GREEN, PURPLE, "#56B4E9", "#F0E442", "#000000")


def series(rows: Rows, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of a column, where it has any."""
    found = [(float(row["step"]), float(row[name])) for row in rows if row.get(name) is not None]
    return [step for step, _ in found], [value for _, value in found]


def _figure(height: float, panels: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, lw=0.5)
    show_steps(axes[-1])
    return figure, axes


def show_steps(axes: Any) -> None:
    """Label the horizontal axis with environment steps, short ones: 20k, 1M."""
    axes.set_xlabel("environment steps")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if abs(x) >= 1e6 else f"{x / 1e3:g}k" if x else "0")


def save_png(figure: Any, path: Path) -> Path:
    """Write a figure, whole or not at all."""
    data = io.BytesIO()
    figure.savefig(data, format="png")
    write_atomic(path, data.getvalue())
    return path


def bias_figure(rows: Rows, title: str) -> Any:
    """Above: Q and the Monte Carlo returns. Below: the gap Q_min − Q_MC, coloured by its sign, crossings marked."""
    figure, (values, gaps) = _figure(5.4, 2)
    for name, label, colour, style in (
        ("diag/q_min", "$Q$, minimum of the critics", BLUE, "-"),
        ("diag/q_mean", "$Q$, their mean", BLUE, ":"),
        ("diag/return", "Monte Carlo return", GREY, "-"),
        ("diag/soft_return", "Monte Carlo return with entropy", GREY, "--"),
    ):
        steps, found = series(rows, name)
        if found:
            values.plot(steps, found, style, color=colour, lw=1.6, marker="o", ms=3, label=label)
    values.set_ylabel("value")
    values.set_title(title, loc="left", fontsize=10)
    values.legend(frameon=False, fontsize=8)

    steps, gap = series(rows, "diag/gap_min")
    bound = np.array(gap)
    gaps.axhline(0.0, color="black", lw=0.8)
    gaps.fill_between(steps, bound, 0.0, where=bound >= 0, interpolate=True, color=BLUE, alpha=0.2, lw=0)
    gaps.fill_between(steps, bound, 0.0, where=bound <= 0, interpolate=True, color=ORANGE, alpha=0.3, lw=0)
    gaps.plot(steps, gap, color=BLUE, lw=1.6, marker="o", ms=3, label="plain return")
    soft_steps, soft = series(rows, "diag/soft_gap_min")
    if soft:
        gaps.plot(soft_steps, soft, "--", color=GREY, lw=1.3, marker="o", ms=3, label="return with entropy")
    for change in sign_changes(steps, gap):
        way = "over → under" if change.to_under else "under → over"
        gaps.axvline(change.step, color=PURPLE, lw=1.0, ls="--")
        gaps.annotate(
            f"{way}\n{change.step:,.0f}", (change.step, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -2),
            textcoords="offset points", va="top", fontsize=7, color=PURPLE,
        )  # fmt: skip
    gaps.set_ylabel("gap $Q_{min} - Q_{MC}$")
    gaps.margins(y=0.18)
    gaps.legend(fontsize=8, framealpha=0.8, edgecolor="none")
    return figure


def delta_figure(rows: Rows, title: str) -> Any:
    """Δ(μ, π) of every diagnosis as a bar: blue where the buffer's actions are better, orange where the policy's are."""
    figure, (axes,) = _figure(3.2, 1)
    delta_bars(axes, *series(rows, "diag/delta"))
    axes.set_ylabel(r"$\Delta(\mu, \pi)$")
    axes.set_title(title, loc="left", fontsize=10)
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=label) for colour, label in DELTA_COLOURS.items()]
    axes.legend(handles=handles, frameon=False, fontsize=8)
    return figure


def delta_bars(axes: Any, steps: Any, values: Any) -> None:
    """One bar per diagnosis, coloured by its sign."""
    gaps = np.diff(steps)
    width = 0.7 * float(np.min(gaps[gaps > 0])) if (gaps > 0).any() else 0.1 * max(steps[0], 1.0)
    axes.bar(steps, values, width, color=[BLUE if value >= 0 else ORANGE for value in values])
    axes.axhline(0.0, color="black", lw=0.8)


def band(runs: Sequence[Rows], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps that all runs have, the mean over runs of a column, and its sample deviation (0 for one run)."""
    tables = [dict(zip(*series(rows, name))) for rows in runs]
    steps = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    values = np.array([[table[step] for step in steps] for table in tables]).reshape(len(tables), len(steps))
    spread = np.std(values, axis=0, ddof=1) if len(tables) > 1 else np.zeros(len(steps))
    return np.array(steps), np.mean(values, axis=0), spread


def q_bands_figure(groups: Mapping[str, Sequence[Rows]], title: str = "") -> Any:
    """Q_min of every group of runs, mean ± standard deviation over its seeds; below, that deviation alone."""
    figure, (values, spreads) = _figure(5.4, 2)
    for (name, runs), colour in zip(groups.items(), LINES * (1 + len(groups) // len(LINES))):
        steps, mean, spread = band(runs, "diag/q_min")
        label = f"{name} ({len(runs)} seed{'s' if len(runs) != 1 else ''})"
        values.plot(steps, mean, color=colour, lw=1.6, marker="o", ms=3, label=label)
        values.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, lw=0)
        if len(runs) > 1:  # of one run there is no deviation
            spreads.plot(steps, spread, color=colour, lw=1.4, marker="o", ms=3)
    values.set_ylabel("$Q_{min}$, mean ± std over seeds")
    values.set_title(title, loc="left", fontsize=10)
    values.legend(frameon=False, fontsize=8)
    spreads.set_ylabel("std over seeds")
    spreads.set_ylim(bottom=0.0)
    return figure
