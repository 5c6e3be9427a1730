"""Durable writes, the order of their operations, and the container of arrays."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beeline import files, npz
from beeline.errors import DiskFullError, RunFolderError, UnreadableError


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


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "copied and resumed elsewhere"), (errno.EROFS, "Make it writable"), (errno.EFBIG, "ulimit -f"),
     (errno.ENOENT, "resume it where it is now"), (errno.EIO, "saved before is intact")],
)  # fmt: skip
def test_every_error_of_the_system_is_a_sentence(
    number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operation, act in {
        "mkdir": lambda: files.make_folder(tmp_path / "a" / "b"),
        "remove": lambda: files.remove(tmp_path / "a"),
        "fsync": lambda: files.sync_folder(tmp_path),
    }.items():
        fail_with(monkeypatch, number, operation)
        with pytest.raises(RunFolderError, match=rf"cannot write .*: injected\. .*{advice}") as caught:
            act()
        assert "--out" not in str(caught.value)  # resume has no such option


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
    written = npz.write(tmp_path / "a.npz", ARRAYS)
    data = (tmp_path / "a.npz").read_bytes()
    assert written == files.Written(hashlib.sha256(data).hexdigest(), len(data))
    back = npz.read(data)
    assert list(back) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
    assert set(np.load(tmp_path / "a.npz", allow_pickle=False)) == set(ARRAYS)  # anyone can read it


def test_only_numbers_are_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'bad' has dtype object"):
        npz.write(tmp_path / "a.npz", {"bad": np.array([object()])})
    with pytest.raises(ValueError, match="null"):
        npz.write(tmp_path / "a.npz", {"a\0b": np.zeros(1)})
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
            npz.read(data)


def forged(header: str, data: bytes = bytes(40)) -> bytes:
    """A container with one member that has this header."""
    text = (header + "\n").encode()
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as file:
        file.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    return found.getvalue()


def header(descr: str = "'<f8'", shape: str = "(5,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def test_the_forged_header_is_otherwise_right() -> None:
    np.testing.assert_array_equal(npz.read(forged(header()))["a"], np.zeros(5))


@pytest.mark.parametrize("shape", ["(1125899906842624,)", "(4,)", "(6,)", "(5, 2)", "(-5,)", "(True,)", "5", "(5", "(0, 9)"])
def test_a_header_that_claims_another_size_is_refused_before_memory_is_asked_for(shape: str) -> None:
    with pytest.raises(ValueError, match="not an array of numbers"):
        npz.read(forged(header(shape=shape)))


# What NumPy's own reader of headers raises for these: errors of tokens, syntax and indentation, IndexError, TypeError,
# RecursionError and MemoryError.
@pytest.mark.parametrize(
    "text",
    ["(", "'''", " {\n  1\n 2}", header("'(1,2'"), header("'f8,('"), header("('<f8',)"), header("'<O8'"), "{[]: 1}",
     "{1: 2, 'a': 3}", "1" + "+1" * 3000, "-" * 9000, "(" * 9000, ""],
)  # fmt: skip
def test_a_header_that_numpy_would_choke_on_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an array of numbers"):
        npz.read(forged(text))


def test_a_machine_out_of_memory_is_not_taken_for_a_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(npz, "_array", full)
    with pytest.raises(MemoryError):
        npz.read(container(np.zeros(5)))


def test_every_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    npz.write(tmp_path / "a.npz", {"a": np.arange(1200, dtype=np.float64), "b": np.ones((2, 3), np.float32)})
    data = (tmp_path / "a.npz").read_bytes()
    assert len(data) > 9600  # zipfile checks the sum of such a member after its header has been read
    places = [*range(240), *range(len(data) - 500, len(data))]
    for bit in (bit for place in places for bit in range(8 * place, 8 * place + 8)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = npz.read(bytes(flipped))
        except ValueError:
            continue
        for array in found.values():  # a date or a name has changed, but no number
            assert np.array_equal(array, np.arange(1200)) or np.array_equal(array, np.ones((2, 3)))


def test_read_arrays_can_be_written_to(tmp_path: Path) -> None:
    columns = np.asfortranarray(np.arange(6).reshape(2, 3))
    npz.write(tmp_path / "a.npz", {"a": np.zeros(3), "f": columns, "0": np.array(7)})
    found = npz.read((tmp_path / "a.npz").read_bytes())
    found["a"][0] = 1.0
    np.testing.assert_array_equal(found["f"], np.arange(6).reshape(2, 3))
    assert found["0"].shape == () and found["0"] == 7


def test_json_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    assert files.read_json(path) == {}
    for text, found in (('{"step": 3}', {"step": 3}), ('{"step":', {}), ("[1]", {})):
        path.write_text(text)
        assert files.read_json(path) == found


READERS = {"bytes": files.read_regular, "json": files.load_json}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_what_is_no_file_of_its_own_is_refused_at_once(read: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "secret").write_text("{}")
    (run / "inside").write_text("{}")
    (run / "folder").mkdir()
    os.mkfifo(run / "fifo")
    for name, target in {"out": "../secret", "in": "inside", "loop": "loop", "nowhere": "none", "pipe": "fifo"}.items():
        (run / name).symlink_to(target)
    reasons = {
        "out": "leads out of its folder", "loop": "cannot be read", "nowhere": "link to nothing", "pipe": "not a regular file",
        "fifo": "not a regular file", "folder": "not a regular file",
    }  # fmt: skip
    for name, reason in reasons.items():
        with pytest.raises(UnreadableError, match=f"{name} .*{reason}"):
            read(run / name)
        assert files.read_json(run / name) == {}
    assert read(run / "in") in (b"{}", {})
    assert read(run / "out", within=tmp_path) in (b"{}", {})
    with pytest.raises(FileNotFoundError):
        read(run / "missing")
    with pytest.raises(UnreadableError, match="too large: 2 bytes where 1 are allowed"):
        read(run / "inside", limit=1)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":', "3", "\xff\xfe", '{"a": ' * 100_000], ids=range(5))
def test_json_that_is_damaged_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnreadableError, match=r"config\.json is damaged \("):
        files.load_json(tmp_path / "config.json")
    assert files.read_json(tmp_path / "config.json") == {}


def test_a_new_file_never_writes_through_what_bears_its_name(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".a.json.tmp").symlink_to(tmp_path / "precious")
    files.write_atomic(tmp_path / "a.json", b"new")
    os.link(tmp_path / "precious", tmp_path / ".a.json.tmp")
    files.write_atomic(tmp_path / "a.json", b"newer")
    os.mkfifo(tmp_path / ".a.json.tmp")
    files.write_atomic(tmp_path / "a.json", b"newest")
    assert (tmp_path / "precious").read_text() == "mine" and (tmp_path / "a.json").read_bytes() == b"newest"
    (tmp_path / "b.json").mkdir()
    with pytest.raises(RunFolderError, match="There is a folder where a file belongs"):
        files.write_atomic(tmp_path / "b.json", b"new")


def test_a_lock_has_one_holder_and_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held = files.take_lock(path, owner="process 7")
    assert held and files.take_lock(path) is None and files.lock_owner(path) == "process 7"
    held.close()
    with files.take_lock(path, owner="process 123", wait=True) as again:  # type: ignore[union-attr]
        assert again.fileno() >= 0 and files.lock_owner(path) == "process 123"
    assert files.take_lock(path)
    assert files.lock_owner(tmp_path / "none") == ""


def test_a_lock_follows_no_link_and_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RunFolderError, match="no file of a run folder may be one"):
        files.take_lock(tmp_path / ".lock", owner="process 7")
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").mkdir()
    with pytest.raises(RunFolderError, match="There is a folder where a file belongs"):
        files.take_lock(tmp_path / ".lock", owner="process 7")
    assert (tmp_path / "precious").read_text() == "mine"


def test_the_lock_of_a_hard_linked_copy_is_its_own(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    held = files.take_lock(ours, owner="process 7")
    os.link(ours, theirs)
    copied = files.take_lock(theirs, owner="process 8")
    assert held and copied and files.lock_owner(ours) == "process 7" and files.lock_owner(theirs) == "process 8"
    assert files.take_lock(ours) is None and files.take_lock(theirs) is None


def test_writing_in_place_leaves_other_names_of_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first")
    os.link(tmp_path / "a", tmp_path / "copy")
    with os.fdopen(files.own_regular(tmp_path / "copy", os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(b" second")
    assert (tmp_path / "a").read_text() == "first" and (tmp_path / "copy").read_text() == "first second"
