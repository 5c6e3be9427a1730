"""The plan of a matrix: variants × tasks × seeds as a list of runs, from flags or a TOML file, recorded in matrix.json."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import agents, files, foreign
from beeline.config import Config
from beeline.envs import ids
from beeline.errors import BeelineError, ConfigError, RunFolderError
from beeline.options import FREE, TrainConfig
from beeline.report import references

FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*")
NAME_RULE = "a name is made of letters, digits and . _ + = -, because folders have it."
KEYS = ("algos", "tasks", "seeds", "steps", "preset", "options", "variant", "reference")
OF_THE_MATRIX = ("steps", "seed", "seeds", "tasks")  # what one variant cannot have for itself
# What says how a run is watched or where it runs: a report would put such variants into one line.
UNSWEPT = ("threads", "device", "eval_every", "eval_episodes", "log_every", *FREE)


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


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """What is said of a name that does not exist."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return ConfigError(f"unknown {kind} {name!r}. {'Did you mean ' + ' or '.join(near) + '?' if near else ''}".rstrip())


def read_file(path: Path) -> dict[str, Any]:
    """The content of a matrix file, checked as far as it can be without the flags."""
    found = files.read_toml(path)
    for key in found:
        if key not in KEYS:
            raise unknown(f"entry of {path}", key, KEYS)
    for key in ("options", "variant"):
        if not isinstance(found.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} must be a table, such as [{'variant.NAME' if key == 'variant' else key}].")
    for name, table in found.get("variant", {}).items():
        if not isinstance(table, dict) or not isinstance(table.get("algo"), str):
            raise ConfigError(f'{path}: [variant.{name}] must say its algorithm, such as algo = "bac".')
    tasks = found.get("tasks", [])
    for task in references.parse(found.get("reference", {}), str(path)):
        if tasks and task not in names(tasks, "tasks"):
            raise unknown(f"task of {path} that has a reference,", task, names(tasks, "tasks"))
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


def configs_of(algo: str) -> tuple[type[Config], type[Config]]:
    """Where the options of a run are declared."""
    return TrainConfig, agents.get(algo).config


def options_of(algo: str) -> set[str]:
    """The names of all options of a run."""
    return {name for config in configs_of(algo) for name in config.names()}


def named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under their own names: dashes and aliases resolved."""
    configs: list[type[Config]] = [TrainConfig, *(entry.config for entry in agents.ALGORITHMS.values())]
    names = {name for config in configs for name in config.names()}  # what is one algorithm's alias may be another's option
    aliases = {rule.alias: name for config in configs for name, rule in config.rules().items() if rule.alias not in names}
    plain = {name.replace("-", "_"): value for name, value in options.items()}
    return {aliases.get(name, name): value for name, value in plain.items()}


def values_of(algo: str, name: str, given: Any) -> list[Any] | None:
    """The values that an option is swept over, each once and as its type; None where it has a single value.

    Swept is a list of a file, and what a flag separates by commas; for an option that holds a list itself, a list of lists and
    what is separated by semicolons. Free text is swept in a file only. `0.3,` is a sweep of one value, to which others may be
    added later.
    """
    config = next(config for config in configs_of(algo) if name in config.names())
    is_list = name in config.lists()
    if isinstance(given, str):
        mark = ";" if is_list else ","
        if mark not in given or name in config.texts():
            return None
        given = [part.strip() for part in given.split(mark) if part.strip()]
    elif not isinstance(given, list) or (is_list and not any(isinstance(item, list | str) for item in given)):
        return None
    if not given:
        raise ConfigError(f"{name} is swept over no value.")
    if name in UNSWEPT:
        raise ConfigError(f"{name} is swept over {len(given)} values, but it says nothing of what is trained: give one.")
    if any(isinstance(item, list) for item in given) and not is_list:
        raise ConfigError(f"{name} = {given!r} is a list of lists, but {name} holds a single value.")
    return list(dict.fromkeys(config.read(name, item) for item in given))


def value_name(name: str, value: Any) -> str:
    """An option and its value as a part of a folder's name: `lam0.3`, `hidden256x256`, `blend=min`."""
    if isinstance(value, tuple):
        text = "x".join(map(str, value))
    elif isinstance(value, bool) or value is None:
        text = {None: "none", True: "on", False: "off"}[value]
    else:
        text = repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
    return f"{name}{'' if text[0].isdigit() and not name[-1].isdigit() else '='}{text}"


def _swept(variant: Variant, options: Mapping[str, Any]) -> list[Variant]:
    """A variant, or one for every combination of the values that its options are swept over; the first option varies slowest."""
    known = options_of(variant.algo)
    sweeps = {}
    for name, given in options.items():
        if name in known and (values := values_of(variant.algo, name, given)) is not None:
            sweeps[name] = values
    found = []
    for combination in itertools.product(*sweeps.values()):
        chosen = dict(zip(sweeps, combination))
        label = "-".join([variant.name, *(value_name(name, value) for name, value in chosen.items())])
        found.append(Variant(label, variant.algo, {**options, **chosen}))
    return found


def expand(request: Mapping[str, Any]) -> list[BenchRun]:
    """Every run of a matrix, checked. Seeds vary slowest, so that what is there after a while is balanced."""
    chosen, tasks = variants(request), names(request.get("tasks", []), "tasks")
    for what, found in (("algos", chosen), ("tasks", tasks)):
        if not found:
            raise ConfigError(f"the matrix has no {what}: give --{what}, or {what} = [...] in the file.")
    shared = named(request.get("options", {}))
    for name in shared:
        if name in ("seed", "steps"):
            raise ConfigError(f"{name} is no option of single runs in a matrix: give {'seeds' if name == 'seed' else name}.")
    known = {variant.name: options_of(variant.algo) for variant in chosen}
    everything = sorted(set().union(*known.values()))
    for name in shared:
        if name not in everything:
            answer = foreign.unknown(name, everything, owners=agents.owners)
            raise ConfigError(f"unknown option of {', '.join(dict.fromkeys(v.algo for v in chosen))} {name!r}. {answer}".rstrip())
    columns = []
    for variant in chosen:
        # An option of the matrix goes to every variant that has it: --lam says nothing to PPO.
        options = {name: value for name, value in shared.items() if name in known[variant.name]} | named(variant.options)
        columns += _swept(variant, {"threads": 1} | options)
    for name, count in Counter(column.name for column in columns).items():
        if count > 1:
            raise ConfigError(f"the matrix has two variants {name}: rename [variant.{name}], or take its value from the sweep.")
    first = [checked(column, task, request, dict(column.options)) for task in tasks for column in columns]
    runs = [dataclasses.replace(run, seed=seed) for seed in seeds(request.get("seeds", 5)) for run in first]
    places: dict[str, BenchRun] = {}
    for run in runs:
        other = places.setdefault(run.folder, run)
        if other is not run:
            raise ConfigError(f"{other.task} and {run.task} would have the same folder {run.folder}.")
    return runs


def checked(variant: Variant, task: str, request: Mapping[str, Any], options: dict[str, Any]) -> BenchRun:
    """The run of seed 0, with its options as the values they stand for, so that plans can be compared."""
    from beeline.run.plan import Plan

    preset = options.pop("preset", request.get("preset"))
    preset = None if preset is None else str(preset)
    try:
        plan = Plan.make(variant.algo, task, preset, options | {"steps": request.get("steps", TrainConfig().steps)})
        plan.check_budget()
    except BeelineError as error:
        raise type(error)(f"{variant.name} on {task}: {error}") if type(error) is ConfigError else error from None
    values = plan.agent.to_dict() | plan.train.to_dict()
    return BenchRun(variant.name, variant.algo, task, 0, plan.train.steps, plan.preset, {name: values[name] for name in options})


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
            if unknown := sorted(set(run.options) - options_of(run.algo)):
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
        rule = agents.get(new.algo).config.rules().get(name)
        before, after = (plan.options.get(name, "not given") for plan in (old, new))
        if (rule.word(before) if rule else before) != (rule.word(after) if rule else after):  # false and off mean the same
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
