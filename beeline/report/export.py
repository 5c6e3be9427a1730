"""PNG, SVG and CSV of every figure, for papers; drawn by Matplotlib from the data that the page shows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from beeline.files import explained
from beeline.report.model import Data

# Okabe and Ito's palette, darkened a little where thin lines on white need it; the same as the page's.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b2568a", "#c98600", "#3a9bd6", "#5b5f66", "#8c6d31")
DASHES = ("-", "--", ":", "-.")
GREYS = ("#7d8087", "#2b2d31", "#b0b3b8")  # of published curves
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "axes.titlesize": 9,
    "axes.titlelocation": "left", "xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.frameon": False,
    "svg.fonttype": "none", "svg.hashsalt": "beeline", "lines.linewidth": 1.5, "axes.grid": True, "axes.grid.axis": "y",
    "grid.color": "#e3e0d8", "grid.linewidth": 0.6, "text.parse_math": False,  # a dollar in a name is a dollar
}
STATISTICS = {"iqm": "Interquartile mean", "median": "Median", "mean": "Mean", "optimality_gap": "Optimality gap"}


def slug(name: str) -> str:
    """A file name that every system takes."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-")[:100] or "figure"


def _colour(line: int) -> str:
    return COLOURS[line % len(COLOURS)]


def _steps(value: float, _: object = None) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def published_style(number: int) -> tuple[str, str]:
    """Dash and grey of a published curve; the first nine can be told apart."""
    return DASHES[1:][number % 3], GREYS[number // 3 % len(GREYS)]


class Exporter:
    """Writes figures into one folder and remembers what it wrote."""

    def __init__(self, data: Data, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.names = [line["name"] for line in data["lines"]]
        self.written: list[Path] = []

    def csv(self, stem: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write the numbers of a figure; empty cells where there are none."""
        path = self.folder / f"{stem}.csv"
        with explained(path), path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(head)
            writer.writerows(rows)
        self.written.append(path)

    def save(self, stem: str, figure: Any) -> None:
        """Write a figure as PNG and SVG."""
        for kind in ("png", "svg"):
            path = self.folder / f"{stem}.{kind}"
            with explained(path):
                figure.savefig(path, dpi=200, metadata={"Date": None} if kind == "svg" else None)
            self.written.append(path)

    def axes(self, width: float = 3.6, height: float = 2.4) -> tuple[Any, Any]:
        """A small figure with one pair of axes, outside Matplotlib's global state."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, figure.subplots()

    def lines(self, axes: Any, curves: Sequence[Data], steps: Sequence[float] | None = None) -> None:
        """Lines with their bands, in the page's colours."""
        for curve in curves:
            number, xs = curve["line"], steps if steps is not None else curve["steps"]
            ys = [float("nan") if value is None else value for value in curve["mean"]]
            dash = DASHES[number // len(COLOURS) % len(DASHES)]
            axes.plot(xs, ys, dash, color=_colour(number), label=self.names[number])
            pairs = [(x, a, b) for x, a, b in zip(xs, curve["low"], curve["high"]) if a is not None]
            if pairs:
                axes.fill_between(*zip(*pairs), color=_colour(number), alpha=0.15, linewidth=0)

    def band_csv(self, stem: str, first: str, curves: Sequence[Data], steps: Sequence[float] | None = None) -> None:
        """The numbers of a line figure, one row per line and step."""
        self.csv(stem, ["line", first, "mean", "low", "high", "seeds"], (
            [self.names[curve["line"]], x, curve["mean"][i], *(
                [curve["low"][i], curve["high"][i]] if curve["low"] else [None, None]
            ), curve["count"][i] if "count" in curve else None]
            for curve in curves for i, x in enumerate(steps if steps is not None else curve["steps"])
        ))

    def learning_curve(self, task: Data) -> None:
        """A task's learning curves with the published curves that are switched on."""
        stem = f"curve-{slug(task['id'])}"
        figure, axes = self.axes()
        self.lines(axes, task["curves"])
        shown = [one for one in task["published"] if one["on"]]
        reach = max([task["horizon"], *(curve["steps"][-1] for curve in task["curves"] if curve["steps"])])
        for number, one in enumerate(shown):
            dash, colour = published_style(number)
            axes.plot(one["steps"], one["mean"], dash, color=colour, linewidth=1, label=one["name"])
        axes.set(title=task["id"], xlabel="environment steps", ylabel=task["metric"], xlim=(0, reach or 1))
        axes.xaxis.set_major_formatter(_steps)
        if task["metric"] == "success":
            axes.set_ylim(-0.02, 1.02)
        if task["curves"] or shown:
            axes.legend(fontsize=7)
        self.save(stem, figure)
        rows = [
            [self.names[curve["line"]], "", step, *(curve[key][i] for key in ("mean", "low", "high", "count"))]
            for curve in task["curves"] for i, step in enumerate(curve["steps"])
        ]
        rows += [
            [one["algo"], one["source"], step, value, None, None, one["seeds"]]
            for one in shown for step, value in zip(one["steps"], one["mean"])
        ]
        self.csv(stem, ["line", "source", "step", "mean", "low", "high", "seeds"], rows)

    def _intervals(self, axes: Any, rows: Sequence[tuple[str, str, Data]]) -> None:
        for place, (_, colour, item) in enumerate(rows):
            if item["low"] is not None:
                axes.plot([item["low"], item["high"]], [place, place], color=colour, alpha=0.4, linewidth=5,
                          solid_capstyle="butt")
            axes.plot([item["value"]], [place], "o", color=colour, markersize=4)
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(False)

    def aggregates(self, found: Data) -> None:
        """The four aggregates, the profile, the probability of improvement and the efficiency curve."""
        keys = ("value", "low", "high", "seeds")
        for key, title in STATISTICS.items():
            figure, axes = self.axes(3.6, 0.9 + 0.25 * len(found["rows"]))
            self._intervals(axes, [(self.names[row["line"]], _colour(row["line"]), row[key]) for row in found["rows"]])
            axes.set(title=title)
            self.save(f"aggregate-{key.replace('_', '-')}", figure)
        self.csv("aggregates", ["line", "statistic", *keys], (
            [self.names[row["line"]], key, *(row[key][part] for part in keys)]
            for row in found["rows"] for key in STATISTICS
        ))
        figure, axes = self.axes()
        self.lines(axes, found["profile"], found["thresholds"])
        axes.set(title="Performance profile", xlabel="normalised score τ", ylabel="fraction of runs above τ")
        axes.legend(fontsize=7)
        self.save("profile", figure)
        self.band_csv("profile", "threshold", found["profile"], found["thresholds"])
        if found["improvement"]:
            rows = [(f"{self.names[one['first']]} over {self.names[one['second']]}", _colour(one["first"]), one)
                    for one in found["improvement"]]
            figure, axes = self.axes(3.6, 0.9 + 0.25 * len(rows))
            self._intervals(axes, rows)
            axes.axvline(0.5, color="#686c72", linewidth=0.8)
            axes.set(title="Probability of improvement", xlim=(0, 1.02))
            self.save("improvement", figure)
            self.csv("improvement", ["first", "second", *keys], (
                [self.names[one["first"]], self.names[one["second"]], *(one[part] for part in keys)]
                for one in found["improvement"]
            ))
        if found["efficiency"]:
            figure, axes = self.axes()
            self.lines(axes, found["efficiency"]["curves"], found["efficiency"]["steps"])
            axes.set(title="Sample efficiency", xlabel="environment steps", ylabel="interquartile mean", xlim=(0, None))
            axes.xaxis.set_major_formatter(_steps)
            axes.legend(fontsize=7)
            self.save("efficiency", figure)
            self.band_csv("efficiency", "step", found["efficiency"]["curves"], found["efficiency"]["steps"])

    def signal(self, signal: Data) -> None:
        """One training signal on every task."""
        for panel in signal["panels"]:
            stem = f"signal-{slug(signal['name'])}-{slug(panel['task'])}"
            figure, axes = self.axes()
            self.lines(axes, panel["curves"])
            axes.set(title=panel["task"], xlabel="environment steps", ylabel=signal["name"])
            axes.xaxis.set_major_formatter(_steps)
            axes.legend(fontsize=7)
            self.save(stem, figure)
            self.band_csv(stem, "step", panel["curves"])

    def final_table(self) -> None:
        """The final scores with their intervals and every seed's score."""
        self.csv("final", ["task", "metric", "step", "line", "value", "low", "high", "seeds", "scores"], (
            [task["id"], task["metric"], task["horizon"], self.names[cell["line"]], cell["value"], cell["low"],
             cell["high"], cell["seeds"], " ".join(f"{score:g}" for score in cell["scores"])]
            for task in self.data["tasks"] for cell in task["final"] if cell["runs"]
        ))


def export_figures(data: Data, folder: Path) -> list[Path]:
    """Write every figure of a report into `folder`; return the files."""
    import matplotlib

    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    exporter = Exporter(data, folder)
    with matplotlib.rc_context(STYLE):
        for task in data["tasks"]:
            exporter.learning_curve(task)
        if data["aggregates"]:
            exporter.aggregates(data["aggregates"])
        for signal in data["signals"]:
            exporter.signal(signal)
    exporter.final_table()
    return exporter.written
