"""What a search varies: ranges and choices of options, read by the options' own rules; and the plan of a search, tune.json."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beeline import agents, files
from beeline.bench import plan as bench_plan
from beeline.bench.plan import BenchRun, Variant
from beeline.config import Config
from beeline.errors import BeelineError, ConfigError, RunFolderError
from beeline.options import TrainConfig

FORMAT = 1
FILE = "tune.json"
METRICS = ("return", "success")
CORNERS = 256  # combinations of ends that are checked before the first run; of more, each end for itself


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; drawn evenly, or evenly in their logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> list[Any]:
        """The values that are checked before the first run."""
        return [self.low, self.high]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> list[Any]:
        """The values that are checked before the first run: all."""
        return list(self.values)


Dimension = Range | Choice


def plain(value: Any) -> Any:
    """A value as a study stores it: a list as it is written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def dimension(algo: str, name: str, given: Any) -> Dimension | None:
    """What an option is varied over: `0..1`, `1e-5..1e-2:log`, or values as in a sweep; None where it has a single value."""
    if not isinstance(given, str) or ".." not in given:
        values = bench_plan.values_of(algo, name, given)
        if values is not None and len(values) == 1:
            raise ConfigError(f"{name} = {given!r} is searched over one value: give {plain(values[0])}.")
        return None if values is None else Choice(tuple(values))
    return _range(_config_of(algo, name), name, given)


def _config_of(algo: str, name: str) -> type[Config]:
    return next(config for config in bench_plan.configs_of(algo) if name in config.names())


def _range(config: type[Config], name: str, given: str) -> Range:
    text, _, scale = given.partition(":")
    parts = [part.strip() for part in text.split("..")]
    if len(parts) != 2 or scale.strip() not in ("", "log"):
        raise ConfigError(f"{name} = {given!r} is no range; write LOW..HIGH or LOW..HIGH:log, such as 1e-5..1e-2:log.")
    if name in bench_plan.UNSWEPT:
        raise ConfigError(f"{name} = {given!r} is a range, but {name} says nothing of what is trained: give one value.")
    ends = [config.read(name, part) for part in parts]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise ConfigError(f"{name} = {given!r} is a range, but {name} holds no number: separate the values by commas.")
    low, high = ends
    if low >= high:
        raise ConfigError(f"{name} = {given!r} is no range: its lower end must be below its upper end.")
    if scale and low <= 0:
        raise ConfigError(f"{name} = {given!r}: a range in logarithms begins above 0.")
    return Range(low, high, bool(scale), isinstance(low, int) and isinstance(high, int))


@dataclasses.dataclass(frozen=True)
class TunePlan:
    """A search in plain values: what is fixed, what is varied, and how far it goes."""

    algo: str
    task: str
    preset: str
    steps: int
    seeds: list[int]
    options: Mapping[str, Any]
    search: Mapping[str, Any]
    trials: int
    metric: str
    startup: int
    prune: bool
    seed: int

    @classmethod
    def make(cls, algo: str, task: str, words: Mapping[str, Any], **more: Any) -> TunePlan:
        """Sort options into those with one value and those that are searched, and check every end before anything runs."""
        algo = agents.get(algo).name
        options: dict[str, Any] = {}
        search: dict[str, Any] = {}
        known = bench_plan.options_of(algo)
        for name, given in bench_plan.named(words).items():
            if name not in known:
                raise bench_plan.unknown(f"option of {algo}", name, known)
            if name in ("seed", "steps"):
                raise ConfigError(f"{name} is no option of single runs in a search: give {'seeds' if name == 'seed' else name}.")
            if dimension(algo, name, given) is not None:
                search[name] = given
            else:
                _config_of(algo, name).read(name, given)
                options[name] = given
        if not search:
            raise ConfigError("nothing is searched: give an option a range or several values, such as --lam 0..1.")
        plan = cls(algo=algo, task=task, options=options, search=search, **more)
        plan.check()
        return plan

    @property
    def space(self) -> dict[str, Dimension]:
        """What is varied, by the option's name."""
        found = {name: dimension(self.algo, name, given) for name, given in self.search.items()}
        return {name: each for name, each in found.items() if each is not None}

    def runs(self, number: int, params: Mapping[str, Any]) -> list[BenchRun]:
        """The runs of a trial, one per seed."""
        request = {"steps": self.steps, "preset": self.preset}
        options = {"threads": 1, **self.options, **params}
        run = bench_plan.checked(Variant(f"trial{number:03d}", self.algo), self.task, request, options)
        return [dataclasses.replace(run, seed=seed) for seed in self.seeds]

    def check(self) -> None:
        """Whether every corner of the space can be run, and the numbers of the search are in their ranges."""
        for name, value, least in (("trials", self.trials, 1), ("startup", self.startup, 1), ("seed", self.seed, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} = {value!r} is out of range; allowed: whole numbers >= {least}.")
        if self.metric not in METRICS:
            raise ConfigError(f"metric = {self.metric!r} is out of range; allowed: one of {', '.join(METRICS)}.")
        space = self.space
        every = itertools.product(*(each.ends for each in space.values()))
        corners = [dict(zip(space, ends)) for ends in itertools.islice(every, CORNERS)]
        alone = [{**corners[0], name: end} for name, each in space.items() for end in each.ends]
        for params in (*corners, *alone):
            try:
                self.runs(0, params)
            except ConfigError as error:
                where = ", ".join(f"{name} {value}" for name, value in params.items())
                raise ConfigError(f"the search comes to {where}, which cannot be run: {str(error).partition(': ')[2]}") from None
        if self.runs(0, corners[0])[0].options.get("eval_episodes") == 0:
            raise ConfigError("eval_episodes = 0: a search goes by evaluations.")


def recorded(out: Path) -> TunePlan | None:
    """The plan of the search in `out`, checked like a command; None where there is none."""
    try:
        found = files.load_json(out / FILE)
    except FileNotFoundError:
        return None
    if not files.is_as_written(found):
        raise RunFolderError(f"{out / FILE} is not as it was written (its SHA-256 is another): put back what was.")
    found.pop(files.SEAL, None)
    if found.pop("format", None) != FORMAT:
        raise RunFolderError(f"{out / FILE} has a format that this version does not read; it reads {FORMAT}.")
    try:
        texts = {name: found[name] for name in ("algo", "task", "preset", "metric")}
        if not all(isinstance(text, str) for text in texts.values()) or not isinstance(found["prune"], bool):
            raise ValueError("algo, task, preset and metric must be text, prune true or false")
        plan = TunePlan(**found | {"seeds": bench_plan.seeds(found["seeds"]), "steps": TrainConfig.read("steps", found["steps"])})
        if unknown := sorted({*plan.options, *plan.search} - bench_plan.options_of(plan.algo)):
            raise ValueError(f"{unknown[0]!r} is no option of {plan.algo}")
        plan.check()
    except (BeelineError, KeyError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise RunFolderError(f"{out / FILE} cannot be read ({reason}).") from None
    return plan


def record(out: Path, plan: TunePlan) -> None:
    """Write the plan, if it is that of the search already there; only the number of trials may be changed."""
    before = recorded(out)
    if before is not None:
        for field in dataclasses.fields(TunePlan):
            old, new = getattr(before, field.name), getattr(plan, field.name)
            if old != new and field.name != "trials":
                raise RunFolderError(
                    f"{out} holds a search of another plan: {field.name} was {old}, now {new}. Choose another folder with --out, "
                    "or give the same plan (the number of trials may be changed)."
                )
    elif (out / "matrix.json").exists():
        raise RunFolderError(f"{out} holds a matrix that is no search. Choose another folder with --out.")
    content = {"format": FORMAT, **dataclasses.asdict(plan)}
    files.write_atomic(out / FILE, files.sealed(content))
