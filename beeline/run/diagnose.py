"""The instruments on finished runs: `diagnose_run` reads the newest checkpoint, `draw_q_bands` compares run folders."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from beeline import agents, runtime, trees
from beeline.diagnostics import plots
from beeline.diagnostics.bias import sign_changes
from beeline.diagnostics.delta import Fit
from beeline.diagnostics.monitor import COST, Diagnoser, Effort
from beeline.envs import registry, trust
from beeline.errors import CheckpointError, ConfigError, RunFolderError
from beeline.files import explained, write_atomic
from beeline.run.build import facts_of, task_of
from beeline.run.checkpoint import CheckpointStore
from beeline.run.folder import RunFolder
from beeline.run.record import read_metrics

GAPS = ("diag/gap_min", "diag/gap_mean", "diag/soft_gap_min", "diag/soft_gap_mean")


def history(path: Path, until: int | None = None) -> list[dict[str, Any]]:
    """The diagnoses that a run recorded while it trained, up to and without step `until`."""
    table = path / "metrics.csv"
    rows = read_metrics(table) if table.is_file() else []
    return [row for row in rows if row.get("diag/q_min") is not None and (until is None or row["step"] < until)]


def crossings(rows: plots.Rows) -> dict[str, list[dict[str, Any]]]:
    """Where each gap changes its sign over the diagnoses of a run."""
    names = [name for name in GAPS if any(row.get(name) is not None for row in rows)]
    return {name: [dataclasses.asdict(each) for each in sign_changes(*plots.series(rows, name))] for name in names}


def relative(rows: plots.Rows) -> list[dict[str, float]]:
    """Q_min and the return of every diagnosis over the largest |mean Q_MC| of them all, as in the paper's figure 2."""
    largest = max((abs(row["diag/return"]) for row in rows), default=0.0) or 1.0
    return [
        {"step": row["step"], "q_min": row["diag/q_min"] / largest, "return": row["diag/return"] / largest} for row in rows
    ]


def diagnose_run(
    path: str | Path,
    *,
    env: Any = None,
    pairs: int = 1_000,
    fit_steps: int = 5_000,
    report: Callable[[str], None] = print,
    **objects: Any,
) -> dict[str, Any]:
    """Measure the newest checkpoint of a run; write `diagnostics/` with diagnostics.json and figures; return the numbers.

    The fitted estimate of Δ takes `fit_steps` updates for Q^π and as many for each of three expectiles; 0 leaves it out.
    What the run recorded while it trained is in the figures too. Objects that the run was given in Python (a network, a blend,
    an exploit loss) are given again.
    """
    trust.allow(env)
    if pairs < 1 or fit_steps < 0:
        raise ConfigError(f"pairs = {pairs} must be 1 or more, and fit_steps = {fit_steps} must be 0 or more.")
    folder = RunFolder.open(Path(path))
    plan = folder.plan(objects)
    runtime.configure(plan.train.threads, plan.train.device)
    checkpoint = CheckpointStore(folder.path, plan.train.keep_checkpoints).load(report)
    own = registry.make(task_of(plan, env), repeat=plan.train.repeat or 1, limit=plan.train.limit)
    try:
        agent = agents.get(plan.algo).build(plan.agent, facts_of(own))
        state = trees.from_arrays(agent.init(plan.train.seed), checkpoint.arrays, "agent")
        replay = checkpoint.memories()["replay"]
        if not len(replay):
            raise CheckpointError(f"the checkpoint of step {checkpoint.step} in {path} is from before the first transition.")
        diagnoser = Diagnoser(agent, own, plan.train.seed, Effort(pairs=pairs))
        latest = diagnoser(state, replay, checkpoint.step)
        fit = Fit(steps=fit_steps, hidden=tuple(getattr(plan.agent, "hidden", (256, 256))))
        fitted = diagnoser.fitted(state, replay, checkpoint.step, fit) if fit_steps else {}
    finally:
        own.close()
    rows = [*history(folder.path, checkpoint.step), {"step": checkpoint.step, **latest}]
    result = {
        "algo": plan.algo, "env": plan.env, "seed": plan.train.seed, "step": checkpoint.step, "seconds": latest[COST],
        "latest": {name: value for name, value in latest.items() if name != COST},
        "fitted_delta": {str(expectile): found._asdict() for expectile, found in fitted.items()},
        "fit_steps": fit_steps, "sign_changes": crossings(rows), "relative": relative(rows),
        "history": [{name: value for name, value in row.items() if name == "step" or name.startswith("diag/")} for row in rows],
    }  # fmt: skip
    out = folder.path / "diagnostics"
    with explained(out):
        out.mkdir(exist_ok=True)
    write_atomic(out / "diagnostics.json", (json.dumps(result, indent=1) + "\n").encode())
    title = f"{plan.algo} on {plan.env}, seed {plan.train.seed}"
    plots.save_png(plots.bias_figure(rows, title), out / "bias.png")
    plots.save_png(plots.delta_figure(rows, title), out / "delta.png")
    return result


def table(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers of a diagnosis as lines of a small table."""
    lines = [(name.removeprefix("diag/"), f"{value:,.3f}") for name, value in result["latest"].items()]
    lines += [(f"delta, fitted, expectile {name}", f"{found['delta']:,.3f}") for name, found in result["fitted_delta"].items()]
    for name, found in result["sign_changes"].items():
        ways = [f"{'under' if each['to_under'] else 'over'} from {each['step']:,.0f}" for each in found]
        lines.append((f"sign of {name.removeprefix('diag/')}", ", ".join(ways) or "never changed"))
    return lines


def draw_q_bands(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Q with bands over seeds: runs are grouped by algorithm and task, and drawn from what they recorded."""
    groups: dict[str, list[plots.Rows]] = {}
    for path in map(Path, paths):
        plan = RunFolder.open(path).plan()
        rows = history(path)
        if not rows:
            raise RunFolderError(f"{path} has no diagnoses: train with --diagnose, for example --diagnose 10_000.")
        groups.setdefault(f"{plan.algo} on {plan.env}", []).append(rows)
    return plots.save_png(plots.q_bands_figure(groups), Path(out))
