"""The algorithms by name. Importing this costs nothing: configs, presets and agents are imported where they are used.

Packages of others add theirs through the entry-point group `beeline.algorithms`; each entry point names an `Entry`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from beeline.agents.facts import COST, FROM
from beeline.config import located, option
from beeline.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from beeline.agents.base import Agent, Spaces, Task
    from beeline.agents.options import MethodConfig

GROUP = "beeline.algorithms"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # folders, commands and classes have it
# Words that commands and `Model` take for themselves, beside the options of the run.
TAKEN = (
    "accept_config", "algo", "algos", "callbacks", "display", "env", "env_kwargs", "eval_env", "file", "init_from", "look",
    "name", "out", "preset", "quiet", "ray", "report", "retry_failed", "seeds", "tasks", "verbose", "workers",
)  # fmt: skip
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
    presets_at: Any = dataclasses.field(default=None, hash=False)  # may be a dict
    group: str = "other"
    model: str = ""  # the name of its class in Python; none: made from `name`
    paper: str = ""  # who proposed it
    source: str = ""  # the code or text that it was held against
    cost: float | None = None  # times SAC's time to learn from an environment step, where it was measured
    bee: bool = False  # whether `name` stands for a method under the BEE operator, λ = .5 unless told otherwise

    @property
    def config(self) -> type[MethodConfig]:
        """The config class."""
        return _bee_config(located(self.config_at)) if self.bee else located(self.config_at)

    @property
    def presets(self) -> Mapping[str, Preset]:
        """The presets by name; a method without any has `light`, which changes nothing."""
        return located(self.presets_at) if self.presets_at is not None else {"light": lambda env_id: {}}

    @property
    def class_name(self) -> str:
        """What its class is called in Python: letters and digits of its name, in capitals."""
        return self.model or "".join(c for c in self.name if c.isalnum()).upper()

    @property
    def default_preset(self) -> str:
        """The preset of who names none: the first."""
        return next(iter(self.presets))

    def preset(self, name: str | None, env_id: str) -> dict[str, Any]:
        """The options of a preset for a task; None is the default preset."""
        presets = self.presets
        name = self.default_preset if name is None else name
        if name not in presets:
            raise UnknownNameError("preset", name, presets, f"Known for {self.name}: {', '.join(presets)}.")
        return presets[name](env_id)

    def build(self, config: Any, task: Task | Spaces) -> Agent:
        """The agent of a config and a task."""
        from beeline.agents.base import Spaces, Task

        return located(self.build_at)(config, Task(task) if isinstance(task, Spaces) else task)


@functools.cache
def _bee_config(base: type) -> type:
    """The same config with the exploit part on by default."""
    lam = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")
    name = f"Bee{base.__name__}"
    body = {"lam": lam, "__annotations__": {"lam": float}, "__module__": base.__module__, "__doc__": f"{base.__doc__} Under BEE."}
    return dataclasses.dataclass(frozen=True)(type(name, (base,), body))


def bee(entry: Entry, summary: str) -> Entry:
    """The entry of a method under the BEE operator: the same options, and λ = .5."""
    model = f"BEE{entry.class_name}"
    made = dataclasses.replace(entry, name=f"bee-{entry.name}", summary=summary, group="bee", model=model, bee=True)
    return dataclasses.replace(made, paper="", source="", cost=None)  # those of the method without it are not its own


def _own(name: str, module: str, config: str, summary: str, group: str, presets: str = "PRESETS", build: str = "build") -> Entry:
    at = f"beeline.agents.{module}"
    return Entry(name, summary, f"{at}:{config}", f"{at}:{build}", f"{at}:{presets}", group)


_RRS = _own("rrs", "rrs", "RRSConfig", "TD3 with critics of shifted rewards, one of which judges the policy", "actor-critic")
_MAXQ = _own("maxq", "maxq", "MAXQConfig", "SAC whose target takes the better of the policy's next action and the taken one",
             "actor-critic")  # fmt: skip
_MAXQ_TD3 = _own("maxq-td3", "maxq", "MAXQTD3Config", "the same on TD3", "actor-critic", "PRESETS_TD3", "build_td3")
_DAC = _own("dac", "dac", "DACConfig", "diversity actor-critic: entropy of what policy and buffer do together", "actor-critic")
_XQL = _own("xql", "xql", "XQLConfig", "extreme Q-learning on SAC: V by Gumbel regression", "actor-critic")
_XTD3 = _own("xtd3", "xql", "XTD3Config", "TD3 with a Gumbel loss of the critics", "actor-critic", "PRESETS_TD3", "build_td3")

_GRAC = _own("grac", "grac", "GRACConfig", "critics held by themselves instead of by targets, and actions improved by search",
             "actor-critic")  # fmt: skip


def _told(entry: Entry) -> Entry:
    """The entry with where it comes from and what it costs."""
    paper, source = FROM.get(entry.name, ("", ""))
    return dataclasses.replace(entry, paper=paper, source=source, cost=COST.get(entry.name))


OWN: dict[str, Entry] = {
    entry.name: _told(entry)
    for entry in (
        _own("bac", "sac", "BACConfig", "BEE actor-critic: SAC whose target blends in what the buffer has proved possible", "bee",
             presets="PRESETS_BAC"),
        _own("sac", "sac", "SACConfig", "soft actor-critic with tuned temperature", "actor-critic"),
        _own("bee-td3", "td3", "BEETD3Config", "TD3 under the BEE operator", "bee"),
        _own("td3", "td3", "TD3Config", "twin delayed DDPG with target smoothing", "actor-critic"),
        _own("ppo", "ppo", "PPOConfig", "proximal policy optimisation: clipped updates on whole rollouts", "on-policy"),
        _own("trpo", "trpo", "TRPOConfig", "trust region policy optimisation: one natural step on each rollout", "on-policy"),
        _own("slbo", "slbo", "SLBOConfig", "TRPO in a learned model, stage by stage", "model-based"),
        _own("pets", "pets", "PETSConfig", "no policy: every action is planned under a learned model", "model-based"),
        bee(_RRS, "RRS under the BEE operator, one V per shift"),
        _RRS,
        bee(_MAXQ, "MAXQ on SAC under the BEE operator"),
        _MAXQ,
        bee(_MAXQ_TD3, "MAXQ on TD3 under the BEE operator"),
        _MAXQ_TD3,
        bee(_GRAC, "GRAC under the BEE operator, V fitted on the live, bounded critics"),
        _GRAC,
        bee(_DAC, "DAC under the BEE operator"),
        _DAC,
        bee(_XQL, "XQL under the BEE operator"),
        _XQL,
        bee(_XTD3, "X-TD3 under the BEE operator"),
        _XTD3,
        _own("iql", "iql", "IQLConfig", "implicit Q-learning online: V in-sample, policy by weighted regression", "in-sample"),
        _own("mbpo", "mbpo", "MBPOConfig", "SAC on short rollouts of a learned model", "model-based"),
        _own("mb-bac", "mbpo", "MBBACConfig", "MBPO under the BEE operator: V on real transitions, targets on the model's",
             "model-based"),
        _own("cmlo", "mbpo", "CMLOConfig", "MBPO whose model is trained when what was met has outgrown it", "model-based",
             presets="PRESETS_CMLO"),
        _own("obac", "obac", "OBACConfig", "SAC that clones the buffer where an in-sample critic is ahead of it", "in-sample"),
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


def examine(entry: Any) -> None:
    """Raise where an entry cannot live beside the others; its config and presets are imported for this, its agent is not."""
    from beeline.agents.options import MethodConfig
    from beeline.options import TrainConfig

    if not isinstance(entry, Entry):
        raise TypeError(f"this is a {type(entry).__name__}, not a beeline Entry")
    if not NAME.fullmatch(entry.name):
        raise ValueError(f"the name {entry.name!r} is not made of small letters, digits and single dashes between them")
    if not (isinstance(entry.config, type) and issubclass(entry.config, MethodConfig)):
        raise TypeError(f"its config {entry.config!r} is not a subclass of beeline.agents.options.MethodConfig")
    rules = entry.config.rules()
    for name in (*rules, *(rule.alias for rule in rules.values() if rule.alias)):
        if name in TAKEN or name in TrainConfig.names():
            raise ValueError(f"its option {name!r} has the name of one that every run has")
    if not entry.presets:
        raise ValueError("it has an empty set of presets; leave them out, or give one")
    entry.config.make({name: each for name, each in entry.preset(None, "").items() if name not in TrainConfig.names()})


class Algorithms(Mapping[str, Entry]):
    """Our algorithms, and those of installed packages; a package that cannot be used is named in `failures`."""

    def __init__(self) -> None:
        self._found: dict[str, Entry] | None = None
        self._failures: dict[str, str] = {}
        self.lent: dict[str, Entry] = {}

    @property
    def failures(self) -> dict[str, str]:
        """By the name of their entry point: the packages that cannot be used, and why."""
        self._entries()
        return self._failures

    def _entries(self) -> dict[str, Entry]:
        if self._found is None:
            from importlib.metadata import entry_points

            self._found, self._failures = dict(OWN), {}
            for point in sorted(set(entry_points(group=GROUP)), key=lambda each: (each.name, each.value)):
                try:
                    self._add(point, self._found)
                except (Exception, SystemExit) as error:  # whatever a stranger's package does, the others are there
                    package = f"package {point.dist.name}" if point.dist else point.value
                    self._failures[point.name] = f"{package}, {point.value}: {type(error).__name__}: {error}"
        return self._found | self.lent

    @staticmethod
    def _add(point: EntryPoint, found: dict[str, Entry]) -> None:
        entry = point.load()
        examine(entry)
        if entry.name in found:
            raise ValueError(f"the name {entry.name!r} is taken")
        found[entry.name] = entry

    def __getitem__(self, name: str) -> Entry:
        return self._entries()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def forget(self) -> None:
        """Look for packages again."""
        self._found = None

    @contextlib.contextmanager
    def lend(self, entry: Entry) -> Iterator[None]:
        """Let an entry be known under its name for a while, before that of any other; it need not be installed."""
        before = self.lent
        self.lent = before | {entry.name: entry}
        try:
            yield
        finally:
            self.lent = before


ALGORITHMS = Algorithms()


def get(name: str) -> Entry:
    """The algorithm of that name, or an error with the nearest names."""
    key = name.lower().replace("_", "-")
    known = OWN | ALGORITHMS.lent  # without looking for packages
    if key in known:
        return known[key]
    if key not in ALGORITHMS:
        failed = ALGORITHMS.failures.get(key)
        if failed:
            raise ConfigError(f"the algorithm {name!r} cannot be used ({failed}).")
        if "/" in name or ":" in name:
            raise ConfigError(f"{name!r} is no algorithm but looks like a task: the algorithm comes first, then the task.")
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


__all__ = ["ALGORITHMS", "GROUPS", "OWN", "Entry", "bee", "examine", "get", "make_config", "owners"]
