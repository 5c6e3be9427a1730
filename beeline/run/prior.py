"""Data of others to learn from: read, checked, turned into rows of a ring, and kept beside the run as a copy.

Three sources are understood: a run folder of Beeline (the replay of its newest checkpoint), an `.npz` of arrays, and a Minari
data set on disk. What is read is data and nothing else: no pickle, no download, and no module that a file names is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beeline import files, npz, runtime
from beeline.envs.adapter import key_order
from beeline.errors import BeelineError, CheckpointError, ConfigError, MissingExtraError
from beeline.memory import TERMINATED, TRANSITION, TRUNCATED, Replay
from beeline.options import TrainConfig, loading
from beeline.run.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from beeline.agents.base import Spaces
    from beeline.run.plan import Plan

COPIES = {"prior": "prior.npz", "load_prior": "load-prior.npz"}  # by option: the copy in the run folder
TOLERANCE = 1e-4  # how far an action may lie out of its bounds, in halves of their width: what rounding does, and no more
_LIMIT = 1 << 36  # bytes of the largest file that is read
_NUMBERS = ("observations", "actions", "rewards")
_MARKS = ("terminations", "truncations")


@dataclasses.dataclass(frozen=True)
class Prior:
    """Rows as a ring holds them (see memory.py): every path ends with a row of its final observation."""

    rows: Mapping[str, NDArray]
    whole: bool = True  # whether paths are episodes; else every transition is a path of its own

    def __len__(self) -> int:
        """How many transitions there are."""
        return int(np.count_nonzero(self.rows["flags"] & TRANSITION))

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the copy that a run folder keeps."""
        return npz.sha256(self.rows)

    def memory(self) -> Replay:
        """A ring that holds these rows and never more."""
        count = len(self.rows["flags"])
        ring = Replay(count, self.rows["obs"].shape[1], self.rows["action"].shape[1])
        ring.extend(0, self.rows)
        return ring

    def split(self, lanes: int) -> list[dict[str, NDArray]]:
        """The rows of each lane: path j goes to lane j mod `lanes`."""
        final = (self.rows["flags"] & TRANSITION) == 0
        lane = (np.cumsum(final) - final) % lanes
        return [{name: column[lane == number] for name, column in self.rows.items()} for number in range(lanes)]


# --- for a run --------------------------------------------------------------------------------------------------------


def sources(config: TrainConfig) -> dict[str, str]:
    """The data that a run's options name, by option."""
    load = loading(config.load_prior)
    named = {"prior": config.prior, "load_prior": load.path if load else None}
    return {option: path for option, path in named.items() if path is not None}


def gather(plan: Plan, spaces: Spaces, folder: Path | None = None) -> dict[str, Prior]:
    """The data of a plan, by option: from the copies in its folder, or from where the user has them.

    A run that goes on takes its copy, or the source if that is still what the run began with; whatever else is there is refused.
    """
    found = {}
    for option, path in sources(plan.train).items():
        copy = folder / COPIES[option] if folder else None
        if copy is not None and os.path.lexists(copy):
            found[option] = _read_copy(copy, plan.data.get(option), spaces)
            continue
        found[option] = read(option, Path(path), spaces)
        if not found[option].whole and plan.agent.needs_episodes:
            raise ConfigError(
                f"{option} = {path}: its rows are single transitions (next_observations), but {plan.agent.needs_episodes}. "
                "Give whole episodes: observations with each episode's final one, and no next_observations."
            )
        if copy is not None and found[option].sha256 != plan.data.get(option):
            raise CheckpointError(f"{copy} is gone, and {path} is not what this run began with: put the copy back.")
    return found


def keep(folder: Path, found: Mapping[str, Prior]) -> None:
    """Write the copies that a folder does not have yet."""
    for option, prior in found.items():
        path = folder / COPIES[option]
        if not path.exists() or hashlib.sha256(files.read_regular(path, _LIMIT)).hexdigest() != prior.sha256:
            temporary = path.with_name(f".{path.name}.tmp")
            npz.write(temporary, prior.rows)
            files.rename(temporary, path)


def _read_copy(path: Path, sha256: str | None, spaces: Spaces) -> Prior:
    data = files.read_regular(path, _LIMIT)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(
            f"{path} is not what this run began with (config.json has another SHA-256): put the run's own copy back."
        )
    try:
        rows = npz.read(data)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    count = len(rows["flags"]) if "flags" in rows and rows["flags"].ndim else 0
    expected = {
        "obs": ((count, spaces.obs_dim), np.float32),
        "action": ((count, spaces.action_dim), np.float32),
        "reward": ((count,), np.float32),
        "flags": ((count,), np.uint8),
    }
    final = bool(count) and not rows["flags"][-1] & TRANSITION
    if not final or {name: (column.shape, column.dtype) for name, column in rows.items()} != expected:
        raise CheckpointError(f"{path} does not hold rows of this run's environment.")
    return Prior(rows)


# --- sources ----------------------------------------------------------------------------------------------------------


def read(option: str, path: Path, spaces: Spaces) -> Prior:
    """The data at `path`, whatever they are, held against the sizes and bounds of the environment."""
    try:
        if not os.path.exists(path):  # noqa: PTH110 (pathlib's own raises for names that are too long)
            raise ValueError("there is nothing at this path")
        if not path.is_dir():
            return _from_npz(path, spaces)
        if (path / "config.json").is_file():
            return _from_run(path, spaces)
        for folder in (path / "data", path):
            if (folder / "metadata.json").is_file():
                return _from_minari(folder, spaces)
        raise ValueError("this folder is neither a run (config.json) nor a Minari data set (data/metadata.json)")
    except MissingExtraError:
        raise
    except (ValueError, BeelineError) as error:
        raise ConfigError(f"{option} = {path}: {str(error).rstrip('.')}.") from error


def _from_npz(path: Path, spaces: Spaces) -> Prior:
    return make(npz.read(files.read_regular(Path(os.path.realpath(path)), _limit())), spaces)


def _limit() -> int:
    """Bytes of the largest file that fits into memory beside the arrays that are made of it."""
    free = runtime.free_memory()
    return _LIMIT if free is None else min(_LIMIT, free // 2)


def _from_run(path: Path, spaces: Spaces) -> Prior:
    """The replay of the newest intact checkpoint, lane after lane; an episode that is open there ends as if truncated."""
    checkpoint = CheckpointStore(path).load(warnings.warn)
    own, theirs = json.loads(json.dumps(dataclasses.asdict(spaces))), checkpoint.meta.get("spaces")
    if theirs != own:
        raise ValueError(f"the environment of that run has other sizes or bounds ({theirs}) than this one ({own})")
    prior = Prior(rows_of(checkpoint.restore_replay()))
    if not len(prior):
        raise ValueError(f"the replay of its checkpoint of step {checkpoint.step} is empty")
    return prior


def rows_of(ring: Replay) -> dict[str, NDArray]:
    """The rows of a ring, lane after lane; every path ends with a row of its final observation."""
    parts = [_lane(ring, lane) for lane in range(ring.lanes)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _lane(ring: Replay, lane: int) -> dict[str, NDArray]:
    rows = ring.export(lane, ring.oldest(lane), ring.rows(lane))
    rows = {name: rows[name] for name in ("obs", "action", "reward", "flags")}
    if ring.is_open(lane) and len(rows["flags"]) and rows["flags"][-1] & TRANSITION:
        final = {name: np.zeros_like(column[:1]) for name, column in rows.items()} | {"obs": ring.open_observation(lane)[None]}
        rows = {name: np.concatenate([column, final[name]]) for name, column in rows.items()}
    return rows


def _from_minari(folder: Path, spaces: Spaces) -> Prior:
    """All episodes of a Minari data set, read by Minari itself, but for what would make an environment that a file names."""
    metadata = files.load_json(folder / "metadata.json")
    if not all(isinstance(metadata.get(name), str) for name in ("observation_space", "action_space")):
        raise ValueError("its metadata.json does not say its spaces: write the data set again with a newer Minari")
    try:
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise MissingExtraError("reading a Minari data set", "offline", str(error)) from None
    try:
        storage = MinariStorage.read(folder)
        episodes = [_episode(each) for each in storage.get_episodes(range(int(storage.total_episodes)))]
    except ImportError as error:
        raise MissingExtraError("reading this Minari data set", "offline", str(error)) from None
    except Exception as error:  # whatever a damaged file makes its reader do
        raise ValueError(f"Minari cannot read it ({type(error).__name__}: {error})") from error
    if not episodes:
        raise ValueError("it has no episodes")
    try:
        return make({name: np.concatenate([each[name] for each in episodes]) for name in episodes[0]}, spaces)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _episode(found: Mapping[str, Any]) -> dict[str, NDArray]:
    """The arrays of an episode; observations by name are laid side by side as environments of Beeline do it."""
    obs = found["observations"]
    if isinstance(obs, Mapping):
        obs = np.concatenate([np.asarray(obs[key]) for key in key_order(obs)], axis=1)
    episode = {name: np.asarray(found[name]) for name in ("actions", "rewards", *_MARKS)} | {"observations": np.asarray(obs)}
    if len(episode["truncations"]) and not (episode["terminations"][-1] or episode["truncations"][-1]):
        episode["truncations"] = np.append(episode["truncations"][:-1], True)  # recording stopped here
    return episode


# --- from arrays to rows ----------------------------------------------------------------------------------------------


def make(arrays: Mapping[str, NDArray], spaces: Spaces) -> Prior:
    """Rows from arrays, in one of two forms; ValueError says what is wrong.

    Whole episodes: `observations` has each episode's final one too, L + 1 for L steps, and the last episode ends. With
    `next_observations`: every row is a transition by itself.
    """
    missing = [name for name in (*_NUMBERS, *_MARKS) if name not in arrays]
    if missing:
        raise ValueError(f"it has no array {' and no '.join(missing)} (it has: {', '.join(sorted(arrays)) or 'none'})")
    single = "next_observations" in arrays
    count = len(arrays["actions"]) if arrays["actions"].ndim else 0
    if not count:
        raise ValueError("it has no actions: it is empty")
    marks = {name: _mark(name, arrays[name], count) for name in _MARKS}
    ends = marks["terminations"] | marks["truncations"]
    if not single and not ends[-1]:
        raise ValueError("its last episode does not end: mark its last step in truncations, or give next_observations")
    paths = 0 if single else int(np.count_nonzero(ends))
    hint = "" if single else f" ({count} steps and the final observations of {paths} episodes; or give next_observations)"
    obs = _numbers("observations", arrays["observations"], (count + paths, spaces.obs_dim), hint)
    action = _unit(_numbers("actions", arrays["actions"], (count, spaces.action_dim)), spaces)
    reward = _numbers("rewards", arrays["rewards"], (count,))
    if single:
        after = _numbers("next_observations", arrays["next_observations"], (count, spaces.obs_dim))
        obs = np.stack([obs, after], axis=1).reshape(2 * count, spaces.obs_dim)
        place = 2 * np.arange(count)
    else:
        place = np.arange(count) + np.cumsum(ends) - ends
    flags = TRANSITION | TERMINATED * marks["terminations"] | TRUNCATED * marks["truncations"]
    rows = {
        "obs": obs.astype(np.float32),
        "action": _put(place, action, len(obs), np.float32),
        "reward": _put(place, reward, len(obs), np.float32),
        "flags": _put(place, flags, len(obs), np.uint8),
    }
    return Prior(rows, whole=not single)


def _put(place: NDArray, values: NDArray, rows: int, dtype: Any) -> NDArray:
    """Values at their places, zeros elsewhere."""
    column = np.zeros((rows, *values.shape[1:]), dtype)
    column[place] = values
    return column


def _mark(name: str, array: NDArray, count: int) -> NDArray[np.bool_]:
    if array.shape != (count,):
        raise ValueError(f"{name} has the shape {_shape(array)} where {[count]} is needed: one for each action")
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} is {array.dtype}: only true and false, or 0 and 1 as whole numbers, are read")
    return array.astype(bool)


def _numbers(name: str, array: NDArray, shape: tuple[int, ...], hint: str = "") -> NDArray[np.float64]:
    """An array of that shape whose numbers are finite in single precision, which is how they are stored."""
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} is {array.dtype} where numbers are needed")
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {_shape(array)} where {list(shape)} is needed{hint}")
    with np.errstate(over="ignore"):
        bad = np.argwhere(~np.isfinite(array.astype(np.float32)))
    if len(bad):
        where = ", ".join(map(str, bad[0]))
        raise ValueError(f"{name}[{where}] is {array[tuple(bad[0])]}: {len(bad)} of its numbers are not finite")
    return array.astype(np.float64)


def _unit(action: NDArray[np.float64], spaces: Spaces) -> NDArray[np.float64]:
    """Actions in [-1, 1] from the environment's own units; what rounding put beyond the bounds is put back."""
    low, high = np.array(spaces.action_low), np.array(spaces.action_high)
    unit = (action - (high / 2 + low / 2)) / (high / 2 - low / 2)
    bad = np.argwhere(np.abs(unit) > 1 + TOLERANCE)
    if len(bad):
        row, column = map(int, bad[0])
        raise ValueError(
            f"actions[{row}, {column}] is {action[row, column]:g}, out of the environment's bounds [{low[column]:g}, "
            f"{high[column]:g}]; {len(bad)} of {action.size} are. Give actions in the environment's own units, within them"
        )
    return np.clip(unit, -1.0, 1.0)


def _shape(array: NDArray) -> list[int]:
    return list(array.shape)


def rows_by_lane(prior: Prior, replay: Replay, option: str = "load_prior") -> list[dict[str, NDArray]]:
    """The rows that each lane of a replay takes, if they fit."""
    rows = prior.split(replay.lanes)
    most = max(len(each["flags"]) for each in rows)
    if most >= replay.rows_per_lane:
        raise ConfigError(
            f"{option} brings {len(prior.rows['flags']):,} rows, up to {most:,} for each of {replay.lanes} environments, but "
            f"replay_capacity = {replay.capacity} leaves {replay.rows_per_lane:,} for each: give >= {replay.lanes * (most + 1)}."
        )
    return rows

