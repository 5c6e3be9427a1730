"""From an id, a factory or an instance to an adapted environment. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from beeline.envs import boundary, ids
from beeline.envs.spec import Built, EnvSpec
from beeline.envs.tables import SUITES, Suite
from beeline.errors import ConfigError, EnvError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    import gymnasium

    from beeline.envs.adapter import Adapter

    EnvLike = str | Callable[[], gymnasium.Env] | gymnasium.Env


def make(env: EnvLike, *, repeat: int = 1, limit: int | None = None, render: bool = False) -> Adapter:
    """Make an environment as `beeline.envs.make` does, but without naming its module: wherever the id may be a file's."""
    if render:
        from beeline.envs import rendering

        rendering.choose_backend()  # before any simulator is imported; without a backend, render() will say so

    from beeline.envs.adapter import Adapter

    if isinstance(env, str):
        suite, built, options = _from_id(env, render)
        options = ids.with_limit(env, ids.with_repeat(env, options, repeat), limit)
        name = built.task if ids.MODULE_ID.fullmatch(built.task) else f"{suite}/{built.task}"
        return Adapter(built, name + options.query(), options)
    if isinstance(env, Adapter):
        if repeat not in (1, env.facts.repeat):
            raise ConfigError(f"{env.facts.id!r} repeats actions {env.facts.repeat} times already.")
        if limit not in (None, env.facts.limit):
            raise ConfigError(f"{env.facts.id!r} has the limit {env.facts.limit} already.")
        return env
    inner = _call(env, render) if _is_factory(env) else env  # type: ignore[arg-type]
    options = ids.with_limit("environment", ids.with_repeat("environment", ids.Options(), repeat), limit)
    if isinstance(inner, Adapter):  # a factory may itself call make
        return make(inner, repeat=repeat, limit=limit)
    return Adapter(_from_instance(inner), _name(inner) + options.query(), options)


def spec_of(env: EnvLike, *, repeat: int = 1) -> EnvSpec:
    """Return the facts of an environment; one made here from an id or a factory is closed again."""
    facts = getattr(env, "facts", None)
    if isinstance(facts, EnvSpec) and repeat in (1, facts.repeat):  # adapted already, here or in a process of its own
        return facts
    adapted = make(env, repeat=repeat)
    if isinstance(env, str) or _is_factory(env):
        adapted.close()
    return adapted.facts


def suite_of(name: str, wanted: str) -> Suite:
    """Return a suite by its name; `wanted` is the id without options, for the error's nearest names."""
    if name in SUITES:
        return SUITES[name]
    hint = f"An id is suite/task or package.module:EnvId; the suites are {', '.join(SUITES)}."
    if name and (meant := ids.as_module(wanted)) != wanted:
        raise ids.by_its_file(wanted, meant)
    if name:
        raise UnknownNameError("environment suite", name, SUITES, hint)
    owners = {task: f"{suite.name}/{task}" for suite in SUITES.values() for task in suite.tasks}
    if wanted in owners:
        hint = f"Did you mean {owners[wanted]!r}? {hint}"
    raise UnknownNameError("environment", wanted, [] if wanted in owners else owners.values(), hint)


def installed(suite: Suite) -> bool:
    """Return whether the suite's simulator can be imported, without importing it."""
    return importlib.util.find_spec(suite.probe) is not None


def _from_id(env_id: str, render: bool) -> tuple[str, Built, ids.Options]:
    name, task, options = ids.split(env_id)
    suite = suite_of(name, env_id.partition("?")[0])
    if not installed(suite):
        assert suite.extra is not None
        raise MissingExtraError(f"environment {env_id!r}", suite.extra, f"no module named {suite.probe!r}")
    module, _, function = suite.builder.partition(":")
    build = getattr(importlib.import_module(f"beeline.envs.{module}"), function)
    more: dict[str, Any] = dict(options.own) | ({"arguments": options.arguments} if options.arguments else {})
    return name, build(task, render, **more), options


def _is_factory(env: object) -> bool:
    return isinstance(env, type) or (callable(env) and not hasattr(env, "step"))


def _call(factory: Callable[..., gymnasium.Env], render: bool) -> gymnasium.Env:
    try:
        accepts = "render_mode" in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        accepts = False
    with boundary.calling(f"the factory {getattr(factory, '__name__', type(factory).__name__)!r} failed"):
        return factory(render_mode="rgb_array") if render and accepts else factory()


def with_arguments(env: EnvLike, arguments: Mapping[str, Any] | None) -> EnvLike:
    """Return the environment with arguments of its own: in its id, where the record of a run has them, or for its factory."""
    if not arguments:
        return env
    if isinstance(env, str):
        return ids.with_arguments(env, arguments)
    if not _is_factory(env):
        raise ConfigError("env_kwargs are for an id or a factory; an instance is made already.")
    factory: Any = env
    return functools.wraps(factory, updated=())(functools.partial(factory, **arguments))


def _from_instance(env: object) -> Built:
    import gymnasium

    from beeline.envs.gym import reports_success

    if not isinstance(env, gymnasium.Env):
        raise EnvError(
            f"{type(env).__name__} is not a gymnasium.Env. Pass an id, an instance of a class that inherits from "
            "gymnasium.Env, or a function without arguments that returns one."
        )
    limit = env.spec.max_episode_steps if env.spec is not None else None
    return Built(env, _name(env), limit, success=reports_success(env))


def _name(env: object) -> str:
    spec = getattr(env, "spec", None)
    return f"gym/{spec.id}" if spec is not None else type(getattr(env, "unwrapped", env)).__name__
