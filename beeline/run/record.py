"""The record of a run: the metrics table, the status, and the sinks that its rows go to beside them."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from beeline import files
from beeline.errors import CheckpointError, RunFolderError, UnreadableError
from beeline.run import metrics, reading
from beeline.run.sinks import Curve, Sink, Sinks, TensorBoard, WeightsAndBiases, tell

LOOP_COLUMNS = (
    "step", "episodes", "updates", "train/return", "train/length", "train/success",
    "eval/return", "eval/return_std", "eval/length", "eval/success", "eval/success_any",
)  # fmt: skip
STATUS_BYTES = 4096  # of status.json at least, so that the end of a run can be told in place on a full disk
KEPT_CUTS = 3  # files of rows that resuming cut from the table
TIME_COLUMNS = ("time/wall", "time/processor", "time/steps_per_second")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else repr(float(value))


class MetricsTable:
    """An append-only CSV file that a checkpoint vouches for: `sync` gives its length and SHA-256, `recover` finds those bytes.

    What was synced is twice on the disk, in the table and in a copy beside the checkpoints, and what was not is in memory too.
    So a table that somebody has edited, cut or removed, during the run or after it, is written again as it was.
    """

    def __init__(self, path: Path, columns: Sequence[str], copy: Path | None = None) -> None:
        self.path, self.columns, self.copy = path, list(columns), copy or path.parent / "checkpoints" / path.name
        self.size = 0
        self._hash = hashlib.sha256()
        self._new = bytearray()  # the bytes after those that the copy has

    @property
    def header(self) -> bytes:
        """The first line."""
        return (",".join(self.columns) + "\n").encode()

    def render(self, row: Mapping[str, Any]) -> bytes:
        """A row's line; columns without a value stay empty."""
        return (",".join(_cell(row.get(name)) for name in self.columns) + "\n").encode()

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, content: bytes = b"") -> None:
        """Make the file anew: empty but for its header, or with what a checkpoint vouches for, whose columns it keeps."""
        if content:
            self.columns = content.partition(b"\n")[0].decode().split(",")
        content = content or self.header
        files.write_atomic(self.path, content)
        self.size, self._hash, self._new = len(content), hashlib.sha256(content), bytearray(content)

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row."""
        if not self.size:
            self.begin()
        line = self.render(row)
        with files.explained(self.path), self._as_it_was() as file:
            files.fault("write", self.path)
            file.write(line)
        self.size += len(line)
        self._hash.update(line)
        self._new += line

    def sync(self) -> dict[str, Any]:
        """Make the rows durable in table and copy; return what a checkpoint vouches for."""
        if not self.size:
            self.begin()
        with files.explained(self.path), self._as_it_was() as file:
            files.fault("fsync", self.path)
            os.fsync(file.fileno())
        files.own_folder(self.copy.parent)
        before = self.size - len(self._new)
        if before and self._size_of(self.copy) == before:
            with files.explained(self.copy), self._opened(self.copy) as file:
                files.fault("write", self.copy)
                file.write(self._new)
                file.flush()
                files.fault("fsync", self.copy)
                os.fsync(file.fileno())
        else:
            files.write_atomic(self.copy, self._known())
        self._new.clear()
        return self.vouched()

    def vouched(self) -> dict[str, Any]:
        """Length and SHA-256 of what was written."""
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}

    def verify(self) -> None:
        """Compare the whole file with what was written, and write it again if it is not that."""
        if self.size:
            with contextlib.suppress(OSError, UnreadableError):
                if hashlib.sha256(files.read_regular(self.path)).digest() == self._hash.digest():
                    return
            self._rewrite()

    def _as_it_was(self) -> BinaryIO:
        """The file, open to append at the length that was written; made again where it is not that file any more."""
        if self._size_of(self.path) != self.size and self.path.parent.is_dir():
            self._rewrite()
        return self._opened(self.path)

    @staticmethod
    def _opened(path: Path) -> BinaryIO:
        return os.fdopen(files.own_regular(path, os.O_WRONLY | os.O_APPEND), "ab")

    @staticmethod
    def _size_of(path: Path) -> int:
        try:
            found = path.lstat()
        except OSError:
            return -1
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def _rewrite(self) -> None:
        tell(f"{self.path} was changed or removed while the run was going on; it is written again as it was.")
        files.write_atomic(self.path, self._known())

    def _known(self) -> bytes:
        """All bytes that were written, from wherever they still are."""
        for path in (self.path, self.copy):
            with contextlib.suppress(OSError, UnreadableError):
                content = files.read_regular(path)
                for found in (content, content[: self.size - len(self._new)] + self._new):
                    if hashlib.sha256(found).digest() == self._hash.digest():
                        return bytes(found)
        if len(self._new) == self.size:
            return bytes(self._new)
        raise RunFolderError(
            f"{self.path} and its copy {self.copy} were changed or removed while the run was going on: rows are lost."
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are in the file."""
        return read_metrics(self.path)

    def recover(self, meta: Mapping[str, Any]) -> bytes:
        """The bytes that a checkpoint vouches for, from the table or from its copy; CheckpointError where neither has them."""
        if "rows" in meta:  # a saved model
            return self.header + b"".join(map(self.render, meta["rows"]))
        if "table" not in meta:
            return self._recover_unvouched(meta["metrics_bytes"], meta["progress"]["rows"])
        size, digest = meta["table"]["bytes"], meta["table"]["sha256"]
        wrong = []
        for path in (self.path, self.copy):
            try:
                content = files.read_regular(path)[:size]
            except FileNotFoundError:
                wrong.append(f"{path.relative_to(self.path.parent)} is missing")
                continue
            except UnreadableError as error:
                wrong.append(str(error).rstrip("."))
                continue
            if hashlib.sha256(content).hexdigest() == digest:
                return content
            short = f"has {len(content)} of {size} bytes" if len(content) < size else "has another SHA-256 than it had then"
            wrong.append(f"{path.relative_to(self.path.parent)} {short}")
        raise CheckpointError(f"its rows of the record are lost ({', '.join(wrong)})")

    def _recover_unvouched(self, size: int, rows: int) -> bytes:
        """The rows of a checkpoint that knows only their length and number, as those before version 0.2 do."""
        try:
            content = files.read_regular(self.path)[:size]
            found = len(parse_metrics(content))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"its rows of the record are lost ({error})") from None
        if len(content) != size or found != rows or not content.endswith(b"\n"):
            raise CheckpointError(f"its rows of the record are lost (metrics.csv has {found} of {rows} in {len(content)} bytes)")
        return content


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics table; a half-written last line is left out. UnreadableError where it is damaged."""
    try:
        return parse_metrics(files.read_regular(path))
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(f"{path} is damaged ({error}).") from None


def parse_metrics(content: bytes) -> list[dict[str, Any]]:
    """The rows of a metrics table's bytes; ValueError with the line that is none."""
    found = metrics.parse(content)
    if found.damage:
        raise ValueError(found.trouble)
    return found.rows()


class Recorder:
    """Writes a run folder's record, or keeps rows in memory where there is no folder."""

    def __init__(
        self, folder: Path | None, metric_names: Sequence[str], *, tensorboard: bool, wandb: bool, config: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        self.columns = [*LOOP_COLUMNS, *metric_names, *TIME_COLUMNS]
        self.rows: list[dict[str, Any]] = []
        self.table = MetricsTable(folder / "metrics.csv", self.columns) if folder else None
        chosen: list[Sink] = []
        if folder and tensorboard:
            chosen.append(TensorBoard(folder / "tensorboard"))
        if folder and wandb:
            chosen.append(WeightsAndBiases(folder, config))
        if self.table:
            chosen.append(Curve(self.table.path.parent, self.table.rows))
        self.sinks = Sinks(chosen)

    def open(self, step: int) -> None:
        """Begin to write rows from `step` on."""
        self.sinks.open(step)

    def write(self, row: dict[str, Any]) -> None:
        """Record one row."""
        if self.table:
            self.table.append(row)
        else:
            self.rows.append(row)
        self.sinks.write(row)

    def status(self, state: str, step: int, reason: str = "") -> None:
        """Say in the run folder how the run stands."""
        if not self.folder:
            return
        path = self.folder / "status.json"
        told: dict[str, Any] = {"state": state, "step": step, "reason": reason, "pid": os.getpid()}
        if self.table and state != "running":
            told["table"] = self.table.vouched()
            with contextlib.suppress(OSError, UnreadableError):  # then it is said of the config itself
                told["config"] = reading.identity(reading.config(self.folder))
        try:
            files.write_atomic(path, files.sealed(told).ljust(STATUS_BYTES))
        except RunFolderError:  # the file has room of its own, which a full disk cannot take
            short = " ".join(reason.split()).encode("ascii", "replace").decode()[: STATUS_BYTES // 3]
            files.overwrite(path, files.sealed(told | {"reason": short}))

    def sync(self) -> dict[str, Any] | None:
        """Make the table durable; return what a checkpoint vouches for."""
        return self.table.sync() if self.table else None

    def usable(self, meta: Mapping[str, Any]) -> None:
        """Raise CheckpointError if the rows that a checkpoint vouches for are nowhere."""
        if self.table:
            self.table.recover(meta)

    def restore(self, meta: Mapping[str, Any], step: int, report: Callable[[str], None]) -> None:
        """Take the record back to a checkpoint. What is cut or was damaged is kept beside it."""
        if not self.table:
            self.rows = list(meta.get("rows", []))
            return
        content = self.table.recover(meta)
        try:
            present = files.read_regular(self.table.path)
        except (OSError, UnreadableError):
            present = b""
        if not present.startswith(content):
            kept = self._keep(present, step)
            if "rows" not in meta:  # a saved model had no table
                report(f"metrics.csv was damaged and is rebuilt from what the checkpoint of step {step} vouches for{kept}.")
        elif len(present) > len(content):
            self._keep(content.partition(b"\n")[0] + b"\n" + present[len(content) :], step)
        self.table.begin(content)

    def _keep(self, cut: bytes, step: int) -> str:
        """Put rows that leave the table beside it, under a name of their own; of such files the newest few stay."""
        assert self.folder is not None
        if not cut:
            return ""
        names = (f"metrics-cut-{step}{f'-{n}' if n else ''}.csv" for n in itertools.count())
        path = next(path for name in names if not os.path.lexists(path := self.folder / name))
        files.write_atomic(path, cut)
        earlier = sorted(self.folder.glob("metrics-cut-*.csv"), key=lambda each: (each.lstat().st_mtime_ns, each.name))
        for old in earlier[:-KEPT_CUTS]:
            files.remove(old)
        return f"; what was there is kept as {path.name}"

    def restart(self) -> None:
        """Begin the record with an empty table."""
        if self.table:
            self.table.begin()

    def finish(self) -> None:
        """See that the table is what was written before the run is called finished."""
        if self.table:
            self.table.verify()

    def close(self, good: bool = True) -> None:
        """Close the sinks and draw the learning curve; after a run that did not end well nothing is waited for."""
        self.sinks.close(good)

