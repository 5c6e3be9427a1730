"""Typed, documented, range-checked options; the command line and the docs are made from these fields."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from beeline import foreign
from beeline.errors import ConfigError

OBJECT = "object:"  # how an object that was handed over in Python is named in a record
LONGEST = 200  # characters of a wrong value that are told
_SWITCH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


def _plain(bound: float) -> str:
    """A bound as a user would write it: whole numbers in full."""
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def located(at: Any) -> Any:
    """The thing itself, or what is found at "module:attribute"; the module is imported here."""
    if not isinstance(at, str):
        return at
    module, _, name = at.partition(":")
    return getattr(importlib.import_module(module), name)


def named(value: Any) -> Any:
    """A value as a record holds it: tuples are lists, and an object handed over in Python is its name."""
    if isinstance(value, tuple):
        return list(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return OBJECT + getattr(value, "__qualname__", type(value).__qualname__)


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a field may hold: its description and its range.

    `objects` is where the protocol is found, as "module:attribute", that an object given instead of a word must satisfy; the
    word is not asked for then. Such an object exists in Python alone, so a record has only its name.
    """

    doc: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] | None = None
    alias: str | None = None
    objects: str | None = None
    only: tuple[str, ...] | None = None  # another option, and those of its choices (OBJECT: any object) that read this one

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

    def read_with(self, chosen: Any) -> bool:
        """Whether the other option, as it was chosen, reads this one."""
        return self.only is None or (chosen if isinstance(chosen, str) else OBJECT) in self.only[1:]

    @property
    def reader(self) -> str:
        """The other option and its choices, as a user reads them."""
        assert self.only is not None
        return f"{self.only[0]} = {' or '.join('an object' if each == OBJECT else each for each in self.only[1:])}"

    def word(self, value: Any) -> Any:
        """A switch as a word, where on and off are among several choices."""
        if not {"on", "off"} <= set(self.choices or ()):
            return value
        said = _SWITCH.get(value.lower(), value) if isinstance(value, str) else value
        return {True: "on", False: "off"}[said] if isinstance(said, bool) else said

    def takes(self, value: Any) -> bool:
        """Whether this is an object of the protocol; a class is none, an instance of it may be."""
        plain = value is None or isinstance(value, type | bool | int | float | str | list | tuple)
        return self.objects is not None and not plain and isinstance(value, located(self.objects))

    def admits(self, value: Any) -> bool:
        """Whether a value of the right type lies in the range."""
        if self.choices is not None and (isinstance(value, str) or not self.bounded):
            return value in self.choices
        if isinstance(value, tuple):
            return bool(value) and "" not in value and all(self.admits(item) for item in value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            return False
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
        item = {int: "whole numbers", float: "numbers", str: "words"}[typing.get_args(annotation)[0]]
        return f"{item} separated by commas"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}.get(annotation, str(annotation))


def _short(value: Any) -> str:
    """A value as it was found, unless it is longer than anybody reads."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def whole_number(value: Any) -> int:
    """A whole number as a user writes it, such as 100_000 or 1e5; ValueError where it is none."""
    if isinstance(value, bool):
        raise ValueError
    number = float(value) if isinstance(value, str) and "e" in value.lower() else value
    whole = int(number)
    if not isinstance(number, str) and whole != number:
        raise ValueError
    return whole


def _union(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows."""
    return typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)


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
        return tuple(_coerce(item, typing.get_args(annotation)[0]) for item in items)
    if annotation is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _SWITCH:
            return _SWITCH[value.lower()]
        raise ValueError
    if annotation is int:
        return whole_number(value)
    if annotation is float:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return float(value)
    if annotation is str:
        if not isinstance(value, str):
            raise ValueError
        return value
    raise TypeError(f"no rule to read a {annotation}")


def _said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of all configs: checks every field when it is made, so that a config that exists is a valid one."""

    # Options that others have and that cannot apply here, with the reason; an inherited one keeps its value and is no option.
    refused: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for name in self.names():
            object.__setattr__(self, name, self.read(name, getattr(self, name)))
        for field in self.fields():
            rule, value = self._rule(field), getattr(self, field.name)
            chosen = None if rule.only is None else getattr(self, rule.only[0])
            if self.changed(field.name) and not rule.read_with(chosen):
                raise ConfigError(f"{field.name} = {_said(value)} belongs to {rule.reader}, not to {named(chosen)}.")
        self.check()

    def changed(self, name: str) -> bool:
        """Whether an option is not what it is by default."""
        return getattr(self, name) != type(self).__dataclass_fields__[name].default

    @classmethod
    def _rule(cls, field: dataclasses.Field[Any]) -> Rule:
        """The rule of a field, which `option` gives it."""
        if "rule" not in field.metadata:
            raise ConfigError(
                f"the field {field.name} of {cls.__name__} is no option: write {field.name}: … = option(default, 'what it does')."
            )
        return field.metadata["rule"]

    @classmethod
    @functools.cache
    def cannot(cls) -> Mapping[str, str]:
        """Options that cannot apply here, with the reason: the refused ones, and those of a choice that is not offered."""
        rules = {field.name: cls._rule(field) for field in dataclasses.fields(cls)}
        found = dict(cls.refused)
        for name, rule in rules.items():
            if rule.only is not None and not set(rule.only[1:]) & set(rules[rule.only[0]].choices or ()):
                found.setdefault(name, f"it belongs to {rule.reader}, which is no choice here")
        return found

    @classmethod
    @functools.cache
    def kinds(cls) -> dict[str, Any]:
        """The type of every option."""
        hints = typing.get_type_hints(cls)
        return {name: hints[name] for name in cls.names()}

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        """A value of one field as its type, in its range; conditions that tie fields together are not asked."""
        rule, kind = cls.rules()[name], cls.kinds()[name]
        value = rule.word(value)
        if rule.takes(value):
            return value
        if rule.objects and isinstance(value, str) and value.startswith(OBJECT):
            raise ConfigError(
                f"{name} = {value!r} is an object that was handed over in Python and is not in the record: "
                f"give it again with {name}=…."
            )
        try:
            value = _coerce(value, kind)
        except (TypeError, ValueError, OverflowError):
            allowed = f"; allowed: {rule.allowed}" if rule.allowed else ""
            allowed += f", or an object of {rule.objects.replace(':', '.')}" if rule.objects else ""
            raise ConfigError(f"{name} = {_short(value)} is not {_readable(kind)}{allowed}.") from None
        if value is not None and not rule.admits(value):
            allowed = rule.allowed or (_readable(kind) if tuple[str, ...] in _union(kind) else "a finite number")
            raise ConfigError(f"{name} = {_short(value)} is out of range; allowed: {allowed}.")
        return value

    @classmethod
    def lists(cls) -> set[str]:
        """The fields that hold a list themselves."""
        return {name for name, kind in cls.kinds().items() if any(typing.get_origin(each) is tuple for each in _union(kind))}

    @classmethod
    def texts(cls) -> set[str]:
        """The fields that hold any text: a comma in it means nothing."""
        return {name for name, kind in cls.kinds().items() if str in _union(kind) and cls.rules()[name].choices is None}

    def check(self) -> None:
        """Conditions that tie several fields together; subclasses add theirs."""

    @classmethod
    def fields(cls) -> list[Any]:
        """The dataclass fields that are options; an inherited one that cannot apply is none."""
        cannot = cls.cannot()
        return [field for field in dataclasses.fields(cls) if field.name not in cannot]

    @classmethod
    def names(cls) -> list[str]:
        """The options' names in the order they were declared."""
        return [field.name for field in cls.fields()]

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Description and range of every field."""
        return {field.name: cls._rule(field) for field in cls.fields()}

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
        for name in unknown:
            cls.refuse(name)
        if unknown:
            algo = cls.__name__.removesuffix("Config")
            known = [*cls.names(), *aliases, *also]
            answer = foreign.unknown(unknown[0], known, algo, owners=owners, otherwise=f"Known: {', '.join(known)}.")
            raise ConfigError(f"unknown option {unknown[0]!r} for {algo}. {answer}")
        return cls(**named)

    @classmethod
    def recorded(cls, options: Mapping[str, Any], objects: Mapping[str, Any]) -> Self:
        """The config of a record, with the objects that it has only the names of given again."""
        for name, value in objects.items():
            was = options.get(name)
            if not (isinstance(was, str) and was.startswith(OBJECT)):
                kept = f"{name} = {was!r} is kept" if name in options else f"it has no {name}"
                raise ConfigError(f"{name}=… cannot be given to what was recorded: {kept}.")
            if named(value) != was:
                raise ConfigError(f"this was made with {name} = {was!r}, not with {named(value)!r}.")
        return cls.make({**options, **objects})

    @classmethod
    def refuse(cls, name: str) -> None:
        """Raise with the reason if this is an option that cannot apply."""
        reason = cls.cannot().get(name)
        if reason:
            raise ConfigError(f"the option {name!r} does not apply: {reason}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: named(getattr(self, name)) for name in self.names()}
