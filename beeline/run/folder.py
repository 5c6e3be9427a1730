"""A run on disk: its folder, its one writer, and what has changed since it began."""

from __future__ import annotations

import datetime
import difflib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from beeline import files, runtime
from beeline.errors import RunFolderError
from beeline.run.plan import Plan


def absolute(path: str | Path | None) -> str | None:
    """A path that means the same from every folder."""
    return str(Path(path).absolute()) if path else None


def _siblings(path: Path) -> list[Path]:
    try:
        return [each for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        return []


class RunFolder:
    """A run on disk, with one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @staticmethod
    def default_path(plan: Plan, root: Path = Path("runs")) -> Path:
        """A new folder's name: algorithm, task and seed, with a number if it is taken."""
        task = "".join(c if c.isalnum() or c in "-_." else "-" for c in plan.env)
        base = root / f"{plan.algo}-{task}-seed{plan.train.seed}"
        candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, 10_000))
        return next(path for path in candidates if not path.exists())

    @classmethod
    def create(cls, path: Path, plan: Plan) -> RunFolder:
        """Make a new run folder; one that holds a run already is refused."""
        cls.refuse_existing(path)
        try:
            with files.explained(path):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a file where a folder should be, a name too long, a loop of links
            raise RunFolderError(f"cannot make {path}: {error.strerror}. Choose another folder with --out.") from error
        run = cls(path)
        run.lock()
        try:
            cls.refuse_existing(path)  # again: another process may have been quicker before the lock was ours
            run._write_config(plan)
        except BaseException:
            run.unlock()
            raise
        return run

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Raise if there is something at `path`; what a process that died before the config left there is nothing."""
        ours = {".lock", ".config.json.tmp"}
        try:
            taken = path.exists() and (not path.is_dir() or any(each.name not in ours for each in path.iterdir()))
        except OSError as error:
            raise RunFolderError(f"cannot read {path}: {error.strerror}. Choose another folder with --out.") from error
        if taken:
            advice = f"Go on with it (beeline resume {path}) or choose" if (path / "config.json").exists() else "Choose"
            raise RunFolderError(f"{path} exists already. {advice} another folder with --out.")

    def _write_config(self, plan: Plan) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        config = plan.to_dict() | {"created": now, "versions": runtime.versions(), **runtime.machine()}
        files.write_atomic(self.path / "config.json", json.dumps(config, indent=1).encode())

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not path.exists():
            near = difflib.get_close_matches(path.name, [each.name for each in _siblings(path)], n=3, cutoff=0.5)
            ask = f" Did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else ""
            raise RunFolderError(f"there is no run folder {path}.{ask}")
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.json.")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        try:
            return json.loads((self.path / "config.json").read_text())
        except ValueError as error:
            raise RunFolderError(f"{self.path / 'config.json'} is damaged ({error}).") from None

    def plan(self, objects: Mapping[str, Any] | None = None) -> Plan:
        """The plan the run was made from; objects that were handed over in Python are given again."""
        try:
            return Plan.from_dict(self.config(), objects)
        except (KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{self.path / 'config.json'} is damaged ({error!r}).") from None

    def rewrite(self, plan: Plan) -> None:
        """Store a changed plan (more steps); everything else stays as it was at creation."""
        files.write_atomic(self.path / "config.json", json.dumps(self.config() | plan.to_dict(), indent=1).encode())

    def lock(self) -> None:
        """Become the one writer; the lock ends with the process, however it ends."""
        path = self.path / ".lock"
        with files.explained(path):
            handle = path.open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            owner = handle.read().strip() or "another process"
            handle.close()
            raise RunFolderError(f"{self.path} is in use by {owner}; a run has one writer.") from None
        handle.truncate(0)
        handle.write(f"process {os.getpid()}\n")
        handle.flush()
        self._lock = handle

    def unlock(self) -> None:
        """Let another process write."""
        if self._lock:
            self._lock.close()
            self._lock = None


def differences(config: Mapping[str, Any]) -> list[str]:
    """What on this machine is not as it was when the run began, as far as it can change a result."""
    found = []
    if config.get("cpu") != runtime.processor():
        found.append(f"the CPU is {runtime.processor()!r}, the run began on {config.get('cpu')!r}: bytes may differ.")
    now = runtime.versions()
    for name in ("jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco", "dm-control", "dm_control"):
        before = config.get("versions", {}).get(name)
        if before and now.get(name) != before:
            found.append(f"{name} is {now.get(name)}, the run began with {before}: bytes may differ.")
    return found
