"""Gymnasium's own environments, by registered id or by `package.module:EnvId`."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable

import gymnasium

from beeline.envs import trust
from beeline.envs.spec import Built
from beeline.envs.tables import GYM
from beeline.errors import EnvError, UnknownNameError


def build(task: str, render: bool) -> Built:
    """Make a registered environment."""
    return registered(task, f"gym/{task}", task, render)


def registered(gym_id: str, env_id: str, task: str, render: bool, success: bool | None = None, **kwargs: object) -> Built:
    """Make a registered environment without Gymnasium's wrappers: the adapter does their work in one step."""
    spec = copy.copy(lookup(gym_id))
    spec.order_enforce = False
    if render:  # a user's environment need not have the argument
        kwargs["render_mode"] = "rgb_array"
    try:
        env = gymnasium.make(spec, max_episode_steps=-1, disable_env_checker=True, **kwargs)
    except (ImportError, TypeError, gymnasium.error.Error) as error:
        old = " MuJoCo -v2 and -v3 ids need mujoco_py, which no longer installs: use -v5 or -v4."
        raise EnvError(f"environment {env_id!r} cannot be made: {error}{old * ('mujoco' in str(error))}") from error
    return Built(env, task, spec.max_episode_steps, reports_success(env) if success is None else success)


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
            importlib.import_module(module)
        return gymnasium.spec(name)
    except ImportError as error:
        raise EnvError(
            f"environment {task!r}: the module {module!r} cannot be imported ({error}). Install the package that "
            "has it, put its folder into PYTHONPATH, or start with `python -m beeline` in that folder."
        ) from error
    except gymnasium.error.Error as error:
        prefix = f"{module}:" if module else "gym/"
        known = [prefix + other for other in (gymnasium.registry if module else [*GYM, *gymnasium.registry])]
        raise UnknownNameError("environment", task if module else f"gym/{task}", dict.fromkeys(known)) from error


def reports_success(env: gymnasium.Env) -> bool:
    """Return whether the info of a step will say if it succeeded: goal environments do, others may declare it."""
    space = env.observation_space
    goal = isinstance(space, gymnasium.spaces.Dict) and "desired_goal" in space.spaces
    return goal or bool(getattr(env.unwrapped, "beeline_success", False))
