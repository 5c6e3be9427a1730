"""Checkpoints of a run: atomic, verified by SHA-256, without pickle, at the cost of what is new since the last one.

    checkpoints/step-000000010000/{manifest.json, state.npz}      replay/segment-000000000007.npz

A checkpoint comes into being by one rename, after everything it names is durable. Segments of replay rows are shared
between checkpoints; a name in use is never written again. Whatever a killed save left is swept by the next one.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beeline import files, npz
from beeline.errors import BeelineError, CheckpointError, UnreadableError
from beeline.memory import Replay
from beeline.run import former, segments

FORMAT = 2
_MANIFEST = "manifest.json"
_FOLDER = re.compile(r"step-(\d{12,18})")
_STATE = re.compile(r"state(-\d{1,12})?\.npz")
_PREFIX, _OPEN = "state/", "memory/{}/open"  # member names in state.npz


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and found intact."""

    step: int
    arrays: dict[str, NDArray]
    meta: dict[str, Any]
    _memories: dict[str, Replay] = field(default_factory=dict, repr=False)

    def memories(self) -> dict[str, Replay]:
        """Return the memories as they were at this step; they go on with the same bytes as those that were saved."""
        if not self._memories:
            raise CheckpointError(f"the checkpoint of step {self.step} was saved or loaded without a replay")
        return dict(self._memories)

    def restore_replay(self) -> Replay:
        """Return the memory that the environments fill."""
        return self.memories()["replay"]


class _Manifest(NamedTuple):
    step: int
    state: str
    sha256: str
    size: int
    rings: dict[str, segments.Ring]
    meta: dict[str, Any]
    format: int


class CheckpointStore:
    """The checkpoints of one run folder; the caller holds the folder's lock. The newest `keep` are kept."""

    def __init__(self, root: Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.root, self.keep = Path(root), keep
        self._checkpoints = self.root / "checkpoints"
        self._replay_folder = self.root / "replay"
        # By memory: the object whose rows up to the ring's are in segments already; any other one is written whole.
        self._bases: dict[str, tuple[segments.Ring, Callable[[], Replay | None]]] = {}

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, damaged or not, in rising order."""
        if not self._checkpoints.is_dir():
            return []
        return sorted(int(match[1]) for path in self._checkpoints.iterdir() if (match := _FOLDER.fullmatch(path.name)))

    def folder(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        return self._checkpoints / f"step-{step:012d}"

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(
        self, step: int, arrays: Mapping[str, NDArray], meta: Mapping[str, Any], memories: Mapping[str, Replay] | None = None
    ) -> Path:
        """Save everything at `step`, durably; of each memory only the rows closed since the last save are written.

        If this fails, the checkpoints from before stay as they are. Checkpoints of later steps belong to a course
        that was given up when an earlier one was resumed, and go.
        """
        plain = json.loads(json.dumps(dict(meta)))  # refuses what is not JSON before anything is written
        try:
            files.own_folder(self._checkpoints)
            files.own_folder(self._replay_folder)
            self._sweep()
            rings: dict[str, segments.Ring] = {}
            members = {_PREFIX + name: np.asarray(array) for name, array in arrays.items()}
            for name, memory in (memories or {}).items():
                rings[name] = self._write_rows(name, memory, rings)
                members[_OPEN.format(name)] = segments.open_observations(memory)
            self._commit(step, members, plain, rings)
        except BaseException:
            with suppress(OSError, BeelineError):
                self._sweep()
            raise
        self._bases |= {name: (rings[name], weakref.ref(memory)) for name, memory in (memories or {}).items()}
        self._prune(step)
        return self.folder(step)

    def _write_rows(self, name: str, memory: Replay, before: Mapping[str, segments.Ring]) -> segments.Ring:
        base, of = self._bases.get(name, (None, lambda: None))
        base = base if of() is memory else None
        if base is not None and not segments.intact_sizes(self._replay_folder, base.segments):
            base = None
        # A name that some manifest knows stays taken even where its file is gone: it must not come to mean other rows.
        taken = {path.name for path in self._replay_folder.iterdir()} | self._referenced(self._manifests())
        taken |= {segment.name for ring in before.values() for segment in ring.segments}
        return segments.write_ring(self._replay_folder, memory, base, taken)

    def _commit(
        self, step: int, members: Mapping[str, NDArray], meta: dict[str, Any], rings: Mapping[str, segments.Ring]
    ) -> None:
        """Write state and manifest; the last rename makes them the checkpoint of this step."""
        final = self.folder(step)
        replaces = final.is_dir()
        folder = final if replaces else self._checkpoints / f".tmp-{final.name}"
        files.make_folder(folder)
        # A folder cannot replace a folder in one rename, but a manifest can replace a manifest.
        name = _unused_state_name(folder) if replaces else "state.npz"
        written = npz.write(folder / name, members)
        content = {
            "format": FORMAT,
            "step": step,
            "state": {"name": name, "sha256": written.sha256, "size": written.size},
            "memories": {name: ring.to_json() for name, ring in rings.items()},
            "meta": meta,
        }
        manifest = _render(content)
        if replaces:
            files.sync_folder(folder)
            files.write_atomic(folder / _MANIFEST, manifest)
        else:
            files.write_durable(folder / _MANIFEST, manifest)
            files.sync_folder(folder)
            files.rename(folder, final)

    def _prune(self, step: int) -> None:
        """Remove all but the newest checkpoints, then the segments that none of those needs."""
        earlier = [other for other in self.steps() if other <= step]
        for other in set(self.steps()) - set(earlier[-self.keep :]):
            files.rename(self.folder(other), self._checkpoints / f".tmp-removed-{other:012d}")
        self._sweep()

    def _sweep(self) -> None:
        """Remove what no checkpoint names: temporary folders, unreferenced segments, replaced states."""
        if not self._checkpoints.is_dir():
            return
        for path in self._checkpoints.glob(".tmp-*"):
            files.remove(path)
        manifests = self._manifests()
        for manifest in manifests:
            for path in self.folder(manifest.step).iterdir():
                if path.name not in (_MANIFEST, manifest.state):
                    files.remove(path)
        if self._replay_folder.is_dir():
            needed = self._referenced(manifests)
            for path in self._replay_folder.iterdir():
                if segments.is_segment(path) and path.name not in needed:
                    files.remove(path)

    def _manifests(self) -> list[_Manifest]:
        """Return all manifests that can be read."""
        manifests = []
        for step in self.steps():
            with suppress(CheckpointError):
                manifests.append(self._read_manifest(step))
        return manifests

    def newest_meta(self) -> dict[str, Any]:
        """What the newest checkpoint whose manifest is intact says of itself; empty where there is none."""
        manifests = self._manifests()
        return manifests[-1].meta if manifests else {}

    def _referenced(self, manifests: list[_Manifest]) -> set[str]:
        """Return the names of all segments that one of these manifests needs, or that the next save builds on."""
        rings = [base for base, _ in self._bases.values()]
        rings += [
            ring for each in manifests for ring in each.rings.values() if not ring.imagined or each is manifests[-1]
        ]  # of what was imagined, only the newest checkpoint keeps the rows
        return {segment.name for ring in rings for segment in ring.segments}

    # --- loading -----------------------------------------------------------------------------------------------------

    def load(
        self,
        report: Callable[[str], None],
        step: int | None = None,
        *,
        with_replay: bool = True,
        usable: Callable[[Mapping[str, Any]], object] = lambda meta: None,
    ) -> Checkpoint:
        """Return the newest intact checkpoint (or that of `step`, and no other), every byte of it verified.

        Each damaged one is reported with what is wrong, then the one before it is tried; `usable` may say what is wrong with
        one from its description, by a CheckpointError.
        """
        for folder in (self._checkpoints, self._replay_folder):
            if folder.is_symlink():
                raise CheckpointError(f"{folder} is a link, and no folder of a run may be one: put the folder itself there.")
        candidates = self.steps()[::-1] if step is None else [step]
        if not candidates or (step is not None and step not in self.steps()):
            which = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise CheckpointError(f"{self.root} has {which}.")
        damage = []
        for candidate in candidates:
            try:
                return self._load(candidate, with_replay, usable, report)
            except CheckpointError as error:
                damage.append(f"step {candidate}: {str(error).rstrip('.')}")
                report(f"The checkpoint of step {candidate} is damaged: {str(error).rstrip('.')}.")
        raise CheckpointError(f"no checkpoint in {self._checkpoints} is intact: {'; '.join(damage)}.")

    def _load(
        self, step: int, with_replay: bool, usable: Callable[[Mapping[str, Any]], object], report: Callable[[str], None]
    ) -> Checkpoint:
        manifest = self._read_manifest(step)
        usable(manifest.meta)
        data = segments.read_verified(self.folder(step) / manifest.state, manifest.sha256, manifest.size)
        try:
            members = npz.read(data)
        except ValueError as error:
            raise CheckpointError(f"{manifest.state}: {error}") from error
        if manifest.format == 1:
            members = former.members(members)
        opened = {name: members.pop(_OPEN.format(name), None) for name in manifest.rings}
        if not all(name.startswith(_PREFIX) for name in members):
            raise CheckpointError(f"{manifest.state} has arrays of unknown names")
        arrays = {name.removeprefix(_PREFIX): array for name, array in members.items()}
        memories: dict[str, Replay] = {}
        for name, ring in manifest.rings.items() if with_replay else ():
            try:
                memories[name] = segments.read_ring(self._replay_folder, ring, opened[name])
            except CheckpointError as error:
                if not ring.imagined:
                    raise
                memories[name] = segments.empty(ring)
                report(
                    f"the imagined rows of the checkpoint of step {step} cannot be read ({error}), and only the newest one keeps "
                    "them: they are imagined again, so this run will differ from one never stopped."
                )
            else:
                self._bases[name] = ring, weakref.ref(memories[name])
        return Checkpoint(step, arrays, manifest.meta, memories)

    def _read_manifest(self, step: int) -> _Manifest:
        """Read and check a manifest: its own hash, its format, and that it names nothing outside its folders."""
        path = self.folder(step) / _MANIFEST
        if path.parent.is_symlink():
            raise CheckpointError(f"{path.parent.name} is a link")
        try:
            data = files.read_regular(path, files.JSON_LIMIT)
            content = json.loads(data)["content"]
            if _render(content) != data:
                raise CheckpointError(f"{_MANIFEST} does not match its own SHA-256")
            if content["format"] not in (1, FORMAT):
                raise CheckpointError(f"{_MANIFEST} has format {content['format']!r}; this version reads 1 and {FORMAT}")
            state, meta = content["state"], content["meta"]
            if content["step"] != step or type(meta) is not dict:
                raise CheckpointError(f"{_MANIFEST} is not that of step {step}")
            if type(state["name"]) is not str or not _STATE.fullmatch(state["name"]):
                raise CheckpointError(f"{_MANIFEST} names a state file {state['name']!r}")
            found = content["memories"] if content["format"] == FORMAT else former.memories(content)
            rings = {str(name): segments.Ring.from_json(ring) for name, ring in found.items()}
            return _Manifest(step, state["name"], state["sha256"], state["size"], rings, meta, content["format"])
        except OSError as error:
            raise CheckpointError(f"{_MANIFEST} cannot be read: {error.strerror}") from error
        except UnreadableError as error:
            raise CheckpointError(str(error)) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{_MANIFEST} is malformed: {error!r}") from error


def _render(content: Any) -> bytes:
    """Return a manifest's bytes: the content and the SHA-256 of its canonical form."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"content": content, "sha256": digest}, sort_keys=True, indent=1) + "\n").encode()


def _unused_state_name(folder: Path) -> str:
    number = 2
    while (folder / f"state-{number}.npz").exists():
        number += 1
    return f"state-{number}.npz"
