"""Environment ids: `suite/task?option=value&…`, and what the options mean.

Options of ours have the same meaning in every suite. In the suite `gym`, the user's own environments included, any other
name is an argument of the environment itself, with a JSON value: `tank:Tank-v0?size=3&walls=[1,2]&mode=fast`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from beeline.config import Config
from beeline.envs.tables import SUITES
from beeline.errors import ConfigError, EnvError, UnknownNameError

MODULE_ID = re.compile(r"[A-Za-z_][\w.]*:.+")
WORD = re.compile(r"[A-Za-z_][\w./:-]*")  # text that needs no quotes
MISSPELT = {"true": "true", "false": "false", "none": "null", "null": "null", "nan": "a finite number", "inf": "a finite number"}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the adapter adds to an environment; the defaults add nothing. `own` are options that the suite itself reads."""

    noise: float = 0.0
    repeat: int = 1
    sparse: float = 0.0
    limit: int | None = None
    own: tuple[tuple[str, Any], ...] = ()  # options that a suite's ids have besides everybody's
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the environment itself

    def query(self) -> str:
        """Return what differs from the defaults as `?name=value&…`, in alphabetical order, arguments included."""
        fields = [field for field in dataclasses.fields(self) if field.name not in ("own", "arguments")]
        given = {f.name: _text(getattr(self, f.name)) for f in fields if getattr(self, f.name) != f.default}
        given |= {name: _text(value) for name, value in self.own}
        given |= {name: _json(value) for name, value in self.arguments.items()}
        return "?" + "&".join(f"{name}={text}" for name, text in sorted(given.items())) if given else ""


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _json(value: Any) -> str:
    """A value as it stands in an id: JSON without spaces, with what would end it there escaped."""
    if isinstance(value, str) and WORD.fullmatch(value) and value.lower() not in MISSPELT:
        return value
    return urllib.parse.quote(json.dumps(value, separators=(",", ":"), allow_nan=False), safe='[]{}",:/+!\'()*;@$^|<>\\`~ ')


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
    suite, slash, task = head.partition("/")
    if MODULE_ID.fullmatch(head):
        suite, task = "gym", head
    elif not slash:
        suite, task = "", head
    return suite, task, _options(env_id, suite, query)


def as_module(env_id: str) -> str:
    """The id that is meant where a file or a path stands in the place of its module; the id itself where none does."""
    head, query, options = env_id.partition("?")
    place, colon, name = head.rpartition(":")
    parts = place.removesuffix(".py").split("/")
    plain = ".".join(part for part in parts if part not in ("", "."))
    return f"{plain}:{name}{query}{options}" if colon and plain else env_id


def by_its_file(env_id: str, meant: str) -> EnvError:
    """The error for an id that names the file of a module."""
    return EnvError(f"environment {env_id!r}: a module is named as Python imports it, not by its file: {meant!r}.")


def module_of(env_id: str) -> str:
    """Return the module that making this environment imports, in whatever suite its id is; empty where there is none."""
    head = env_id.partition("?")[0]
    task = head if MODULE_ID.fullmatch(head) else head.partition("/")[2]
    return task.rpartition(":")[0]


def _options(env_id: str, suite: str, query: str) -> Options:
    config, takes_arguments = own_options(suite), suite == "gym"
    parsers = {**PARSERS, **{name: _own_parser(config, name) for name in config.names()}}
    found: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        name, _, text = item.partition("=")
        if name not in parsers and not takes_arguments:
            raise UnknownNameError("environment option", name, parsers, f"Options are {', '.join(sorted(parsers))}.")
        if name not in parsers and not name.isidentifier():
            raise ConfigError(f"{env_id!r}: {name!r} is no name of an argument. Arguments are name=value, with & between.")
        kept, value = (found, parsers[name](name, text)) if name in parsers else (arguments, _argument(env_id, name, text))
        if kept.setdefault(name, value) != value:
            shown = [_text(each) if name in parsers else _json(each) for each in (kept[name], value)]
            raise ConfigError(f"{env_id!r} gives the option {name} twice: {shown[0]} and {shown[1]}.")
    nothing = config()
    own = sorted((name, found.pop(name)) for name in config.names() if name in found)
    changed = tuple((name, value) for name, value in own if value != getattr(nothing, name))
    return Options(**found, own=changed, arguments=arguments)


def _argument(env_id: str, name: str, text: str) -> Any:
    """The JSON value of an argument; a plain word is text."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    text = urllib.parse.unquote(text)
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        if WORD.fullmatch(text) and text.lower() not in MISSPELT:
            return text
    meant = MISSPELT.get(text.lower(), 'a JSON value such as 3, 0.5, true, null, [1,2] or "some text"')
    raise ConfigError(f"{env_id!r}: the argument {name}={text} cannot be read; write {meant}.")


def with_arguments(env_id: str, arguments: Mapping[str, Any]) -> str:
    """Return the id with these arguments of the environment in it, so that the record of a run has them."""
    suite, _, options = split(env_id)
    if not arguments:
        return env_id
    if suite != "gym":
        raise ConfigError(f"{env_id!r}: env_kwargs are for environments of Gymnasium and your own, not for the suite {suite!r}.")
    for name, value in arguments.items():
        if name in PARSERS:
            raise ConfigError(f"env_kwargs: {name!r} in an id is an option of Beeline's. Give a factory: lambda: MyEnv(…).")
        try:
            plain = json.loads(json.dumps(value, allow_nan=False)) == (list(value) if isinstance(value, tuple) else value)
        except (TypeError, ValueError, RecursionError):
            plain = False
        if not (plain and str(name).isidentifier()):
            raise ConfigError(
                f"env_kwargs: {name} = {value!r} has no place in an id, which takes JSON values only. Give a factory instead: "
                "lambda: MyEnv(…)."
            )
        if name in options.arguments and options.arguments[name] != value:
            raise ConfigError(f"{env_id!r} gives {name} = {options.arguments[name]!r}, but env_kwargs gives {value!r}.")
    options = dataclasses.replace(options, arguments={**options.arguments, **arguments})
    return env_id.partition("?")[0] + options.query()


def with_limit(env_id: str, options: Options, limit: int | None) -> Options:
    """Add a time limit given beside the id; two different limits are an error."""
    if limit is None:
        return options
    limit = int(PARSERS["limit"]("limit", str(limit)))
    if options.limit not in (None, limit):
        raise ConfigError(f"{env_id!r} has the limit {options.limit}, but limit={limit} was given as well.")
    return dataclasses.replace(options, limit=limit)


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
