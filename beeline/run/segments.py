"""The rows of a replay ring on disk: each closed row is written once, in the segment of the save that found it new."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beeline import files, npz
from beeline.errors import CheckpointError, UnreadableError
from beeline.imagined import Imagined
from beeline.memory import Replay

SEGMENT_BYTES = 64 << 20  # a longer stretch of rows becomes several segments, which bounds the memory of a save
_NAME = re.compile(r"segment-(\d{12})\.npz")


@dataclass(frozen=True)
class Segment:
    """One file of rows: for every lane the numbers [start, stop) of its rows, lanes one after the other."""

    name: str
    sha256: str
    size: int
    lanes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Ring:
    """What a manifest says of a replay: geometry, counters, and the segments that hold its rows."""

    capacity: int
    obs_dim: int
    action_dim: int
    lanes: int
    rows: tuple[int, ...]
    episode_start: tuple[int, ...]
    open: tuple[bool, ...]
    segments: tuple[Segment, ...]
    columns: dict[str, tuple[int, ...]] = field(default_factory=dict)  # beside the four of every transition
    imagined: bool = False  # whether only the newest checkpoint keeps its rows

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Ring:
        """Check every value of a manifest's ring; whatever is not as `to_json` writes it is a CheckpointError."""
        try:
            ring = cls(
                **{name: _count(value[name]) for name in ("capacity", "obs_dim", "action_dim", "lanes")},
                rows=tuple(map(_count, value["rows"])),
                episode_start=tuple(map(_count, value["episode_start"])),
                open=tuple(flag is True for flag in value["open"]),
                segments=tuple(_segment(entry) for entry in value["segments"]),
                columns={str(name): tuple(map(_count, shape)) for name, shape in value.get("columns", {}).items()},
                imagined=value.get("imagined", False) is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the manifest's replay is malformed: {error}") from error
        per_lane = (ring.rows, ring.episode_start, ring.open, *(segment.lanes for segment in ring.segments))
        if any(len(values) != ring.lanes for values in per_lane):
            raise CheckpointError("the manifest's replay is malformed: its lists do not have one entry per lane")
        return ring


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _segment(entry: Any) -> Segment:
    """Check a segment's entry; only names of our own making are accepted, so none can lead out of the folder."""
    if type(entry["name"]) is not str or not _NAME.fullmatch(entry["name"]):
        raise ValueError(f"{entry['name']!r} is not a segment's name")
    lanes = tuple((_count(start), _count(stop)) for start, stop in entry["lanes"])
    if any(start > stop for start, stop in lanes):
        raise ValueError(f"{entry['name']} has rows that end before they begin")
    return Segment(entry["name"], str(entry["sha256"]), _count(entry["size"]), lanes)


def is_segment(path: Path) -> bool:
    """Return whether this file bears a segment's name."""
    return _NAME.fullmatch(path.name) is not None


def intact_sizes(folder: Path, segments: tuple[Segment, ...]) -> bool:
    """Return whether all these segments are still there at their sizes: a cheap look, not a verification."""
    try:
        return all((folder / segment.name).stat().st_size == segment.size for segment in segments)
    except OSError:
        return False


def write_ring(folder: Path, replay: Replay, base: Ring | None, taken: set[str]) -> Ring:
    """Write the rows closed since `base` was saved (all rows if None); `taken` are names that must not be used."""
    lanes = range(replay.lanes)
    oldest = [replay.oldest(lane) for lane in lanes]
    rows = tuple(replay.rows(lane) for lane in lanes)
    done = base.rows if base else (0,) * replay.lanes
    kept = [
        segment
        for segment in (base.segments if base else ())
        if any(stop > low for (_, stop), low in zip(segment.lanes, oldest))
    ]
    numbers = [int(match[1]) for match in map(_NAME.fullmatch, taken) if match]
    row_bytes = 4 * (replay.obs_dim + replay.action_dim + 1 + sum(map(math.prod, replay.extra_columns.values()))) + 1
    new = [(max(first, low), last) for first, low, last in zip(done, oldest, rows)]
    packs = _packs(new, max(1, SEGMENT_BYTES // row_bytes))
    for number, ranges in enumerate(packs, start=max(numbers, default=-1) + 1):
        name = f"segment-{number:012d}.npz"
        parts = [replay.export(lane, *ranges[lane]) for lane in lanes]
        columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
        written = npz.write(folder / name, columns)
        kept.append(Segment(name, written.sha256, written.size, ranges))
    files.sync_folder(folder)
    return Ring(
        capacity=replay.capacity,
        obs_dim=replay.obs_dim,
        action_dim=replay.action_dim,
        lanes=replay.lanes,
        rows=rows,
        episode_start=tuple(replay.episode_start(lane) for lane in lanes),
        open=tuple(replay.is_open(lane) for lane in lanes),
        segments=tuple(kept),
        columns=replay.extra_columns,
        imagined=not replay.collected,
    )


def _packs(ranges: list[tuple[int, int]], limit: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Split the lanes' ranges of rows into packs of at most `limit` rows, each lane's in order."""
    at = [start for start, _ in ranges]
    while any(start < stop for start, (_, stop) in zip(at, ranges)):
        room, pack = limit, []
        for lane, (_, stop) in enumerate(ranges):
            count = min(room, stop - at[lane])
            pack.append((at[lane], at[lane] + count))
            at[lane] += count
            room -= count
        yield tuple(pack)


def open_observations(replay: Replay) -> NDArray[np.float32]:
    """Return the open rows' observations [lanes, obs_dim], zeros where no episode is open."""
    rows = np.zeros((replay.lanes, replay.obs_dim), np.float32)
    for lane in range(replay.lanes):
        if replay.is_open(lane):
            rows[lane] = replay.open_observation(lane)
    return rows


def read_verified(path: Path, sha256: str, size: int) -> bytes:
    """Read a file and check that it is what was written."""
    try:
        data = files.read_regular(path, max(size, files.READ_LIMIT))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.name} cannot be read: {error.strerror}") from error
    except UnreadableError as error:
        raise CheckpointError(str(error)) from error
    if len(data) != size:
        raise CheckpointError(f"{path.name} has {len(data)} bytes instead of {size}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(f"{path.name} has another SHA-256 than when it was written")
    return data


def read_ring(folder: Path, ring: Ring, opened: NDArray | None) -> Replay:
    """Make the replay again, verifying every segment as it is read, one at a time."""
    try:
        replay = empty(ring)
    except (ValueError, MemoryError) as error:
        raise CheckpointError(f"the replay cannot be made: {error}") from error
    if opened is None or opened.shape != (ring.lanes, ring.obs_dim):
        raise CheckpointError("the open rows are missing")
    size = replay.rows_per_lane
    reached = [max(0, rows + is_open - size) for rows, is_open in zip(ring.rows, ring.open)]
    if ring.imagined:
        reached = [max(*pair) for pair in zip(reached, ring.episode_start)]
    for segment in ring.segments:
        columns = _columns(read_verified(folder / segment.name, segment.sha256, segment.size), segment, ring)
        offset = 0
        for lane, (start, stop) in enumerate(segment.lanes):
            if start <= reached[lane] < stop <= ring.rows[lane]:
                rows = slice(offset + reached[lane] - start, offset + stop - start)
                replay.restore_rows(lane, reached[lane], {name: column[rows] for name, column in columns.items()})
                reached[lane] = stop
            offset += stop - start
    for lane in range(ring.lanes):
        if reached[lane] != ring.rows[lane]:
            raise CheckpointError(f"no segment has rows {reached[lane]} and up of lane {lane}")
        replay.restore_lane(lane, ring.rows[lane], ring.episode_start[lane], opened[lane] if ring.open[lane] else None)
    return replay


def empty(ring: Ring) -> Replay:
    """A replay of this geometry without rows."""
    if ring.imagined:
        if ring.lanes != 1 or ring.columns != {"next_obs": (ring.obs_dim,)}:
            raise CheckpointError("the manifest's memory of imagined rows is malformed")
        return Imagined(ring.capacity, ring.obs_dim, ring.action_dim)
    return Replay(ring.capacity, ring.obs_dim, ring.action_dim, ring.lanes, ring.columns)


def _columns(data: bytes, segment: Segment, ring: Ring) -> Mapping[str, NDArray]:
    """Read a segment's columns and check their shapes and types."""
    try:
        columns = npz.read(data)
    except ValueError as error:
        raise CheckpointError(f"{segment.name}: {error}") from error
    rows = sum(stop - start for start, stop in segment.lanes)
    expected = {
        "obs": ((rows, ring.obs_dim), np.float32),
        "action": ((rows, ring.action_dim), np.float32),
        "reward": ((rows,), np.float32),
        "flags": ((rows,), np.uint8),
        **{name: ((rows, *shape), np.float32) for name, shape in ring.columns.items()},
    }
    found = {name: (column.shape, column.dtype) for name, column in columns.items()}
    if found != expected:
        raise CheckpointError(f"{segment.name} does not hold the rows that the manifest says")
    return columns
