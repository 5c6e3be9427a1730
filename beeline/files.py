"""File operations that survive a kill at any moment; the only place that writes, syncs and renames run data.

Every operation passes `fault`, a hook: tests replace it to die or to fail at the n-th operation, and workers on a cluster to
end before an operation that they may no longer do (bench/claim.py).
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beeline.errors import DiskFullError, RunFolderError

BLOCK = 1 << 20  # bytes of one write

fault: Callable[[str, Path], None] = lambda operation, path: None  # noqa: E731


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the system's errors about a full disk or missing rights into messages that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"no space left while writing {path}. What was saved before is intact: free some space, then resume."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise RunFolderError(f"cannot write {path}: {error.strerror}. Choose another folder with --out.") from error
        raise


class Written(NamedTuple):
    """What a file was when it was written, for whoever reads it again."""

    sha256: str
    size: int


class _HashingWriter:
    """A write-only stream that gathers small writes into blocks and hashes what passes through it."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self._hash, self._size = file, path, hashlib.sha256(), 0
        self._pending = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        self._pending += data
        while len(self._pending) >= BLOCK:
            self._emit(bytes(self._pending[:BLOCK]))
            del self._pending[:BLOCK]
        return len(data)

    def flush(self) -> None:
        """Do nothing: whoever writes a container need not decide when bytes reach the disk."""

    def finish(self) -> None:
        self._emit(bytes(self._pending))
        self._pending.clear()

    def _emit(self, block: bytes) -> None:
        fault("write", self._path)
        self._file.write(block)
        self._hash.update(block)
        self._size += len(block)

    def written(self) -> Written:
        return Written(self._hash.hexdigest(), self._size)


@contextmanager
def _durable(path: Path) -> Iterator[_HashingWriter]:
    """Open a new file for writing; it is synced when the block ends."""
    with explained(path), path.open("wb") as file:
        stream = _HashingWriter(file, path)
        yield stream
        stream.finish()
        file.flush()
        fault("fsync", path)
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames and new names inside `folder` durable."""
    with explained(folder):
        fault("fsync", folder)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make `folder` and its parents durably; nothing happens if it exists."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with explained(folder):
        fault("mkdir", folder)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; nothing happens if it is gone already."""
    with explained(path):
        if path.is_dir() and not path.is_symlink():
            for child in path.iterdir():
                remove(child)
            fault("remove", path)
            path.rmdir()
        else:
            fault("remove", path)
            path.unlink(missing_ok=True)


def write_durable(path: Path, data: bytes | memoryview) -> str:
    """Write and sync a new file; return its SHA-256. Not atomic by itself: rename, or reference it afterwards."""
    with _durable(path) as stream:
        stream.write(data)
    return stream.written().sha256


def rename(source: Path, target: Path) -> None:
    """Rename atomically and make it durable."""
    with explained(target):
        fault("rename", target)
        source.replace(target)
        sync_folder(target.parent)


def write_atomic(path: Path, data: bytes | memoryview) -> str:
    """Replace `path` by `data` so that a reader sees the old or the new content, never a mixture."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        digest = write_durable(temporary, data)
        rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return digest


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; empty where the file is missing, damaged or half-written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_npz(path: Path, arrays: Mapping[str, NDArray]) -> Written:
    """Write and sync arrays of numbers in NumPy's .npz container, uncompressed; durable but not atomic by itself."""
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"array {name!r} has dtype {array.dtype}; only booleans, integers and floats are stored")
        if "\0" in name:
            raise ValueError(f"array name {name!r} has a null character")
    with _durable(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as container:  # type: ignore[call-overload]
        for name, array in arrays.items():
            with container.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return stream.written()


def read_npz(data: bytes) -> dict[str, NDArray]:
    """Read what `write_npz` wrote; ValueError for anything else, and nothing in it is ever executed."""
    arrays: dict[str, NDArray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as container:
            for info in container.infolist():
                name = info.filename.removesuffix(".npy")
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or name in arrays:
                    raise ValueError(f"member {info.filename!r} is compressed, encrypted or there twice")
                array = _array(container.read(info))
                if array is None:
                    raise ValueError(f"member {info.filename!r} is not an array of numbers")
                arrays[name] = array
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, OSError) as error:
        raise ValueError(f"not a readable .npz file: {error}") from error
    return arrays


# A member as `write_npz` and `np.savez` write it: magic string, version, length of the header, and a dict of three entries.
_MEMBER = re.compile(
    rb"\x93NUMPY(?:\x01\x00(?P<short>..)|\x02\x00(?P<long>....))"
    rb"(?P<header>\{'descr': '(?P<dtype>[<>|][biuf]\d{1,2})', 'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,15}, ?)*(?:\d{1,15})?)\), \} *\n)",
    re.DOTALL,
)


def _array(data: bytes) -> NDArray | None:
    """The array of numbers that a member holds; None where it holds anything else.

    NumPy's own reader evaluates the header, which raises nearly anything if it was tampered with. This one only matches it, and
    asks for no more memory than the member has: a MemoryError is the machine's and never the file's.
    """
    found = _MEMBER.match(data)
    if not found or int.from_bytes(found["short"] or found["long"], "little") != len(found["header"]):
        return None
    shape = [int(size) for size in found["shape"].replace(b" ", b"").split(b",") if size]
    try:
        dtype = np.dtype(found["dtype"].decode())
    except TypeError:  # such as <f3
        return None
    if math.prod(shape) * dtype.itemsize != len(data) - found.end():
        return None
    flat = np.frombuffer(data, dtype, offset=found.end())
    return flat.reshape(shape, order="F" if found["order"] == b"True" else "C").copy(order="K")
