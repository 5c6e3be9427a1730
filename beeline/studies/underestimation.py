"""`beeline paper underestimation`: does Q fall below the policy's returns late in training, and does BEE lessen it?

SAC, BAC, TD3 and BEE-TD3, each with two critics and with one, are trained as a matrix of diagnosed runs; figures and tables
are read off what the runs recorded (docs/diagnostics.md says what the columns are).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beeline import screen
from beeline.bench import matrix as bench
from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch
from beeline.bench.plan import BenchRun
from beeline.envs import trust
from beeline.errors import ConfigError, RunFolderError, UnknownNameError, copyable
from beeline.studies import output

NAME = "underestimation"
TASK, STEPS, SEEDS = "dmc/cheetah-run?repeat=4", 100_000, 2
PRESET = "light"  # networks and updates of the sources' size
DISCOUNT = 0.99  # per environment step: a decision that repeats its action is discounted by a power of it
LATE = 2 / 3  # the share of the steps after which training is called late

# BAC has another network than SAC and slower targets. With λ = 0 it is SAC with these, so BEE alone is BAC against that.
BASES: dict[str, dict[str, Any]] = {
    "sac": {"algo": "sac"},
    "bac": {"algo": "bac"},
    "bac-lam0": {"algo": "bac", "lam": 0.0},
    "td3": {"algo": "td3"},
    "bee-td3": {"algo": "bee-td3"},
}
SINGLE = "-single"
VARIANTS = BASES | {name + SINGLE: {**own, "double_q": False} for name, own in BASES.items()}
PAIRS = (("sac", "bac"), ("bac-lam0", "bac"), ("td3", "bee-td3"))  # an operator without and with its exploit part

UNITS = {"q": "", "return": "_norm"}  # what a gap is counted in, and how the names of such columns end
GAPS = ("gap_min", "gap_mean", "soft_gap_min", "soft_gap_mean")
# From a temperature of 1, entropy would be most of Q for nearly half of the updates that 100,000 steps have room for.
OPTIONS: dict[str, Any] = {"alpha": 0.1, "diagnose": 5_000, "eval_every": 10_000, "tensorboard": False}

Row = dict[str, Any]


# --- the matrix -------------------------------------------------------------------------------------------------------


def plan(
    out: Path, *, task: str | None = None, steps: int | str | None = None, seeds: int | str | None = None,
    algos: str | None = None, options: Mapping[str, Any] | None = None,
) -> list[BenchRun]:  # fmt: skip
    """The runs of the study in `out`. What is not given is as recorded there, or the default where nothing is."""
    old = bench_plan.recorded(out)
    if old and not all(run.variant in VARIANTS for run in old):
        raise RunFolderError(f"{out} holds a matrix that is none of this study. Choose another folder with --out.")
    if old and all(given is None for given in (task, steps, seeds, algos, options)):
        return old
    request: dict[str, Any] = {"algos": list(VARIANTS), "tasks": [TASK], "steps": STEPS, "seeds": SEEDS, "preset": PRESET}
    if old:
        names, numbers = (list(dict.fromkeys(found)) for found in zip(*((run.variant, run.seed) for run in old)))
        request |= {"algos": names, "tasks": [old[0].task], "steps": old[0].steps, "seeds": numbers, "preset": old[0].preset}
    given = {"tasks": None if task is None else [task], "steps": steps, "seeds": seeds}
    request |= {name: value for name, value in given.items() if value is not None}
    request |= {} if algos is None else {"algos": variants(algos)}
    own = {"gamma": discount(request["tasks"][0])}
    return bench_plan.expand(request | {"variant": VARIANTS, "options": OPTIONS | own | dict(options or {})})


def variants(algos: str) -> list[str]:
    """The names of variants in a list separated by commas, checked."""
    chosen = bench_plan.names(algos, "algos")
    for name in chosen:
        if name not in VARIANTS:
            raise UnknownNameError("variant", name, VARIANTS, f"The study has {', '.join(VARIANTS)}.")
    return chosen


def discount(task: str) -> float:
    """`.99` per environment step, so per decision to the power of the task's action repeat.

    With .99 per decision, most returns of a task with repeats would be cut off by its time limit before they are complete.
    """
    from beeline.envs import ids

    return round(DISCOUNT ** ids.split(task)[2].repeat, 4)


# --- numbers ----------------------------------------------------------------------------------------------------------


def late(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Mean of a column over the diagnoses of the last third of the steps; None where there is none."""
    last = max((row["step"] for row in rows), default=0)
    return _mean([row for row in rows if row["step"] > LATE * last], name)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = [float(row[name]) for row in rows if row.get(name) is not None]
    return round(float(np.mean(found)), 4) if found else None


def to_under(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """The step of the first change from over- to underestimation, and of that after which it stays so to the end.

    Both are None where there is none: always over, always under, or, for the second, over at the end.
    """
    from beeline.diagnostics.bias import sign_changes
    from beeline.diagnostics.plots import series

    changes = sign_changes(*series(rows, name))
    first = next((change.step for change in changes if change.to_under), None)
    stays = changes[-1].step if changes and changes[-1].to_under else None
    return tuple(None if step is None else round(step, 1) for step in (first, stays))  # type: ignore[return-value]


def measure(rows: Sequence[Mapping[str, Any]]) -> Row:
    """What the table says of a run, from its metrics: final return, sign changes, late gaps, Δ, and better actions."""
    diagnoses = [row for row in rows if row.get("diag/q_min") is not None]
    scores = [row["eval/return"] for row in rows if row.get("eval/return") is not None]
    found: Row = {
        "step": int(diagnoses[-1]["step"]) if diagnoses else 0,
        "return": round(scores[-1], 2) if scores else None,
    }
    for gap in GAPS:
        first, stays = to_under(diagnoses, f"diag/{gap}")
        found |= {f"{gap}_under": first, f"{gap}_under_stays": stays}
        found |= {f"{gap}_late": late(diagnoses, f"diag/{gap}"), f"{gap}_late_norm": late(diagnoses, f"diag/{gap}_norm")}
    deltas = [row["diag/delta"] for row in diagnoses if row.get("diag/delta") is not None]
    found |= {name: _mean(diagnoses, f"diag/{name}") for name in ("delta", "delta_norm", "better")}
    found |= {f"{name}_late": late(diagnoses, f"diag/{name}") for name in ("delta", "delta_norm", "better")}
    return found | {"delta_positive": round(float(np.mean(np.array(deltas) > 0)), 4) if deltas else None}


def summarise(rows: Sequence[Row]) -> list[Row]:
    """One row per variant: mean and sample deviation over seeds of every number, and over how many seeds it is."""
    found = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == variant]
        line: Row = {"variant": variant, "algo": own[0]["algo"], "double_q": own[0]["double_q"], "seeds": len(own)}
        for name in [name for name in own[0] if name not in (*line, "seed")]:
            values = [row[name] for row in own if row[name] is not None]
            line[name] = round(float(np.mean(values)), 4) if values else None
            line[f"{name}_std"] = round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None
            if "_under" in name:
                line[f"{name}_seeds"] = len(values)  # not every run changes its sign
        found.append(line)
    return found


def compare(rows: Sequence[Row]) -> list[Row]:
    """The late gap without and with the exploit part, over the seeds that both have.

    In units of Q (`q`) and over the returns (`return`): returns that grow shrink the second and not the first. `difference` is
    with − without; `lessened` counts the seeds whose gap without was below zero and is nearer to it with.
    """
    found = []
    for ending, (base, bee), gap, unit in itertools.product(("", SINGLE), PAIRS, GAPS, UNITS):
        without, with_it = base + ending, bee + ending
        late = {(row["variant"], row["seed"]): row[f"{gap}_late{UNITS[unit]}"] for row in rows}
        pairs = [(value, late.get((with_it, seed))) for (variant, seed), value in late.items() if variant == without]
        both = np.array([pair for pair in pairs if None not in pair], float)
        if not len(both):
            continue
        gain = both[:, 1] - both[:, 0]
        found.append(
            {
                "without": without,
                "with": with_it,
                "gap": gap,
                "unit": unit,
                "seeds": len(both),
                "late_without": round(float(both[:, 0].mean()), 4),
                "late_with": round(float(both[:, 1].mean()), 4),
                "difference": round(float(gain.mean()), 4),
                "difference_std": round(float(gain.std(ddof=1)), 4) if len(gain) > 1 else None,
                "under_without": int(np.sum(both[:, 0] < 0)),
                "lessened": int(np.sum((both[:, 0] < 0) & (np.abs(both[:, 1]) < np.abs(both[:, 0])))),
            }
        )
    return found


# --- the command ------------------------------------------------------------------------------------------------------


def read(out: Path, runs: Sequence[BenchRun]) -> list[tuple[BenchRun, list[Row]]]:
    """The runs that have a diagnosis, finished or not, with their metrics."""
    from beeline.run.record import read_metrics

    found = []
    for run in runs:
        table = out / run.folder / "metrics.csv"
        rows = read_metrics(table) if table.is_file() else []
        if any(row.get("diag/q_min") is not None for row in rows):
            found.append((run, rows))
    return found


def tabulate(found: Sequence[tuple[BenchRun, list[Row]]]) -> dict[str, Any]:
    """The tables of diagnosed runs: what each measured, the variants over their seeds, and the pairs compared."""
    rows = [
        {"variant": run.variant, "algo": run.algo, "double_q": not run.variant.endswith(SINGLE), "seed": run.seed, **measure(own)}
        for run, own in found
    ]
    return {"rows": rows, "variants": summarise(rows), "comparisons": compare(rows)}


def draw(out: Path, runs: Sequence[BenchRun]) -> dict[str, Any]:
    """Write underestimation.{json,csv}, -variants.csv, -comparisons.csv, -bias.{png,svg} and -delta.{png,svg}; the tables."""
    from beeline.studies import underestimation_figure as figures

    found = read(out, runs)
    if not found:
        raise RunFolderError(f"no run in {out} has a diagnosis yet: train first, without --draw.")
    task, gamma = found[0][0].task, found[0][0].options.get("gamma")
    result: dict[str, Any] = {
        "task": task,
        "gamma": gamma,
        "steps": runs[0].steps,
        "runs": len(runs),
        "finished": sum(bench_watch.look(out, run).state == "finished" for run in runs),
        **tabulate(found),
    }
    output.save_json(out, NAME, result)
    output.save_csv(out, NAME, result["rows"])
    output.save_csv(out, f"{NAME}-variants", result["variants"])
    if result["comparisons"]:
        output.save_csv(out, f"{NAME}-comparisons", result["comparisons"])
    by_variant: dict[str, list[list[Row]]] = {}
    for run, own in found:
        by_variant.setdefault(run.variant, []).append(own)
    output.save_figure(out, f"{NAME}-bias", figures.draw_bias(by_variant, task))
    output.save_figure(out, f"{NAME}-delta", figures.draw_delta(by_variant, task))
    return result


def run(
    out: Path, *, task: str | None = None, steps: int | str | None = None, seeds: int | str | None = None,
    algos: str | None = None, workers: int | None = None, only_draw: bool = False, options: Mapping[str, Any] | None = None,
) -> int:  # fmt: skip
    """Train what is missing of the study in `out`, then write its tables and figures; the exit code.

    `only_draw` trains nothing and draws what is there, of the chosen `algos` alone if any are given.
    """
    trust.allow(task)
    code = 0
    if only_draw:
        if any(given is not None for given in (task, steps, seeds, workers, options)):
            raise ConfigError("--draw trains nothing and so has no other options than --out and --algos.")
        runs = bench_plan.recorded(out)
        if not runs:
            raise RunFolderError(f"there is no study in {out} to draw: train first, without --draw.")
        chosen = VARIANTS if algos is None else variants(algos)
        runs = [run for run in runs if run.variant in chosen]
    else:
        runs = plan(out, task=task, steps=steps, seeds=seeds, algos=algos, options=options)
        code = bench.run(out, runs, workers=workers)
        if code > 128:
            screen.complain(f"it also draws what is there, and goes on with the runs: {copyable('paper', NAME, '--out', out)}")
            return code
    result = draw(out, runs)
    print(f"{result['finished']} of {result['runs']} runs are finished; late gaps of Q on {result['task']}, normalised:")
    print(output.as_text([_shown(row) for row in result["variants"]]))
    return code


def cell(row: Row, name: str, digits: int) -> str:
    """A number of a variant with its deviation over seeds, as text."""
    value, spread = row[name], row[f"{name}_std"]
    return "–" if value is None else f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def _shown(row: Row) -> Row:
    """The columns for the terminal: gaps are normalised and late, with their deviation over seeds."""
    return {
        "variant": row["variant"],
        "seeds": row["seeds"],
        "return": cell(row, "return", 0),
        "late gap": cell(row, "gap_min_late_norm", 3),
        "with entropy": cell(row, "soft_gap_min_late_norm", 3),
        "Δ": cell(row, "delta", 2),
        "late Δ": cell(row, "delta_late", 2),
        "better": cell(row, "better", 2),
    }
