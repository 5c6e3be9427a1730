"""Read run folders as others left them: the damage of one is a line that says what and where, and stops nobody else's reading.

Everything that shows runs (report, live page, `beeline runs`, matrices) reads their files through this module, so that what a
file holds is checked once: types, sizes, text, and that it is a file of that folder and no link out of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from beeline import files
from beeline.errors import BeelineError, UnreadableError
from beeline.run import metrics as tables
from beeline.run.metrics import MOST_STEPS, Metrics
from beeline.screen import legible

RECORD = frozenset({"status.json", "metrics.csv"})
STATES = ("running", "finished", "stopped", "failed")
DEEPEST = 16  # levels of a config; the encoders of reports give up at some depth, this is far above any option

Say = Callable[[str], None]
_silent: Say = lambda text: None  # noqa: E731


class Damage(NamedTuple):
    """What is wrong with one run folder, in one line."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return legible(f"{self.path}: {self.reason}")


Note = Callable[[Damage], None]


def warn(damage: Damage) -> None:
    """The default way to hear of damage: Python's warnings, so that it is seen once and can be filtered."""
    warnings.warn(str(damage), stacklevel=3)


@contextmanager
def guard(folder: Path, say: Say) -> Iterator[None]:
    """Whatever goes wrong while a file of `folder` is read is said in one line; the caller goes on with what it has."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, BeelineError)
        text = str(error) if known else f"it cannot be read ({type(error).__name__}: {error})."
        say(legible(" ".join(text.replace(f"{folder}{os.sep}", "").split())))


# --- status and metrics -----------------------------------------------------------------------------------------------


class Status(NamedTuple):
    """How a run stands, as far as its status.json says; a run that has none yet is of unknown state."""

    state: str = "unknown"
    step: int | None = None
    reason: str = ""
    table: tuple[int, str] | None = None  # bytes and SHA-256 of the metrics table at the end of a run
    config: str = ""  # SHA-256 of the config of a run that has ended, but for what going on with it changes


def status(folder: Path, say: Say) -> Status:
    """The status of a run; unknown where there is none or it is damaged, which is said."""
    with guard(folder, say):
        path = folder / "status.json"
        try:
            found = files.load_json(path)
        except FileNotFoundError:
            return Status()
        state, step, reason = found.get("state"), found.get("step"), found.get("reason") or ""
        if state not in STATES:
            raise UnreadableError(f"{path} is damaged (state is {_short(state)}, none of {', '.join(STATES)}).")
        if not _whole(step, 0):
            raise UnreadableError(f"{path} is damaged (step is {_short(step)}, no number of steps).")
        if not isinstance(reason, str):
            raise UnreadableError(f"{path} is damaged (reason is {_short(reason)}, no text).")
        if not files.is_as_written(found):
            raise UnreadableError(f"{path} is not as it was written (its SHA-256 is another).")
        table = found.get("table")
        if table is not None and not (isinstance(table, dict) and _whole(table.get("bytes"), 0)):
            raise UnreadableError(f"{path} is damaged (table is {_short(table)}, no length and SHA-256).")
        vouched = None if table is None else (table["bytes"], str(table.get("sha256")))
        return Status(state, step, legible(reason), vouched, str(found.get("config") or ""))
    return Status()


def reached(how: Status, last: int) -> int:
    """The step that a run is at: that of its status, and of one that goes on that of its last row if it is further."""
    return last if how.step is None else max(how.step, last) if how.state == "running" else how.step


def metrics(folder: Path, say: Say, how: Status | None = None) -> Metrics:
    """The metrics table of a run, as far as it can be read; what cannot, or is not what its status vouches for, is said."""
    found = Metrics()
    with guard(folder, say):
        path = folder / "metrics.csv"
        try:
            data = files.read_regular(path)
        except FileNotFoundError:
            return found
        found = tables.parse(data)
        if how and how.table and not found.trouble:
            size, digest = how.table
            if hashlib.sha256(data[:size]).hexdigest() != digest and status(folder, _silent) == how:  # else it goes on now
                raise UnreadableError(f"{path} is damaged (it is not as it was written: its SHA-256 is another).")
        if trouble := found.trouble or _odd(found):
            raise UnreadableError(f"{path} is damaged ({trouble}).")
    return found


def _odd(table: Metrics) -> str:
    """What no run writes, though every line can be read."""
    steps = table.column("step")
    back = steps[1:][steps[1:] < steps[:-1]]
    if back.size:  # a table is cut before it is written anew
        return f"it goes back to step {back[0]:.0f}"
    return "its header has no column 'eval/return'" if table.names and "eval/return" not in table.names else ""


def record(folder: Path, say: Say, task: str = "", train: Mapping[str, Any] | None = None) -> tuple[Status, Metrics]:
    """Status and metrics of a run, compared; `task` and `train` are its task and options, as far as they are known."""
    said: list[str] = []
    how = status(folder, said.append)
    table = metrics(folder, said.append, how)
    if not said and (lost := _lost(how, table, _apart(task, train or {}))):
        said.append(lost)
    for text in said:
        say(text)
    return how, table


def _lost(how: Status, table: Metrics, apart: int | None) -> str:
    """What one of the two files knows of and the other has not: that is loss, not a line that is being written."""
    if how.step is None:  # a run has a status before it writes its first row
        return "status.json is missing, though metrics.csv has rows." if table.values.size else ""
    if how.step and not table.names:
        return f"metrics.csv is missing or empty, though the run came to step {how.step:,}."
    if how.state != "finished":
        return ""
    if table.cut:
        return "metrics.csv is damaged (the end of its last line is lost)."
    last = table.column("step").max(initial=0)
    if apart is not None and how.step - last > apart:
        return f"metrics.csv is damaged (it ends at step {last:,.0f}, but the run finished at step {how.step:,})."
    return ""


def _apart(task: str, train: Mapping[str, Any]) -> int | None:
    """The most steps that lie between two rows of a run with these options; None where they do not say."""
    inside = re.search("[?&]repeat=([0-9]{1,3})", task)
    repeat = train.get("repeat") or (int(inside[1]) if inside else 1)
    found: list[Any] = [train.get("log_every"), train.get("num_envs"), repeat]
    return found[0] + found[1] * found[2] if all(isinstance(each, int) for each in found) else None


# --- config -----------------------------------------------------------------------------------------------------------


def config(folder: Path) -> dict[str, Any]:
    """The content of a folder's config.json, whatever it is the config of."""
    path = folder / "config.json"
    try:
        return files.load_json(path)
    except FileNotFoundError:
        raise UnreadableError(f"{path} is missing.") from None


def check_config(folder: Path, found: dict[str, Any]) -> None:
    """Raise unless every field that readers use is there and of its type."""
    if wrong := _wrong(found):
        raise UnreadableError(f"{folder / 'config.json'} is damaged ({wrong}).")


def changed(found: Mapping[str, Any], how: Status) -> str:
    """What is to be said of a config that is not as it was written, or is another run's; empty where it is neither."""
    if not files.is_as_written(found):
        return "config.json is not as it was written (its SHA-256 is another)."
    if how.config not in ("", identity(found)):
        return "config.json is not that of the run that ended here (status.json has the SHA-256 of another)."
    return ""


def identity(config: Mapping[str, Any]) -> str:
    """The SHA-256 of a config without its number of steps, which `resume` may raise, and the changes that were accepted."""
    train = config.get("train")
    kept = {name: value for name, value in train.items() if name != "steps"} if isinstance(train, dict) else train
    return files.digest({name: value for name, value in config.items() if name != "accepted"} | {"train": kept})


def is_foreign(folder: Path, found: dict[str, Any]) -> bool:
    """Whether a config.json is that of something else than a run: it has nothing of one, and no record lies beside it."""
    beside = any(os.path.lexists(folder / name) for name in RECORD)
    return not beside and not {"algo", "env"} & found.keys()


def _wrong(found: dict[str, Any]) -> str:
    """What in a config cannot be that of a run; empty where it can."""
    for name in ("algo", "env"):
        if not isinstance(found.get(name), str) or not found[name]:
            return f"{name} is {_short(found[name])}, no name" if name in found else f"it has no {name}"
    for name in ("preset", "init_from"):
        if not isinstance(found.get(name), str | None):
            return f"{name} is {_short(found[name])}, no text"
    for name in ("agent", "train", "versions"):
        if not isinstance(found.get(name, {}), dict):
            return f"{name} is {_short(found[name])}, no section"
    train = found.get("train", {})
    counts = {"seed": (found.get("seed", 0), 0), "steps": (train.get("steps", 1), 1)}
    if train.get("repeat") is not None:
        counts["repeat"] = train["repeat"], 1
    for name, (value, least) in counts.items():
        if not _whole(value, least):
            return f"{name} is {_short(value)}, no whole number from {least}"
    return _unsound(found)


def _unsound(value: Any, depth: int = 0) -> str:
    """What in a value of JSON no page can hold: halves of characters, and levels without end."""
    if depth > DEEPEST:
        return f"it is nested more than {DEEPEST} levels deep"
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return f"{_short(value)} is no Unicode text"
    return next((wrong for item in inside if (wrong := _unsound(item, depth + 1))), "")


def _whole(value: Any, least: int) -> bool:
    """Whether a value counts something: a whole number that floats, tables and pages can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_STEPS


def _short(value: Any) -> str:
    """A value as it was found, in a few characters."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a section"
    text = legible(ascii(value) if isinstance(value, str) else value)
    return text if len(text) <= 40 else f"{text[:40]}…"


# --- videos -----------------------------------------------------------------------------------------------------------


class Video(NamedTuple):
    """A video of a run: where it lies, links followed, and how large it is."""

    path: Path
    size: int


def own_file(folder: Path, path: Path) -> tuple[Path, os.stat_result]:
    """Where a file really lies, and its numbers; an error where that is no regular file inside `folder`."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        found = real.stat()
        inside = real.is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or error
        raise UnreadableError(f"{path} cannot be read: {reason}.") from error
    if not inside:
        raise UnreadableError(f"{path} leads out of its folder; it is not followed.")
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError(f"{path} is not a regular file.")
    return real, found


def videos(folder: Path, say: Say) -> list[Video]:
    """The videos of a run, oldest first; one that is no file of the run's own is said and left out."""
    found: list[tuple[int, str, Video]] = []
    with guard(folder, say):
        for path in sorted((folder / "videos").glob("*.mp4")):
            with guard(folder, say):
                real, numbers = own_file(folder, path)
                found.append((numbers.st_mtime_ns, path.name, Video(real, numbers.st_size)))
    return [video for *_, video in sorted(found)]
