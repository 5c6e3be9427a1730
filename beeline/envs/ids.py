"""Environment ids: `suite/task?option=value&…`, and what the options mean."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable

from beeline.errors import ConfigError, UnknownNameError

MODULE_ID = re.compile(r"[A-Za-z_][\w.]*:.+")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the adapter adds to an environment; the defaults add nothing."""

    noise: float = 0.0
    repeat: int = 1
    sparse: float = 0.0
    limit: int | None = None

    def query(self) -> str:
        """Return the options that differ from the defaults as `?name=value&…`, in alphabetical order."""
        fields = sorted(dataclasses.fields(self), key=lambda field: field.name)
        given = [(f.name, getattr(self, f.name)) for f in fields if getattr(self, f.name) != f.default]
        return "?" + "&".join(f"{name}={_text(value)}" for name, value in given) if given else ""


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
    options = _options(env_id, query)
    if MODULE_ID.fullmatch(head):
        return "gym", head, options
    suite, slash, task = head.partition("/")
    return (suite, task, options) if slash else ("", head, options)


def module_of(env_id: str) -> str:
    """Return the module that making this environment imports, in whatever suite its id is; empty where there is none."""
    head = env_id.partition("?")[0]
    task = head if MODULE_ID.fullmatch(head) else head.partition("/")[2]
    return task.rpartition(":")[0]


def _options(env_id: str, query: str) -> Options:
    found: dict[str, float] = {}
    for item in filter(None, query.split("&")):
        name, _, text = item.partition("=")
        if name not in PARSERS:
            raise UnknownNameError("environment option", name, PARSERS, f"Options are {', '.join(sorted(PARSERS))}.")
        value = PARSERS[name](name, text)
        if found.setdefault(name, value) != value:
            raise ConfigError(f"{env_id!r} gives the option {name} twice: {_text(found[name])} and {_text(value)}.")
    return Options(**found)  # type: ignore[arg-type]


def with_repeat(env_id: str, options: Options, repeat: int) -> Options:
    """Add an action repeat given beside the id; two different repeats are an error, never a product."""
    if repeat == 1:
        return options
    repeat = int(PARSERS["repeat"]("repeat", str(repeat)))
    if options.repeat not in (1, repeat):
        raise ConfigError(f"{env_id!r} repeats actions {options.repeat} times, but repeat={repeat} was given as well.")
    return dataclasses.replace(options, repeat=repeat)
