"""Distance walked and success on the four terrains, as bars: a group per terrain, a bar per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's palette, told apart with any colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
WIDTH = 0.8  # of a group

Row = Mapping[str, Any]


def draw(rows: Sequence[Row], summary: Sequence[Row]) -> Figure:
    """Means as bars with their deviations, single episodes as dots, the target's distance as a line over each group."""
    terrains = list(dict.fromkeys(row["terrain"] for row in summary))
    policies = list(dict.fromkeys(row["policy"] for row in summary))
    episodes = summary[0]["episodes"]
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    distance, success = figure.subplots(1, 2)
    bar = WIDTH / len(policies)
    for place, policy in enumerate(policies):
        colour = PALETTE[place % len(PALETTE)]
        at = np.arange(len(terrains)) + (place - (len(policies) - 1) / 2) * bar
        own = [next(row for row in summary if (row["policy"], row["terrain"]) == (policy, terrain)) for terrain in terrains]
        spread = [row["walked_std"] or 0.0 for row in own]
        bars = distance.bar(at, [row["walked"] for row in own], 0.9 * bar, yerr=spread, color=colour, alpha=0.85, label=policy)
        bars.errorbar.lines[2][0].set(color="#333333", linewidth=1.0)
        for x, terrain in zip(at, terrains):
            walked = [row["walked"] for row in rows if (row["policy"], row["terrain"]) == (policy, terrain)]
            distance.plot(x + bar * np.linspace(-0.3, 0.3, len(walked)), walked, ".", color="#222222", ms=3, zorder=3)
        found = success.bar(at, [row["success"] for row in own], 0.9 * bar, color=colour, alpha=0.85)
        success.bar_label(found, [f"{row['success']:.0%}" for row in own], fontsize=8, padding=1)
    for x, terrain in enumerate(terrains):
        target = next(row["target"] for row in summary if row["terrain"] == terrain)
        distance.hlines(target, x - 0.45, x + 0.45, color="black", ls="--", lw=1.0)
    distance.axhline(0.0, color="black", lw=0.8)
    distance.set_ylabel("distance walked towards the target (m)", fontsize=9)
    success.set_ylabel("success at the end", fontsize=9)
    success.set_ylim(0.0, 1.1)
    success.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    names = [terrain.replace("-stone-road", "\nstone road").replace("-", " ") for terrain in terrains]
    for axes in (distance, success):
        axes.set_xticks(range(len(terrains)), names)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25, lw=0.5)
        axes.set_axisbelow(True)
    handles, labels = distance.get_legend_handles_labels()
    handles += [Line2D([], [], color="black", ls="--", lw=1.0), Line2D([], [], color="#222222", ls="none", marker=".", ms=4)]
    labels += ["target", "single episodes"]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    figure.suptitle(f"Policies on the four terrains, simulated: {episodes} episode{'s' * (episodes > 1)} each", fontsize=10)
    return figure
