"""Which modules the id of a task may import: those that this user has named, and those of installed plugins.

`package.module:EnvId` makes Python import `package.module`, which runs it. Where the user says such an id, on the command line or
in Python, that is what they want; where it stands in a policy file, a config.json or a matrix.json, it is somebody else's word.
So there is one gate, `require`, before the one import, and it knows nothing of where an id came from: a module passes if it was
named. `allow` names one, and is called only where the user speaks. What was named is remembered in the user's state folder, with
the place where Python finds it, so that runs go on without naming it again and another folder's module of the same name is
another module. A worker of a matrix asks neither the user nor that folder, which may be another machine's: the command that
starts it hands over what it may import (`inherit`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from beeline import files, screen
from beeline.envs import ids
from beeline.errors import BeelineError, UnnamedModuleError, copyable

GROUP = "beeline.environments"  # the entry points of installed packages that register environments
FILE = "modules.json"
INSTALLED = "installed"  # the place of what was put where packages go, by whatever version of Python

_named: set[str] = set()
_inherited = False


class Module(NamedTuple):
    """A module as it was named: the package it belongs to may be another one in another folder."""

    module: str
    place: str


class Recorded(str):
    """An id that was read from a file: handing it on to a function that users call does not name its module."""

    __slots__ = ()


def allow(*envs: Any) -> None:
    """Name the modules of these ids, because the user gave them; whatever is no id (a factory, an instance) needs no name."""
    given = {ids.module_of(env) for env in envs if isinstance(env, str) and not isinstance(env, Recorded)}
    new = given - {""} - _named
    if new:
        _named.update(new)
        if not _inherited:
            _remember({Module(name, place_of(name)) for name in new})


def require(module: str, env_id: str) -> None:
    """Raise if `module`, which making `env_id` imports, was named by nobody; an id without one (`""`) always passes."""
    if not module or module in _named:
        return
    (known, damage), place = (set(), "") if _inherited else _listed(), place_of(module)
    if Module(module, place) in known or (not _inherited and module in plugins()):
        return
    others = sorted(other.place for other in known if other.module == module)
    before = f" ({damage})" if damage else ""
    before += f"; the one that you did is {others[0] or 'nowhere'}, this one {place or 'nowhere'}" if others else ""
    raise UnnamedModuleError(
        f"environment {str(env_id)!r} would import the Python module {module!r} and so run it, but its id comes out of a file "
        f"and you have not named this module before{before}. If you trust it, name it once: with --env {quote(str(env_id))} "
        f"(env=… in Python), or with {copyable('check-env', env_id)}."
    )


def inherit(modules: Iterable[str]) -> None:
    """In a worker: these modules may be imported and no others, whatever is remembered on this machine."""
    global _inherited
    _inherited = True
    _named.clear()
    _named.update(modules)


def plugins() -> set[str]:
    """The modules that installed packages declare as their environments."""
    return {entry.module for entry in metadata.entry_points(group=GROUP)}


def place_of(module: str) -> str:
    """Where Python finds the package of a module, on its path or in the working folder; nothing of it is imported.

    `installed` for what lies among the installed packages, so that it is the same under the next version of Python; empty where
    there is no such module.
    """
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) or PathFinder.find_spec(top, [str(Path.cwd())])
    except (ImportError, ValueError, AttributeError, OSError):  # a name that none can have, a working folder that is gone
        return ""
    if spec is None:
        return ""
    found = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    if not found:  # built into Python
        return INSTALLED
    path = Path(os.path.realpath(found[0]))
    homes = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    return INSTALLED if any(path.is_relative_to(home) for home in homes) else str(path)


# --- memory -----------------------------------------------------------------------------------------------------------


def state_folder() -> Path:
    """Where what was named is kept; RuntimeError where this user has no home."""
    if own := os.environ.get("BEELINE_STATE_HOME"):
        return Path(own)
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "beeline"


def remembered() -> set[Module]:
    """The modules that this user has named in earlier commands; none where the list is missing or damaged."""
    return _listed()[0]


def _listed() -> tuple[set[Module], str]:
    """The modules on the list, and what is wrong with it; a list that is not there is an empty one."""
    try:
        path = state_folder() / FILE
    except RuntimeError:  # no home
        return set(), ""
    try:
        found = json.loads(files.read_regular(path.resolve(), 1 << 20))
        entries = {Module(entry["module"], entry["place"]) for entry in found}
        if not isinstance(found, list) or not all(isinstance(text, str) for entry in entries for text in entry):
            raise TypeError("it is no list of names")
    except FileNotFoundError:
        return set(), ""
    except (BeelineError, OSError, ValueError, TypeError, LookupError, RuntimeError):  # RecursionError is a RuntimeError
        return set(), f"{str(path)!r}, the list of the modules that you named, is damaged or cannot be read, so it names none"
    return entries, ""


def _remember(modules: set[Module]) -> None:
    """Add modules to the list. A folder that cannot be written is no error: they are named for this process."""
    try:
        folder = state_folder()
        if modules <= remembered():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = files.take_lock(folder / ".lock", wait=True)
        assert lock is not None
        with lock:  # another command may be adding to the list
            known, damage = _listed()
            entries = [entry._asdict() for entry in sorted(known | modules)]
            files.write_atomic(folder / FILE, json.dumps(entries, indent=1).encode())
        if damage:
            names = ", ".join(sorted(entry.module for entry in modules))
            screen.complain(f"note: {damage}; it begins anew with {names}. Name the others again when they are asked for.")
    except (BeelineError, OSError, RuntimeError) as error:
        reason = error.__cause__ or error
        names = ", ".join(sorted(entry.module for entry in modules))
        screen.complain(f"note: that you named {names} cannot be remembered ({reason})")
