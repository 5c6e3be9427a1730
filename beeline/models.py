"""The class of every algorithm, made from its entry in the registry: name, options with types and defaults, documentation.

    python -m beeline.models            write beeline/__init__.pyi, from which editors complete the options
    python -m beeline.models --check    say whether it is up to date; exit code 1 if it is not
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import foreign
from beeline.agents.registry import OWN, Entry
from beeline.config import Rule
from beeline.errors import ConfigError
from beeline.options import TrainConfig

STUB = Path(__file__).with_name("__init__.pyi")
FIRST = ("preset", "eval_env", "env_kwargs", "callbacks", "init_from", "verbose")  # keywords of every class that are no options


@dataclasses.dataclass(frozen=True)
class Keyword:
    """An option as a keyword of a class."""

    name: str
    kind: str  # its type, as it is written
    default: Any
    rule: Rule


def keywords(entry: Entry) -> Iterator[Keyword]:
    """Every option of an algorithm and of the run; the defaults are those of its own default preset."""
    preset = entry.preset(None, "")
    for config in (entry.config, TrainConfig):
        hints = typing.get_type_hints(config)
        for field in config.fields():
            rule: Rule = field.metadata["rule"]
            yield Keyword(field.name, _kind(hints[field.name], rule), preset.get(field.name, field.default), rule)


def _kind(annotation: Any, rule: Rule) -> str:
    """A type as it is written; words are named one by one, and a protocol beside them where objects are taken."""
    if isinstance(annotation, types.UnionType):
        return " | ".join(_kind(each, rule) for each in typing.get_args(annotation))
    if annotation is types.NoneType:
        return "None"
    if typing.get_origin(annotation) is tuple:
        return f"Sequence[{typing.get_args(annotation)[0].__name__}]"
    text = annotation.__name__
    if annotation is str and rule.choices:
        text = f"Literal[{', '.join(repr(each) for each in rule.choices)}]".replace("'", '"')
    return f"{text} | {rule.objects.partition(':')[2]}" if rule.objects else text


def _sentence(entry: Entry) -> str:
    return f"{entry.summary[0].upper()}{entry.summary[1:]}."


# --- classes ----------------------------------------------------------------------------------------------------------


@functools.cache
def make_class(entry: Entry, base: type) -> type:
    """The class of an algorithm: `base` with its name, its options in the signature, and a docstring that lists them."""
    found = list(keywords(entry))
    lines = [f"    {each.name}: {each.kind} = {each.default!r}\n        {each.rule.doc}" for each in found]
    text = f"{_sentence(entry)}\n\nOptions, with the defaults of the preset `{entry.default_preset}`:\n" + "\n".join(lines)
    body = {"algo": entry.name, "__doc__": text, "__module__": base.__module__.partition(".")[0]}
    made = type(entry.class_name, (base,), body)
    own = [each for each in inspect.signature(base).parameters.values() if each.name in ("env", *FIRST)]
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.kind) for each in found
    ]
    made.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    return made


P = typing.ParamSpec("P")
R = typing.TypeVar("R")


def answering(function: Callable[P, R]) -> Callable[P, R]:
    """A method of a model whose arguments are answered, where other codes have others: `SAC("MlpPolicy", env)`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **more: P.kwargs) -> R:
        try:
            signature.bind(*args, **more)
        except TypeError:
            _answer(function.__name__, args, more, [name for name in signature.parameters if name != "self"])
        return function(*args, **more)

    return call


def _answer(name: str, args: Sequence[Any], more: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise with what is meant, if it is clear; else the caller's own TypeError says what is wrong."""
    if name == "__init__" and len(args) > 2:
        kind = type(args[0]).__name__
        raise ConfigError(f"{kind} takes one word, the environment: beeline.{kind}(env). There is one kind of policy for it.")
    strange = [each for each in more if each not in known]
    if strange and name != "__init__":
        answer = foreign.unknown(strange[0], known, otherwise=f"Known: {', '.join(known)}.")
        raise ConfigError(f"unknown argument {strange[0]!r} of {name}. {answer}")


# --- the stub ---------------------------------------------------------------------------------------------------------

_HEAD = '''\
"""The public names, with every option as a keyword. Written by `python -m beeline.models`; do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from beeline.agents.blends import Blend
from beeline.api import Model as Model
from beeline.api import evaluate_run as evaluate_run
from beeline.api import export as export
from beeline.api import load as load
from beeline.api import model as model
from beeline.api import resume as resume
from beeline.api import train as train
from beeline.errors import BeelineError as BeelineError
from beeline.loop import Callback as Callback
from beeline.loop import EvaluationEvent as EvaluationEvent
from beeline.loop import StepEvent as StepEvent
from beeline.networks import Net
from beeline.operators import ExploitLoss
from beeline.run.opened import Run as Run
from beeline.run.opened import open as open
from beeline.run.policy import Policy as Policy

__version__: str
__all__: list[str]
'''


def stub() -> str:
    """The text of `beeline/__init__.pyi`."""
    return _HEAD + "".join(
        f"\n{_class_stub(entry)}" for entry in sorted(OWN.values(), key=lambda each: each.class_name)
    )


def _class_stub(entry: Entry) -> str:
    lines = [
        f"class {entry.class_name}(Model):",
        f'    """{_sentence(entry)}"""',
        "",
        "    def __init__(",
        "        self,",
        "        env: Any,",
        "        *,",
        "        preset: str | None = None,",
        "        eval_env: Any = None,",
        "        env_kwargs: Mapping[str, Any] | None = None,",
        "        callbacks: Sequence[Callback] = (),",
        "        init_from: str | Path | None = None,",
        "        verbose: int = 1,",
    ]
    for each in keywords(entry):
        default = repr(each.default).replace("'", '"')
        lines.append(f"        {each.name}: {each.kind} = {default},")
    return "\n".join([*lines, "    ) -> None: ...", ""])


def main(check: bool) -> int:
    """Write the stub, or say whether it is up to date."""
    current = STUB.is_file() and STUB.read_text() == stub()
    if not current and not check:
        STUB.write_text(stub())
    if not current:
        print(f"{STUB.name} {'is not up to date: python -m beeline.models' if check else 'written'}")
    return int(check and not current)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
