"""File operations that survive a kill at any moment; the only place that opens, writes, syncs, renames and locks run data.

A file of a run folder is a regular file of its own: nothing here follows a link out of the folder, waits for the other end of
a pipe, or writes into the hard-linked copy of somebody else's file.

Every writing operation passes `fault`, a hook: tests replace it to die or to fail at the n-th operation, and workers on a
cluster to end before an operation that they may no longer do (bench/claim.py).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from beeline.errors import BeelineError, ConfigError, DiskFullError, RunFolderError, UnreadableError

BLOCK = 1 << 20  # bytes of one write
READ_LIMIT = 1 << 30  # bytes of the largest file that is read whole; the longest records are far below
JSON_LIMIT = 64 << 20

fault: Callable[[str, Path], None] = lambda operation, path: None  # noqa: E731


_ADVICE = {
    errno.EFBIG: "This process or its disk allows no larger files (ulimit -f): raise the limit, then resume.",
    errno.ENOENT: "Its folder is gone: if the run folder was moved, resume it where it is now.",
    errno.ELOOP: "It is a link, and no file of a run folder may be one: put the file itself there.",
    errno.EISDIR: "There is a folder where a file belongs: move it away.",
    errno.ENOTDIR: "There is a file where a folder belongs: move it away.",
    errno.EEXIST: "Something else is there already: move it away.",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "Make it writable, or choose another folder: a run folder can be copied and resumed elsewhere.",
    ),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the system's errors while writing `path` into messages that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"no space left while writing {path}. What was saved before is intact: free some space, then resume."
            ) from error
        advice = _ADVICE.get(error.errno or 0, "What was saved before is intact.")
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}. {advice}") from error


# --- opening and locking ----------------------------------------------------------------------------------------------


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file that lies at `path` itself: OSError for links, folders and pipes, which never block."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR if path.is_dir() else errno.EINVAL, "not a regular file", str(path))
    return descriptor


def own_regular(path: Path, flags: int) -> int:
    """`open_regular` for writing in place: a file that has other names (`cp -al`) becomes one of its own first."""
    descriptor = open_regular(path, flags)
    if os.fstat(descriptor).st_nlink == 1:
        return descriptor
    os.close(descriptor)
    write_atomic(path, read_regular(path))
    return open_regular(path, flags)


class Lock:
    """The lock of a file, held until it is closed or the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def fileno(self) -> int:
        """The descriptor, for a child process that shall hold the lock too."""
        if self._descriptor is None:
            raise ValueError("this lock was closed")
        return self._descriptor

    def close(self) -> None:
        """Let another process have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def take_lock(path: Path, *, owner: str = "", wait: bool = False) -> Lock | None:
    """Lock a file, which is made where there is none; None where another process has the lock and `wait` is not set.

    `owner` is written into it for whoever is refused (`lock_owner`). The file is not emptied and no link is followed; one that
    has other names, as a hard-linked copy of a folder has, is replaced, because copies do not share a writer.
    """
    with explained(path):
        while True:
            descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(descriptor).st_nlink > 1:
                    _unlink_shared(path)
                elif not _flock(descriptor, wait):
                    return None
                elif _is_at(path, descriptor):  # else it was replaced before it was ours
                    if owner:
                        os.pwrite(descriptor, f"{owner:<24}\n".encode(), 0)
                    held, descriptor = descriptor, -1
                    return Lock(held)
            finally:
                if descriptor >= 0:
                    os.close(descriptor)


def lock_owner(path: Path) -> str:
    """Who wrote its name into a lock; empty where nobody did."""
    with suppress(BeelineError, OSError, UnicodeDecodeError):
        return read_regular(path, 4096).decode().partition("\n")[0].strip()[:80]
    return ""


def _flock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        found, ours = path.lstat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _unlink_shared(path: Path) -> None:
    """Take the name of a file with several from this folder, one process at a time: else a second would take the new file's."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # file servers that cannot lock a folder
            fcntl.flock(folder, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if path.lstat().st_nlink > 1:
                path.unlink()
    finally:
        os.close(folder)


# --- writing ----------------------------------------------------------------------------------------------------------


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
def durable(path: Path) -> Iterator[_HashingWriter]:
    """Make a new file for writing, in place of whatever bears its name; it is synced when the block ends."""
    with explained(path), _new_file(path) as file:
        stream = _HashingWriter(file, path)
        yield stream
        stream.finish()
        file.flush()
        fault("fsync", path)
        os.fsync(file.fileno())


def _new_file(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)  # never written over: it may be a link, a pipe, or shared with a copy of the folder
    return os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


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


def own_folder(folder: Path) -> None:
    """Make a folder inside a run folder; a link in its place is refused, because what is written there would be elsewhere."""
    if folder.is_symlink():
        raise RunFolderError(f"{folder} is a link, and no folder of a run may be one: put the folder itself there.")
    make_folder(folder)


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
    with durable(path) as stream:
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


def overwrite(path: Path, data: bytes) -> None:
    """Replace a file's bytes in place: where no space is left but that of the file itself. Not atomic, not longer than it was."""
    with explained(path):
        descriptor = open_regular(path, os.O_WRONLY)
        try:
            found = os.fstat(descriptor)
            room = found.st_size if found.st_nlink == 1 else 0  # what has other names is not ours to write into
            if len(data) > room:
                raise OSError(errno.ENOSPC, f"{len(data)} bytes where there is room for {room}", str(path))
            fault("write", path)
            os.pwrite(descriptor, data.ljust(room), 0)
        finally:
            os.close(descriptor)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_regular(path: Path, limit: int = READ_LIMIT, within: Path | None = None) -> bytes:
    """The bytes of a regular file; UnreadableError, at once and with the reason, for everything else.

    A missing file is a FileNotFoundError. A link may lead to another file of `within` (the file's own folder where none is
    given) and nowhere else. A path that the user named may be resolved before.
    """
    path = Path(path)
    try:
        target = Path(os.path.realpath(path, strict=True)) if path.is_symlink() else path
        if target is not path and not target.is_relative_to(os.path.realpath(within or path.parent)):
            raise UnreadableError(f"{path} is a link that leads out of its folder (to {target}); it is not followed.")
        with os.fdopen(open_regular(target, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read() if size <= limit else b""  # not limit + 1 bytes: that much memory would be asked for at once
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UnreadableError(f"{path} is a link to nothing.") from error
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise UnreadableError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if max(size, len(data)) > limit:
        raise UnreadableError(f"{path} is too large: {max(size, len(data)):,} bytes where {limit:,} are allowed.")
    return data


def load_json(path: Path, limit: int = JSON_LIMIT, within: Path | None = None) -> dict[str, Any]:
    """The object that a JSON file holds; UnreadableError where it is damaged, FileNotFoundError where it is missing."""
    try:
        found = json.loads(read_regular(path, limit, within))
    except RecursionError:
        raise UnreadableError(f"{path} is damaged (its JSON is nested too deeply).") from None
    except ValueError as error:
        raise UnreadableError(f"{path} is damaged ({error}).") from None
    if not isinstance(found, dict):
        raise UnreadableError(f"{path} is damaged (it holds no JSON object).")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file that the user wrote or named."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; empty where the file is missing, damaged, half-written or no regular file."""
    try:
        return load_json(path)
    except (OSError, UnreadableError):
        return {}


SEAL = "sha256"  # the name under which a sealed object holds the SHA-256 of the rest of it


def digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of an object, without its seal."""
    own = {name: value for name, value in content.items() if name != SEAL}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> bytes:
    """A JSON object with its own SHA-256, so that whoever reads it sees whether it is as it was written."""
    plain = json.loads(json.dumps({name: value for name, value in content.items() if name != SEAL}))
    return json.dumps(plain | {SEAL: digest(plain)}, indent=1).encode()


def is_as_written(content: Mapping[str, Any]) -> bool:
    """Whether an object that was read has the SHA-256 that it was sealed with; one without a seal is taken as it is."""
    return SEAL not in content or content[SEAL] == digest(content)
