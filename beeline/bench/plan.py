"""The plan of a matrix: variants × tasks × seeds as a list of runs, from flags or a TOML file, recorded in matrix.json."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import agents, files
from beeline.config import Config
from beeline.envs import ids
from beeline.errors import BeelineError, ConfigError, RunFolderError
from beeline.options import TrainConfig

FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*")
NAME_RULE = "a name is made of letters, digits and . _ + = -, because folders have it."
KEYS = ("algos", "tasks", "seeds", "steps", "preset", "options", "variant")
OF_THE_MATRIX = ("steps", "seed", "seeds", "tasks")  # what one variant cannot have for itself


@dataclasses.dataclass(frozen=True)
class BenchRun:
    """One run of a matrix, in plain values."""

    variant: str
    algo: str
    task: str
    seed: int
    steps: int
    preset: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check what the folder and the workers are made from: a recorded plan is a file like any other."""
        for name in ("variant", "algo", "task", "preset"):
            if not isinstance(value := getattr(self, name), str) or not value:
                raise ConfigError(f"{name} = {value!r} is not a name.")
        if not NAME.fullmatch(self.variant):
            raise ConfigError(f"variant {self.variant!r}: {NAME_RULE}")
        if not self._task_folder.strip("."):
            raise ConfigError(f"task {self.task!r} would leave the folder of the matrix.")
        if not isinstance(self.options, dict) or not all(isinstance(name, str) for name in self.options):
            raise ConfigError(f"options = {self.options!r} are not names with values.")
        counts = {"seed": self.seed, "steps": self.steps, "threads": self.options.get("threads") or 1}
        for name, value in counts.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} = {value!r} is not a whole number.")
        TrainConfig.make(counts)  # their ranges

    @property
    def _task_folder(self) -> str:
        return "".join(c if c.isalnum() or c in "-_." else "-" for c in self.task)

    @property
    def folder(self) -> str:
        """The run folder, seen from the folder of the matrix."""
        return f"{self._task_folder}/{self.variant}/seed{self.seed}"

    @property
    def module(self) -> str:
        """The Python module that its task imports; empty where it imports none."""
        return ids.module_of(self.task)

    @property
    def threads(self) -> int:
        """CPU threads of this run."""
        return int(self.options.get("threads") or 1)


@dataclasses.dataclass(frozen=True)
class Variant:
    """An algorithm with options of its own under a name."""

    name: str
    algo: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


# --- reading ----------------------------------------------------------------------------------------------------------


def _unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return ConfigError(f"unknown {kind} {name!r}. {'Did you mean ' + ' or '.join(near) + '?' if near else ''}".rstrip())


def read_file(path: Path) -> dict[str, Any]:
    """The content of a matrix file, checked as far as it can be without the flags."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    for key in found:
        if key not in KEYS:
            raise _unknown(f"entry of {path}", key, KEYS)
    for key in ("options", "variant"):
        if not isinstance(found.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} must be a table, such as [{'variant.NAME' if key == 'variant' else key}].")
    for name, table in found.get("variant", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("algo"), str):
            raise ConfigError(f'{path}: [variant.{name}] must say its algorithm, such as algo = "bac".')
    return found


def names(value: Any, what: str) -> list[str]:
    """A list of names, or names separated by commas; each once."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{what} = {value!r} is not a list of names.")
    return list(dict.fromkeys(item.strip() for item in items if item.strip()))


def seeds(value: Any) -> list[int]:
    """How many seeds, counted from 0, or the seeds themselves: `5`, `"0,3,7"`, `"3,"`, `[3]`."""
    if isinstance(value, str) and "," in value:
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        found = [TrainConfig.make({"seed": item}).seed for item in value]
        if not found:
            raise ConfigError("seeds is empty.")
        return list(dict.fromkeys(found))
    try:
        count = int(value)
        if isinstance(value, bool | float) or not 1 <= count <= 10_000:
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(f"seeds = {value!r} is neither a number of seeds (1 to 10000) nor a list of them.") from None
    return list(range(count))


def merge(request: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The file's request with what the flags say instead; options are merged one by one.

    `--algos` chooses among algorithms and the file's variants, so it also says which of these are left out.
    """
    merged = {**request, **{key: value for key, value in flags.items() if value is not None and key != "options"}}
    merged["options"] = {**request.get("options", {}), **flags.get("options", {})}
    if flags.get("algos") is None and "variant" in request:
        chosen = names(request.get("algos", []), "algos")
        merged["algos"] = [*chosen, *(name for name in request["variant"] if name not in chosen)]
    return merged


# --- expanding --------------------------------------------------------------------------------------------------------


def variants(request: Mapping[str, Any]) -> list[Variant]:
    """The variants that a request names: algorithms as they are, and its own."""
    own = request.get("variant", {})
    found = []
    for name in names(request.get("algos", []), "algos"):
        if not NAME.fullmatch(name):
            raise ConfigError(f"variant {name!r}: {NAME_RULE}")
        if name in own:
            table = {key: value for key, value in own[name].items() if key != "algo"}
            for key in table:
                if key in OF_THE_MATRIX:
                    raise ConfigError(f"[variant.{name}] has {key}, which is the same for the whole matrix.")
            found.append(Variant(name, agents.get(own[name]["algo"]).name, table))
        else:
            algo = agents.get(name).name
            found.append(Variant(algo, algo))
    return found


def _options_of(algo: str) -> set[str]:
    """The names of all options of a run."""
    return {*TrainConfig.names(), *agents.get(algo).config.names()}


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under their own names: dashes and aliases resolved."""
    configs: list[type[Config]] = [TrainConfig, *(entry.config for entry in agents.ALGORITHMS.values())]
    aliases = {rule.alias: name for config in configs for name, rule in config.rules().items() if rule.alias}
    plain = {name.replace("-", "_"): value for name, value in options.items()}
    return {aliases.get(name, name): value for name, value in plain.items()}


def expand(request: Mapping[str, Any]) -> list[BenchRun]:
    """Every run of a matrix, checked. Seeds vary slowest, so that what is there after a while is balanced."""
    chosen, tasks = variants(request), names(request.get("tasks", []), "tasks")
    for what, found in (("algos", chosen), ("tasks", tasks)):
        if not found:
            raise ConfigError(f"the matrix has no {what}: give --{what}, or {what} = [...] in the file.")
    shared = _named(request.get("options", {}))
    for name in shared:
        if name in ("seed", "steps"):
            raise ConfigError(f"{name} is no option of single runs in a matrix: give {'seeds' if name == 'seed' else name}.")
    known = {variant.name: _options_of(variant.algo) for variant in chosen}
    everything = sorted(set().union(*known.values()))
    for name in shared:
        if name not in everything:
            raise _unknown(f"option of {', '.join(dict.fromkeys(v.algo for v in chosen))}", name, everything)
    first = []
    for task in tasks:
        for variant in chosen:
            # An option of the matrix goes to every variant that has it: --lam says nothing to SAC.
            options = {name: value for name, value in shared.items() if name in known[variant.name]}
            first.append(_checked(variant, task, request, {"threads": 1} | options | _named(variant.options)))
    runs = [dataclasses.replace(run, seed=seed) for seed in seeds(request.get("seeds", 5)) for run in first]
    places: dict[str, BenchRun] = {}
    for run in runs:
        other = places.setdefault(run.folder, run)
        if other is not run:
            raise ConfigError(f"{other.task} and {run.task} would have the same folder {run.folder}.")
    return runs


def _checked(variant: Variant, task: str, request: Mapping[str, Any], options: dict[str, Any]) -> BenchRun:
    """The run of seed 0, with its options as the values they stand for, so that plans can be compared."""
    from beeline.run.plan import Plan

    preset = str(options.pop("preset", request.get("preset", "light")))
    try:
        plan = Plan.make(variant.algo, task, preset, options | {"steps": request.get("steps", TrainConfig().steps)})
        plan.check_budget()
    except BeelineError as error:
        raise type(error)(f"{variant.name} on {task}: {error}") if type(error) is ConfigError else error from None
    values = plan.agent.to_dict() | plan.train.to_dict()
    return BenchRun(variant.name, variant.algo, task, 0, plan.train.steps, preset, {name: values[name] for name in options})


# --- recording --------------------------------------------------------------------------------------------------------


def recorded(out: Path) -> list[BenchRun]:
    """The plan in `out`; empty where there is none."""
    path = out / "matrix.json"
    try:
        found = files.load_json(path)
    except FileNotFoundError:
        return []
    if not files.is_as_written(found):
        raise RunFolderError(f"{path} is not as it was written (its SHA-256 is another): put back what was.")
    if found.get("format") != FORMAT:
        raise RunFolderError(f"{path} has format {found.get('format')!r}, but this version reads {FORMAT}.")
    try:
        runs = [BenchRun(**run) for run in found["runs"]]
        for run in runs:  # other arguments of `train` are the user's to give: eval_env and init_from name tasks and files
            if unknown := sorted(set(run.options) - _options_of(run.algo)):
                raise ValueError(f"{unknown[0]!r} is no option of {run.algo}")
    except (BeelineError, KeyError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise RunFolderError(f"{path} cannot be read ({reason}).") from None
    if len({run.folder for run in runs}) < len(runs):
        raise RunFolderError(f"{path} cannot be read (two of its runs have one folder).")
    return runs


def _difference(old: BenchRun, new: BenchRun) -> str:
    """What of a recorded run another plan would change; more steps only add."""
    for name in ("algo", "task", "preset"):
        if getattr(old, name) != getattr(new, name):
            return f"{name} was {getattr(old, name)}, now {getattr(new, name)}"
    if new.steps < old.steps:
        return f"steps was {old.steps}, now {new.steps}"
    for name in dict.fromkeys([*old.options, *new.options]):
        before, after = (plan.options.get(name, "not given") for plan in (old, new))
        if before != after:
            return f"{name} was {before}, now {after}"
    return ""


def record(out: Path, runs: Sequence[BenchRun]) -> None:
    """Write the plan to `out`, if it is that of the runs already there or only adds to it."""
    old, new = {run.folder: run for run in recorded(out)}, {run.folder: run for run in runs}
    advice = "Choose another folder with --out, or give the same plan (more seeds, tasks, variants or steps may be added)."
    for folder, run in old.items():
        change = _difference(run, new[folder]) if folder in new else "it is not in this one"
        if change:
            raise RunFolderError(f"{out} holds a matrix of another plan: {folder}: {change}. {advice}")
    taken = [folder for folder in new if not old and (out / folder / "config.json").exists()]
    if taken:
        raise RunFolderError(f"{out / taken[0]} exists, but {out} has no matrix.json. Choose another folder with --out.")
    content = {"format": FORMAT, "runs": [dataclasses.asdict(run) for run in runs]}
    files.write_atomic(out / "matrix.json", files.sealed(content))
