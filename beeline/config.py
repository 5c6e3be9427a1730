"""Typed, documented, range-checked options; the command line and the docs are made from these fields."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from beeline import foreign
from beeline.errors import ConfigError

_SWITCH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def _plain(bound: float) -> str:
    """A bound as a user would write it: whole numbers in full."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a field may hold: its description and its range."""

    doc: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] | None = None
    alias: str | None = None

    @property
    def bounded(self) -> bool:
        """Whether there is a range of numbers."""
        return self.low is not None or self.high is not None or self.above is not None

    @property
    def allowed(self) -> str:
        """The allowed values as a user reads them; empty where anything of the type will do."""
        if self.choices and not self.bounded:
            return "one of " + ", ".join(self.choices)
        left = f"> {_plain(self.above)}" if self.above is not None else f">= {_plain(self.low)}" if self.low is not None else ""
        right = f"<= {_plain(self.high)}" if self.high is not None else ""
        range_ = " and ".join(part for part in (left, right) if part)
        return f"{range_}, or {' or '.join(self.choices)}" if self.choices else range_

    def word(self, value: Any) -> Any:
        """A switch as a word, where on and off are among several choices."""
        if not {"on", "off"} <= set(self.choices or ()):
            return value
        said = _SWITCH.get(value.lower(), value) if isinstance(value, str) else value
        return {True: "on", False: "off"}[said] if isinstance(said, bool) else said

    def admits(self, value: Any) -> bool:
        """Whether a value of the right type lies in the range."""
        if self.choices is not None and (isinstance(value, str) or not self.bounded):
            return value in self.choices
        if isinstance(value, tuple):
            return bool(value) and all(self.admits(item) for item in value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )


def option(default: Any, doc: str, **limits: Any) -> Any:
    """A dataclass field with a one-line description and its allowed range."""
    return dataclasses.field(default=default, metadata={"rule": Rule(doc, **limits)})


def _readable(annotation: Any) -> str:
    if isinstance(annotation, types.UnionType):
        return " or ".join("none" if a is types.NoneType else _readable(a) for a in typing.get_args(annotation))
    if typing.get_origin(annotation) is tuple:
        return "whole numbers separated by commas"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}.get(annotation, str(annotation))


def _coerce(value: Any, annotation: Any) -> Any:
    """`value` as the field's type; ValueError where that loses or invents something."""
    if isinstance(annotation, types.UnionType):
        kinds = typing.get_args(annotation)
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            if types.NoneType in kinds:
                return None
            raise ValueError
        for kind in kinds:
            if kind is not types.NoneType:
                try:
                    return _coerce(value, kind)
                except ValueError:
                    continue
        raise ValueError
    if typing.get_origin(annotation) is tuple:
        items = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        return tuple(_coerce(item, int) for item in items)
    if annotation is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _SWITCH:
            return _SWITCH[value.lower()]
        raise ValueError
    if annotation is int:
        if isinstance(value, bool):
            raise ValueError
        number = float(value) if isinstance(value, str) and "e" in value.lower() else value
        whole = int(number)
        if not isinstance(number, str) and whole != number:
            raise ValueError
        return whole
    if annotation is float:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return float(value)
    if annotation is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    raise TypeError(f"no rule to read a {annotation}")


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of all configs: checks every field when it is made, so that a config that exists is a valid one."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            rule: Rule = field.metadata["rule"]
            value = rule.word(getattr(self, field.name))
            try:
                value = _coerce(value, hints[field.name])
            except (TypeError, ValueError, OverflowError):
                allowed = f"; allowed: {rule.allowed}" if rule.allowed else ""
                raise ConfigError(f"{field.name} = {value!r} is not {_readable(hints[field.name])}{allowed}.") from None
            if value is not None and not rule.admits(value):
                raise ConfigError(f"{field.name} = {value!r} is out of range; allowed: {rule.allowed or 'a finite number'}.")
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Conditions that tie several fields together; subclasses add theirs."""

    @classmethod
    def names(cls) -> list[str]:
        """The fields' names in the order they were declared."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Description and range of every field."""
        return {field.name: field.metadata["rule"] for field in dataclasses.fields(cls)}

    @classmethod
    def make(
        cls, options: Mapping[str, Any], also: Sequence[str] = (), owners: Callable[[str], Sequence[str]] = lambda option: ()
    ) -> Self:
        """A config from loose options; an unknown one is an error that says what it is called here, or whose it is.

        `also` are names that could have been given too, and `owners` says which algorithms have an option.
        """
        aliases = {rule.alias: name for name, rule in cls.rules().items() if rule.alias}
        named = {aliases.get(name, name): value for name, value in options.items()}
        unknown = sorted(set(named) - set(cls.names()))
        if unknown:
            algo = cls.__name__.removesuffix("Config")
            known = [*cls.names(), *aliases, *also]
            answer = foreign.unknown(unknown[0], known, algo, owners=owners, otherwise=f"Known: {', '.join(known)}.")
            raise ConfigError(f"unknown option {unknown[0]!r} for {algo}. {answer}")
        return cls(**named)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(v) if isinstance(v := getattr(self, name), tuple) else v for name in self.names()}
