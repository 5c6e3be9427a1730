"""Learning curves of the default preset over those of published methods, task by task, from kept records.

    python benchmarks/defaults_figure.py                                     # of the kept records, into docs/images
    python benchmarks/defaults_figure.py --records runs/defaults-table --out defaults.png

Ours are means over the finished runs of a task with the range of its seeds; a task without a finished run has no panel. Published
means are those that ship with the package: a dot for each, joined by a dotted line where they lie far apart, and by a thin one
where the method repeats every action twice.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch
from beeline.report import published
from beeline.run.record import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
NEAR = 25_000  # steps between two published points that may be joined by a line
OURS = {"bac": ("BAC, λ = .5", "#D55E00"), "sac": ("BAC, λ = 0", "#0072B2")}
THEIRS = {
    ("simba", "sac"): ("SAC", "#999999"), ("simba", "sac_simba"): ("SimBa", "#56B4E9"),
    ("simbav2", "simbav2_utd2"): ("SimbaV2", "#009E73"), ("simbav2", "bro_utd2"): ("BRO", "#CC79A7"),
    ("simbav2", "bro_utd10"): ("BRO, 10 updates", "#E69F00"), ("xqc", "xqc"): ("XQC", "#000000"),
    ("tdmpc2", "tdmpc2"): ("TD-MPC2", "#7A5195"),
}  # fmt: skip


def curves(records: Path) -> dict[str, dict[str, list[tuple[Any, Any]]]]:
    """By task and variant, steps and returns of the evaluations of every finished run."""
    found: dict[str, dict[str, list[tuple[Any, Any]]]] = {}
    for run in bench_plan.recorded(records):
        if bench_watch.look(records, run).state != "finished":
            continue
        rows = [row for row in read_metrics(records / run.folder / "metrics.csv") if row["eval/return"] is not None]
        pairs = np.array([row["step"] for row in rows]), np.array([row["eval/return"] for row in rows])
        found.setdefault(run.task, {}).setdefault(run.variant, []).append(pairs)
    return found


def draw(tasks: dict[str, dict[str, list[tuple[Any, Any]]]]) -> Figure:
    """A panel per task."""
    from matplotlib.figure import Figure

    columns = 2 if len(tasks) == 4 else min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    named: dict[str, Any] = {}
    for panel, (task, variants) in zip(panels, tasks.items()):
        last = max(steps[-1] for runs in variants.values() for steps, _ in runs)
        for (source, algo), (name, colour) in THEIRS.items():
            for curve in published.curves(task, [source], [algo])[:1]:
                shown = curve.steps <= last
                width = 0.9 if curve.repeat == 2 else 1.4
                joined = ":" if np.diff(curve.steps[shown]).max(initial=0) > NEAR else "-"
                style = {"marker": "o", "ms": 3, "color": colour, "lw": width, "ls": joined, "alpha": 0.8}
                named[name] = panel.plot(curve.steps[shown], curve.mean[shown], **style)[0]
        for variant, runs in variants.items():
            name, colour = OURS[variant]
            steps, returns = runs[0][0], np.stack([values for _, values in runs])
            named[name] = panel.plot(steps, returns.mean(axis=0), color=colour, lw=2.4)[0]
            if len(runs) > 1:
                panel.fill_between(steps, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.15, lw=0)
        seeds = "/".join(map(str, dict.fromkeys(len(runs) for runs in variants.values())))
        panel.set_title(f"{task.partition('/')[2]} (our seeds: {seeds})", fontsize=9)
        panel.set_ylim(0, 1000)
        panel.set_xlim(0, 1.01 * last)
        panel.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:.0f}k")
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    for number, panel in enumerate(panels):
        panel.set_xlabel("environment steps" if number + columns >= len(tasks) else "", fontsize=8)
        panel.set_ylabel("return" if number % columns == 0 else "", fontsize=8)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2 * columns, fontsize=8, frameon=False)
    return figure


def main() -> None:
    """Draw what is finished."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    records, picture = ROOT / "benchmarks" / "records" / "defaults-table", ROOT / "docs" / "images" / "defaults.png"
    parser.add_argument("--records", type=Path, default=records, help="a matrix, or its records")
    parser.add_argument("--out", type=Path, default=picture, help="the picture")
    given = parser.parse_args()
    found = curves(given.records)
    if not found:
        parser.error(f"{given.records} has no finished run.")
    draw(found).savefig(given.out, dpi=150)
    print(f"{given.out}: {sum(len(runs) for variants in found.values() for runs in variants.values())} runs")


if __name__ == "__main__":
    main()
