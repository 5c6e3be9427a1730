"""The algorithms by name. Importing this costs nothing: configs, presets and agents are imported where they are used.

Packages of others add theirs through the entry-point group `beeline.algorithms`; each entry point names an `Entry`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from beeline.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from beeline.agents.base import Agent, Spaces, Task
    from beeline.agents.options import MethodConfig

GROUP = "beeline.algorithms"
Preset = Callable[[str], dict[str, Any]]  # the options of a preset for a task's id


@dataclasses.dataclass(frozen=True)
class Entry:
    """An algorithm: what it is called, and where its config, its agent and its presets are.

    `config_at`, `build_at` and `presets_at` are the things themselves, or "module:attribute" where to find them. `build` takes a
    config and a `Task`; presets are functions of a task's id, and the first one is the default.
    """

    name: str
    summary: str
    config_at: Any
    build_at: Any
    presets_at: Any = None
    group: str = "other"
    model: str = ""  # the name of its class in Python; none: made from `name`
    bee: bool = False  # whether `name` stands for a method under the BEE operator, λ = .5 unless told otherwise

    @property
    def config(self) -> type[MethodConfig]:
        """The config class."""
        return _bee_config(_find(self.config_at)) if self.bee else _find(self.config_at)

    @property
    def presets(self) -> Mapping[str, Preset]:
        """The presets by name; a method without any has `light`, which changes nothing."""
        return _find(self.presets_at) if self.presets_at is not None else {"light": lambda env_id: {}}

    @property
    def class_name(self) -> str:
        """What its class is called in Python: letters and digits of its name, in capitals."""
        return self.model or "".join(c for c in self.name if c.isalnum()).upper()

    def preset(self, name: str | None, env_id: str) -> dict[str, Any]:
        """The options of a preset for a task; None is the default preset."""
        presets = self.presets
        if name is None:
            name = next(iter(presets))
        if name not in presets:
            raise UnknownNameError("preset", name, presets, f"Known for {self.name}: {', '.join(presets)}.")
        return presets[name](env_id)

    def build(self, config: Any, task: Task | Spaces) -> Agent:
        """The agent of a config and a task."""
        from beeline.agents.base import Spaces, Task

        return _find(self.build_at)(config, Task(task) if isinstance(task, Spaces) else task)


def _find(at: Any) -> Any:
    if not isinstance(at, str):
        return at
    module, _, name = at.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def _bee_config(base: type) -> type:
    """The same config with the exploit part on by default."""
    from beeline.config import option

    lam = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")
    name = f"Bee{base.__name__}"
    body = {"lam": lam, "__annotations__": {"lam": float}, "__module__": base.__module__, "__doc__": f"{base.__doc__} Under BEE."}
    return dataclasses.dataclass(frozen=True)(type(name, (base,), body))


def bee(entry: Entry, summary: str) -> Entry:
    """The entry of a method under the BEE operator: the same options, and λ = .5."""
    model = f"BEE{entry.class_name}"
    return dataclasses.replace(entry, name=f"bee-{entry.name}", summary=summary, group="bee", model=model, bee=True)


def _own(name: str, module: str, config: str, summary: str, group: str, presets: str = "PRESETS", model: str = "") -> Entry:
    at = f"beeline.agents.{module}"
    return Entry(name, summary, f"{at}:{config}", f"{at}:build", f"{at}:{presets}", group, model)


OWN: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _own("bac", "sac", "BACConfig", "BEE actor-critic: SAC whose target blends in what the buffer has proved possible", "bee",
             presets="PRESETS_BAC"),
        _own("sac", "sac", "SACConfig", "soft actor-critic with tuned temperature", "actor-critic"),
        _own("bee-td3", "td3", "BEETD3Config", "TD3 under the BEE operator", "bee"),
        _own("td3", "td3", "TD3Config", "twin delayed DDPG with target smoothing", "actor-critic"),
    )
}  # fmt: skip

GROUPS = {
    "bee": "BEE",
    "actor-critic": "actor-critic",
    "in-sample": "in-sample",
    "on-policy": "on-policy",
    "model-based": "model-based",
    "other": "others",
}


class Algorithms(Mapping[str, Entry]):
    """Our algorithms, and those of installed packages; a package that cannot be read is named in `failures`."""

    def __init__(self) -> None:
        self._found: dict[str, Entry] | None = None
        self.failures: dict[str, str] = {}

    def _entries(self) -> dict[str, Entry]:
        if self._found is None:
            self._found = dict(OWN)
            for point in importlib.metadata.entry_points(group=GROUP):
                try:
                    entry = point.load()
                    if not isinstance(entry, Entry):
                        raise TypeError(f"{point.value} is a {type(entry).__name__}, not a beeline Entry")
                    if entry.name in self._found:
                        raise ValueError(f"the name {entry.name!r} is taken")
                    self._found[entry.name] = entry
                except Exception as error:  # whatever a stranger's package does, the others are there
                    self.failures[point.name] = f"{type(error).__name__}: {error}"
        return self._found

    def __getitem__(self, name: str) -> Entry:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def forget(self) -> None:
        """Look for packages again."""
        self._found, self.failures = None, {}


ALGORITHMS = Algorithms()


def get(name: str) -> Entry:
    """The algorithm of that name, or an error with the nearest names."""
    key = name.lower().replace("_", "-")
    if key in OWN:
        return OWN[key]
    if key not in ALGORITHMS:
        failed = ALGORITHMS.failures.get(key)
        if failed:
            raise ConfigError(f"the package that brings the algorithm {name!r} cannot be imported ({failed}).")
        raise UnknownNameError("algorithm", name, ALGORITHMS, f"Known: {', '.join(ALGORITHMS)} (see: beeline algos).")
    return ALGORITHMS[key]


def owners(option: str) -> list[str]:
    """The algorithms that have an option of that name."""
    return [name for name, entry in ALGORITHMS.items() if option in entry.config.names()]


def make_config(algo: str, env_id: str, preset: str | None, options: Mapping[str, Any]) -> Any:
    """The config of an algorithm: its preset for the task, then the user's own options."""
    entry = get(algo)
    known = set(entry.config.names())
    chosen = {name: value for name, value in entry.preset(preset, env_id).items() if name in known}
    return entry.config.make({**chosen, **options}, owners=owners)


__all__ = ["ALGORITHMS", "GROUPS", "OWN", "Entry", "bee", "get", "make_config", "owners"]
