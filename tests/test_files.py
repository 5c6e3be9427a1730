"""Durable writes, the order of their operations, and the container of arrays."""

from __future__ import annotations

import errno
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from beeline import files
from beeline.errors import DiskFullError, RunFolderError


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(files, "fault", lambda operation, path: seen.append((operation, path.name)))
    return seen


def fail_with(monkeypatch: pytest.MonkeyPatch, number: int, on: str) -> None:
    def fault(operation: str, path: Path) -> None:
        if operation == on:
            raise OSError(number, "injected")

    monkeypatch.setattr(files, "fault", fault)


def test_an_atomic_write_syncs_before_it_renames(tmp_path: Path, operations: list[tuple[str, str]]) -> None:
    digest = files.write_atomic(tmp_path / "a.json", b"new")
    assert digest == hashlib.sha256(b"new").hexdigest()
    assert operations == [
        ("write", ".a.json.tmp"),
        ("fsync", ".a.json.tmp"),
        ("rename", "a.json"),
        ("fsync", tmp_path.name),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
def test_a_full_disk_leaves_the_old_content_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    path = tmp_path / "a.json"
    files.write_atomic(path, b"old")
    fail_with(monkeypatch, errno.ENOSPC, operation)
    with pytest.raises(DiskFullError, match=r"free some space"):
        files.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_rights_are_explained_and_other_errors_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, errno.EACCES, "mkdir")
    with pytest.raises(RunFolderError, match="--out"):
        files.make_folder(tmp_path / "a" / "b")
    fail_with(monkeypatch, errno.EROFS, "remove")
    with pytest.raises(RunFolderError, match="cannot write"):
        files.remove(tmp_path / "a")
    fail_with(monkeypatch, errno.EIO, "fsync")
    with pytest.raises(OSError, match="injected") as caught:
        files.sync_folder(tmp_path)
    assert caught.value.errno == errno.EIO


def test_folders_are_made_with_parents_and_removed_with_content(
    tmp_path: Path, operations: list[tuple[str, str]]
) -> None:
    files.make_folder(tmp_path / "a" / "b")
    assert operations == [("mkdir", "a"), ("fsync", tmp_path.name), ("mkdir", "b"), ("fsync", "a")]
    operations.clear()
    files.make_folder(tmp_path / "a" / "b")
    assert operations == []
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (tmp_path / "a" / "b" / "link").symlink_to(kept)
    (tmp_path / "a" / "c").write_text("x")
    files.remove(tmp_path / "a")
    files.remove(tmp_path / "a")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]  # a link goes, not what it points to


def test_a_long_write_passes_the_hook_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(files, "BLOCK", 10)
    data = bytes(range(25))
    assert files.write_durable(tmp_path / "a", data) == hashlib.sha256(data).hexdigest()
    assert operations == [("write", "a")] * 3 + [("fsync", "a")]
    assert (tmp_path / "a").read_bytes() == data


ARRAYS = {
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 3), np.float64),
    "['nested'].path/µ": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "count": np.array([2**63], np.uint64),
    "i64": np.array([-(2**62)]),
    "u32": np.array([2**32 - 1], np.uint32),
    "u8": np.arange(256, dtype=np.uint8),
    "flag": np.array([True, False]),
    "nan": np.array([np.nan, np.inf, -0.0], np.float32),
}


def test_arrays_come_back_bit_for_bit(tmp_path: Path) -> None:
    written = files.write_npz(tmp_path / "a.npz", ARRAYS)
    data = (tmp_path / "a.npz").read_bytes()
    assert written == files.Written(hashlib.sha256(data).hexdigest(), len(data))
    back = files.read_npz(data)
    assert list(back) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
    assert set(np.load(tmp_path / "a.npz", allow_pickle=False)) == set(ARRAYS)  # anyone can read it


def test_only_numbers_are_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'bad' has dtype object"):
        files.write_npz(tmp_path / "a.npz", {"bad": np.array([object()])})
    with pytest.raises(ValueError, match="null"):
        files.write_npz(tmp_path / "a.npz", {"a\0b": np.zeros(1)})
    assert not list(tmp_path.iterdir())


def container(*arrays: np.ndarray, compress: int = zipfile.ZIP_STORED, names: str = "abc") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compress) as file:
        for name, array in zip(names, arrays):
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=True)
    return data.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_containers_are_refused() -> None:
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as file, file.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"shape": (2**50,), "fortran_order": False, "descr": "<f8"}
        )
    flipped = bytearray(container(np.zeros(100)))
    flipped[300] ^= 1
    for data in [
        b"",
        b"PK\x03\x04 not a container",
        container(np.array([{"a": 1}], dtype=object)),
        container(np.array(["text"])),
        container(np.zeros(10_000), compress=zipfile.ZIP_DEFLATED),
        container(np.zeros(1), np.ones(1), names="aa"),
        huge.getvalue(),
        bytes(flipped),
        container(np.zeros(5))[:-30],
    ]:
        with pytest.raises(ValueError):
            files.read_npz(data)


def test_a_machine_out_of_memory_is_not_taken_for_a_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np.lib.format, "read_array", full)
    with pytest.raises(MemoryError):
        files.read_npz(container(np.zeros(5)))


@pytest.mark.parametrize("claimed", [(2**50,), (4,), (6,), (5, 2), (-5,)])
def test_a_header_that_claims_another_size_is_refused_before_memory_is_asked_for(
    claimed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as file, file.open("a.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"shape": claimed, "fortran_order": False, "descr": "<f8"})
        member.write(np.zeros(5).tobytes())
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: pytest.fail("read although it does not fit"))
    with pytest.raises(ValueError, match="not an array of numbers"):
        files.read_npz(forged.getvalue())


def test_json_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert files.read_json(path) == {}
    for text, found in (('{"step": 3}', {"step": 3}), ('{"step":', {}), ("[1]", {})):
        path.write_text(text)
        assert files.read_json(path) == found
