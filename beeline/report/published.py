"""Published learning curves that ship with the package (data/CURVES.md: origins, licences, cautions)."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline.errors import UnknownNameError
from beeline.report.normalise import bare_name, parts, whole

SUITES = {
    "dmc": "dmcontrol",
    "gym": "gym",
    "metaworld": "metaworld",
    "myosuite": "myosuite",
    "mbpo": "mujoco-mb",
    "humanoidbench": "humanoidbench",
}

# MyoSuite's tasks go by three spellings; `hard` means that the target is redrawn at each reset.
MYO = {"reach": "Reach", "pose": "Pose", "key-turn": "KeyTurn", "obj-hold": "ObjHold", "pen-twirl": "PenTwirl"}


@dataclasses.dataclass(frozen=True)
class Source:
    """Where curves come from."""

    name: str
    origin: str
    licence: str
    note: str


SOURCES = {
    source.name: source
    for source in (
        Source("tdmpc2", "nicklashansen/tdmpc2 @ e9f5932", "MIT", ""),
        Source("simba", "SonyResearch/simba @ 7d0358b", "Apache-2.0", ""),
        Source("simbav2", "DAVIAN-Robotics/SimbaV2 @ 86899c2", "Apache-2.0", ""),
        Source("xqc", "danielpalenicek/xqc @ 9a6832b", "MIT", ""),
        Source("flashsac", "Holiday-Robot/FlashSAC @ 87edc90", "MIT", ""),
        Source("td3_fujimoto", "sfujim/TD3 @ 34770cc", "MIT", "400-300 networks, learning rate 1e-3, batch 100"),
        Source("bee_figures", "project page of the BEE paper, jity16/BEE @ 95fbfd2", "numbers only",
               "read off figures, error about 1 % of the axis"),
        Source("obac_figures", "project page of OBAC, Roythuly/OBAC_web @ 0f3bec1", "numbers only", "read off figures"),
    )
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """A published mean over seeds; `low` and `high` are its smallest and largest seed, where seeds were published."""

    source: str
    algo: str
    metric: str
    steps: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    seeds: int | None
    repeat: int | None
    version: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """`source/algorithm`, as overlays are chosen."""
        return f"{self.source}/{self.algo}"


@functools.cache
def _store() -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    path = resources.files("beeline.report") / "data" / "curves.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    index = json.loads(arrays.pop("index").tobytes())
    arrays["step"] = np.cumsum(arrays["step"], dtype=np.int64)
    curves = [dict(zip(index["keys"], row)) for row in index["curves"]]
    for curve, following in zip(curves, [*curves[1:], {"offset": arrays["step"].size}]):
        curve["end"] = following["offset"]
        curve["task"] = _their_name(curve["suite"], curve["task"])
    return curves, arrays


def _their_name(suite: str, task: str) -> str:
    """One spelling for the names that differ between sources."""
    if suite == "myosuite" and not task.startswith("myoHand"):
        words = task.replace("_", "-").removeprefix("myo-").removeprefix("hand-")
        bare = words.removesuffix("-hard")
        return f"myoHand{MYO[bare]}{'Random' if words != bare else 'Fixed'}"
    if suite == "humanoidbench":
        return task.replace("_", "-").removesuffix("-v0")
    return task


def _our_name(task: str) -> tuple[str, str, str]:
    """Their suite and task for one of our ids, and our environment version."""
    suite, name, _ = parts(task)
    base, version = bare_name(name) if suite != "dmc" else (name, "")
    if suite == "metaworld":
        version = version or "3"
    if suite == "mbpo":
        base = next((known for known in ("Humanoid", "Hopper", "Walker2d", "Ant") if base.startswith(known)), base)
    if suite == "humanoidbench":
        base = base.replace("_", "-")
    return SUITES.get(suite, ""), base, version


def _notes(entry: dict[str, Any], task: str, version: str, repeat: int | None) -> tuple[str, ...]:
    """What differs between the published runs and ours, in words."""
    found = []
    theirs = entry["action_repeat"]
    options = parts(task)[2]
    ours = whole(options.get("repeat", "")) or repeat
    if theirs == 0:
        found.append("action repeat not stated")
    elif ours is not None and theirs != ours:
        found.append(f"action repeat {theirs}, these runs {ours}")
    elif ours is None:
        found.append(f"action repeat {theirs}")
    if entry["suite"] == "gym" and entry["version"] and version and entry["version"] != version:
        found.append(f"environment v{entry['version']}, these runs v{version}")
    if entry["suite"] == "metaworld":
        found.append(f"Meta-World v{entry['version']} with 200-step episodes, these runs v{version}")
    if entry["suite"] == "mujoco-mb":
        found.append(f"environment v{entry['version']}")
    changed = [f"{key}={value}" for key, value in sorted(options.items()) if key != "repeat"]
    if changed:
        found.append(f"published without {', '.join(changed)}")
    if SOURCES[entry["source"]].note:
        found.append(SOURCES[entry["source"]].note)
    return tuple(found)


def _mean(entry: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> tuple[Any, Any, Any, Any, int | None]:
    """Mean, smallest and largest over seeds at the steps that at least half of the seeds report."""
    rows = slice(entry["offset"], entry["end"])
    steps, place, counts = np.unique(arrays["step"][rows], return_inverse=True, return_counts=True)
    values = arrays["value"][rows].astype(float)
    mean = np.bincount(place, values) / counts
    low, high = np.full(steps.size, np.inf), np.full(steps.size, -np.inf)
    np.minimum.at(low, place, values)
    np.maximum.at(high, place, values)
    keep = 2 * counts >= counts.max()
    if arrays["seed"][rows][0] < 0:
        return steps[keep], mean[keep], None, None, None
    return steps[keep], mean[keep], low[keep], high[keep], int(counts.max())


def curves(
    task_id: str,
    sources: Iterable[str] | None = None,
    algos: Iterable[str] | None = None,
    *,
    metric: str | None = None,
    repeat: int | None = None,
) -> list[Curve]:
    """Published curves of one of our tasks, for all or some sources and algorithms; an uncovered task has none.

    `repeat` is the action repeat of the runs they are laid over: notes then speak of differences only.
    """
    wanted_sources = None if sources is None else set(sources)
    wanted_algos = None if algos is None else set(algos)
    for name in wanted_sources or ():
        if name not in SOURCES:
            raise UnknownNameError("source of published curves", name, SOURCES, f"Sources are {', '.join(SOURCES)}.")
    for name in wanted_algos or ():
        if name not in algorithms():
            raise UnknownNameError("published algorithm", name, algorithms())
    suite, task, version = _our_name(task_id)
    entries, arrays = _store()
    found = []
    for entry in entries:
        if (entry["suite"], entry["task"]) != (suite, task) or (metric and entry["metric"] != metric):
            continue
        if wanted_sources is not None and entry["source"] not in wanted_sources:
            continue
        if wanted_algos is not None and entry["algo"] not in wanted_algos:
            continue
        steps, mean, low, high, seeds = _mean(entry, arrays)
        found.append(
            Curve(entry["source"], entry["algo"], entry["metric"], steps, mean, low, high, seeds,
                  entry["action_repeat"] or None, entry["version"], _notes(entry, task_id, version, repeat))
        )
    return found


@functools.cache
def algorithms() -> tuple[str, ...]:
    """Every algorithm that some source covers."""
    return tuple(sorted({entry["algo"] for entry in _store()[0]}))


def choose(names: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Read overlay choices: `source`, `source/algo` or `algo`; an unknown name is an error with the nearest ones."""
    chosen: list[tuple[str | None, str | None]] = []
    for name in names:
        source, slash, algo = name.partition("/")
        if slash and source in SOURCES and algo in algorithms():
            chosen.append((source, algo))
        elif not slash and name in SOURCES:
            chosen.append((name, None))
        elif not slash and name in algorithms():
            chosen.append((None, name))
        else:
            known = [*SOURCES, *algorithms(), *sorted({f"{e['source']}/{e['algo']}" for e in _store()[0]})]
            raise UnknownNameError("published curve", name, known, "Write a source, an algorithm, or source/algorithm.")
    return chosen


def matches(curve: Curve, chosen: Sequence[tuple[str | None, str | None]]) -> bool:
    """Whether one of the choices names this curve (`simba` and `simba/sac` are sources before they are algorithms)."""
    return any(source in (None, curve.source) and algo in (None, curve.algo) for source, algo in chosen)
