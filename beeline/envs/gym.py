"""Gymnasium's own environments, by registered id or by `package.module:EnvId`."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium

from beeline.envs import boundary, ids, known, trust
from beeline.envs.spec import Built
from beeline.envs.tables import GYM
from beeline.errors import EnvError, UnknownNameError


def build(task: str, render: bool, arguments: Mapping[str, Any] = MappingProxyType({})) -> Built:
    """Make a registered environment, with arguments of its own."""
    built = registered(task, task if ":" in task else f"gym/{task}", task, render, arguments=arguments)
    if arguments:  # they may change where an episode ends
        return built
    return dataclasses.replace(built, terminated=known.GYM.get(task), reward=known.REWARDS.get(task))


def registered(
    gym_id: str, env_id: str, task: str, render: bool, success: bool | None = None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> Built:  # fmt: skip
    """Make a registered environment without Gymnasium's wrappers: the adapter does their work in one step."""
    spec = copy.copy(lookup(gym_id))
    spec.order_enforce = False
    # In the spec, where an argument may have any name; a user's environment need not have the one for rendering.
    spec.kwargs = {**spec.kwargs, **arguments, **({"render_mode": "rgb_array"} if render else {})}
    try:
        env = gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True)
    except (ImportError, gymnasium.error.Error) as error:
        old = " MuJoCo -v2 and -v3 ids need mujoco_py, which no longer installs: use -v5 or -v4."
        raise EnvError(f"environment {env_id!r} cannot be made: {error}{old * ('mujoco' in str(error))}") from error
    except Exception as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
        if unknown and unknown[1] in arguments:
            raise _unknown_argument(env_id, spec, unknown[1]) from error
        raise boundary.failed(f"environment {env_id!r} cannot be made", error) from error
    return Built(env, task, spec.max_episode_steps, reports_success(env) if success is None else success)


def _unknown_argument(env_id: str, spec: gymnasium.envs.registration.EnvSpec, name: str) -> UnknownNameError:
    """An argument that the environment does not take: an option of ours that is misspelt, or one of its own."""
    try:
        entry = spec.entry_point
        parameters = inspect.signature(gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry)  # type: ignore[arg-type]
        own = [name for name, each in parameters.parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    except (TypeError, ValueError):
        own = []
    hint = f"It takes {', '.join(own) or 'none by name'}; options of every task are {', '.join(sorted(ids.PARSERS))}."
    return UnknownNameError(f"argument of environment {env_id!r},", name, [*ids.PARSERS, *own], hint)


def spelled(suite: str, task: str, known: Iterable[str], aliases: Callable[[str], str] = str) -> str:
    """Return the listed spelling of a task, whatever the case it was written in, or say which are near."""
    wanted = aliases(task).lower()
    known = list(known)
    for name in known:
        if name.lower() == wanted:
            return name
    raise UnknownNameError("environment", f"{suite}/{task}", [f"{suite}/{name}" for name in known])


def lookup(task: str) -> gymnasium.envs.registration.EnvSpec:
    """Find a registered id, importing the module it names; otherwise say which ids are near."""
    module, _, name = task.rpartition(":")
    trust.require(module, task)
    try:
        if module:
            _import(module)
        return gymnasium.spec(name)
    except ModuleNotFoundError as error:
        if (meant := ids.as_module(task)) != task:
            raise ids.by_its_file(task, meant) from error
        raise EnvError(
            f"environment {task!r}: the module {module!r} cannot be imported ({error}). Install the package that has it, or "
            f"start from the folder that it lies in; this one is {Path.cwd()}."
        ) from error
    except gymnasium.error.Error as error:
        if module:
            own = [f"{module}:{other}" for other, spec in gymnasium.registry.items() if _is_of(module, spec.entry_point)]
            hint = f"The module registers {', '.join(own[:5]) or 'nothing'}{' and others' if len(own) > 5 else ''}."
            raise UnknownNameError("environment", task, own, hint) from error
        known = [f"gym/{other}" for other in (*GYM, *gymnasium.registry)]
        raise UnknownNameError("environment", f"gym/{task}", dict.fromkeys(known)) from error


def _is_of(module: str, entry_point: object) -> bool:
    """Whether what makes an environment lies in a module or below it."""
    home = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return re.split("[.:]", home)[: module.count(".") + 1] == module.split(".")


def _import(module: str) -> None:
    """Import the module of an id; one that is not installed is looked for in the working folder, as `python -m` would."""
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a part of the name before the last is missing
        found = False
    here = str(Path.cwd())
    if not found and here not in sys.path:
        sys.path.append(here)  # last, so that nothing installed is hidden by a file that happens to lie there
        importlib.invalidate_caches()
    try:
        importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise  # the module itself is missing, not one that it imports
        raise boundary.failed(f"the module {module!r} cannot be imported", error) from error


def reports_success(env: gymnasium.Env) -> bool:
    """Return whether the info of a step will say if it succeeded: goal environments do, others may declare it."""
    space = getattr(env, "observation_space", None)
    goal = isinstance(space, gymnasium.spaces.Dict) and "desired_goal" in space.spaces
    return goal or bool(getattr(env.unwrapped, "beeline_success", False))
