"""File operations that survive a kill at any moment; the only place that writes, syncs and renames run data.

Every operation passes `fault`, a hook that tests replace to die or to fail at the n-th operation.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beeline.errors import DiskFullError, RunFolderError

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


def sync_folder(folder: Path) -> None:
    """Make renames and new names inside `folder` durable."""
    fault("fsync", folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durable(path: Path, data: bytes | memoryview) -> str:
    """Write and sync a new file; return its SHA-256. Not atomic by itself: rename, or reference it afterwards."""
    with explained(path):
        fault("write", path)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            fault("fsync", path)
            os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def rename(source: Path, target: Path) -> None:
    """Rename atomically and make it durable."""
    with explained(target):
        fault("rename", target)
        source.replace(target)
        sync_folder(target.parent)


def write_atomic(path: Path, data: bytes | memoryview) -> str:
    """Replace `path` by `data` so that a reader sees the old or the new content, never a mixture."""
    temporary = path.with_name(f".{path.name}.tmp")
    digest = write_durable(temporary, data)
    rename(temporary, path)
    return digest
