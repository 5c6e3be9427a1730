"""What a search found: a table of its trials, a picture of what mattered, and the best as a file to train with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import files
from beeline.bench.space import Range, TunePlan, plain
from beeline.errors import copyable
from beeline.run.reading import legible

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

SHOWN = 10  # trials in the table on the screen; trials.csv has all
FEWEST = 4  # finished trials from which importances are worth a number
BLUE, GREY, ORANGE = "#0072B2", "#999999", "#D55E00"
STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "open", "WAITING": "open"}


def ranked(study: Study, plan: TunePlan) -> list[FrozenTrial]:
    """Trials from the best to those without a score; a pruned one has the score that it was given up with."""
    drawn = [trial for trial in study.get_trials(deepcopy=False) if set(trial.params) == set(plan.search)]

    def order(trial: FrozenTrial) -> tuple[int, float, int]:
        return list(STATES).index(trial.state.name), -(score(trial) or 0.0), trial.number

    return sorted(drawn, key=order)


def score(trial: FrozenTrial) -> float | None:
    """The score of a finished trial, or the last evaluation of a pruned one."""
    return trial.value if trial.state.name in ("COMPLETE", "PRUNED") else None


def importances(study: Study, plan: TunePlan) -> dict[str, float]:
    """The share of each option in what tells the best trials from the others (PED-ANOVA); empty where too few are finished."""
    import optuna

    finished = [trial for trial in ranked(study, plan) if trial.state.name == "COMPLETE"]
    if len(finished) < FEWEST or len({trial.value for trial in finished}) < 2:
        return {}
    found = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    return {name: float(found.get(name, 0.0)) for name in sorted(plan.search, key=lambda name: -found.get(name, 0.0))}


def best_text(plan: TunePlan, best: FrozenTrial, count: int) -> str:
    """The best trial's options as a TOML file for `beeline train --config`."""
    command = copyable("train", plan.algo, plan.task, "--config", "best.toml")
    lines = [
        f"# The best of {count} trials: trial {best.number}, {plan.metric} {best.value:.6g} ({_seeds(len(plan.seeds))}).",
        f"# Train with it: {command}",
        f"preset = {toml(plan.preset)}",
        f"steps = {plan.steps}",
    ]
    values = dict(plan.runs(best.number, best.params)[0].options)
    if "threads" not in plan.options:
        values.pop("threads", None)
    return "\n".join([*lines, *(f"{name} = {toml(value)}" for name, value in values.items())]) + "\n"


def toml(value: Any) -> str:
    """A value of an option as TOML writes it; what is not given is the word none."""
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item) for item in value)}]"
    return json.dumps(value)


def conclude(out: Path, plan: TunePlan, study: Study) -> None:
    """Write trials.csv, and where a trial has finished best.toml and tune.png; say what there is."""
    trials, weights = ranked(study, plan), importances(study, plan)
    if not trials:
        return
    print(f"trials: {_write_table(out / 'trials.csv', plan, trials)}")
    _show(plan, trials, weights)
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if not done:
        print("no trial has finished yet.", flush=True)
        return
    best = out / "best.toml"
    files.write_atomic(best, best_text(plan, done[0], len(trials)).encode())
    print(f"what mattered: {draw(out / 'tune.png', plan, trials, weights)}")
    print(f"the best, trial {done[0].number} with {plan.metric} {done[0].value:,.4g}: {best}")
    print(f"train with it: {copyable('train', plan.algo, plan.task, '--config', best)}", flush=True)


def _write_table(path: Path, plan: TunePlan, trials: list[FrozenTrial]) -> Path:
    from beeline.report import write_table

    rows = [
        {"trial": trial.number, "state": STATES[trial.state.name], plan.metric: score(trial),
         "evaluated": max(trial.intermediate_values, default=None), **{name: trial.params[name] for name in plan.search},
         "reason": legible(trial.user_attrs.get("reason", ""))}
        for trial in trials
    ]  # fmt: skip
    return write_table(rows, path)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show(plan: TunePlan, trials: list[FrozenTrial], weights: Mapping[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("trial", "state", plan.metric, *plan.search):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for trial in trials[:SHOWN]:
        found = score(trial)
        cells = [str(trial.number), STATES[trial.state.name], "–" if found is None else f"{found:,.1f}"]
        table.add_row(*(Text(cell) for cell in (*cells, *(_text(trial.params[name]) for name in plan.search))))
    console = Console()
    console.print(table)
    if len(trials) > SHOWN:
        console.print(f"({len(trials) - SHOWN} more in trials.csv)")
    if weights:
        print("importance: " + ", ".join(f"{name} {weight:.0%}" for name, weight in weights.items()))


def draw(path: Path, plan: TunePlan, trials: list[FrozenTrial], weights: Mapping[str, float]) -> Path:
    """Importances as bars, and for every option the scores of all trials over its values."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from beeline.diagnostics.plots import save_png

    names = list(weights) or list(plan.search)
    columns = min(3, len(names) + 1)
    rows = -(-(len(names) + 1) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for each in panels:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25, lw=0.5)
        each.tick_params(labelsize=8)
    _bars(panels[0], names, weights)
    for panel, name in zip(panels[1:], names):
        _slice(panel, plan, name, trials)
    for panel in panels[len(names) + 1 :]:
        panel.set_visible(False)
    title = f"{plan.algo} on {plan.task}: {len(trials)} trials (orange: the best; hollow: pruned)"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, parse_math=False)
    return save_png(figure, path)


def _bars(panel: Any, names: list[str], weights: Mapping[str, float]) -> None:
    panel.set_title("importance", loc="left", fontsize=9)
    panel.barh(names[::-1], [weights.get(name, 0.0) for name in names[::-1]], color=BLUE)
    panel.set_xlim(0, 1)
    if not weights:
        panel.text(0.5, 0.5, f"from {FEWEST} finished trials on", ha="center", va="center", transform=panel.transAxes, fontsize=8)


def _slice(panel: Any, plan: TunePlan, name: str, trials: list[FrozenTrial]) -> None:
    """Scores over the values of one option: finished trials filled, pruned ones as rings, the best in another colour."""
    each = plan.space[name]
    scored = [trial for trial in trials if score(trial) is not None]
    if isinstance(each, Range):
        places = {trial.number: float(trial.params[name]) for trial in scored}
        middle = (each.low * each.high) ** 0.5 if each.log else (each.low + each.high) / 2
        panel.set_xscale("log" if each.log else "linear")
        panel.set_xticks([each.low, middle, each.high], [f"{tick:.2g}" for tick in (each.low, middle, each.high)])
        panel.minorticks_off()
    else:
        labels = [str(plain(value)) for value in each.values]
        places = {trial.number: float(labels.index(str(trial.params[name]))) for trial in scored}
        panel.set_xticks(np.arange(len(labels)), labels)
    for number, trial in enumerate(scored):
        pruned = trial.state.name == "PRUNED"
        colour = GREY if pruned else ORANGE if number == 0 else BLUE
        panel.plot(places[trial.number], score(trial), "o", ms=5, color=colour, mfc="none" if pruned else colour)
    panel.set_title(name, loc="left", fontsize=9)
    panel.set_ylabel(plan.metric, fontsize=8)


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"mean of {count} seeds"
