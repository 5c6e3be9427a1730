"""Read run folders: whatever a run has written so far, complete or not."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline.errors import RunFolderError
from beeline.options import FREE
from beeline.report.normalise import parts, whole
from beeline.run import reading
from beeline.run.reading import Damage, Note, Say, Video

# Fields that say how a run was watched or where it ran, not what was trained.
BOOKKEEPING = frozenset({
    "seed", "out", "device", "threads", "progress", "videos", "resume", "eval_every", "eval_episodes", "log_every", "keep",
    "init_from", "created", *FREE,
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
    videos: tuple[Video, ...] = ()  # oldest first

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
        return self.config.get("seed", -1)

    @property
    def planned(self) -> int:
        """Environment steps the run was started for; 0 where the config does not say."""
        return self.section("train").get("steps", 0)

    @property
    def repeat(self) -> int | None:
        """Action repeat: the loop's option, else the one in the task's id, else 1; None where the config has no options."""
        repeat = self.section("train").get("repeat")
        if repeat is not None:
            return repeat
        given = parts(self.task)[2].get("repeat")
        return whole(given) if given is not None else 1 if self.section("train") else None

    def section(self, name: str) -> dict[str, Any]:
        """A section of the config; empty where it is missing."""
        return self.config.get(name, {})

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


def read_run(path: Path, note: Note = reading.warn) -> Run:
    """Read one run folder; only its config must be sound, and whatever else is damaged is noted."""
    said: list[str] = []
    try:
        run = _read(path, reading.config(path), said.append)
    except RunFolderError as error:
        raise RunFolderError(f"{path} is not a run folder: it has no readable config.json ({error}).") from None
    if said:
        note(Damage(path, " ".join(said)))
    return run


def read_one(path: Path, note: Note) -> Run | None:
    """The run at `path`; None, with a note, where it cannot be read, and without one where the folder is something else's."""
    said: list[str] = []
    run = None
    with reading.guard(path, said.append):
        config = reading.config(path)
        if not reading.is_foreign(path, config):
            run = _read(path, config, said.append)
    if said:
        note(Damage(path, " ".join(said) + ("" if run else " The run is left out.")))
    return run


def _read(path: Path, config: dict[str, Any], say: Say) -> Run:
    reading.check_config(path, config)
    said: list[str] = []
    status, metrics = reading.record(path, said.append, config["env"], config.get("train", {}))
    for text in (reading.changed(config, status), *said):
        if text:
            say(text)
    columns = metrics.columns()
    last = int(columns["step"].max()) if metrics.values.size else 0
    step = reading.reached(status, last)
    return Run(path, config, status.state, step, status.reason, columns, tuple(reading.videos(path, say)))


def find(roots: Iterable[Path], note: Note = reading.warn) -> list[Path]:
    """Run folders at or below the given paths, each once, in order of their paths; no link to a folder is followed.

    A folder with a record is that of a run also where its config is lost. One that cannot be listed is noted.
    """
    found: dict[Path, None] = {}
    for root in map(Path, roots):
        if not root.exists():
            raise RunFolderError(f"{root} does not exist.")
        if os.path.lexists(root / "config.json") or all(os.path.lexists(root / name) for name in reading.RECORD):
            found[root.resolve()] = None
            continue
        below = []
        for folder, folders, names in os.walk(root, onerror=lambda error: note(_unlisted(error))):
            folders[:] = [name for name in folders if not name.startswith(".")]
            if "config.json" in names or "config.json" in folders or set(names) >= reading.RECORD:
                below.append(Path(folder).resolve())
        found |= dict.fromkeys(sorted(below))
    return list(found)


def _unlisted(error: OSError) -> Damage:
    return Damage(Path(error.filename), f"the folder cannot be listed ({error.strerror}).")


def read_all(roots: Iterable[Path], note: Note = reading.warn) -> list[Run]:
    """Every readable run at or below the given paths; one that is damaged is noted, and a config that is no run's passed over."""
    return [run for path in find(roots, note) if (run := read_one(path, note)) is not None]


def names(paths: Sequence[Path]) -> dict[Path, str]:
    """What runs are called among each other: their paths below the last folder that they have in common."""
    shared = os.path.commonpath([path.parent for path in paths]) if paths else ""
    return {path: reading.legible(path.relative_to(shared).as_posix()) for path in paths}


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
