"""Writes the tables of the docs that are made from the code and from the records of runs, between their markers.

    python docs/generate_tables.py            write
    python docs/generate_tables.py --check    say which files are not up to date; exit code 1 if any is not
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from beeline import agents, foreign
from beeline.bench import plan as bench_plan
from beeline.cli.commands import COMMANDS
from beeline.config import Config, Rule
from beeline.envs.dkitty.options import SimToReal
from beeline.options import TrainConfig
from beeline.report import published, statistics
from beeline.report import runs as recorded_runs
from beeline.report.model import model
from beeline.run.record import LOOP_COLUMNS, TIME_COLUMNS, read_metrics
from beeline.studies import underestimation

DOCS = Path(__file__).parent
RECORDS = DOCS.parent / "benchmarks" / "records"
_BLOCK = re.compile(r"(<!-- generated: ([a-z0-9 -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# One task per column of the paper's tables; see beeline/agents/presets.py.
PAPER_COLUMNS = {
    "paper, others": "gym/Hopper-v5",
    "paper, DMControl": "dmc/walker-run",
    "paper, DMControl dog": "dmc/dog-run",
    "paper, Meta-World": "metaworld/hammer",
}

LOOP_METRICS = {
    "step": "environment steps so far: decisions × `repeat` × `num_envs`",
    "episodes": "training episodes finished so far, over all lanes",
    "updates": "critic updates so far",
    "train/return": "(1/n) Σ_j Σ_t r_t over the n training episodes that ended since the last row; empty if none did",
    "train/length": "(1/n) Σ_j (decisions of episode j × `repeat`), over the same episodes",
    "train/success": "share of the same episodes that succeeded at their last step; empty where the env does not say",
    "eval/return": "R̄ = (1/n) Σ_j R_j, where R_j = Σ_t r_t is the undiscounted return of evaluation episode j under "
    "the deterministic policy and n = `eval_episodes`",
    "eval/return_std": "√((1/n) Σ_j (R_j − R̄)²)",
    "eval/length": "(1/n) Σ_j (decisions of evaluation episode j × `repeat`)",
    "eval/success": "share of evaluation episodes that succeeded at their last step",
    "eval/success_any": "share of evaluation episodes that succeeded at any step",
    "time/wall": "Unix time of the row, in seconds",
    "time/processor": "seconds of processor time of this process so far, all threads together; a resumed run begins anew",
    "time/steps_per_second": "environment steps since the last row / seconds since the last row",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def shown(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def flag(name: str, rule: Rule, kind: type[Config]) -> str:
    """How a field is given on the command line."""
    names = [name.replace("_", "-"), *([rule.alias] if rule.alias else [])]
    switch = kind.__dataclass_fields__[name].type == "bool"
    return ", ".join(f"`--{'[no-]' if switch else ''}{each}`" for each in names)


def run_options() -> str:
    """The options of every run."""
    rows = [
        [flag(name, rule, TrainConfig), shown(getattr(TrainConfig(), name)), rule.allowed, rule.doc]
        for name, rule in TrainConfig.rules().items()
    ]
    return table(["option", "default", "allowed", "what it does"], rows)


def algorithm_options() -> str:
    """The options of all algorithms, with each one's value under its default preset; a `bee-…` made of another has another λ."""
    configs = {n: agents.make_config(n, "gym/any", None, {}) for n, entry in agents.OWN.items() if not entry.bee}
    rules = {name: (rule, type(config)) for config in configs.values() for name, rule in config.rules().items()}
    rows = [
        [
            flag(name, rule, kind),
            *(shown(getattr(config, name)) if hasattr(config, name) else "–" for config in configs.values()),
            rule.allowed,
            rule.doc,
        ]
        for name, (rule, kind) in rules.items()
    ]
    return table(["option", *configs, "allowed", "what it does"], rows)


ROBOTS = ("mbpo/hopper", "mbpo/walker2d", "mbpo/ant", "mbpo/humanoid", "gym/HalfCheetah-v5", "gym/InvertedPendulum-v5")


def model_presets() -> str:
    """What the presets of MBPO and the events of CMLO are for each robot, where they differ from each other."""
    asked = [("mbpo", "light"), ("mbpo", "paper"), ("mbpo", "mbrl"), ("cmlo", "paper")]
    rows = []
    for algo, preset in asked:
        found = [agents.make_config(algo, task, preset, {}) for task in ROBOTS]
        for name in found[0].names():
            values = [shown(getattr(each, name)) for each in found]
            own = algo == "mbpo" or name.startswith("event_")  # the others are those of mbrl
            if own and len(set(values)) > 1:
                rows.append([f"{algo} `{preset}`", f"`{name}`", *values])
    return table(["preset", "option", *(f"`{task}`" for task in ROBOTS)], rows)


def model_preset_table(algo: str) -> str:
    """Every option of a method with a learned model on Hopper, by preset."""
    columns = {f"{name}, Hopper": agents.make_config(algo, "mbpo/hopper", name, {}) for name in agents.get(algo).presets}
    first = next(iter(columns.values()))
    rows = [[f"`{name}`", *(shown(getattr(each, name)) for each in columns.values())] for name in first.names()]
    return table(["option", *columns], rows)


def preset_table(algo: str) -> str:
    """Every option of an algorithm under its presets, the default first; columns of `paper` that agree are one."""
    if "mbrl" in agents.get(algo).presets or algo == "cmlo":
        return model_preset_table(algo)
    columns: dict[str, Any] = {}
    for preset in agents.get(algo).presets:
        if preset != "paper":
            columns[preset] = agents.make_config(algo, "gym/any", preset, {})
            continue
        paper = {title: agents.make_config(algo, env, "paper", {}) for title, env in PAPER_COLUMNS.items()}
        same = len({repr(each) for each in paper.values()}) == 1
        columns |= {"paper": next(iter(paper.values()))} if same else paper
    names = agents.get(algo).config.names()
    rows = [[f"`{name}`", *(shown(getattr(each, name)) for each in columns.values())] for name in names]
    return table(["option", *columns], rows)


def loop_metrics() -> str:
    """The columns of the metrics table that every algorithm has."""
    columns = [*LOOP_COLUMNS, *TIME_COLUMNS]
    if set(columns) != set(LOOP_METRICS):
        raise SystemExit(f"docs/generate_tables.py: no formula for {sorted(set(columns) ^ set(LOOP_METRICS))}")
    return table(["column", "formula"], [[f"`{name}`", LOOP_METRICS[name]] for name in columns])


def commands() -> str:
    """The commands."""
    return table(["command", "what it does"], [[f"`beeline {name}`", text] for name, (_, text) in COMMANDS.items()])


def dkitty_options() -> str:
    """The options that only D'Kitty ids have."""
    rows = [[f"`{name}`", rule.allowed or "true or false", rule.doc] for name, rule in SimToReal.rules().items()]
    return table(["option", "allowed", "what it adds"], rows)


def algorithms() -> str:
    """The algorithms."""
    rows = [[f"[`{e.name}`](algorithms/{e.name}.md)", e.summary] for e in agents.OWN.values()]
    return table(["algorithm", "what it is"], rows)


# --- results ----------------------------------------------------------------------------------------------------------


@functools.cache
def _underestimation() -> dict[str, Any]:
    folder = RECORDS / "underestimation"
    return underestimation.tabulate(underestimation.read(folder, bench_plan.recorded(folder)))


def underestimation_variants() -> str:
    """What the study of late underestimation measured, a row per variant."""
    columns = {
        "evaluated return": ("return", 0),
        "late gap / return": ("gap_min_late_norm", 2),
        "the same, with entropy": ("soft_gap_min_late_norm", 2),
        "late gap, in Q": ("gap_min_late", 1),
        "late Δ": ("delta_late", 2),
        "late Δ / Q": ("delta_norm_late", 3),
        "buffer's action better, late": ("better_late", 2),
    }
    rows = [
        [f"`{row['variant']}`", *(underestimation.cell(row, *column).replace("-", "−") for column in columns.values())]
        for row in _underestimation()["variants"]
    ]
    return table(["variant", *columns], rows)


def underestimation_pairs() -> str:
    """The same study's pairs, without and with the exploit part."""
    rows = []
    for row in _underestimation()["comparisons"]:
        if not row["gap"].endswith("_min"):
            continue
        digits = 1 if row["unit"] == "q" else 2
        kind = ("in Q" if row["unit"] == "q" else "/ return") + (", with entropy" if row["gap"].startswith("soft") else "")
        numbers = [f"{row[name]:+.{digits}f}" for name in ("late_without", "late_with", "difference")]
        if row["difference_std"] is not None:
            numbers[-1] += f" ± {row['difference_std']:.{digits}f}"
        lessened = f"{row['lessened']} of {row['under_without']}" if row["under_without"] else "–"
        rows.append([f"`{row['without']}` → `{row['with']}`", kind, *(text.replace("-", "−") for text in numbers), lessened])
    return table(["pair", "late gap", "without", "with", "difference", "seeds where underestimation lessened"], rows)


@functools.cache
def _comparison() -> dict[str, Any]:
    return model(recorded_runs.read_all([RECORDS / "bac-against-sac"]))


def _interval(found: dict[str, Any], digits: int) -> str:
    value = f"{found['value']:.{digits}f}"
    return value if found["low"] is None else f"{value} [{found['low']:.{digits}f}, {found['high']:.{digits}f}]"


def comparison_final() -> str:
    """Final scores of the matched comparison, task by task."""
    data = _comparison()
    names = [line["name"] for line in data["lines"]]
    rows = []
    for task in data["tasks"]:
        cells = []
        for found in task["final"]:
            scores = ", ".join(f"{score:.0f}" for score in sorted(found["scores"]))
            cells += [_interval(found, 0), scores]
        means = [found["value"] for found in task["final"]]
        resolves = "–" if task["resolves"] is None else f"{task['resolves']:.0f}"
        rows.append([task["id"], *cells, f"{means[-1] - means[0]:+.0f}".replace("-", "−"), resolves])
    heads = [head for name in names for head in (name, "seeds, sorted")]
    return table(["task", *heads, f"{names[-1]} − {names[0]}", "smallest resolvable difference"], rows)


def comparison_aggregates() -> str:
    """Aggregates of the matched comparison over its tasks."""
    data = _comparison()
    titles = {"iqm": "interquartile mean", "median": "median", "mean": "mean"}
    titles |= {"optimality_gap": "optimality gap (lower is better)"}
    found = data["aggregates"]["rows"]
    rows = [[title, *(_interval(row[name], 3) for row in found)] for name, title in titles.items()]
    return table(["over all tasks", *(data["lines"][row["line"]]["name"] for row in found)], rows)


def comparison_improvement() -> str:
    """The probability of improvement in the matched comparison."""
    data = _comparison()
    name = lambda number: data["lines"][number]["name"]  # noqa: E731
    rows = [[f"P({name(row['first'])} > {name(row['second'])})", _interval(row, 2)] for row in data["aggregates"]["improvement"]]
    return table(["probability of improvement", "value"], rows)


def mistakes() -> str:
    """What people do wrong and what they are told; a test makes every one of the mistakes."""
    made = _script("tests/envs/mistakes.py").MISTAKES
    return table(["what somebody did", "what is said"], [[each.did, f"`` {each.said} ``"] for each in made])


def _script(path: str) -> ModuleType:
    """A file of the project that no package holds."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS.parent / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


def foreign_names() -> str:
    """Names of other codes and ours, from the table that answers them."""
    rows = []
    for row in foreign.TABLE:
        ours = ", ".join(f"`{option}`" for option in row.ours) or "–"
        rows.append([f"`{row.names[0]}`", ours, row.note, ", ".join(f"`{name}`" for name in row.names[1:])])
    return table(["there", "here", "what differs", "also known as"], rows)


def starting_temperature() -> str:
    """Evaluated returns on walker-run for two starting temperatures: the first seed of each line."""
    steps = range(20_000, 100_001, 20_000)
    runs = {
        ("SAC", "1"): "starting-temperature/dmc-walker-run/sac-1",
        ("SAC", ".1"): "starting-temperature/dmc-walker-run/sac-0.1",
        ("BAC, λ = 0", "1"): "bac-against-sac/dmc-walker-run/sac",
        ("BAC, λ = 0", ".1"): "starting-temperature/dmc-walker-run/bac-lam0-0.1",
        ("BAC, λ = .5", "1"): "bac-against-sac/dmc-walker-run/bac",
        ("BAC, λ = .5", ".1"): "starting-temperature/dmc-walker-run/bac-0.1",
    }
    rows = []
    for named, folder in runs.items():
        returns = {row["step"]: row["eval/return"] for row in read_metrics(RECORDS / folder / "seed0" / "metrics.csv")}
        rows.append([*named, *(f"{returns[step]:.0f}" for step in steps)])
    return table(["line", "α at the start", *(f"{step:,} steps" for step in steps)], rows)


# --- D'Kitty ----------------------------------------------------------------------------------------------------------

WALK_PLAN = DOCS.parent / "benchmarks" / "dkitty_walk.toml"
WALK_RECORDS = RECORDS / "dkitty-walk"
WALK_CURVES = DOCS / "images" / "dkitty-walk.png"  # docs/draw_dkitty.py
POLICIES = DOCS.parent / "examples" / "policies"
COLUMNS_OF_STEPS = 6


def dkitty_rewards() -> str:
    """What benchmarks/dkitty_rewards.py measured."""
    terms = {"upright": "upright", "falling": "fall", "target_distance": "distance", "heading": "heading",
             "small_bonus": "small bonus", "big_bonus": "big bonus"}  # fmt: skip
    rows = [
        [row["who"], f"{row['return']:.0f} ± {row['return_std']:.0f}", f"{row['steps']:.0f}", f"{row['fallen']:.0%}",
         *(f"{row[name]:.0f}" for name in terms)]
        for row in json.loads((RECORDS / "dkitty-rewards.json").read_text())["rows"]
    ]  # fmt: skip
    rows = [[row[0], *(cell.replace("-", "−") for cell in row[1:])] for row in rows]
    return table(["", "return", "steps", "falls", *terms.values()], rows)


def dkitty_walk() -> str:
    """Success and return of the D'Kitty runs that are recorded, beside those that are planned, and their curves."""
    planned = bench_plan.expand(bench_plan.read_file(WALK_PLAN))
    kept = bench_plan.recorded(WALK_RECORDS) if WALK_RECORDS.exists() else []
    key = lambda run: (run.task, run.variant, run.seed)  # noqa: E731
    if not kept:
        return f"None of the {len(planned)} runs of the plan is recorded yet, so there is nothing to show."
    curves = {key(run): read_metrics(WALK_RECORDS / run.folder / "metrics.csv") for run in kept}
    evaluated = {name: [row for row in rows if row["eval/return"] is not None] for name, rows in curves.items()}
    every = sorted({row["step"] for rows in evaluated.values() for row in rows} - {0})
    shown_steps = every[:: -(-len(every) // COLUMNS_OF_STEPS)] if len(every) > COLUMNS_OF_STEPS else every
    shown_steps = sorted({*shown_steps, *every[-1:]})
    rows = []
    for task, variant, seed in dict.fromkeys([*map(key, kept), *map(key, planned)]):
        found = {row["step"]: row for row in evaluated.get((task, variant, seed), [])}
        cells = [_success_and_return(found.get(step)) for step in shown_steps]
        rows.append([task, variant, str(seed), *cells])
    reached = {key(run): int(curves[key(run)][-1]["step"]) for run in kept}
    going = [
        f"{run.task} (seed {run.seed}) had come to step {reached[key(run)]:,} of {run.steps:,}"
        for run in kept
        if reached[key(run)] < run.steps
    ]
    left = len(set(map(key, planned)) - set(map(key, kept)))
    going += [f"{left} of the {len(planned)} planned runs had not begun"] if left else []
    missing = f"\n\nThe matrix is not finished: when this was written, {', and '.join(going)}." if going else ""
    picture = f"![Success and return while training](images/{WALK_CURVES.name})\n\n" if WALK_CURVES.exists() else ""
    return picture + table(["task", "algorithm", "seed", *(f"{step:,.0f} steps" for step in shown_steps)], rows) + missing


def _success_and_return(row: dict[str, Any] | None) -> str:
    return f"{row['eval/success']:.0%}, {row['eval/return']:.0f}".replace("-", "−") if row else "–"


def dkitty_policies() -> str:
    """The policies of examples/policies, with their labels."""
    labels = json.loads((POLICIES / "labels.json").read_text())
    if not labels:
        return "None yet: the runs that they would come from have not finished."
    rows = [
        [
            f"`{name}`", label["algo"], f"{label['step']:,}", f"{label['success']:.0%}", f"{label['fallen']:.0%}",
            f"{label['walked']:.2f} ± {label['walked_std']:.2f} m", str(label["episodes"]),
        ]
        for name, label in labels.items()
    ]  # fmt: skip
    return table(["policy", "algorithm", "steps", "success", "falls", "nearer to the target by", "episodes"], rows)


def dkitty_terrains() -> str:
    """How far these policies walk on the four terrains."""
    file = POLICIES / "terrains" / "terrains.json"
    if not file.exists():
        return "Nothing has walked there yet."
    rows = [
        [
            row["policy"], row["terrain"], f"{row['target']:g} m",
            f"{row['walked']:.2f}" + ("" if row["walked_std"] is None else f" ± {row['walked_std']:.2f}") + " m",
            f"{row['success']:.0%}", f"{row['fallen']:.0%}", str(row["episodes"]),
        ]
        for row in json.loads(file.read_text())["summary"]
    ]  # fmt: skip
    return table(["policy", "terrain", "target", "distance walked", "success", "falls", "episodes"], rows).replace("-0.", "−0.")


# --- the default preset -----------------------------------------------------------------------------------------------

MARKS = (25_000, 50_000, 100_000)
NEAR = _script("benchmarks/defaults_figure.py").NEAR  # steps between two published points that may be joined by a line
# Whose curves stand beside ours: the source in the package's published data, and its name there.
BESIDE = {
    "SAC": ("simba", "sac"), "SimBa": ("simba", "sac_simba"), "XQC": ("xqc", "xqc"), "SimbaV2": ("simbav2", "simbav2_utd2"),
    "SimbaV2, 8 updates": ("simbav2", "simbav2_utd8"), "BRO": ("simbav2", "bro_utd2"),
    "BRO, 10 updates": ("simbav2", "bro_utd10"), "TD-MPC2": ("tdmpc2", "tdmpc2"), "the paper's BAC": ("bee_figures", "bac"),
}  # fmt: skip
# GFLOP of products per environment step at walker-run's sizes: published sizes, updates per decision and repeats.
OPERATIONS = {
    "SAC": 0.60, "SimBa": 13.2, "XQC": 7.8, "SimbaV2": 14.2, "SimbaV2, 8 updates": 57.0, "BRO": 9.6, "BRO, 10 updates": 48.0,
}  # fmt: skip


def _runs(matrix: str) -> dict[tuple[str, str], dict[int, list[dict[str, Any]]]]:
    """By task and variant, the evaluations of every finished run that is kept, by its seed; empty where none is."""
    found: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for run in bench_plan.recorded(RECORDS / matrix):
        rows = read_metrics(RECORDS / matrix / run.folder / "metrics.csv")
        evaluated = [row for row in rows if row["eval/return"] is not None]
        found.setdefault((run.task, run.variant), {})[run.seed] = evaluated
    return found


def _at(rows: list[dict[str, Any]], step: int) -> float | None:
    return next((row["eval/return"] for row in rows if row["step"] == step), None)


def defaults_probe(*matrices: str) -> str:
    """Every variant of the probes: its return at the last evaluation and the best of all evaluations, seed by seed."""
    rows = []
    for (_, variant), seeds in (each for matrix in matrices for each in _runs(matrix).items()):
        returns = {seed: [row["eval/return"] for row in evaluated] for seed, evaluated in seeds.items()}
        cells = [f"{returns[seed][-1]:.0f} ({max(returns[seed]):.0f})" if seed in returns else "–" for seed in (0, 1)]
        minutes = [_spent(rows) for rows in seeds.values()]
        rows.append([f"`{variant}`", *cells, f"{sum(minutes) / len(minutes):.0f}"])
    return table(["variant", "seed 0: last (best)", "seed 1: last (best)", "minutes"], rows)


def defaults_scores() -> str:
    """Means over the seeds that are finished at 25k, 50k and 100k steps, minutes of a run, and published means."""
    runs = _runs("defaults-table")
    if not runs:
        return "No run of `benchmarks/defaults_table.toml` has been kept yet."
    lines = []
    for task in dict.fromkeys(task for task, _ in runs):
        for variant in sorted(name for other, name in runs if other == task):
            seeds = runs[task, variant]
            means = [_mean([_at(rows, step) for rows in seeds.values()]) for step in MARKS]
            minutes = [_spent(rows) for rows in seeds.values()]
            lines.append([task, f"**`{variant}`**", str(len(seeds)), *means, f"{sum(minutes) / len(minutes):.0f}"])
        for title, (source, algo) in BESIDE.items():
            for curve in published.curves(task, [source], [algo])[:1]:
                means = [_mean([_read_off(curve, step)]) for step in MARKS]
                lines.append([task, title, "–" if curve.seeds is None else str(curve.seeds), *means, "–"])
    return table(["task", "method", "seeds", *(f"{step // 1000}k steps" for step in MARKS), "minutes"], lines)


# What `beeline train bac TASK` is asked for in the table of minutes: scores that published methods reach on these tasks.
SCORES = {
    "dmc/walker-run": 500, "dmc/cheetah-run": 450, "dmc/quadruped-walk": 500, "dmc/finger-spin": 800, "dmc/reacher-hard": 800,
    "dmc/hopper-stand": 400,
}  # fmt: skip


def defaults_minutes() -> str:
    """Environment steps and minutes to the first evaluation that reaches a task's score, over the seeds that reach it."""
    runs = _runs("defaults-table")
    lines = []
    for task, score in SCORES.items():
        for variant, title in (("bac", "`bac`"), ("sac", "`bac --lam 0`")):
            seeds = runs.get((task, variant), {}).values()
            if not seeds:
                continue
            ways = [rows[: n + 1] for rows in seeds if (n := _first(rows, score)) is not None]
            steps = f"{np.mean([way[-1]['step'] for way in ways]):,.0f}" if ways else "–"
            minutes = f"{np.mean([_spent(way) for way in ways]):.1f}" if ways else "–"
            lines.append([task, str(score), title, f"{len(ways)} of {len(seeds)}", steps, minutes])
    if not lines:
        return "No run of `benchmarks/defaults_table.toml` has been kept yet."
    return table(["task", "score", "command", "seeds that reach it", "environment steps", "minutes"], lines)


def _first(rows: list[dict[str, Any]], score: float) -> int | None:
    return next((number for number, row in enumerate(rows) if row["eval/return"] >= score), None)


def defaults_pairs() -> str:
    """λ = .5 and λ = 0 at the last step, paired by seed, task by task."""
    runs = _runs("defaults-table")
    lines = [
        [task, *difference]
        for task in dict.fromkeys(task for task, _ in runs)
        if (difference := _difference(runs.get((task, "sac"), {}), runs.get((task, "bac"), {})))
    ]
    if not lines:
        return "No pair of `benchmarks/defaults_table.toml` has been kept yet."
    return table(["task", "seeds", "λ = 0", "λ = .5", *DIFFERENCE], lines)


def defaults_iqm() -> str:
    """The interquartile mean over the tasks that all have at 25k, 50k and 100k steps, and operations per environment step."""
    runs = _runs("defaults-table")
    tasks = [task for task in dict.fromkeys(task for task, _ in runs) if all((task, name) in runs for name in ("bac", "sac"))]
    if len(tasks) < 4:
        return f"Tasks whose pair of runs is kept: {len(tasks)}. This table is made from four upwards."
    lines = []
    for variant, title in (("bac", "**`bac`**, λ = .5"), ("sac", "**`bac`**, λ = 0")):
        scores = [[_average([_at(rows, step) for rows in runs[task, variant].values()]) for task in tasks] for step in MARKS]
        lines.append([title, *(_middle(found) for found in scores), f"{_operations(variant):.2g}"])
    for title, (source, algo) in BESIDE.items():
        curves = [next(iter(published.curves(task, [source], [algo])), None) for task in tasks]
        scores = [[None if curve is None else _read_off(curve, step) for curve in curves] for step in MARKS]
        if any(None not in found for found in scores):
            cost = OPERATIONS.get(title)
            lines.append([title, *(_middle(found) for found in scores), "–" if cost is None else f"{cost:.2g}"])
    heads = [f"{step // 1000}k steps" for step in MARKS]
    names = ", ".join(task.partition("/")[2] for task in tasks)
    return f"Tasks: {names}.\n\n" + table(["method", *heads, "GFLOP per environment step"], lines)


def _middle(scores: list[float | None]) -> str:
    """The interquartile mean of the tasks' means over 1000; a dash where a task has none."""
    given = [score / 1000 for score in scores if score is not None]
    return f"{statistics.iqm([given]):.3f}" if len(given) == len(scores) else "–"


def _operations(variant: str) -> float:
    """GFLOP of products per environment step of the default preset, at walker-run's 24 observations and 6 actions."""
    entry = agents.get("bac")
    config = entry.config(**entry.preset("best", "dmc/walker-run"))
    updates = config.critic_updates_per_step
    flops = _script("benchmarks/flops.py").update_flops(
        24, 6, config.hidden, config.batch_size, exploit=variant == "bac", critics=1,
        actor_delay=updates // config.policy_updates_per_step, policy_hidden=config.policy_hidden,
    )  # fmt: skip
    return updates * flops / 1e9


# --- every method -----------------------------------------------------------------------------------------------------

METHODS_MARKS = (20_000, 50_000, 100_000)
# Published means on Hopper: a task's id here, the source and the name there, and what differs.
HOPPER_BESIDE = (
    ("gym/Hopper-v5", "td3_fujimoto", "td3", "TD3's authors (v1)"),
    ("mbpo/Hopper", "bee_figures", "sac", "SAC in the paper's figure of model-based methods"),
)
PAIRS = (("sac", "bac"), ("td3", "bee-td3"), ("maxq", "bee-maxq"), ("xql", "bee-xql"), ("dac", "bee-dac"), ("rrs", "bee-rrs"))


def _minutes(rows: list[dict[str, Any]]) -> float:
    """Minutes for 100,000 steps, at the rate of this run."""
    return _spent(rows) * 100_000 / rows[-1]["step"]


def _spent(rows: list[dict[str, Any]]) -> float:
    """Minutes of processor time between the first and the last row; of the clock on the wall where the run did not record it."""
    if any(row.get("time/processor") is None for row in rows):
        return float(rows[-1]["time/wall"] - rows[0]["time/wall"]) / 60
    used = [row["time/processor"] for row in rows]
    return float(sum(now - before if now >= before else now for before, now in zip(used, used[1:]))) / 60


def methods_hopper() -> str:
    """Every method on Hopper: returns at three steps, the best evaluation, minutes, and published means."""
    runs = _runs("methods-hopper") | _runs("methods-grac")
    lines = []
    for name in agents.OWN:
        for rows in runs.get(("gym/Hopper-v5", name), {}).values():
            best = max(row["eval/return"] for row in rows)
            cells = [_mean([_at(rows, step)]) for step in METHODS_MARKS]
            lines.append([f"`{name}`", *cells, f"{best:.0f}", f"{_minutes(rows):.0f}"])
    if not lines:
        return "No run of `benchmarks/methods_hopper.toml` or `benchmarks/methods_grac.toml` has been kept yet."
    for task, source, algo, title in HOPPER_BESIDE:
        for curve in published.curves(task, [source], [algo])[:1]:
            lines.append([title, *(_mean([_read_off(curve, step)]) for step in METHODS_MARKS), "–", "–"])
    return table(["method", *(f"{step // 1000}k steps" for step in METHODS_MARKS), "best", "minutes per 100k steps"], lines)


def methods_pairs() -> str:
    """Each backbone without and with the operator: last returns, and their differences paired by seed."""
    runs = _runs("methods-pairs") | _runs("methods-pairs-rrs")
    lines = []
    for without, with_it in PAIRS:
        for task in dict.fromkeys(task for task, _ in runs):
            difference = _difference(runs.get((task, without), {}), runs.get((task, with_it), {}))
            if difference:
                lines.append([f"`{without}` → `{with_it}`", task, *difference])
    if not lines:
        return "No pair of `benchmarks/methods_pairs.toml` has been kept yet."
    return table(["pair", "task", "seeds", "without", "with", *DIFFERENCE], lines)


Seeds = dict[int, list[dict[str, Any]]]  # the evaluations of every seed
DIFFERENCE = ["difference", "95 % interval", "smallest resolvable difference"]


def _difference(without: Seeds, with_it: Seeds) -> list[str]:
    """How many seeds both have, both means at the last step, and their difference, paired by seed; empty where none has both."""
    both = sorted(without.keys() & with_it.keys())
    if not both:
        return []
    first, second = ([runs[seed][-1]["eval/return"] for seed in both] for runs in (without, with_it))
    found = statistics.mean_interval(np.subtract(second, first))
    interval = "–" if len(both) < 2 else f"[{found.low:+.0f}, {found.high:+.0f}]"
    resolves = statistics.resolvable_difference(first, second)
    signed = [text.replace("-", "−") for text in (f"{found.value:+.0f}", interval)]
    resolvable = "–" if np.isinf(resolves) else f"{resolves:.0f}"
    return [str(len(both)), f"{np.mean(first):.0f}", f"{np.mean(second):.0f}", *signed, resolvable]


def _mean(found: list[float | None]) -> str:
    """The mean of what is there; a dash where a run has nothing at that step."""
    mean = _average(found)
    return "–" if mean is None else f"{mean:.0f}"


def _average(found: list[float | None]) -> float | None:
    given = [value for value in found if value is not None]
    return sum(given) / len(given) if given and len(given) == len(found) else None


def _read_off(curve: published.Curve, step: int) -> float | None:
    """A published mean at a step, on a straight line between points that are near; nothing where there are none."""
    after = int(np.searchsorted(curve.steps, step))
    if after == len(curve.steps) or (curve.steps[after] != step and (after == 0 or np.diff(curve.steps)[after - 1] > NEAR)):
        return None
    return float(np.interp(step, curve.steps, curve.mean))


BLOCKS: dict[str, Callable[[], str]] = {
    "options run": run_options,
    "options algorithms": algorithm_options,
    "options dkitty": dkitty_options,
    "loop metrics": loop_metrics,
    "commands": commands,
    "algorithms": algorithms,
    "underestimation variants": underestimation_variants,
    "underestimation pairs": underestimation_pairs,
    "comparison final": comparison_final,
    "comparison aggregates": comparison_aggregates,
    "comparison improvement": comparison_improvement,
    "starting temperature": starting_temperature,
    "dkitty rewards": dkitty_rewards,
    "dkitty walk": dkitty_walk,
    "dkitty policies": dkitty_policies,
    "dkitty terrains": dkitty_terrains,
    "defaults probe": functools.partial(defaults_probe, "defaults-probe"),
    "defaults probe start": functools.partial(defaults_probe, "defaults-probe-start", "defaults-probe-both"),
    "defaults scores": defaults_scores,
    "defaults minutes": defaults_minutes,
    "defaults pairs": defaults_pairs,
    "defaults iqm": defaults_iqm,
    "methods hopper": methods_hopper,
    "methods pairs": methods_pairs,
    "mistakes": mistakes,
    "foreign names": foreign_names,
    "model presets": model_presets,
    **{f"presets {name}": functools.partial(preset_table, name) for name in agents.OWN},
}


def render(text: str) -> str:
    """A page with its generated blocks written anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[3]}", text)


def main(check: bool) -> int:
    """Write or check every page."""
    stale = []
    for page in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text()
        new = render(text)
        if new != text:
            stale.append(page)
            if not check:
                page.write_text(new)
    for page in stale:
        print(f"{page.relative_to(DOCS.parent)} {'is not up to date: python docs/generate_tables.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
