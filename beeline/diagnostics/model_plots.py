"""The figure of a model: whether its intervals hold, which dimensions it predicts, and how its error grows with the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.diagnostics.plots import BLUE, GREY, ORANGE

if TYPE_CHECKING:
    from beeline.dynamics.quality import Quality

MOST_BARS = 40  # dimensions that have a bar each; of more, the worst


def model_figure(quality: Quality, title: str) -> Any:
    """Calibration, R² of every dimension (the worst first), and the error after 1 … k steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    obs_dim = len(quality.r2) - 1
    bars = sorted((each, number) for number, each in enumerate(quality.r2) if each is not None)[:MOST_BARS]
    figure = Figure(figsize=(11.0, max(3.6, 1.4 + 0.17 * len(bars))), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    calibration, dimensions, steps = figure.subplots(1, 3)
    for each in (calibration, dimensions, steps):
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, lw=0.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    _calibration(calibration, quality)
    _dimensions(dimensions, bars, obs_dim)
    _steps(steps, quality)
    return figure


def _calibration(axes: Any, quality: Quality) -> None:
    levels = np.array([float(level) for level in quality.coverage])
    for number, each in enumerate(quality.coverage_by):
        if each is not None:
            reward = number == len(quality.coverage_by) - 1
            axes.plot(levels, each, color=ORANGE if reward else GREY, alpha=0.9 if reward else 0.35, lw=1.4 if reward else 0.7)
    axes.plot([0, 1], [0, 1], color="black", lw=0.8, ls="--")
    axes.plot(levels, list(quality.coverage.values()), color=BLUE, lw=1.8, marker="o", ms=3)
    for colour, label in ((BLUE, "all dimensions"), (GREY, "each one"), (ORANGE, "reward")):
        axes.plot([], [], color=colour, label=label)
    axes.plot([], [], color="black", lw=0.8, ls="--", label="calibrated")
    axes.set(xlabel="level of the interval", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("below the line: too sure; above: too careful", loc="left", fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="upper left")


def _dimensions(axes: Any, bars: list[tuple[float, int]], obs_dim: int) -> None:
    from beeline.dynamics.quality import POOR, name_of

    low = -0.25  # what is worse is no longer told apart
    shown = [max(each, low) for each, _ in bars]
    axes.barh(range(len(bars)), shown, color=[ORANGE if each < POOR else BLUE for each, _ in bars])
    axes.set_yticks(range(len(bars)), [name_of(number, obs_dim) for _, number in bars], fontsize=7 if len(bars) < 30 else 5)
    axes.axvline(0.0, color="black", lw=0.8)
    axes.invert_yaxis()
    axes.set(xlabel="R² of one step", xlim=(min(0.0, *shown, 0.0) if shown else 0.0, 1.0))
    axes.set_title("the worst first", loc="left", fontsize=9)


def _steps(axes: Any, quality: Quality) -> None:
    count = range(1, len(quality.steps) + 1)
    axes.plot(count, quality.steps, color=BLUE, lw=1.6, marker="o", ms=3)
    axes.axhline(1.0, color="black", lw=0.8, ls="--")
    axes.set(xlabel="steps imagined", ylabel="error / deviation of the state", ylim=(0, max([1.05, *quality.steps])))
    axes.set_title("median of sampled rollouts; 1: knows nothing", loc="left", fontsize=9)
    if not quality.steps:
        axes.text(0.5, 0.5, "no path is long enough", transform=axes.transAxes, ha="center", fontsize=8)
