"""Environment ids: `suite/task?option=value&…`, and what the options mean."""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Callable
from typing import Any

from beeline.config import Config
from beeline.envs.tables import SUITES
from beeline.errors import ConfigError, UnknownNameError

MODULE_ID = re.compile(r"[A-Za-z_][\w.]*:.+")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the adapter adds to an environment; the defaults add nothing. `own` are options that the suite itself reads."""

    noise: float = 0.0
    repeat: int = 1
    sparse: float = 0.0
    limit: int | None = None
    own: tuple[tuple[str, Any], ...] = ()

    def query(self) -> str:
        """Return the options that differ from the defaults as `?name=value&…`, in alphabetical order."""
        fields = [field for field in dataclasses.fields(self) if field.name != "own"]
        given = [(f.name, getattr(self, f.name)) for f in fields if getattr(self, f.name) != f.default]
        words = [f"{name}={_text(value)}" for name, value in sorted([*given, *self.own])]
        return "?" + "&".join(words) if words else ""


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _number(low: float, kind: type, allowed: str) -> Callable[[str, str], float]:
    def parse(name: str, text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value >= low and math.isfinite(value)):
            raise ConfigError(f"environment option {name}={text!r} must be {allowed}.")
        return value

    return parse


PARSERS: dict[str, Callable[[str, str], float]] = {
    "noise": _number(0.0, float, "a standard deviation of at least 0"),
    "repeat": _number(1, int, "a whole number of at least 1"),
    "sparse": _number(0.0, float, "a number of at least 0 (0 leaves the reward as it is)"),
    "limit": _number(1, int, "a whole number of environment steps of at least 1"),
}


def split(env_id: str) -> tuple[str, str, Options]:
    """Split `suite/task?options`; Gymnasium's `package.module:EnvId` belongs to the suite `gym`."""
    head, _, query = env_id.partition("?")
    if MODULE_ID.fullmatch(head):
        return "gym", head, _options(env_id, "gym", query)
    suite, slash, task = head.partition("/")
    suite, task = (suite, task) if slash else ("", head)
    return suite, task, _options(env_id, suite, query)


def _options(env_id: str, suite: str, query: str) -> Options:
    config = own_options(suite)
    parsers = {**PARSERS, **{name: _own_parser(config, name) for name in config.names()}}
    found: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        name, _, text = item.partition("=")
        if name not in parsers:
            raise UnknownNameError("environment option", name, parsers, f"Options are {', '.join(sorted(parsers))}.")
        value = parsers[name](name, text)
        if found.setdefault(name, value) != value:
            raise ConfigError(f"{env_id!r} gives the option {name} twice: {_text(found[name])} and {_text(value)}.")
    nothing = config()
    own = sorted((name, found.pop(name)) for name in config.names() if name in found)
    return Options(**found, own=tuple((name, value) for name, value in own if value != getattr(nothing, name)))


def own_options(suite: str) -> type[Config]:
    """The config of the options that a suite's ids have besides everybody's; one without fields where it has none."""
    where = SUITES[suite].options if suite in SUITES else None
    if where is None:
        return Config
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"beeline.envs.{module}"), name)


def _own_parser(config: type[Config], name: str) -> Callable[[str, str], Any]:
    def parse(_: str, text: str) -> Any:
        try:
            return getattr(config.make({name: text}), name)
        except ConfigError as error:
            raise ConfigError(f"environment option {error}") from None

    return parse


def with_repeat(env_id: str, options: Options, repeat: int) -> Options:
    """Add an action repeat given beside the id; two different repeats are an error, never a product."""
    if repeat == 1:
        return options
    repeat = int(PARSERS["repeat"]("repeat", str(repeat)))
    if options.repeat not in (1, repeat):
        raise ConfigError(f"{env_id!r} repeats actions {options.repeat} times, but repeat={repeat} was given as well.")
    return dataclasses.replace(options, repeat=repeat)
