"""The command line of `beeline bench`: the matrix, and every option of a run and of an algorithm."""

from __future__ import annotations

import argparse
import typing
from pathlib import Path

from beeline import agents
from beeline.bench.plan import OF_THE_MATRIX, BenchRun, expand, merge, read_file, recorded, seeds
from beeline.config import Config
from beeline.envs import trust
from beeline.errors import ConfigError
from beeline.options import TrainConfig
from beeline.report import references
from beeline.report.normalise import normalisation
from beeline.report.references import Reference

OWN = ("algos", "tasks", "seeds", "steps", "preset")
TUNE = ("algo", "task", "trials", "steps", "seeds", "preset", "metric", "startup", "prune", "search_seed")
HOW = ("workers", "retry_failed", "ray")  # what says nothing of the plan


def fill(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline bench`."""
    parser.usage = "beeline bench [MATRIX.toml] [--algos A,B --tasks T,U --seeds N --steps N] [options]"
    parser.add_argument("file", nargs="?", type=Path, help="matrix file; flags override it")
    parser.add_argument("--algos", help="algorithms, or variants of the file, separated by commas")
    parser.add_argument("--tasks", help="tasks, separated by commas")
    parser.add_argument("--seeds", help="how many (5: 0 to 4), or which (0,3,7) [5]")
    parser.add_argument("--steps", help="environment steps of every run [100000]")
    parser.add_argument("--preset", help="best, light, paper, or another of the algorithms' own [each one's first]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the matrix [runs/<file>, else runs/bench]")
    parser.add_argument("--workers", type=int, metavar="N", help="processes at a time [one per core]")
    parser.add_argument("--ray", metavar="ADDRESS", help="run on the Ray cluster at HOST:PORT, or on a new one here (local)")
    parser.add_argument("--retry-failed", action="store_true", help="try runs that failed again")
    _add(parser.add_argument_group("options of the runs (threads: 1 unless given)"), TrainConfig, set(OF_THE_MATRIX))
    group = parser.add_argument_group("options of the algorithms (each goes to those that have it)")
    seen: set[str] = set()
    for entry in agents.ALGORITHMS.values():
        _add(group, entry.config, seen)


def _add(group: argparse._ArgumentGroup, config: type[Config], seen: set[str]) -> None:
    """One flag per field that is not there yet."""
    hints = typing.get_type_hints(config)
    for name, rule in config.rules().items():
        if name in seen:
            continue
        seen.add(name)
        flags = [f"--{name.replace('_', '-')}", *([f"--{rule.alias}"] if rule.alias else [])]
        flags = [flag for flag in flags if flag not in group._option_string_actions]  # one's alias is another's name
        if not flags:
            continue
        text = f"{rule.doc}{f' [{rule.allowed}]' if rule.allowed else ''}".replace("%", "%%")
        if hints[name] is bool:
            group.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(*flags, dest=name, default=None, help=text, metavar="X")


def fill_tune(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline tune`."""
    parser.usage = "beeline tune ALGO TASK --OPTION LOW..HIGH --OPTION A,B [--trials N --steps N] [options]"
    parser.epilog = "An option with LOW..HIGH, LOW..HIGH:log or several values is searched; one with a single value is fixed."
    parser.add_argument("algo", nargs="?", help="algorithm; without it, the search in --out goes on")
    parser.add_argument("task", nargs="?", help="task, such as dmc/walker-run")
    parser.add_argument("--trials", type=int, metavar="N", help="trials in all [20]")
    parser.add_argument("--steps", help="environment steps of every run [100000]")
    parser.add_argument("--seeds", help="runs of a trial: how many (2: 0 and 1), or which (0,3) [1]")
    parser.add_argument("--preset", help="best, light, paper, or another of the algorithm's own [its first]")
    parser.add_argument("--metric", help="what is to become large: return or success [as the report scores the task]")
    parser.add_argument("--startup", type=int, metavar="N", help="trials that are drawn at random, before any is pruned [8]")
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--prune", action=switch, default=None, help="give up trials that fall behind [true]")
    parser.add_argument("--search-seed", type=int, default=None, metavar="N", help="seed of what is drawn [0]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the search [runs/tune]")
    parser.add_argument("--workers", type=int, metavar="N", help="processes at a time [one per core]")
    _add(parser.add_argument_group("options of the runs (threads: 1 unless given)"), TrainConfig, set(OF_THE_MATRIX))
    group = parser.add_argument_group("options of the algorithms")
    seen: set[str] = set()
    for entry in agents.ALGORITHMS.values():
        _add(group, entry.config, seen)


def tune(given: argparse.Namespace) -> int:
    """Run the search of a command, or go on with the one in its folder."""
    from beeline.bench import space
    from beeline.bench import tune as bench_tune

    words = {name: value for name, value in vars(given).items() if value is not None}
    out, workers = words.pop("out", Path("runs") / "tune"), words.pop("workers", None)
    own = {name: words.pop(name) for name in TUNE if name in words}
    if "algo" not in own and not words and set(own) <= {"trials"}:
        found = bench_tune.known_plan(out, own)
        if found is None:
            raise ConfigError(f"there is no search in {out} to go on with: give ALGO, TASK and what is to be searched.")
        return bench_tune.run(out, found, workers)
    if "task" not in own:
        raise ConfigError("a search needs an algorithm and a task: beeline tune ALGO TASK --OPTION LOW..HIGH.")
    trust.allow(own["task"])
    metric = own.get("metric") or normalisation(own["task"]).metric
    plan = space.TunePlan.make(
        own["algo"], own["task"], words, preset=own.get("preset") or agents.get(own["algo"]).default_preset,
        seeds=seeds(own.get("seeds", "1")), metric=metric,
        steps=TrainConfig.read("steps", own.get("steps", TrainConfig().steps)), trials=own.get("trials", 20),
        startup=own.get("startup", 8), prune=own.get("prune", True), seed=own.get("search_seed", 0),
    )  # fmt: skip
    return bench_tune.run(out, plan, workers)


def plan(given: argparse.Namespace) -> tuple[Path, list[BenchRun], dict[str, Reference]]:
    """Folder, runs and references that a command means; with nothing but a folder, the runs that are planned there."""
    words = dict(vars(given))
    file, out = words.pop("file"), words.pop("out")
    flags = {name: words.pop(name) for name in OWN}
    options = {name: value for name, value in words.items() if value is not None and name not in HOW}
    out = out or Path("runs") / (file.stem if file else "bench")
    if file is None and not options and all(value is None for value in flags.values()):
        runs = recorded(out)
        if not runs:
            raise ConfigError(f"there is no matrix in {out} to go on with: give --algos and --tasks, or a matrix file.")
        return out, runs, {}
    request = read_file(file) if file else {}
    runs = expand(merge(request, flags | {"options": options}))
    trust.allow(*(run.task for run in runs))
    return out, runs, references.parse(request.get("reference", {}), str(file))


def command(given: argparse.Namespace) -> int:
    """Run the matrix of a command."""
    from beeline.bench import matrix as bench

    out, runs, scores = plan(given)
    if scores:
        references.store(out, scores)
    return bench.run(out, runs, workers=given.workers, retry_failed=given.retry_failed, ray=given.ray)


def fill_autombpo(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline autombpo`."""
    from beeline.bench.autombpo import OURS, AutoConfig

    parser.usage = "beeline autombpo train [TASK] [--stages S --runs N --epochs E] [options]"
    parser.add_argument("what", choices=("train",), help="train a controller")
    parser.add_argument("task", nargs="?", help="task; without it, the training in --out goes on")
    parser.add_argument("--preset", help="what the runs' options start from [mbpo's first preset]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the training [runs/autombpo-<task>]")
    parser.add_argument("--workers", type=int, metavar="N", help="processes at a time [one per core]")
    _add(parser.add_argument_group("options of the training"), AutoConfig, set())
    _add(parser.add_argument_group("options of the runs (threads: 1 unless given)"), TrainConfig, {*OURS, *AutoConfig.names()})
    group = parser.add_argument_group("options of mbpo")
    _add(group, agents.get("mbpo").config, {*OURS, *TrainConfig.names(), *AutoConfig.names()})


def autombpo(given: argparse.Namespace) -> int:
    """Train a controller, or go on with the one in a folder."""
    from beeline.bench import autombpo as training

    flags = {name: value for name, value in vars(given).items() if value is not None}
    for name in ("what", "workers", "out"):
        flags.pop(name, None)
    task, preset = flags.pop("task", None), flags.pop("preset", None)
    own = {name: flags.pop(name) for name in training.AutoConfig.names() if name in flags}
    if task is None:
        if given.out is None:
            raise ConfigError("nothing to train: name a task, or with --out a training that goes on.")
        if own or flags or preset:
            raise ConfigError(f"{next(iter([*own, *flags, 'preset']))} belongs to a new training, which needs its task.")
        return training.train(given.out, training.recorded(given.out), workers=given.workers)
    trust.allow(task)
    names = "".join(c if c.isalnum() or c in "-_." else "-" for c in task)
    out = given.out or Path("runs") / f"autombpo-{names}"
    return training.train(out, training.AutoPlan.make(task, preset, training.AutoConfig.make(own), flags), workers=given.workers)
