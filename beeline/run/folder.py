"""A run on disk: its folder, its one writer, and what has changed since it began."""

from __future__ import annotations

import datetime
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import files, runtime
from beeline.errors import ConfigError, RunFolderError, UnknownNameError, UnreadableError, copyable
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
        self._lock: files.Lock | None = None

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
        except RunFolderError as error:
            raise type(error)(f"{error} Choose another folder with --out.") from error
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
            resume = f"Go on with it ({copyable('resume', path)}) or choose"
            advice = resume if (path / "config.json").exists() else "Choose"
            raise RunFolderError(f"{path} exists already. {advice} another folder with --out.")

    def _write_config(self, plan: Plan) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        config = plan.to_dict() | {"created": now, "versions": runtime.versions(), **runtime.machine()}
        files.write_atomic(self.path / "config.json", files.sealed(config))

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not path.exists():
            near = difflib.get_close_matches(path.name, [each.name for each in _siblings(path)], n=3, cutoff=0.5)
            ask = f" Did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else ""
            raise RunFolderError(f"there is no run folder {path}.{ask}")
        if not (path / "config.json").is_file():
            depth = "*/*/*" if (path / "matrix.json").is_file() else "*"
            inside = sorted(each.parent for each in path.glob(f"{depth}/config.json"))
            names = ", ".join(map(str, inside[:3])) + (" and others" if len(inside) > 3 else "")
            listed = f" Runs in it: {names}." if inside else ""
            raise RunFolderError(f"{path} is not a run folder: it has no config.json.{listed}")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return files.load_json(self.path / "config.json")

    def plan(self, objects: Mapping[str, Any] | None = None) -> Plan:
        """The plan the run was made from; objects that were handed over in Python are given again."""
        path = self.path / "config.json"
        try:
            plan = Plan.from_dict(self.config(), objects)
            if not all(isinstance(value, str) for value in (plan.env, plan.preset, plan.init_from or "")):
                raise TypeError("env, preset and init_from must be text")
        except (KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{path} is damaged ({error!r}).") from None
        except (ConfigError, UnknownNameError) as error:
            raise ConfigError(f"{path}: {error}") from None
        return plan

    def rewrite(self, plan: Plan, accepted: Sequence[Mapping[str, Any]] = ()) -> None:
        """Store a changed plan (more steps, accepted changes); everything else stays as it was at creation."""
        config = self.config() | plan.to_dict()
        if accepted:
            before = config.get("accepted")
            config["accepted"] = [*(before if isinstance(before, list) else []), *accepted]
        files.write_atomic(self.path / "config.json", files.sealed(config))

    def traces(self) -> list[str]:
        """What says that a run had begun here, whatever became of its checkpoints."""
        found = []
        status = files.read_json(self.path / "status.json")
        step = status.get("step")
        if status.get("state") == "finished" or (isinstance(step, int | float) and step > 0):
            found.append(f"status.json says {status.get('state')} at step {step}")
        try:
            rows = files.read_regular(self.path / "metrics.csv").count(b"\n") - 1
            found += [f"metrics.csv has {rows} rows"] if rows > 0 else []
        except FileNotFoundError:
            pass
        except UnreadableError as error:
            found.append(str(error).rstrip("."))
        found += [f"there is {name}" for name in ("policy.npz", "policy-best.npz") if os.path.lexists(self.path / name)]
        segments = len(list((self.path / "replay").glob("segment-*.npz")))
        return found + ([f"replay/ has {segments} segments"] if segments else [])

    def lock(self) -> None:
        """Become the one writer; the lock ends with the process, however it ends."""
        path = self.path / ".lock"
        self._lock = files.take_lock(path, owner=f"process {os.getpid()}")
        if self._lock is None:
            owner = files.lock_owner(path) or "another process"
            raise RunFolderError(f"{self.path} is in use by {owner}; a run has one writer.")

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
    now, versions = runtime.versions(), config.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    for name in ("jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco", "dm-control", "dm_control"):
        before = versions.get(name)
        if before and now.get(name) != before:
            found.append(f"{name} is {now.get(name)}, the run began with {before}: bytes may differ.")
    return found
