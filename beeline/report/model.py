"""Everything a report shows, computed once, as plain data: page, exports and tests read the same numbers."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beeline.report import published, statistics
from beeline.report.curves import Line, evaluation_line, onto, signal_line, window_score
from beeline.report.normalise import Normalisation, normalisation
from beeline.report.references import Reference
from beeline.report.runs import Run, differences, labels, names
from beeline.run.reading import Damage, legible

REACHED = 0.95  # a run counts as having come to the end when its last evaluation is this near to it
MOST_SIGNALS = 24
COUNTERS = ("step", "episodes", "updates")
Data = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    """A task's runs, how it is scored, and the step at which it is compared."""

    id: str
    rule: Normalisation
    runs: list[tuple[int, Run]]  # line number, run
    horizon: float
    provisional: bool
    scores: dict[int, list[float]]  # line number -> raw scores of the runs that reached the horizon

    @property
    def column(self) -> str:
        """The metric that scores the task."""
        return f"eval/{self.rule.metric}"


def _rule(task: str, runs: Sequence[Run], reference: Reference | None) -> Normalisation:
    rule = normalisation(task, reference)
    if rule.metric == "success" and not any(run.has("eval/success") for run in runs):
        return Normalisation("return", None, f"{task}: raw return, not in aggregates (no success was recorded)")
    return rule


def _counts(run: Run, column: str, horizon: float) -> bool:
    """Whether a run enters the scores: it did not fail, and its evaluations come to the step of comparison."""
    steps = run.series(column).steps
    return run.state != "failed" and steps.size > 0 and bool(steps[-1] >= REACHED * horizon)


def make_task(task: str, members: list[tuple[int, Run]], reference: Reference | None = None) -> Task:
    """Choose the step of comparison: the smallest planned length, or how far all have come while none has finished."""
    rule = _rule(task, [run for _, run in members], reference)
    column = f"eval/{rule.metric}"
    last = {id(run): run.series(column).steps[-1] for _, run in members if run.has(column)}
    planned = min((run.planned for _, run in members if run.planned > 0), default=0)
    horizon = float(planned or max(last.values(), default=0.0))
    reached = [(line, run) for line, run in members if _counts(run, column, horizon)]
    provisional = not reached and bool(last)
    if provisional:
        alive = [last[id(run)] for _, run in members if id(run) in last and run.state == "running"]
        horizon = float(min(alive or last.values()))
        reached = [(line, run) for line, run in members if _counts(run, column, horizon)]
    scores: dict[int, list[float]] = {}
    for line, run in reached:
        score = window_score(run.series(column), horizon)
        if score is not None:
            scores.setdefault(line, []).append(score)
    return Task(task, rule, members, horizon, provisional, scores)


def _numbers(values: Any, digits: int = 5) -> list[float | None]:
    """Rounded to `digits` significant digits: a page of 200 runs should stay small."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]


def _curve(number: int, line: Line, seeds: Sequence[int], each: bool) -> Data:
    return {
        "line": number,
        "steps": [int(step) for step in line.steps],
        "mean": _numbers(line.mean),
        "low": _numbers(line.low),
        "high": _numbers(line.high),
        "count": [int(count) for count in line.count],
        "complete": line.complete,
        "band": "95 % interval" if len(line.runs) >= statistics.FEW_SEEDS else "range" if len(line.runs) > 1 else "",
        "runs": [{"seed": seed, "values": _numbers(row, 4)} for seed, row in zip(seeds, line.runs)] if each else [],
    }


def _published(task: Task, chosen: Sequence[tuple[str | None, str | None]]) -> list[Data]:
    repeats = {run.repeat for _, run in task.runs}
    repeat = repeats.pop() if len(repeats) == 1 else None
    found = []
    for curve in published.curves(task.id, metric=task.rule.metric, repeat=repeat):
        keep = np.unique(np.linspace(0, curve.steps.size - 1, min(curve.steps.size, 80)).round().astype(int))
        found.append({
            "name": curve.name,
            "source": curve.source,
            "algo": curve.algo,
            "steps": [int(step) for step in curve.steps[keep]],
            "mean": _numbers(curve.mean[keep]),
            "seeds": curve.seeds,
            "notes": list(curve.notes),
            "on": published.matches(curve, chosen),
        })
    return found


def _task_data(task: Task, lines: int, chosen: Sequence[tuple[str | None, str | None]]) -> Data:
    curves = []
    for number in range(lines):
        runs = [run for line, run in task.runs if line == number and run.has(task.column) and run.state != "failed"]
        if runs:
            line = evaluation_line([run.series(task.column) for run in runs])
            curves.append(_curve(number, line, [run.seed for run in runs], each=True))
    return {
        "id": task.id,
        "metric": task.rule.metric,
        "scale": task.rule.scale,
        "horizon": int(task.horizon),
        "provisional": task.provisional,
        "repeat": sorted({run.repeat for _, run in task.runs if run.repeat is not None}),
        "curves": curves,
        "published": _published(task, chosen),
        "final": [_final(number, task) for number in range(lines)],
        "resolves": _resolves(task, lines),
    }


def _final(number: int, task: Task) -> Data:
    scores = task.scores.get(number, [])
    known = sum(1 for line, _ in task.runs if line == number)
    if not scores:
        return {"line": number, "value": None, "low": None, "high": None, "seeds": 0, "runs": known, "scores": []}
    estimate = statistics.mean_interval(scores, reps=10_000)
    return {"line": number, "runs": known, "scores": scores, **_estimate(estimate)}


def _resolves(task: Task, lines: int) -> float | None:
    """The smallest difference of the two lines' means that their seeds can show; None unless there are two lines."""
    if lines != 2 or len(task.scores) != 2:
        return None
    found = statistics.resolvable_difference(task.scores[0], task.scores[1])
    return found if np.isfinite(found) else None


def _estimate(estimate: statistics.Estimate) -> Data:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "seeds": estimate.seeds}


def _aggregates(tasks: Sequence[Task], lines: int) -> Data | None:
    """Aggregates over the tasks that every line has scores for and that have a scale."""
    shared = [task for task in tasks if task.rule.scale is not None and len(task.scores) == lines]
    if not shared or not lines:
        return None
    scores = [[task.rule.apply(np.array(task.scores[line])) for task in shared] for line in range(lines)]
    top = max(1.0, float(np.ceil(10 * max(column.max() for line in scores for column in line)) / 10))
    thresholds = np.linspace(0.0, top, 101)
    rows: list[Data] = []
    profile: list[Data] = []
    for line in range(lines):
        found = statistics.estimates(scores[line])
        rows.append({"line": line, **{name: _estimate(value) for name, value in found.items()}})
        edges = statistics.profile_band(scores[line], thresholds)
        profile.append({
            "line": line,
            "mean": _numbers(statistics.performance_profile(scores[line], thresholds)),
            "low": _numbers(edges[0]) if edges else [],
            "high": _numbers(edges[1]) if edges else [],
        })
    return {
        "tasks": [task.id for task in shared],
        "left_out": [task.id for task in tasks if task not in shared],
        "seeds": sorted({column.size for line in scores for column in line}),
        "rows": rows,
        "thresholds": _numbers(thresholds),
        "profile": profile,
        "improvement": _improvement(scores, [row["iqm"]["value"] for row in rows]),
        "efficiency": _efficiency(shared, lines),
    }


def _improvement(scores: list[list[Any]], iqms: list[float]) -> list[Data]:
    """All pairs of up to four lines; beyond that, the line with the best IQM against each other one."""
    order = sorted(range(len(scores)), key=lambda line: -iqms[line])
    pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]] if len(order) <= 4 else (
        [(order[0], other) for other in order[1:]]
    )
    found = [(a, b, statistics.improvement_interval(scores[a], scores[b])) for a, b in pairs]
    return [{"first": a, "second": b, **_estimate(estimate)} for a, b, estimate in found]


def _efficiency(tasks: Sequence[Task], lines: int) -> Data | None:
    """IQM of the normalised score at every step, over the runs that count in the final scores."""
    chosen: dict[tuple[int, str], list[Any]] = {}
    for task in tasks:
        for line, run in task.runs:
            if _counts(run, task.column, task.horizon):
                chosen.setdefault((line, task.id), []).append(run.series(task.column))
    everyone = [one for group in chosen.values() for one in group]
    start = max(one.steps[0] for one in everyone)
    end = min(min(task.horizon for task in tasks), min(one.steps[-1] for one in everyone))
    if end <= start:
        return None
    steps = np.linspace(start, end, 41)
    curves = []
    for line in range(lines):
        raw = [np.stack([onto(one, steps) for one in chosen[line, task.id]]) for task in tasks]
        groups = [task.rule.apply(values) for values, task in zip(raw, tasks)]
        value, low, high = statistics.efficiency_curve(groups, reps=1000)
        curves.append({
            "line": line,
            "mean": _numbers(value),
            "low": [] if low is None else _numbers(low),
            "high": [] if high is None else _numbers(high),
        })
    return {"steps": [round(float(step)) for step in steps], "curves": curves}


def _signal_order(name: str) -> tuple[int, str]:
    return (0 if name.startswith("diag/") else 1 if name in ("lambda", "lam") else 2, name)


def _diagnostics(tasks: Sequence[Task], names: Sequence[str]) -> tuple[list[Data], list[str]]:
    """Signals of the runs other than returns and times, and a word on those that never change."""
    columns: dict[str, None] = {}
    for task in tasks:
        for _, run in task.runs:
            for name in run.columns:
                if name not in COUNTERS and not name.startswith(("eval/", "train/", "time/")) and run.has(name):
                    columns[name] = None
    out: list[Data] = []
    constant: list[str] = []
    for name in sorted(columns, key=_signal_order):
        values: dict[int, list[Any]] = {}
        for task in tasks:
            for line, run in task.runs:
                values.setdefault(line, []).extend(run.series(name).values if run.has(name) else [])
        fixed = {line: found[0] for line, found in values.items() if found and min(found) == max(found)}
        if len(fixed) == sum(1 for found in values.values() if found):
            each = dict.fromkeys(f"{value:g}" for value in fixed.values())
            constant.append(f"{name} = {', '.join(each)}" if len(each) == 1 else (
                f"{name} = {', '.join(f'{value:g} ({names[line]})' for line, value in sorted(fixed.items()))}"))
            continue
        if len(out) == MOST_SIGNALS:
            break
        panels = []
        for task in tasks:
            curves = []
            for number in range(len(names)):
                runs = [run for line, run in task.runs if line == number and run.has(name) and run.state != "failed"]
                if runs:
                    signal = signal_line([run.series(name) for run in runs])
                    curves.append(_curve(number, signal, [], each=False))
            if curves:
                panels.append({"task": task.id, "curves": curves})
        out.append({"name": name, "panels": panels})
    return out, constant


def _warnings(runs: Sequence[Run], tasks: Sequence[Task], lines: Sequence[str]) -> list[str]:
    found = []
    counts = [len(task.scores.get(number, [])) for task in tasks for number in range(len(lines))
              if any(line == number for line, _ in task.runs)]
    smallest = min(counts, default=0)
    if any(count == 0 for count in counts):
        smallest = min((count for count in counts if count), default=0)
    note = statistics.seeds_note(smallest)
    if note and smallest:
        found.append(note)
    if any(task.provisional for task in tasks):
        found.append("Some tasks have no finished run: their scores are provisional, at the step all have reached.")
    failed = [run for run in runs if run.state == "failed"]
    if failed:
        reasons = "; ".join(dict.fromkeys(run.reason for run in failed if run.reason))
        many = "runs failed and count" if len(failed) > 1 else "run failed and counts"
        found.append(f"{len(failed)} {many} in no score{': ' + reasons.rstrip('.') if reasons else ''}.")
    short = sum(len(task.runs) - sum(map(len, task.scores.values())) for task in tasks) - len(failed)
    if short > 0:
        found.append(f"{short} run{'s have' if short > 1 else ' has'} not come to the step of comparison and "
                     f"count{'' if short > 1 else 's'} in no score yet.")
    return found


def _machine(runs: Sequence[Run]) -> Data:
    """Versions, processors and thread counts with the number of runs that used each."""
    versions: dict[str, dict[str, int]] = {}
    cpus: dict[str, int] = {}
    for run in runs:
        for name, version in run.section("versions").items():
            versions.setdefault(name, {}).setdefault(str(version), 0)
            versions[name][str(version)] += 1
        threads = run.config.get("threads")
        text = f"{run.config.get('cpu', 'unknown')}{f', {threads} threads' if threads else ''}"
        cpus[text] = cpus.get(text, 0) + 1
    order = sorted(versions, key=str.lower)
    return {"versions": [{"name": name, "found": versions[name]} for name in order], "cpus": cpus}


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs as a report lists them."""
    return sorted(runs, key=lambda run: (run.task, run.algo, run.seed, str(run.path)))


def line_names(runs: Sequence[Run]) -> dict[Path, str]:
    """The name of every run's line. A run is known by its path: name, task and seed are the same for all variants of a matrix."""
    return dict(zip((run.path for run in runs), labels(runs)))


def _damage(damaged: Sequence[Damage], called: dict[Path, str]) -> list[str]:
    return [legible(f"{called[path]}: {reason}") for path, reason in damaged]


def model(
    runs: Sequence[Run],
    overlay: Sequence[str] = (),
    damaged: Sequence[Damage] = (),
    references: Mapping[str, Reference] | None = None,
) -> Data:
    """Compute the report's data; what of the runs is damaged is one of its warnings each.

    `references` are the user's own scores of tasks.
    """
    chosen = published.choose(overlay)
    runs = in_order(runs)
    line_of = line_names(runs)
    called = names([*line_of, *(path for path, _ in damaged)])
    lines = sorted(dict.fromkeys(line_of.values()))
    members: dict[str, list[tuple[int, Run]]] = {}
    for run in runs:
        members.setdefault(run.task, []).append((lines.index(line_of[run.path]), run))
    tasks = [make_task(task, group, (references or {}).get(task)) for task, group in members.items()]
    signals, constant = _diagnostics(tasks, lines)
    states: dict[str, int] = {}
    for run in runs:
        states[run.state] = states.get(run.state, 0) + 1
    counts = {sum(line == number for line, _ in task.runs) for task in tasks for number in range(len(lines))}
    return {
        "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "summary": {
            "runs": len(runs),
            "states": states,
            "seeds": sorted(counts - {0}),
            "steps": sorted({run.planned for run in runs if run.planned}),
            "repeat": sorted({run.repeat for run in runs if run.repeat is not None}),
        },
        "warnings": _damage(damaged, called) + _warnings(runs, tasks, lines),
        "lines": [{"name": name, "runs": list(line_of.values()).count(name)} for name in lines],
        "tasks": [_task_data(task, len(lines), chosen) for task in tasks],
        "sources": {name: dataclasses.asdict(source) for name, source in published.SOURCES.items()},
        "aggregates": _aggregates(tasks, len(lines)),
        "signals": signals,
        "constant": constant,
        "options": differences(runs, list(line_of.values())),
        "machine": _machine(runs),
        "statements": list(dict.fromkeys(task.rule.statement for task in tasks)),
        "runs": [
            {"name": called[run.path], "line": lines.index(line_of[run.path]), "task": run.task, "seed": run.seed,
             "state": run.state, "step": run.step, "planned": run.planned, "reason": run.reason}
            for run in runs
        ],
        "videos": [],
    }
