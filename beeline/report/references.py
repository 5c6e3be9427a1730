"""Reference scores of tasks, in `references.json` of a folder of runs: what a random policy and an expert reach.

A report takes, for every run, the nearest such file in the folders above it: a matrix may have one of its own, and
`runs/references.json` serves all that lies below.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from beeline import files
from beeline.errors import BeelineError, ConfigError, UnreadableError
from beeline.run.reading import Damage, Note

FILE = "references.json"
FORMAT = 1
LEVELS = 4  # folders above a run that are looked into: variant, task, matrix, and the one that holds matrices


@dataclasses.dataclass(frozen=True)
class Reference:
    """The returns of a random policy and of an expert; a score s becomes (s − random) / (expert − random)."""

    random: float | None = None
    expert: float | None = None

    def __post_init__(self) -> None:
        for name in ("random", "expert"):
            value = getattr(self, name)
            if value is not None and not _finite(value):
                raise ConfigError(f"{name} = {value!r:.50} is not a finite number.")
        if self.random is not None and self.expert is not None:
            if self.expert <= self.random:
                raise ConfigError(f"expert = {self.expert:g} is not above random = {self.random:g}.")
            if not math.isfinite(float(self.expert) - float(self.random)):
                raise ConfigError(f"expert = {self.expert:g} and random = {self.random:g} are too far apart.")


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def parse(tables: Any, where: str) -> dict[str, Reference]:
    """References from plain values, such as the tables [reference."TASK"] of a matrix file."""
    if not isinstance(tables, dict):
        raise ConfigError(f'{where}: reference must be a table per task, such as [reference."my_package.envs:Reach-v0"].')
    found = {}
    for task, table in tables.items():
        if not isinstance(table, dict) or not table or set(table) - {"random", "expert"}:
            raise ConfigError(f"{where}: the reference of {task} has random and expert, each a number, and nothing else.")
        try:
            found[task] = Reference(**table)
        except ConfigError as error:
            raise ConfigError(f"{where}: the reference of {task}: {error}") from None
    return found


def read(folder: Path) -> dict[str, Reference]:
    """The references in a folder; none where there is no file."""
    path = folder / FILE
    try:
        content = files.load_json(path)
    except FileNotFoundError:
        return {}
    if not files.is_as_written(content):
        raise UnreadableError(
            f"{path} is not as it was written (its SHA-256 is another): put back what was, or, if you have edited it, take its "
            "sha256 away."
        )
    if content.get("format") != FORMAT:
        raise UnreadableError(f"{path} has format {content.get('format')!r}, but this version reads {FORMAT}.")
    try:
        return parse(content.get("tasks"), str(path))
    except ConfigError as error:
        raise UnreadableError(str(error)) from None


def store(folder: Path, new: Mapping[str, Reference]) -> Path:
    """Add references to those of a folder; what a new one does not say stays as it was."""
    known = read(folder)
    for task, reference in new.items():
        said = {name: value for name, value in dataclasses.asdict(reference).items() if value is not None}
        known[task] = dataclasses.replace(known.get(task, Reference()), **said)
    tasks = {task: {k: v for k, v in dataclasses.asdict(each).items() if v is not None} for task, each in known.items()}
    files.make_folder(folder)
    files.write_atomic(folder / FILE, files.sealed({"format": FORMAT, "tasks": tasks}))
    return folder / FILE


def above(runs: Iterable[tuple[Path, str]], note: Note) -> dict[str, Reference]:
    """For the tasks of runs, given by folder and task, the references nearest above them; a damaged file is noted once."""
    seen: dict[Path, dict[str, Reference]] = {}
    found: dict[str, Reference] = {}
    for path, task in runs:
        for folder in path.parents[:LEVELS]:
            if folder not in seen:
                seen[folder] = {}
                if os.path.lexists(folder / FILE):
                    try:
                        seen[folder] = read(folder)
                    except BeelineError as error:
                        note(Damage(folder, f"{error} Its scores are not used."))
            if task in seen[folder]:
                found.setdefault(task, seen[folder][task])
                break
    return found


def measure(task: str, episodes: int, seed: int = 0, repeat: int = 1) -> tuple[float, float]:
    """Mean and standard error of the return of uniformly random actions."""
    import numpy as np

    from beeline.envs import registry
    from beeline.evaluate import evaluate
    from beeline.rng import stream

    env = registry.make(task, repeat=repeat)
    try:
        draw = stream(seed, "random policy")
        size = env.action_space.shape or (1,)
        result = evaluate(lambda obs: draw.uniform(-1, 1, size).astype(np.float32), env, seed=seed, episodes=episodes)
    finally:
        env.close()
    return result.mean, float(np.std(result.returns, ddof=1) / np.sqrt(episodes)) if episodes > 1 else math.nan
