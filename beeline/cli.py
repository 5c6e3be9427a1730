"""The command line. Options of `train` are made from the config dataclasses; JAX is imported only where it is needed."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from beeline import __version__
from beeline.errors import BeelineError, ConfigError


def _add_options(parser: argparse.ArgumentParser, config: type, title: str) -> None:
    """One flag per config field, with its description, default and range."""
    group = parser.add_argument_group(title)
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        rule = field.metadata["rule"]
        flags = [f"--{field.name.replace('_', '-')}"] + ([f"--{rule.alias}"] if rule.alias else [])
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        allowed = f"; {rule.allowed}" if rule.allowed else ""
        text = f"{rule.doc} [{'none' if default is None else default}{allowed}]".replace("%", "%%")
        if hints[field.name] is bool:
            group.add_argument(*flags, dest=field.name, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(*flags, dest=field.name, default=None, help=text, metavar="X")


class _Parser(argparse.ArgumentParser):
    """Errors as sentences, with the nearest option for one that does not exist."""

    def error(self, message: str) -> typing.NoReturn:
        if message.startswith("unrecognized arguments:"):
            import difflib

            given = message.split(":", 1)[1].split()[0]
            known = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            near = difflib.get_close_matches(given.split("=")[0], known, n=3, cutoff=0.5)
            raise ConfigError(f"unknown option {given}.{' Did you mean ' + ' or '.join(near) + '?' if near else ''}")
        self.print_usage(sys.stderr)
        raise ConfigError(message)


def _parse(prog: str, arguments: Sequence[str], fill: Callable[[argparse.ArgumentParser], None]) -> argparse.Namespace:
    parser = _Parser(prog=f"beeline {prog}", description=COMMANDS[prog][1], allow_abbrev=False)
    fill(parser)
    return parser.parse_args(arguments)


# --- commands ---------------------------------------------------------------------------------------------------------


def train(arguments: Sequence[str]) -> int:
    """Train an algorithm on a task."""
    from beeline import agents
    from beeline.options import TrainConfig

    named = next((word for word in arguments if not word.startswith("-")), None)
    algorithm = agents.get(named) if named else None

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("algo", help="algorithm (see: beeline algos)")
        parser.add_argument("env", help="task, such as dmc/walker-run or gym/Hopper-v5 (see: beeline envs)")
        parser.add_argument("--preset", default="light", help="light (256 wide, batch 256) or paper (the paper's tables)")
        parser.add_argument("--out", metavar="DIR", help="run folder [runs/<algo>-<task>-seed<seed>]")
        parser.add_argument("--init-from", metavar="FILE", help="start from the policy in this file")
        parser.add_argument("--quiet", action="store_true", help="no progress display")
        _add_options(parser, TrainConfig, "options of the run")
        if algorithm:
            _add_options(parser, algorithm.config, f"options of {algorithm.name}")
        else:
            parser.epilog = "Options of an algorithm: beeline train ALGO --help"

    given = vars(_parse("train", arguments, fill))
    own = {name: given.pop(name) for name in ("algo", "env", "preset", "out", "init_from", "quiet")}
    options = {name: value for name, value in given.items() if value is not None}
    from beeline import api
    from beeline.display import make_display

    run = api.train(
        own["algo"], own["env"], preset=own["preset"], out=own["out"], init_from=own["init_from"],
        display=None if own["quiet"] else make_display, **options,
    )  # fmt: skip
    _say_result(run)
    return 0


def resume(arguments: Sequence[str]) -> int:
    """Go on with a run that was stopped, or extend one."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path, help="run folder")
        parser.add_argument("--steps", type=_whole, help="environment steps in all: extends the run")
        parser.add_argument("--quiet", action="store_true", help="no progress display")

    given = _parse("resume", arguments, fill)
    from beeline import api
    from beeline.display import make_display

    run = api.resume(given.run, steps=given.steps, report=_note, display=None if given.quiet else make_display)
    _say_result(run)
    return 0


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate the policy of a run or of a policy file on fresh episodes."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=Path, help="run folder or policy file")
        parser.add_argument("--episodes", type=_whole, default=10, help="episodes [10]")
        parser.add_argument("--best", action="store_true", help="the best evaluated policy instead of the latest")
        parser.add_argument("--seed", type=_whole, default=None, help="seed of the episodes [1]")
        parser.add_argument("--env", help="another task with the same observations and actions")
        parser.add_argument("--video", action="store_true", help="film one episode into the run's videos/")

    given = _parse("eval", arguments, fill)
    if given.episodes < 1:
        raise ConfigError(f"episodes = {given.episodes} is out of range; allowed: >= 1.")
    from beeline import api, runtime

    runtime.configure(None, None)
    result, policy = api.evaluate_run(given.run, episodes=given.episodes, best=given.best, seed=given.seed, env=given.env)
    row = result.row()
    print(f"{policy.meta['algo']} on {given.env or policy.meta['env']}, policy of step {policy.meta.get('step')}")
    print(f"return {row['eval/return']:.1f} ± {row['eval/return_std']:.1f} (std) over {given.episodes} episodes, "
          f"length {row['eval/length']:.0f}")  # fmt: skip
    if "eval/success" in row:
        print(f"success {row['eval/success']:.0%} at the end, {row['eval/success_any']:.0%} at any step")
    if given.video:
        folder = given.run if given.run.is_dir() else given.run.parent
        name = f"eval-{'best' if given.best else 'latest'}-{policy.meta.get('step', 0)}.mp4"
        repeat = api.RunFolder.open(given.run).plan().train.repeat if given.run.is_dir() else None
        print(api.film(policy.act, given.env or policy.meta["env"], repeat, folder / "videos" / name, given.seed or 1))
    return 0


def environments(arguments: Sequence[str]) -> int:
    """List suites and tasks."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("suite", nargs="?", help="one suite's tasks")
        parser.add_argument("--paper", action="store_true", help="the paper's tasks and the preset each uses")

    given = _parse("envs", arguments, fill)
    from rich.console import Console

    from beeline.envs import catalog

    Console().print(catalog.render_table(catalog.rows(given.suite, paper=given.paper)))
    return 0


def algorithms(arguments: Sequence[str]) -> int:
    """List the algorithms, or one algorithm's options."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("algo", nargs="?", help="show this algorithm's options and presets")

    given = _parse("algos", arguments, fill)
    from rich.console import Console
    from rich.table import Table

    from beeline import agents
    from beeline.agents.presets import PRESETS, preset_options

    console = Console()
    if not given.algo:
        table = Table("algorithm", "what it is", box=None, header_style="bold", pad_edge=False)
        for entry in agents.ALGORITHMS.values():
            table.add_row(entry.name, entry.summary)
        console.print(table)
        console.print("\nOptions of one: beeline algos bac")
        return 0
    algorithm = agents.get(given.algo)
    table = Table("option", *PRESETS, "allowed", "what it does", box=None, header_style="bold", pad_edge=False)
    presets = [algorithm.config.make(preset_options(algorithm.name, "gym/any", preset)) for preset in PRESETS]
    for name, rule in algorithm.config.rules().items():
        values = [str(getattr(preset, name)).strip("()") for preset in presets]
        table.add_row(name.replace("_", "-"), *values, rule.allowed, rule.doc)
    console.print(f"{algorithm.name}: {algorithm.summary}\n")
    console.print(table)
    return 0


def check_env(arguments: Sequence[str]) -> int:
    """Say what is wrong with an environment."""

    def fill(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("env", help="task id, such as gym/Hopper-v5 or my_package.envs:MyEnv-v0")

    given = _parse("check-env", arguments, fill)
    from rich.console import Console

    from beeline import envs

    findings = envs.check(given.env)
    marks = {"error": "[red]error[/]  ", "warning": "[yellow]warning[/]", "ok": "[green]ok[/]     "}
    for finding in findings:
        Console().print(f"{marks[finding.level]} {finding.message}", highlight=False)
    return 1 if any(finding.level == "error" for finding in findings) else 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train, "Train an algorithm on a task."),
    "resume": (resume, "Go on with a run that was stopped, or extend one with --steps."),
    "eval": (evaluate, "Evaluate the policy of a run or of a policy file, and film it."),
    "envs": (environments, "List suites and tasks."),
    "algos": (algorithms, "List the algorithms and their options."),
    "check-env": (check_env, "Say what is wrong with an environment."),
}


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _note(message: str) -> None:
    print(f"note: {message}", file=sys.stderr)


def _say_result(run: Any) -> None:
    scores = [(row["step"], row["eval/return"]) for row in run.metrics if row.get("eval/return") is not None]
    if scores:
        (_, before), (step, after) = scores[0], scores[-1]
        best_step, best = max(scores, key=lambda pair: pair[1])
        print(f"return before training {before:.1f}, after {step:,.0f} steps {after:.1f} (best {best:.1f} at {best_step:,.0f})")
    print(f"run folder: {run.path}")


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
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        print(__version__)
        return 0
    try:
        if words[0] not in COMMANDS:
            from beeline.errors import UnknownNameError

            raise UnknownNameError("command", words[0], COMMANDS, "See: beeline --help")
        return COMMANDS[words[0]][0](words[1:])
    except BeelineError as error:
        print(f"beeline: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except BaseException as error:
        from beeline.stopping import Stopped

        if not isinstance(error, Stopped):
            raise
        print(f"\n{error}; a checkpoint is written. Go on with: beeline resume {error.folder}", file=sys.stderr)
        return 128 + error.signal_number


if __name__ == "__main__":
    sys.exit(main())
