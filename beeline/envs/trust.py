"""Which modules the id of a task may import: those that this user has named, and those of installed plugins.

`package.module:EnvId` makes Python import `package.module`, which runs it. Where the user says such an id, on the command line or
in Python, that is what they want; where it stands in a policy file, a config.json or a matrix.json, it is somebody else's word.
So there is one gate, `require`, before the one import, and it knows nothing of where an id came from: a module passes if it was
named. `allow` names one, and is called only where the user speaks. What was named is remembered in the user's state folder, so
that runs go on without naming it again. A worker of a matrix asks neither the user nor that folder, which may be another
machine's: the command that starts it hands over what it may import (`inherit`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from beeline import files
from beeline.envs import ids
from beeline.errors import BeelineError, UnnamedModuleError

GROUP = "beeline.environments"  # the entry points of installed packages that register environments
FILE = "modules.json"

_named: set[str] = set()
_inherited = False


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
            _remember(new)


def require(module: str, env_id: str) -> None:
    """Raise if `module`, which making `env_id` imports, was named by nobody; an id without one (`""`) always passes."""
    if not module or module in _named or (not _inherited and (module in remembered() or module in plugins())):
        return
    raise UnnamedModuleError(
        f"environment {str(env_id)!r} would import the Python module {module!r} and so run it, but its id comes out of a file "
        f"and you have not named this module before. If you trust it, name it once: with --env {env_id} (env=… in Python), or "
        f"with beeline check-env {env_id}."
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


# --- memory -----------------------------------------------------------------------------------------------------------


def state_folder() -> Path:
    """Where what was named is kept; RuntimeError where this user has no home."""
    if own := os.environ.get("BEELINE_STATE_HOME"):
        return Path(own)
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "beeline"


def remembered() -> set[str]:
    """The modules that this user has named in earlier commands; none where the list is missing or damaged."""
    try:
        found = json.loads(files.read_regular((state_folder() / FILE).resolve(), 1 << 20))
    except (BeelineError, OSError, ValueError, RuntimeError):  # RecursionError is a RuntimeError
        return set()
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def _remember(modules: set[str]) -> None:
    """Add modules to the list. A folder that cannot be written is no error: they are named for this process."""
    try:
        folder = state_folder()
        if modules <= remembered():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = files.take_lock(folder / ".lock", wait=True)
        assert lock is not None
        with lock:  # another command may be adding to the list
            names = sorted(remembered() | modules)
            files.write_atomic(folder / FILE, json.dumps(names, indent=1).encode())
    except (BeelineError, OSError, RuntimeError) as error:
        reason = error.__cause__ or error
        print(f"note: that you named {', '.join(sorted(modules))} cannot be remembered ({reason})", file=sys.stderr)
