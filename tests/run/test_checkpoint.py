"""Checkpoints survive death and a full disk at every operation, notice every flipped byte, and cost what is new."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beeline import files
from beeline.errors import CheckpointError, DiskFullError, RunFolderError
from beeline.memory import Replay
from beeline.run import segments
from beeline.run.checkpoint import CheckpointStore, _render

LANES, OBS, ACTION = 2, 3, 2


def unreported(message: str) -> None:
    raise AssertionError(message)


def advance(replay: Replay, start: int, stop: int) -> None:
    """Play steps start to stop - 1; what happens at a step depends on its number alone."""
    for step in range(start, stop):
        rng = np.random.default_rng(step)
        for lane in range(replay.lanes):
            if not replay.is_open(lane):
                replay.start(lane, rng.normal(size=replay.obs_dim))
            terminated, truncated = rng.random(2) < 0.1
            obs, action = rng.normal(size=replay.obs_dim), rng.normal(size=replay.action_dim)
            replay.add(lane, action, rng.normal(), obs, terminated, truncated)


def played(step: int, capacity: int = 60) -> Replay:
    replay = Replay(capacity, OBS, ACTION, LANES)
    advance(replay, 0, step)
    return replay


def state(step: int, note: str = "") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays = {
        "params['w']": np.random.default_rng(step).normal(size=(5, 7)).astype(np.float32),
        "count": np.array(step),
        "empty": np.zeros((0, 2), np.float64),
        "key": np.array([step, 2**32 - 1], np.uint32),
    }
    return arrays, {"step": step, "note": note, "nested": {"list": [1, 2.5, None, "µ"]}}


def save(store: CheckpointStore, step: int, replay: Replay, note: str = "") -> Path:
    arrays, meta = state(step, note)
    return store.save(step, arrays, meta, {"replay": replay})


def same_ring(left: Replay, right: Replay, updates: int = 3) -> None:
    assert len(left) == len(right)
    options: dict[str, Any] = {"n_step": 3, "with_next_action": True}
    ours, theirs = (ring.sample(1, 5, updates, 64, **options) for ring in (left, right))
    for a, b in zip((*ours[:5], *(ours.extras or {}).values()), (*theirs[:5], *(theirs.extras or {}).values()), strict=True):
        assert a.tobytes() == b.tobytes()
    for lane in range(left.lanes):
        ours, theirs = left.open_episode(lane), right.open_episode(lane)
        assert (ours is None) == (theirs is None)
        assert ours is None or theirs is None or all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs))


def verify(root: Path, expected: set[tuple[int, str]], report: Callable[[str], None] = unreported) -> int:
    """Load with a fresh store; it must be exactly one of the expected (step, note)."""
    checkpoint = CheckpointStore(root).load(report)
    step, note = checkpoint.step, checkpoint.meta["note"]
    assert (step, note) in expected
    arrays, meta = state(step, note)
    assert checkpoint.meta == meta
    assert set(checkpoint.arrays) == set(arrays)
    for name, array in arrays.items():
        found = checkpoint.arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    same_ring(checkpoint.restore_replay(), played(step))
    return step


def go_on(root: Path, step: int) -> None:
    """Resume, play on, save, and see that all is well and nothing is left lying about."""
    store = CheckpointStore(root, keep=2)
    replay = store.load(unreported).restore_replay()
    advance(replay, step, step + 13)
    save(store, step + 13, replay)
    verify(root, {(step + 13, "")})
    assert not list((root / "checkpoints").glob(".*"))
    named = {segment["name"] for other in store.steps() for segment in manifest(root, other)["memories"]["replay"]["segments"]}
    assert {path.name for path in (root / "replay").iterdir()} == named
    assert all(len(list(store.folder(other).iterdir())) == 2 for other in store.steps())


def manifest(root: Path, step: int) -> dict[str, Any]:
    return json.loads((CheckpointStore(root).folder(step) / "manifest.json").read_text())["content"]


def series(root: Path, steps: list[int], keep: int = 2) -> None:
    store, replay, at = CheckpointStore(root, keep=keep), Replay(60, OBS, ACTION, LANES), 0
    for step in steps:
        advance(replay, at, step)
        at = step
        save(store, step, replay)


# --- death and full disks ---------------------------------------------------------------------------------------------

Prepared = tuple[Callable[[Path], None], Callable[[Path], None], set[tuple[int, str]], set[tuple[int, str]]]


def resumed_save(root: Path, base: int, step: int, note: str = "") -> None:
    store = CheckpointStore(root, keep=2)
    replay = store.load(unreported, step=base).restore_replay()
    advance(replay, base, step)
    save(store, step, replay, note)


# prepare, the save under attack, what may be found afterwards
SCENARIOS: dict[str, Prepared] = {
    "first": (lambda root: None, lambda root: save(CheckpointStore(root), 9, played(9)) and None, set(), {(9, "")}),
    "next": (  # the ring has wrapped; a checkpoint and a segment fall out
        lambda root: series(root, [10, 24, 38]),
        lambda root: resumed_save(root, 38, 50),
        {(38, "")},
        {(50, "")},
    ),
    "same step": (
        lambda root: series(root, [10, 24]),
        lambda root: resumed_save(root, 24, 24, "again"),
        {(24, "")},
        {(24, "again")},
    ),
    "given up": (  # an earlier checkpoint goes on; the later one belongs to a course that was given up
        lambda root: series(root, [10, 24]),
        lambda root: resumed_save(root, 10, 17),
        {(24, "")},
        {(17, "")},
    ),
}


def attack(folder: Path, name: str, how: str) -> int:
    """Break the save at its n-th operation for every n; return how many operations it has."""
    prepare, act, before, after = SCENARIOS[name]
    origin = folder / "origin"
    origin.mkdir()
    prepare(origin)
    files.BLOCK = 512
    calm = files.fault
    for number in range(1, 1000):
        root = folder / str(number)
        shutil.copytree(origin, root)
        left = number

        def fault(operation: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                if how == "exit":
                    os._exit(3)
                raise OSError(errno.ENOSPC, "injected")

        finished = False
        if how == "exit":
            child = os.fork()
            if child == 0:
                files.fault = fault
                try:
                    act(root)
                    os._exit(0)
                finally:
                    os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code in (0, 3)
            finished = code == 0
        else:
            files.fault = fault
            try:
                act(root)
                finished = True
            except DiskFullError:
                assert not list((root / "checkpoints").glob(".tmp-step-*"))
            finally:
                files.fault = calm
        if finished:
            assert number > 12
            verify(root, after)
            go_on(root, max(after)[0])
            return number - 1
        try:
            step = verify(root, before | after)
        except CheckpointError:
            assert not before  # nothing was there, nothing need be
            resumed = CheckpointStore(root)
            save(resumed, 9, played(9))
            step = verify(root, after)
        go_on(root, step)
        shutil.rmtree(root)
    raise AssertionError("the save never finished")


@pytest.mark.parametrize("how", ["exit", "enospc"])
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_a_save_broken_at_any_operation_leaves_the_old_or_the_new(tmp_path: Path, name: str, how: str) -> None:
    # In a process of its own: forking one that holds another test's threads would not be safe.
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[1])}
    command = [sys.executable, __file__, str(tmp_path), name, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 12


def test_everything_a_manifest_names_is_synced_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series(tmp_path, [10, 24, 38])
    store = CheckpointStore(tmp_path, keep=2)
    replay = store.load(unreported).restore_replay()
    advance(replay, 38, 50)
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(files, "fault", lambda operation, path: seen.append((operation, path.name)))
    save(store, 50, replay)
    temporary, removed = ".tmp-step-000000000050", ".tmp-removed-000000000024"
    order = [
        ("fsync", "segment-000000000003.npz"),
        ("fsync", "replay"),
        ("fsync", "state.npz"),
        ("fsync", "manifest.json"),
        ("fsync", temporary),
        ("rename", "step-000000000050"),
        ("fsync", "checkpoints"),
        ("rename", removed),
        ("fsync", "checkpoints"),
    ]
    kept = [operation for operation in seen if operation[0] in ("fsync", "rename") and operation[1] != tmp_path.name]
    assert [o for o in kept if o != ("fsync", "checkpoints")] == [o for o in order if o != ("fsync", "checkpoints")]
    committed = seen.index(("rename", "step-000000000050"))
    assert seen[committed + 1] == ("fsync", "checkpoints")
    assert all(operation != "remove" for operation, _ in seen[: committed + 2])
    assert ("remove", "segment-000000000000.npz") in seen


def test_a_failed_save_of_the_same_store_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, replay = CheckpointStore(tmp_path), played(20)
    save(store, 20, replay)
    for operation, path in [("fsync", "segment-000000000001.npz"), ("rename", "step-000000000030")]:
        advance(replay, 20, 30)

        def fault(seen: str, where: Path, operation: str = operation, path: str = path) -> None:
            if (seen, where.name) == (operation, path):
                raise OSError(errno.ENOSPC, "injected")

        with monkeypatch.context() as patch:
            patch.setattr(files, "fault", fault)
            with pytest.raises(DiskFullError):
                save(store, 30, replay)
        verify(tmp_path, {(20, "")})
        replay = store.load(unreported).restore_replay()
    advance(replay, 20, 40)
    save(store, 40, replay)
    verify(tmp_path, {(40, "")})


def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(operation: str, path: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "fault", fault)
    with pytest.raises(RunFolderError, match="cannot write"):
        save(CheckpointStore(tmp_path / "run"), 3, played(3))
    assert not (tmp_path / "run").exists()


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_anywhere_is_reported_and_the_one_before_is_used(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    series(origin, [10, 20])
    shared = {segment["name"] for segment in manifest(origin, 10)["memories"]["replay"]["segments"]}
    newest = [path for path in (origin / "replay").iterdir() if path.name not in shared]
    newest += (CheckpointStore(origin).folder(20)).iterdir()
    assert len(newest) == 3
    for path in newest:
        size = path.stat().st_size
        for position in sorted({0, size // 3, size // 2, size - 30, size - 1}):
            root = tmp_path / "damaged"
            shutil.copytree(origin, root)
            data = bytearray(path.read_bytes())
            data[position] ^= 4
            (root / path.relative_to(origin)).write_bytes(data)
            reports: list[str] = []
            assert verify(root, {(10, "")}, reports.append) == 10
            assert len(reports) == 1 and "step 20" in reports[0] and path.name in reports[0]
            store = CheckpointStore(root)
            with pytest.raises(CheckpointError, match=path.name):
                store.load(reports.append, step=20)
            # The run goes on from the older one, over the damaged one.
            replay = store.load(reports.append).restore_replay()
            advance(replay, 10, 20)
            save(store, 20, replay)
            verify(root, {(20, "")})
            go_on(root, 20)
            shutil.rmtree(root)


@pytest.mark.parametrize("what", ["segment", "state.npz", "manifest.json", "folder"])
def test_missing_and_cut_files_are_reported(tmp_path: Path, what: str) -> None:
    series(tmp_path, [10, 20])
    folder = CheckpointStore(tmp_path).folder(20)
    if what == "folder":
        for path in folder.iterdir():
            path.unlink()
    else:
        path = max((tmp_path / "replay").iterdir()) if what == "segment" else folder / what
        path.write_bytes(path.read_bytes()[:-1])
        reports: list[str] = []
        assert verify(tmp_path, {(10, "")}, reports.append) == 10
        path.unlink()
    reports = []
    assert verify(tmp_path, {(10, "")}, reports.append) == 10
    assert "cannot be read: No such file" in reports[0]


def test_without_an_intact_checkpoint_the_error_says_what_is_wrong_with_each(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        CheckpointStore(tmp_path).load(unreported)
    series(tmp_path, [10, 20])
    path = min((tmp_path / "replay").iterdir())  # both need it
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    reports: list[str] = []
    with pytest.raises(CheckpointError, match=rf"step 20: {path.name}.*step 10: {path.name}"):
        CheckpointStore(tmp_path).load(reports.append)
    assert len(reports) == 2
    with pytest.raises(CheckpointError, match="no checkpoint of step 15"):
        CheckpointStore(tmp_path).load(reports.append, step=15)


def rewrite(root: Path, step: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest as an attacker would, with a right hash."""
    content = manifest(root, step)
    change(content)
    (CheckpointStore(root).folder(step) / "manifest.json").write_bytes(_render(content))


def set_at(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(content: Any) -> None:
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_at("state", "name", "../../../secret.npz"),
        set_at("state", "name", 3),
        set_at("memories", "replay", "segments", 0, "name", "../../secret"),
        set_at("memories", "replay", "segments", 0, "name", "/etc/passwd"),
        set_at("memories", "replay", "segments", 0, "lanes", [[0, 5]]),
        set_at("memories", "replay", "segments", 0, "lanes", [[5, 0], [0, 9]]),
        set_at("memories", "replay", "segments", []),
        set_at("memories", "replay", "rows", [0, -3]),
        set_at("memories", "replay", "rows", [10**9, 10**9]),
        set_at("memories", "replay", "capacity", 10**18),
        set_at("memories", "replay", "capacity", 1),
        set_at("memories", "replay", "capacity", "many"),
        set_at("memories", "replay", "obs_dim", OBS + 1),
        set_at("memories", "replay", "lanes", 3),
        set_at("memories", "replay", 7),
        set_at("state", None),
        set_at("meta", []),
        set_at("step", 11),
        set_at("format", 3),
    ],
)
def test_hostile_manifests_are_checkpoint_errors(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    series(tmp_path, [10])
    rewrite(tmp_path, 10, change)
    with pytest.raises(CheckpointError):
        CheckpointStore(tmp_path).load(lambda message: None)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"content": 1}', "[" * 100_000, "\xff", '{"content": NaN}'])
def test_manifests_that_are_none_are_checkpoint_errors(tmp_path: Path, text: str) -> None:
    series(tmp_path, [10])
    (CheckpointStore(tmp_path).folder(10) / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError):
        CheckpointStore(tmp_path).load(lambda message: None)


def test_pickled_content_is_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    series(tmp_path, [10])
    state_file, segment_file = CheckpointStore(tmp_path).folder(10) / "state.npz", min((tmp_path / "replay").iterdir())
    for name, path in (("state", state_file), ("segment", segment_file)):
        np.savez(path, obs=np.array([Bomb()], dtype=object))
        data = path.read_bytes()
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

        def change(content: dict[str, Any], name: str = name, entry: dict[str, Any] = entry) -> None:
            (content["state"] if name == "state" else content["memories"]["replay"]["segments"][0]).update(entry)

        rewrite(tmp_path, 10, change)
        with pytest.raises(CheckpointError, match="npz"):
            CheckpointStore(tmp_path).load(lambda message: None)
        shutil.rmtree(tmp_path / "checkpoints")
        shutil.rmtree(tmp_path / "replay")
        series(tmp_path, [10])
    assert not (tmp_path / "exploded").exists()


# --- cost and continuation --------------------------------------------------------------------------------------------


def test_a_save_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay(20_000, 50, 5)
    replay.start(0, np.zeros(50))
    for t in range(15_000):
        replay.add(0, np.zeros(5), 0.0, np.full(50, t), False, False)
    store = CheckpointStore(tmp_path)
    store.save(1, {}, {}, {"replay": replay})
    whole = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert whole > 15_000 * 56 * 4
    written: list[int] = []
    original = files._HashingWriter._emit

    def emit(self: files._HashingWriter, block: bytes) -> None:
        written.append(len(block))
        original(self, block)

    monkeypatch.setattr(files._HashingWriter, "_emit", emit)
    for step in (2, 3):
        for t in range(20):
            replay.add(0, np.zeros(5), 0.0, np.full(50, t), False, False)
        written.clear()
        store.save(step, {}, {}, {"replay": replay})
        assert 20 * 56 * 4 < sum(written) < 20 * 56 * 4 + 8_000 < whole / 100
    # A fresh process knows from the manifest what is on disk.
    fresh = CheckpointStore(tmp_path)
    resumed = fresh.load(unreported).restore_replay()
    written.clear()
    fresh.save(4, {}, {}, {"replay": resumed})
    assert sum(written) < 8_000


def test_long_stretches_are_split_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 200)  # eight rows
    series(tmp_path, [5, 25])
    assert all(path.stat().st_size < 1500 for path in (tmp_path / "replay").iterdir())
    assert len(list((tmp_path / "replay").iterdir())) >= 6
    verify(tmp_path, {(25, "")})


@pytest.mark.parametrize("every", [3, 11, 40])  # 40 steps overwrite a lane's 30 rows completely
def test_a_wrapped_ring_goes_on_with_the_same_bytes(tmp_path: Path, every: int) -> None:
    store, replay, at = CheckpointStore(tmp_path, keep=2), Replay(60, OBS, ACTION, LANES), 0
    for step in range(every, 130, every):
        advance(replay, at, step)
        at = step
        save(store, step, replay)
        if step % 2:  # now and then another process takes over
            store = CheckpointStore(tmp_path, keep=2)
            replay = store.load(unreported).restore_replay()
        same_ring(replay, played(step))
    for step in range(at, at + 100):
        advance(replay, step, step + 1)
        if step % 10 == 0:
            same_ring(replay, played(step + 1), updates=1)


def test_an_older_checkpoint_goes_on_without_harming_the_others(tmp_path: Path) -> None:
    series(tmp_path, [10, 20, 30], keep=3)
    store = CheckpointStore(tmp_path, keep=3)
    replay = store.load(unreported, step=10).restore_replay()
    advance(replay, 10, 12)
    save(store, 12, replay)
    assert store.steps() == [10, 12]
    verify(tmp_path, {(12, "")})
    advance(replay, 12, 33)
    save(store, 33, replay)
    for step in (10, 12, 33):
        same_ring(CheckpointStore(tmp_path).load(unreported, step=step).restore_replay(), played(step))


def test_the_name_of_a_lost_segment_is_not_used_again(tmp_path: Path) -> None:
    series(tmp_path, [10, 20])
    lost = max((tmp_path / "replay").iterdir())
    lost.unlink()
    store = CheckpointStore(tmp_path)
    replay = store.load(lambda message: None).restore_replay()
    advance(replay, 10, 25)
    save(store, 25, replay)
    assert store.steps() == [10, 20, 25]
    assert not lost.exists()
    verify(tmp_path, {(25, "")})


def test_the_newest_are_kept(tmp_path: Path) -> None:
    series(tmp_path, [1, 2, 3, 4, 5], keep=3)
    assert CheckpointStore(tmp_path).steps() == [3, 4, 5]
    with pytest.raises(ValueError, match="keep"):
        CheckpointStore(tmp_path, keep=0)


def test_another_replay_is_written_whole(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 20, played(20))
    other = Replay(60, OBS, ACTION, LANES)
    advance(other, 100, 128)
    save(store, 21, other)
    same_ring(CheckpointStore(tmp_path).load(unreported).restore_replay(), other)
    replay = played(26)
    save(store, 26, replay)
    for path in (tmp_path / "replay").iterdir():
        path.unlink()  # someone tidied up: the next save notices
    advance(replay, 26, 27)
    save(store, 27, replay)
    verify(tmp_path, {(27, "")})


def test_without_replay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    arrays, meta = state(4)
    assert store.save(4, arrays, meta) == tmp_path / "checkpoints" / "step-000000000004"
    checkpoint = store.load(unreported)
    assert checkpoint.meta == meta
    with pytest.raises(CheckpointError, match="without a replay"):
        checkpoint.restore_replay()
    save(store, 5, played(5))
    checkpoint = store.load(unreported, with_replay=False)
    assert checkpoint.step == 5
    with pytest.raises(CheckpointError, match="without a replay"):
        checkpoint.restore_replay()


def test_what_is_not_json_or_numbers_is_refused_before_anything_changes(tmp_path: Path) -> None:
    series(tmp_path, [10])
    store = CheckpointStore(tmp_path)
    with pytest.raises(TypeError, match="JSON"):
        store.save(11, {}, {"bad": np.zeros(2)})
    with pytest.raises(TypeError, match="dtype object"):
        store.save(11, {"bad": np.array([None])}, {})
    verify(tmp_path, {(10, "")})
    assert not list((tmp_path / "checkpoints").glob(".*"))


if __name__ == "__main__":
    assert "jax" not in sys.modules
    print(attack(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
