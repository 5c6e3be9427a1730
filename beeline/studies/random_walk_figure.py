"""Heat maps of the learned values in the paper's manner, beside the true ones and the error over the iterations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from beeline.studies import random_walk as walk
from beeline.studies.output import COLOURS
from beeline.studies.random_walk import Floats

_LINES = {"standard": COLOURS["explore"], "BEE": COLOURS["bee"], "exploit only": COLOURS["exploit"]}
_DASHES = {"standard": "-", "BEE": "-", "exploit only": "--"}


def _heat_map(axes: Axes, value: Floats, title: str) -> AxesImage:
    image = axes.imshow(
        value.reshape(walk.CELLS, walk.CELLS).T,
        origin="lower",
        extent=(0.0, walk.SIZE, 0.0, walk.SIZE),
        vmin=0.0,
        vmax=1.0,
        cmap="viridis",
        interpolation="nearest",
    )
    axes.plot(*walk.HOLE, marker="*", color="#CC79A7", markeredgecolor="white", markersize=12, mew=0.7, clip_on=False)
    error = np.sqrt(np.mean((value - walk.true_value()) ** 2))
    label = title if error == 0.0 else f"{title}\nerror {error:.2f}"
    axes.set_title(label, fontsize=9)
    axes.set_xticks([0, 5, 10])
    axes.set_yticks([0, 5, 10])
    axes.tick_params(labelsize=7, length=2)
    return image


def draw(maps: Mapping[str, Mapping[int, Floats]], errors: Mapping[str, Floats]) -> Figure:
    """Return the figure: a row per operator, a column per checkpoint, the truth and the error curves at the right."""
    figure = Figure(figsize=(10.0, 5.2), layout="constrained")
    grid = figure.subplots(2, 4)
    for row, (name, by_iteration) in zip(grid, maps.items()):
        for axes, (iteration, value) in zip(row, by_iteration.items()):
            image = _heat_map(axes, value, f"{iteration} iterations")
        row[0].set_ylabel(name, fontsize=10, fontweight="bold")
    _heat_map(grid[0, 3], walk.true_value(), "true value V*")
    bar = figure.colorbar(image, ax=grid[:, :3], shrink=0.6, pad=0.01)
    bar.set_label("max Q over the buffer's actions", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    curves = grid[1, 3]
    for name, error in errors.items():
        curves.plot(np.arange(1, len(error) + 1), error, label=name, color=_LINES[name], linestyle=_DASHES[name])
    curves.set_ylim(0.0, 0.7)
    curves.set_xlabel("iteration", fontsize=8)
    curves.set_title("root mean square error to V*", fontsize=9)
    curves.tick_params(labelsize=7)
    curves.legend(fontsize=7, frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.82))
    curves.spines[["top", "right"]].set_visible(False)
    return figure
