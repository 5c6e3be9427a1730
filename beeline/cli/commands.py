"""The commands. Options of `train` are made from the config dataclasses; JAX is imported only where it is needed."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline import __version__
from beeline.cli.parsing import add_options, defaults_of, flag_of, from_file, joined, named_algorithm, parse, written
from beeline.errors import BeelineError, ConfigError, UnknownNameError, copyable, notes

if TYPE_CHECKING:
    from beeline.config import Config
    from beeline.run.plan import Plan


def train(arguments: Sequence[str]) -> int:
    """Train an algorithm on a task."""
    from beeline.options import TrainConfig

    algorithm = named_algorithm(arguments)

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.usage = "beeline train ALGO TASK [options]"
        parser.add_argument("algo", metavar="ALGO", help="algorithm (see: beeline algos)")
        parser.add_argument("env", metavar="TASK", help="task, such as dmc/walker-run or gym/Hopper-v5 (see: beeline envs)")
        usual = "best (learns fastest), light (plain SAC's size), paper (the papers' tables)"
        presets = ", ".join(algorithm.presets) if algorithm else usual
        parser.add_argument("--preset", help=f"what the options start from: {presets} [the first]")
        parser.add_argument("--out", metavar="DIR", help="run folder [runs/<algo>-<task>-seed<seed>]")
        parser.add_argument("--init-from", metavar="FILE", help="start from the policy in this file")
        parser.add_argument("--config", type=Path, metavar="FILE", help="options as TOML, such as best.toml; flags override them")
        parser.add_argument("--quiet", action="store_true", help="no progress display")
        add_options(parser, TrainConfig, "options of the run")
        if algorithm:
            parser.algo = algorithm.name  # type: ignore[attr-defined]
            defaults = {name: {**defaults_of(algorithm.config), **algorithm.preset(name, "")} for name in algorithm.presets}
            add_options(parser, algorithm.config, f"options of {algorithm.name}", defaults)
        else:
            parser.epilog = "Options of an algorithm: beeline train ALGO --help"

    given = vars(_parse("train", arguments, fill, algorithm.config if algorithm else None))
    own = {name: given.pop(name) for name in ("algo", "env", "preset", "out", "init_from", "quiet")}
    options = {name: value for name, value in given.items() if value is not None}
    if file := options.pop("config", None):
        said = from_file(file, own["algo"])
        own["preset"] = own["preset"] or said.pop("preset", None)
        options = {name: value for name, value in said.items() if name != "preset"} | options
    from beeline import api, envs
    from beeline.display import make_display

    def look(plan: Plan) -> None:
        scaled = getattr(plan.agent, "normalize_obs", plan.agent.scales_observations)
        for finding in envs.quick(plan.env, scaled, optional="normalize_obs" in plan.agent.names()):
            _note(finding.message)

    run = api.train(
        own["algo"], own["env"], preset=own["preset"], out=own["out"], init_from=own["init_from"], report=_note, look=look,
        verbose=0, display=None if own["quiet"] else make_display, **options,
    )  # fmt: skip
    _say_result(run)
    return 0


def resume(arguments: Sequence[str]) -> int:
    """Go on with a run that was stopped, or extend one."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path, help="run folder")
        parser.add_argument("--steps", type=_whole, help="environment steps in all: extends the run")
        parser.add_argument("--env", help="the run's task again, if you have not named its Python module before")
        accepting = "go on with options that were changed in config.json; the change is written down there"
        parser.add_argument("--accept-config", action="store_true", help=accepting)
        parser.add_argument("--quiet", action="store_true", help="no progress display")

    given = _parse("resume", arguments, fill)
    from beeline import api
    from beeline.display import make_display
    from beeline.run.folder import RunFolder
    from beeline.run.opened import Run

    if given.steps is None and Run(RunFolder.open(given.run).path).status.state == "finished":
        _note("this run is finished; --steps N, more than it has, extends it.")
    run = api.resume(
        given.run, steps=given.steps, env=given.env, report=_note, verbose=0,
        display=None if given.quiet else make_display, accept_config=given.accept_config,
    )  # fmt: skip
    _say_result(run)
    return 0


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate the policy of a run or of a policy file on fresh episodes."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path, help="run folder or policy file")
        parser.add_argument("--episodes", type=_whole, default=10, help="episodes [10]")
        parser.add_argument("--best", action="store_true", help="the best evaluated policy instead of the latest")
        parser.add_argument("--seed", type=_whole, default=1, help="seed of the episodes [1]")
        parser.add_argument("--env", help="the task again, or another with the same observations and actions")
        parser.add_argument("--video", action="store_true", help="film one episode into the run's videos/")

    given = _parse("eval", arguments, fill)
    if given.episodes < 1:
        raise ConfigError(f"episodes = {given.episodes} is out of range; allowed: >= 1.")
    from beeline import api, runtime

    runtime.configure(None, None)
    result, policy = api.evaluate_run(given.run, episodes=given.episodes, best=given.best, seed=given.seed, env=given.env)
    row = result.row()
    print(f"{policy.meta['algo']} on {given.env or policy.meta['env']}, policy of step {policy.meta.get('step')}")
    over = f"± {row['eval/return_std']:.1f} (std) over {given.episodes} episodes" if given.episodes > 1 else "in one episode"
    print(f"return {row['eval/return']:.1f} {over}, length {row['eval/length']:.0f}")
    if "eval/success" in row:
        print(f"success {row['eval/success']:.0%} at the end, {row['eval/success_any']:.0%} at any step")
    if given.video:
        folder = given.run if given.run.is_dir() else given.run.parent
        name = f"eval-{'best' if given.best else 'latest'}-{policy.meta.get('step', 0)}.mp4"
        task, path = given.env or policy.meta["env"], folder / "videos" / name
        limit = None if given.env else policy.meta.get("limit")
        print(api.film(policy.player(given.seed), task, policy.meta.get("repeat"), path, given.seed, limit))
    return 0


def environments(arguments: Sequence[str]) -> int:
    """List suites and tasks."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("suite", nargs="?", help="one suite's tasks")
        parser.add_argument("--paper", action="store_true", help="the paper's tasks and the preset each uses")
        parser.add_argument("--json", action="store_true", help="the same as JSON, one object a row")

    given = _parse("envs", arguments, fill)
    from beeline import screen
    from beeline.agents.presets import paper_preset
    from beeline.envs import catalog

    rows = [row.columns for row in catalog.rows(given.suite, paper=given.paper, preset=paper_preset)]
    if given.json:
        screen.show_json(rows)
        return 0
    missing = next((row for row in rows if row.get("installed", "yes") != "yes"), None)
    if missing and screen.width() is not None:  # one line says it for all
        rows = [{**row, "installed": "yes" if row["installed"] == "yes" else "no"} for row in rows]
    goes = {"note": 1, "what": 4, "success": 2, "example": 3, "installed": 7, "observations": 5, "actions": 6, "preset": 8}
    numbers = ("tasks", "observations", "actions")
    found = [screen.Column(name, name in numbers, goes.get(name, 0), name in ("note", "what")) for name in rows[0]]
    screen.show(*screen.of(rows, found))
    if missing and screen.width() is not None:
        name = missing.get("suite") or missing["task"].partition("/")[0]
        print(f"\nTo install {name}{'' if given.suite else ' (another one: beeline envs SUITE)'}:")
        print(missing["installed"])
    return 0


def algorithms(arguments: Sequence[str]) -> int:
    """List the algorithms in their groups, or one algorithm's options."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("algo", nargs="?", help="show this algorithm's options and presets")
        parser.add_argument("--json", action="store_true", help="the same as JSON, one object a row")

    given = _parse("algos", arguments, fill)
    from beeline import agents, screen

    if given.algo:
        return _options_of(given.algo, given.json)
    groups = list(agents.GROUPS)
    entries = sorted(agents.ALGORITHMS.values(), key=lambda e: groups.index(e.group if e.group in groups else "other"))
    rows = []
    for entry in entries:
        named = {"algorithm": entry.name, "group": agents.GROUPS.get(entry.group, entry.group), "class": entry.class_name}
        cost = entry.cost if given.json else f"{entry.cost:.1f}" if entry.cost else ""
        rows.append({**named, "paper": entry.paper, "held against": entry.source, "x SAC": cost, "what it is": entry.summary})
    failures = agents.ALGORITHMS.failures
    if given.json:
        screen.show_json([*rows, *({"algorithm": name, "failed": why} for name, why in failures.items())])
        return 0
    found = [screen.Column("algorithm"), screen.Column("group", goes=5), screen.Column("class", goes=1)]
    found += [screen.Column("paper", goes=4), screen.Column("held against", goes=2)]
    if any(row["x SAC"] for row in rows):
        found.append(screen.Column("x SAC", goes=3))
    screen.show(*screen.of(rows, [*found, screen.Column("what it is", goes=6, prose=True, comfort=40)]))
    for name, why in failures.items():
        screen.say(f"\nnot usable: {screen.cell(f'{name} ({why})')}")
    if screen.width() is not None:
        print("\nOptions of one: beeline algos bac")
    return 0


def _options_of(algo: str, as_json: bool) -> int:
    """The options of an algorithm, under each of its presets."""
    from beeline import agents, screen

    algorithm = agents.get(algo)
    presets = {preset: agents.make_config(algorithm.name, "gym/any", preset, {}) for preset in algorithm.presets}
    rows = []
    for name, rule in algorithm.config.rules().items():
        values = {preset: getattr(config, name) for preset, config in presets.items()}
        if not as_json:
            values = {preset: written(value) for preset, value in values.items()}
        rows.append({"option": flag_of(name)[2:], **values, "allowed": rule.allowed, "what it does": rule.doc})
    if as_json:
        screen.show_json(rows)
        return 0
    screen.say(f"{algorithm.name}: {algorithm.summary}\n")
    named = [screen.Column(name) for name in ("option", *presets)]
    columns, cells = screen.of(rows, [*named, screen.Column("allowed", goes=1, prose=True), screen.Column("what it does")])
    room = screen.width()
    if room is None or len(max(screen.lines(columns, cells, None), key=len)) <= room:
        screen.show(columns, cells)
    else:
        screen.show(columns[:-1], [row[:-1] for row in cells], below=[row[-1] for row in cells])
    return 0


def check_env(arguments: Sequence[str]) -> int:
    """Say what is wrong with an environment."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("env", help="task id, such as gym/Hopper-v5 or my_package.envs:MyEnv-v0")

    given = _parse("check-env", arguments, fill)
    from rich.console import Console
    from rich.text import Text

    from beeline import envs, screen

    findings = envs.check(given.env)
    styles = {"error": "red", "warning": "yellow", "ok": "green"}
    for finding in findings:  # plain text: a message may hold brackets of the environment's own
        text = screen.broken(f"{finding.level:<8}{finding.message}", screen.width(), " " * 8)
        Console(soft_wrap=True).print(Text.assemble((text[:8], styles[finding.level]), text[8:]))
    return 1 if any(finding.level == "error" for finding in findings) else 0


def _from(room: str, name: str) -> Callable[[Sequence[str]], int]:
    """A command that lives in another module of this package."""

    def command(arguments: Sequence[str]) -> int:
        import importlib

        module = importlib.import_module(f"beeline.cli.{room}")
        return getattr(module, name)(_parse(name, arguments, getattr(module, f"fill_{name}")))

    return command


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train, "Train an algorithm on a task."),
    "resume": (resume, "Go on with a run that was stopped, or extend one with --steps."),
    "eval": (evaluate, "Evaluate the policy of a run or of a policy file, and film it."),
    "envs": (environments, "List suites and tasks."),
    "algos": (algorithms, "List the algorithms and their options."),
    "check-env": (check_env, "Say what is wrong with an environment."),
    "bench": (_from("results", "bench"), "Run a matrix of algorithms, tasks and seeds, or go on with one."),
    "tune": (_from("results", "tune"), "Search options with Optuna, or go on with a search."),
    "autombpo": (_from("results", "autombpo"), "Train a controller of MBPO's hyper-parameters, or go on with that."),
    "runs": (_from("results", "runs"), "List, filter and sort runs."),
    "report": (_from("results", "report"), "Make one HTML page of runs: curves, statistics, videos."),
    "reference": (_from("results", "reference"), "Measure reference scores of a task of your own, for reports."),
    "diagnose": (_from("results", "diagnose"), "Measure Q's bias and Δ of finished runs, with figures."),
    "model": (_from("results", "model"), "Train a model of the world on a run's data, and judge it."),
    "film": (_from("results", "film"), "Show key frames of an episode of each run, as rows of a picture."),
    "export": (_from("robots", "export"), "Write a policy as ONNX, for use without Beeline."),
    "deploy": (_from("robots", "deploy"), "Run an exported policy on a D'Kitty, simulated or real; no JAX."),
    "paper": (_from("results", "paper"), "Make figures and numbers of one of the paper's studies."),
}


def _parse(
    prog: str, arguments: Sequence[str], fill: Callable[[argparse.ArgumentParser], None], config: type[Config] | None = None
) -> argparse.Namespace:
    return parse(prog, COMMANDS[prog][1], arguments, fill, config)


def _whole(text: str) -> int:
    try:
        number = float(text) if "e" in text.lower() else int(text)
        if number != int(number):
            raise ValueError
        return int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _note(message: str) -> None:
    from beeline import screen

    screen.complain(f"note: {message}")


def _say_result(run: Any) -> None:
    from beeline import screen

    scores = [(row["step"], row["eval/return"]) for row in run.metrics if row.get("eval/return") is not None]
    if scores:
        (_, before), (step, after) = scores[0], scores[-1]
        best_step, best = max(scores, key=lambda pair: pair[1])
        better = f"(best {best:.1f} at {best_step:,.0f})"
        screen.say(f"return before training {before:.1f}, after {step:,.0f} steps {after:.1f} {better}")
    print(f"run folder: {run.path}")
    found = [run.path / "curve.png", *sorted((run.path / "videos").glob("step-*.mp4"))[-1:]]
    for path in (path for path in found if path.exists()):
        print(f"{'video' if path.suffix == '.mp4' else 'curve'}: {path}")


def _help() -> str:
    lines = [
        f"beeline {__version__}: sample-efficient continuous control with the BEE operator",
        "",
        "  beeline train bac dmc/walker-run --steps 100_000 --seed 0",
        "",
        "commands (each has --help):",
        *(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items()),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that are the user's to mend are printed without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a path or a name may hold what the terminal's encoding has not
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        print(__version__)
        return 0
    try:
        if words[0] not in COMMANDS:
            raise UnknownNameError("command", words[0], COMMANDS, "See: beeline --help")
        return COMMANDS[words[0]][0](joined(words[1:]))
    except BeelineError as error:
        from beeline import screen

        screen.complain("\n".join([f"beeline: {error}", *notes(error)]))
        return 2
    except KeyboardInterrupt as error:
        from beeline.stopping import Stopped

        if not isinstance(error, Stopped):
            trains = words[0] in ("train", "resume")
            print("left at once, without a checkpoint of the last steps" if trains else "stopped", file=sys.stderr)
            return 130
        from beeline import screen

        screen.complain(f"{error}; a checkpoint is written. Go on with: {copyable('resume', error.folder)}")
        return 128 + error.signal_number
    except BrokenPipeError:
        return 141


if __name__ == "__main__":
    sys.exit(main())
