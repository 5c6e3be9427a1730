"""How a command line is read: flags made from the config dataclasses, and errors as sentences."""

from __future__ import annotations

import argparse
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from beeline.agents import Entry
    from beeline.config import Config


def defaults_of(config: type[Config]) -> dict[str, Any]:
    """The default of every field."""
    return {field.name: field.default for field in config.fields()}


def written(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value)
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def add_options(
    parser: argparse.ArgumentParser, config: type[Config], title: str, presets: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """One flag per config field, with its description, default (that of each preset where they differ) and range."""
    group = parser.add_argument_group(title)
    hints = typing.get_type_hints(config)
    for field in config.fields():
        rule = field.metadata["rule"]
        flags = [f"--{field.name.replace('_', '-')}"] + ([f"--{rule.alias}"] if rule.alias else [])
        values = {name: written(preset[field.name]) for name, preset in (presets or {"": defaults_of(config)}).items()}
        same = len(set(values.values())) == 1
        default = next(iter(values.values())) if same else ", ".join(f"{name} {value}" for name, value in values.items())
        allowed = f"; {rule.allowed}" if rule.allowed else ""
        text = f"{rule.doc} [{default}{allowed}]".replace("%", "%%")
        if hints[field.name] is bool:
            group.add_argument(*flags, dest=field.name, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(*flags, dest=field.name, default=None, help=text, metavar="X")


def flag_of(option: str) -> str:
    """An option as a flag."""
    return f"--{option.replace('_', '-')}"


def _refuse(given: str, known: Sequence[str], see: str, algo: str = "") -> typing.NoReturn:
    """Answer an option that does not exist: what it is called here, whose it is, or the nearest names."""
    from beeline import agents, foreign

    if not given.startswith("-"):
        raise ConfigError(f"{given!r} is one word too many. A list is one word, such as --hidden 256,256. See: {see} --help")
    name, otherwise = given.split("=")[0], f"See: {see} --help"
    answer = foreign.unknown(name, known, algo, owners=agents.owners, write=flag_of, otherwise=otherwise)
    raise ConfigError(f"unknown option {given}{f' for {algo}' if algo else ''}. {answer}")


class _Parser(argparse.ArgumentParser):
    """Errors as sentences: what an option that does not exist is called here, and the reason for one that cannot apply."""

    config: type[Config] | None = None  # of the algorithm that is named
    algo = ""

    def error(self, message: str) -> typing.NoReturn:
        if message.startswith("unrecognized arguments:"):
            given = message.split(":", 1)[1].split()[0]
            if self.config is not None:
                self.config.refuse(given.removeprefix("--").split("=")[0].replace("-", "_"))
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            _refuse(given, [flag[2:].replace("-", "_") for flag in flags], f"{self.prog} {self.algo}".rstrip(), self.algo)
        self.print_usage(sys.stderr)
        if message.startswith(missing := "the following arguments are required: "):
            names = message.removeprefix(missing).split(", ")
            raise ConfigError(f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} missing. See: {self.prog} --help")
        raise ConfigError(message)


def joined(words: Sequence[str]) -> list[str]:
    """The words with a value that begins with a minus and a digit tied to its option: argparse takes -0.5,0 for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-\.?\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def parse(
    prog: str, description: str, arguments: Sequence[str], fill: Callable[[argparse.ArgumentParser], None],
    config: type[Config] | None = None,
) -> argparse.Namespace:  # fmt: skip
    """What the words after a command say; `fill` adds its options."""
    parser = _Parser(prog=f"beeline {prog}", description=description, allow_abbrev=False)
    parser.config = config
    fill(parser)
    return parser.parse_args(arguments)


def named_algorithm(arguments: Sequence[str]) -> Entry | None:
    """The algorithm that a `train` command names, wherever it stands among the options; None where none is named."""
    from beeline import agents
    from beeline.options import TrainConfig

    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve", exit_on_error=False)
    finder.add_argument("algo", nargs="?")
    finder.add_argument("env", nargs="?")
    for flag in ("--preset", "--out", "--init-from", "--config"):
        finder.add_argument(flag)
    configs: list[type[Config]] = [TrainConfig, *(algorithm.config for algorithm in agents.ALGORITHMS.values())]
    for config in configs:
        add_options(finder, config, "")
    try:
        found, others = finder.parse_known_intermixed_args(list(arguments))
    except (argparse.ArgumentError, TypeError):
        return None  # the command's own parser will say what is wrong
    try:
        return agents.get(found.algo) if found.algo else None
    except UnknownNameError:
        strange = [word for word in others if word.startswith("--")]
        if strange:  # its value was taken for the algorithm
            _refuse(strange[0], [each for config in configs for each in config.names()], "beeline train")
        raise


def from_file(path: Path, algo: str) -> dict[str, Any]:
    """The options that a TOML file gives, under their own names, and its preset; each is checked by its rule."""
    from beeline import files
    from beeline.bench import plan as bench_plan

    configs = bench_plan.configs_of(algo)
    found = bench_plan.named(files.read_toml(path))
    for name, value in found.items():
        config = next((config for config in configs if name in config.names()), None)
        if name == "preset":
            continue
        if config is None:
            raise bench_plan.unknown(f"option of {algo} in {path}", name, ["preset", *sorted(bench_plan.options_of(algo))])
        try:
            config.read(name, value)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    return found
