"""Commands over many runs, and those that read or illustrate rather than train: `bench`, `tune`, `autombpo`, `runs`,
`report`, `reference`, `diagnose`, `model`, `film`, `paper`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from beeline.errors import ConfigError, copyable
from beeline.screen import Column

if TYPE_CHECKING:
    from beeline.run.reading import Damage

# The studies of the paper, and the options that each has besides --out.
STUDIES: dict[str, tuple[str, ...]] = {
    "gridworld": ("seeds", "quick"),
    "random-walk": (),
    "underestimation": ("seeds", "task", "steps", "algos", "workers", "draw"),
    "terrains": ("policy", "episodes"),
}

# As `beeline runs` shows them; the path says more than the run's name, which is not shown.
RUN_COLUMNS = (
    Column("algo", goes=9), Column("task", goes=8), Column("seed", right=True, goes=6), Column("preset", goes=2), Column("state"),
    Column("step", right=True, goes=7), Column("steps", right=True, goes=1), Column("return", right=True),
    Column("success", right=True, goes=3), Column("best", right=True, goes=4), Column("reason", goes=5, prose=True),
    Column("path"),
)  # fmt: skip


def fill_bench(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline bench`."""
    from beeline.bench import options as bench_options

    bench_options.fill(parser)


def bench(given: argparse.Namespace) -> int:
    """Run a matrix of algorithms, tasks and seeds."""
    from beeline.bench import options as bench_options

    return bench_options.command(given)


def fill_tune(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline tune`."""
    from beeline.bench import options as bench_options

    bench_options.fill_tune(parser)


def tune(given: argparse.Namespace) -> int:
    """Search options, or go on with a search."""
    from beeline.bench import options as bench_options

    return bench_options.tune(given)


def fill_autombpo(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline autombpo`."""
    from beeline.bench import options as bench_options

    bench_options.fill_autombpo(parser)


def autombpo(given: argparse.Namespace) -> int:
    """Train a controller of MBPO, or go on with that."""
    from beeline.bench import options as bench_options

    return bench_options.autombpo(given)


def fill_runs(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline runs`."""
    parser.add_argument("folder", type=Path, nargs="*", default=[Path("runs")], help="folders to look in [runs]")
    parser.add_argument("--where", action="append", default=[], metavar="COND", help="such as algo=bac or 'return>500'")
    parser.add_argument("--sort", default="", metavar="FIELDS", help="such as task,-return")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write every evaluation of these runs as .csv or .parquet")
    parser.add_argument("--json", action="store_true", help="the same as JSON, one object a run")


def _note(damage: Damage) -> None:
    from beeline import screen

    screen.complain(f"note: {damage}")


def _from_here(path: str) -> str:
    """A path as it is given to a command in this folder."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def runs(given: argparse.Namespace) -> int:
    """List runs with their state and last score."""
    from beeline import report as reports
    from beeline import screen

    rows = reports.runs_table(given.folder, given.where, given.sort, note=_note)
    if given.json:
        screen.show_json(rows)
    elif not rows:
        print(f"no run at or below {', '.join(map(str, given.folder))} meets these conditions.")
    else:
        screen.show(*screen.of([{**row, "path": _from_here(row["path"])} for row in rows], RUN_COLUMNS))
    if given.save and rows:
        found = reports.results([Path(row["path"]) for row in rows], note=lambda damage: None)  # it was said above
        print(reports.write_table(found, given.save), file=sys.stderr if given.json else sys.stdout)
    return 0


def fill_report(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline report`."""
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders that hold some")
    parser.add_argument("-o", "--out", type=Path, default=Path("report.html"), help="the page [report.html]")
    parser.add_argument("--overlay", action="append", default=[], metavar="CURVES", help="published curves shown at once")
    parser.add_argument("--export", type=Path, metavar="DIR", help="PNG, SVG and CSV of every figure")
    parser.add_argument("--serve", action="store_true", help="show it live on this machine while runs go on")
    parser.add_argument("--port", type=int, default=0, help="port of --serve [any free one]")


def report(given: argparse.Namespace) -> int:
    """Make the report, or serve it."""
    from beeline import report as reports

    if given.serve:
        reports.serve(given.runs[0], port=given.port, overlay=given.overlay)
        return 0
    print(reports.build(given.runs, given.out, overlay=given.overlay, export=given.export, note=_note))
    return 0


def fill_reference(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline reference`."""
    parser.add_argument("task", help="task, as the runs have it, such as my_package.envs:Reach-v0")
    parser.add_argument("--random", action="store_true", help="measure the return of uniformly random actions")
    parser.add_argument("--expert", metavar="SCORE", help="the return of an expert: a number, or a run whose policy is evaluated")
    parser.add_argument("--episodes", type=int, default=20, help="episodes that are played [20]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episodes [0]")
    parser.add_argument("--repeat", type=int, default=1, help="environment steps per decision of the random policy [1]")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs that it is for [runs]")


def reference(given: argparse.Namespace) -> int:
    """Measure or take reference scores of a task, and write them down where reports find them."""
    if given.episodes < 1:
        raise ConfigError(f"episodes = {given.episodes} is out of range; allowed: >= 1.")
    if not given.random and given.expert is None:
        raise ConfigError("nothing to do: give --random, --expert SCORE, or both.")
    from beeline.envs import trust
    from beeline.report import references

    trust.allow(given.task)
    random = expert = None
    if given.expert is not None:
        expert = _expert(given)
    if given.random:
        random, error = references.measure(given.task, given.episodes, given.seed, given.repeat)
        print(f"random: return {random:.4g} ± {error:.2g} (standard error) over {given.episodes} episodes")
    path = references.store(given.out, {given.task: references.Reference(random, expert)})
    known = references.read(given.out)[given.task]
    print(f"references: {path}")
    if known.expert is None:
        print(f"give an expert's score as well: {copyable('reference', given.task, '--expert', 'SCORE')}")
    return 0


def _expert(given: argparse.Namespace) -> float:
    """The score that is given, or that of the policy in a run folder."""
    try:
        return float(given.expert)
    except ValueError:
        if not Path(given.expert).exists():
            raise ConfigError(f"expert = {given.expert!r} is neither a number nor a run folder.") from None
    from beeline import api, runtime

    runtime.configure(None, None)
    result, _ = api.evaluate_run(given.expert, episodes=given.episodes, best=True, seed=given.seed, env=given.task)
    print(f"expert: return {result.mean:.4g} over {given.episodes} episodes of the best policy of {given.expert}")
    return result.mean


def fill_diagnose(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline diagnose`."""
    parser.add_argument("run", type=Path, nargs="+", help="run folders")
    parser.add_argument("--pairs", type=int, default=1_000, help="least number of pairs with a Monte Carlo return [1000]")
    parser.add_argument("--fit", type=int, default=5_000, metavar="STEPS", help="updates per fit of Δ; 0: no fits [5000]")
    parser.add_argument("--env", help="the runs' task again, if you have not named its Python module before")
    parser.add_argument("--bands", type=Path, metavar="FILE", help="draw recorded Q with bands over seeds instead, as .png")


def diagnose(given: argparse.Namespace) -> int:
    """Measure runs and print a small table of each, or draw Q over the seeds of several."""
    from beeline import screen
    from beeline.run import diagnose as diagnostics
    from beeline.run.diagnose import table as lines

    if given.bands:
        print(diagnostics.draw_q_bands(given.run, given.bands))
        return 0
    for path in given.run:
        result = diagnostics.diagnose_run(path, env=given.env, pairs=given.pairs, fit_steps=given.fit)
        print(screen.cell(f"{result['algo']} on {result['env']}, seed {result['seed']}, step {result['step']:,}"))
        screen.show([Column("quantity"), Column("value")], [[screen.cell(each) for each in line] for line in lines(result)])
        print(f"numbers and figures: {path / 'diagnostics'}")
    return 0


def fill_model(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline model`."""
    from beeline.cli.parsing import add_options
    from beeline.run.modelled import FOLDER, ModelConfig

    parser.add_argument("run", type=Path, nargs="+", help="run folders")
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help=f"folder of the model, of one run [RUN/{FOLDER}]")
    add_options(parser, ModelConfig, "options of the model")


def model(given: argparse.Namespace) -> int:
    """Train a model of every run and print a small table of each."""
    from beeline import screen
    from beeline.run import modelled

    options = {name: value for name, value in vars(given).items() if name not in ("run", "out") and value is not None}
    if given.out and len(given.run) > 1:
        raise ConfigError(f"--out is one folder, and there are {len(given.run)} runs: leave it out, or give one run.")

    def say(text: str) -> None:
        screen.complain(f"note: {text}")

    for path in given.run:
        result, folder = modelled.model_run(path, out=given.out, report=say, **options)
        print(screen.cell(f"{result['env']}, met by {result['algo']}, seed {result['seed']}, to step {result['step']:,}"))
        lines = [[screen.cell(each) for each in line] for line in modelled.table(result)]
        screen.show([Column("quantity"), Column("value")], lines)
        print(f"model, numbers and figure: {folder}")
    return 0


def fill_film(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline film`."""
    parser.add_argument("run", type=Path, nargs="+", help="run folders or policy files: a row of the picture each")
    parser.add_argument("--frames", type=int, default=7, help="frames of each run, evenly spaced in time [7]")
    parser.add_argument("-o", "--out", type=Path, default=Path("film.png"), metavar="FILE", help="the picture [film.png]")
    parser.add_argument("--label", action="append", default=[], metavar="TEXT", help="of a row, in the order of the runs")
    parser.add_argument("--best", action="store_true", help="the best evaluated policies instead of the latest")
    parser.add_argument("--seed", type=int, default=1, help="seed of the episode [1]")
    parser.add_argument("--env", help="another task with the same observations and actions")


def film(given: argparse.Namespace) -> int:
    """Lay key frames of runs under each other in one picture."""
    if given.frames < 2:
        raise ConfigError(f"frames = {given.frames} is out of range; allowed: >= 2 (the start and the end of an episode).")
    if given.label and len(given.label) != len(given.run):
        raise ConfigError(f"{len(given.label)} labels for {len(given.run)} runs: give --label once for every run, or not at all.")
    if given.out.suffix.lower() != ".png":
        raise ConfigError(f"the picture {given.out} must end in .png.")
    from beeline import api, runtime
    from beeline.envs.sheet import film_strip

    runtime.configure(None, None)
    rows = []
    for number, path in enumerate(given.run):
        frames, total, policy = api.key_frames(path, given.frames, best=given.best, seed=given.seed, env=given.env)
        meta = policy.meta
        own = f"{meta['algo']} on {given.env or meta['env']}, step {meta.get('step', 0):,}"
        name = given.label[number] if given.label else own
        rows.append((f"{name}: return {total:,.1f}", frames))
    film_strip(given.out, rows)
    print(given.out)
    return 0


def fill_paper(parser: argparse.ArgumentParser) -> None:
    """Options of `beeline paper`."""
    from beeline.studies import underestimation

    parser.add_argument("study", choices=STUDIES, help="which study of the paper")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of figures and tables [runs/paper-<study>]")
    parser.add_argument("--seeds", metavar="N", help="seeds of gridworld [30] or underestimation [2]")
    parser.add_argument("--quick", action="store_true", help="gridworld: a sweep of at most 5 seeds and 2000 steps")
    group = parser.add_argument_group("options of underestimation (what is not given is as in --out, if a study is there)")
    group.add_argument("--task", help=f"the task that all are trained on [{underestimation.TASK}]")
    group.add_argument("--steps", metavar="N", help=f"environment steps of every run [{underestimation.STEPS}]")
    group.add_argument("--algos", metavar="A,B", help="some of the variants, such as sac,sac-single,bac [all]")
    group.add_argument("--workers", type=int, metavar="N", help="processes at a time [one per core]")
    group.add_argument("--draw", action="store_true", help="train nothing; draw what is there")
    group = parser.add_argument_group("options of terrains")
    policies = "an exported policy, such as hard=hard.onnx; again for more"
    group.add_argument("--policy", action="append", metavar="NAME=FILE", help=policies)
    group.add_argument("--episodes", type=int, metavar="N", help="episodes of each policy on each terrain [10]")


def paper(given: argparse.Namespace) -> int:
    """Make figures and numbers of one of the paper's studies."""
    options = {name: value for name, value in vars(given).items() if name not in ("study", "out") and value not in (None, False)}
    for name in options:
        if name not in STUDIES[given.study]:
            owners = " and ".join(study for study, names in STUDIES.items() if name in names)
            raise ConfigError(f"--{name} is no option of {given.study}; it is one of {owners}.")
    out = given.out or Path("runs") / f"paper-{given.study}"
    code = 0
    if given.study == "gridworld":
        from beeline.studies import gridworld

        gridworld.run(out, seeds=_count(given.seeds or "30"), quick=given.quick)
    elif given.study == "random-walk":
        from beeline.studies import random_walk

        random_walk.run(out)
    elif given.study == "terrains":
        from beeline.studies import output, terrains

        episodes = terrains.EPISODES if given.episodes is None else given.episodes
        print(output.as_text(terrains.run(out, terrains.parse(given.policy or ()), episodes=episodes)))
    else:
        from beeline.studies import underestimation

        options["only_draw"] = options.pop("draw", False)
        code = underestimation.run(out, **options)
    print(f"figures and tables: {out}")
    return code


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"seeds = {text!r} is no number of seeds; allowed: >= 1.")
    return int(text)
