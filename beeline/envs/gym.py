"""Gymnasium's own environments, by registered id or by `package.module:EnvId`."""

from __future__ import annotations

import copy
import importlib

import gymnasium

from beeline.envs.spec import Built
from beeline.envs.tables import GYM
from beeline.errors import EnvError, UnknownNameError


def build(task: str, render: bool) -> Built:
    """Make a registered environment without Gymnasium's wrappers: the adapter does their work in one step."""
    spec = copy.copy(lookup(task))
    spec.order_enforce = False
    try:
        env = gymnasium.make(
            spec, max_episode_steps=-1, disable_env_checker=True, render_mode="rgb_array" if render else None
        )
    except (ImportError, gymnasium.error.Error) as error:
        old = " MuJoCo -v2 and -v3 ids need mujoco_py, which no longer installs: use -v5 or -v4."
        raise EnvError(f"environment 'gym/{task}' cannot be made: {error}{old * ('mujoco' in str(error))}") from error
    return Built(env, task, spec.max_episode_steps, success=reports_success(env))


def lookup(task: str) -> gymnasium.envs.registration.EnvSpec:
    """Find a registered id, importing the module it names; otherwise say which ids are near."""
    module, _, name = task.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except ImportError as error:
        raise EnvError(
            f"environment {task!r}: the module {module!r} cannot be imported ({error}). Install the package that "
            "has it, or start from the folder it lies in."
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
