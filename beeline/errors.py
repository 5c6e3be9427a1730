"""Every error a user can meet: what was wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class BeelineError(Exception):
    """Base of all errors that are the user's to mend; the command line prints them without a traceback."""


def notes(error: BaseException | None) -> list[str]:
    """What was noted on an error and on those it came from, such as the lines of the user's code in which it arose."""
    found: list[str] = []
    while error is not None:
        found += getattr(error, "__notes__", [])
        error = error.__cause__
    return found


class ConfigError(BeelineError):
    """A hyperparameter is unknown, of the wrong type, or out of its range."""


class UnknownNameError(BeelineError):
    """An algorithm, suite or task does not exist; the message offers the nearest names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
        ask = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}.{ask}{' ' + hint if hint else ''}")
        self.near = near


def copyable(*words: object) -> str:
    """A `beeline` command as it is printed for copying, with its words quoted for a shell."""
    import shlex

    return shlex.join(["beeline", *map(str, words)])


def install_line(extra: str) -> str:
    """The pip command that adds an extra to Beeline as it is installed here: from a clone, from a wheel, or from an index."""
    import shlex
    from pathlib import Path

    source, editable = _origin(Path(__file__).parents[1])
    if source == Path.cwd():
        where = "."
    else:
        where = "beeline-rl" if source is None else str(source)
    quoted = shlex.quote(f"{where}[{extra}]")
    return f"pip install {'-e ' if editable else ''}{quoted}"


def _origin(parent: Path) -> tuple[Path | None, bool]:
    """The clone, folder or wheel that Beeline comes from, and whether it is used in place; none where it came from an index."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    if (parent / "pyproject.toml").is_file() and (parent / "beeline").is_dir():
        return parent, True
    try:
        said = json.loads(metadata.distribution("beeline-rl").read_text("direct_url.json") or "{}")
        url = urlsplit(said.get("url", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None, False
    path = Path(unquote(url.path))
    return (path, False) if url.scheme == "file" and path.exists() else (None, False)


class MissingExtraError(BeelineError):
    """A suite or feature needs an extra that is not installed; the message has the pip command."""

    def __init__(self, what: str, extra: str, cause: str = "") -> None:
        why = f" ({cause})" if cause else ""
        super().__init__(f"{what} needs an extra that is not installed{why}. Run: {install_line(extra)}")
        self.extra = extra


class EnvError(BeelineError):
    """The environment cannot be trained on as it is (spaces, observations, rewards)."""


class UnnamedModuleError(EnvError):
    """A file names a task of a Python module that this user has not named; nothing was imported."""


class NonFiniteError(EnvError):
    """The environment returned NaN or infinity; training stops with a checkpoint."""


class ModelError(BeelineError):
    """A learned model cannot be trained or used: too few transitions, or its training has diverged."""


class CheckpointError(BeelineError):
    """A checkpoint is damaged, missing, or belongs to another algorithm or environment."""


class ExportError(BeelineError):
    """A policy cannot be written for use elsewhere, or what was written does not do what the policy does."""


class RobotError(BeelineError):
    """A robot, its bus or its tracker does not answer, or answers what cannot be."""


class RunFolderError(BeelineError):
    """The run folder exists already, is in use by another process, or cannot be written."""


class DiskFullError(RunFolderError):
    """No space is left; whatever was complete before stays complete."""


class UnreadableError(RunFolderError, ValueError):
    """A file is damaged, too large, or no file of its own: a link out of its folder, a folder, a pipe."""


class Interrupted(KeyboardInterrupt):
    """A signal came in the middle of an evaluation, a diagnosis or a film, which is given up and leaves no row.

    Not an Exception, so that nothing swallows it on its way out.
    """
