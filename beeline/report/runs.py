"""Read run folders: whatever a run has written so far, complete or not."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline import files
from beeline.errors import RunFolderError
from beeline.report.normalise import parts

# Fields that say how a run was watched or where it ran, not what was trained.
BOOKKEEPING = frozenset({
    "steps", "seed", "out", "device", "threads", "progress", "video", "videos", "tensorboard", "wandb", "resume",
    "eval_every", "eval_episodes", "log_every", "checkpoint_every", "keep", "keep_checkpoints", "init_from", "created",
})


@dataclasses.dataclass(frozen=True)
class Series:
    """One metric of one run: the steps at which it was written, and its values."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder as it was when it was read."""

    path: Path
    config: dict[str, Any]
    state: str
    step: int
    reason: str
    columns: dict[str, NDArray[np.float64]]

    @property
    def algo(self) -> str:
        """The algorithm's name."""
        return str(self.config.get("algo", "?"))

    @property
    def task(self) -> str:
        """The environment's id."""
        return str(self.config.get("env", "?"))

    @property
    def seed(self) -> int:
        """The run's seed; -1 where the config has none."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else -1

    @property
    def planned(self) -> int:
        """Environment steps the run was started for; 0 where the config does not say."""
        steps = self.section("train").get("steps")
        return int(steps) if isinstance(steps, int | float) else 0

    @property
    def repeat(self) -> int | None:
        """Action repeat: the loop's option, else the one in the task's id, else 1; None where the config has no options."""
        repeat = self.section("train").get("repeat")
        if isinstance(repeat, int):
            return repeat
        given = parts(self.task)[2].get("repeat", "")
        return int(given) if given.isdigit() else 1 if self.section("train") else None

    def section(self, name: str) -> dict[str, Any]:
        """A section of the config; empty where it is missing."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def series(self, name: str) -> Series:
        """A metric where it was written; empty where the run has none of it."""
        if name not in self.columns or "step" not in self.columns:
            return Series(np.empty(0), np.empty(0))
        steps, values = self.columns["step"], self.columns[name]
        there = np.isfinite(steps) & np.isfinite(values)
        # A table cut back at a resume may repeat a step: the later row is the run's own account of it.
        steps, values = steps[there][::-1], values[there][::-1]
        unique, first = np.unique(steps, return_index=True)
        return Series(unique, values[first])

    def has(self, name: str) -> bool:
        """Whether any value of a metric was written."""
        return name in self.columns and bool(np.isfinite(self.columns[name]).any())

    def videos(self) -> list[Path]:
        """The run's videos, oldest first."""
        return sorted((self.path / "videos").glob("*.mp4"), key=lambda path: (path.stat().st_mtime, path.name))


def _number(text: str) -> float:
    try:
        return float(text) if text else np.nan
    except ValueError:
        return np.nan


def read_metrics(path: Path) -> dict[str, NDArray[np.float64]]:
    """The metrics table, one array per column; a last line without its newline may be half written and is left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    whole, newline, _ = text.rpartition("\n")
    rows = list(csv.reader(line.replace("\0", "") for line in whole.splitlines())) if newline else []
    if not rows:
        return {}
    header = rows[0]
    body = [row for row in rows[1:] if len(row) == len(header)]
    return {name: np.array([_number(row[place]) for row in body], float) for place, name in enumerate(header)}


def read_run(path: Path) -> Run:
    """Read one run folder; only a config is required."""
    config = files.read_json(path / "config.json")
    if not config:
        raise RunFolderError(f"{path} is not a run folder: it has no readable config.json.")
    columns = read_metrics(path / "metrics.csv")
    status = files.read_json(path / "status.json")
    written = columns.get("step", np.empty(0))
    last = int(np.nanmax(written)) if np.isfinite(written).any() else 0
    step = status.get("step")
    return Run(path, config, str(status.get("state", "unknown")), int(step) if isinstance(step, int) else last,
               str(status.get("reason") or ""), columns)


def find(roots: Iterable[Path]) -> list[Path]:
    """Run folders at or below the given paths, each once, in order of their paths."""
    found: dict[Path, None] = {}
    for root in roots:
        root = Path(root)
        if not root.exists():
            raise RunFolderError(f"{root} does not exist.")
        if (root / "config.json").is_file():
            found[root.resolve()] = None
            continue
        for config in sorted(root.rglob("config.json")):
            if not any(part.startswith(".") for part in config.relative_to(root).parts):
                found[config.parent.resolve()] = None
    return list(found)


def read_all(roots: Iterable[Path]) -> list[Run]:
    """Every readable run at or below the given paths; folders whose config is not a run's are passed over."""
    runs = []
    for path in find(roots):
        try:
            run = read_run(path)
        except RunFolderError:
            continue
        if "algo" in run.config and "env" in run.config:
            runs.append(run)
    return runs


def options(run: Run) -> dict[str, Any]:
    """What was trained: preset, agent fields and those train fields that change the result, under dotted names."""
    flat: dict[str, Any] = {"preset": run.config.get("preset"), "init_from": run.config.get("init_from")}
    flat |= {f"agent.{key}": value for key, value in run.section("agent").items()}
    flat |= {f"train.{key}": value for key, value in run.section("train").items() if key not in BOOKKEEPING}
    return flat


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "×".join(_text(item) for item in value)
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "yes", False: "no"}[value]
    return json.dumps(value) if isinstance(value, dict) else str(value)


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for every run's line: its algorithm, with the options that differ between its runs on the same task.

    Presets may differ from task to task; that alone does not split a line, only a difference within some task does.
    """
    varying: dict[str, list[str]] = {}
    for algo in dict.fromkeys(run.algo for run in runs):
        fields: dict[str, None] = {}
        for task in dict.fromkeys(run.task for run in runs if run.algo == algo):
            group = [options(run) for run in runs if (run.algo, run.task) == (algo, task)]
            for key in dict.fromkeys(key for item in group for key in item):
                if len({json.dumps(item.get(key), sort_keys=True) for item in group}) > 1:
                    fields[key] = None
        # The preset says nothing more where the fields it sets are named already.
        varying[algo] = [key for key in fields if key != "preset"] or list(fields)
    out = []
    for run in runs:
        found = options(run)
        extra = [f"{key.rpartition('.')[2]} {_text(found.get(key))}" for key in varying[run.algo]]
        out.append(" ".join([run.algo, *([", ".join(extra)] if extra else [])]))
    return out


def differences(runs: Sequence[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """Options that differ between the lines of a report: one row per field with the values each line used."""
    lines = list(dict.fromkeys(names))
    table = []
    everything = [options(run) for run in runs]
    for key in dict.fromkeys(key for item in everything for key in item):
        values: dict[str, list[str]] = {line: [] for line in lines}
        for item, name in zip(everything, names):
            if key in item and _text(item[key]) not in values[name]:
                values[name].append(_text(item[key]))
        if len({tuple(value) for value in values.values()}) > 1 or any(len(value) > 1 for value in values.values()):
            table.append({"field": key, "values": [" · ".join(values[line][:6]) or "–" for line in lines]})
    return table
