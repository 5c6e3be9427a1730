"""Draws the curves of docs/dkitty.md: evaluated success and return of the recorded D'Kitty runs over environment steps.

    python docs/draw_dkitty.py [RECORDS] [--out FILE]

Then `python docs/generate_tables.py` puts them on the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from beeline.bench import plan as bench_plan
from beeline.run.record import read_metrics
from beeline.studies.terrains_figure import PALETTE

DOCS = Path(__file__).parent
RECORDS = DOCS.parent / "benchmarks" / "records" / "dkitty-walk"
SHOWN = {"eval/success": "success at the end", "eval/return": "return"}


def draw(records: Path) -> Figure | None:
    """A column per task, success above return, a line per run; None where no run is recorded."""
    runs = bench_plan.recorded(records) if records.exists() else []
    runs = [run for run in runs if (records / run.folder / "metrics.csv").exists()]
    if not runs:
        return None
    tasks = list(dict.fromkeys(run.task for run in runs))
    variants = list(dict.fromkeys(run.variant for run in runs))
    figure = Figure(figsize=(1.5 + 3.6 * len(tasks), 4.6), layout="constrained")
    panels = figure.subplots(2, len(tasks), sharex=True, sharey="row", squeeze=False)
    for run in runs:
        rows = [row for row in read_metrics(records / run.folder / "metrics.csv") if row["eval/return"] is not None]
        colour, style = PALETTE[variants.index(run.variant) % len(PALETTE)], "--" if run.seed else "-"
        for line, name in enumerate(SHOWN):
            panels[line, tasks.index(run.task)].plot(
                [row["step"] / 1000 for row in rows], [row[name] for row in rows], color=colour, ls=style, marker=".",
                lw=1.5, label=f"{run.variant}, seed {run.seed}",
            )  # fmt: skip
    for column, task in enumerate(tasks):
        panels[0, column].set_title(task, fontsize=10)
        panels[1, column].set_xlabel("environment steps (thousands)", fontsize=9)
        panels[0, column].legend(fontsize=7, frameon=False)
    for line, text in enumerate(SHOWN.values()):
        panels[line, 0].set_ylabel(text, fontsize=9)
    panels[0, 0].set_ylim(-0.04, 1.04)
    for axes in panels.flat:
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, lw=0.5)
    return figure


def main() -> None:
    """Draw them, or say that there is nothing to draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="?", default=RECORDS, help="a folder of records, or of a matrix")
    parser.add_argument("--out", type=Path, default=DOCS / "images" / "dkitty-walk.png", help="the picture")
    given = parser.parse_args()
    figure = draw(given.records)
    if figure is None:
        parser.error(f"{given.records} has no run.")
    figure.savefig(given.out, dpi=110)
    print(given.out)


if __name__ == "__main__":
    main()
