"""A model of the world from what a run has met: trained on its replay, judged on episodes kept apart, written beside the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beeline import runtime
from beeline.config import Config, option
from beeline.errors import CheckpointError, ConfigError
from beeline.files import explained, write_atomic
from beeline.run import prior
from beeline.run.checkpoint import CheckpointStore
from beeline.run.folder import RunFolder

FOLDER = "model"  # in the run's: model.npz, model.json, model.png


@dataclasses.dataclass(frozen=True)
class ModelConfig(Config):
    """What `beeline model` can be told."""

    members: int = option(7, "networks of the ensemble", low=1, high=100)
    elites: int = option(5, "networks that predict: those of least error", low=1, high=100)
    hidden: tuple[int, ...] = option((200, 200, 200, 200), "widths of their hidden layers", low=1, high=4096)
    rate: float = option(1e-3, "learning rate", above=0.0)
    batches: int | None = option(3_000, "batches of the training at most; none: until nothing improves", low=1)
    patience: int = option(20, "epochs without any improvement after which the training ends", low=1)
    holdout: float = option(0.1, "share of the transitions that the model never sees, in whole episodes", low=0.01, high=0.9)
    horizon: int = option(10, "steps of the longest prediction that is judged", low=1, high=1_000)
    seed: int = option(0, "seed of weights, batches and what is kept apart", low=0, high=2**31 - 1)

    def check(self) -> None:
        """Elites are members."""
        if self.elites > self.members:
            raise ConfigError(f"elites = {self.elites} of members = {self.members} is out of range; allowed: <= {self.members}.")


def model_run(
    path: str | Path, *, out: str | Path | None = None, report: Callable[[str], None] = print, **given: Any
) -> tuple[dict[str, Any], Path]:
    """Train a model on the replay of a run's newest checkpoint and judge it; its numbers, and the folder they are in.

    The run may be of any algorithm. The folder has model.npz (`beeline.dynamics.load`), model.json and model.png.
    """
    options = ModelConfig.make(given)
    folder = RunFolder.open(Path(path))
    plan = folder.plan(None)
    runtime.configure(plan.train.threads, plan.train.device)
    checkpoint = CheckpointStore(folder.path, plan.train.keep_checkpoints).load(report)
    columns, spaces = prior.rows_of(checkpoint.restore_replay()), checkpoint.meta["spaces"]
    from beeline.diagnostics.model_plots import model_figure
    from beeline.diagnostics.plots import save_png
    from beeline.dynamics import quality, world
    from beeline.dynamics.ensemble import GaussianEnsemble
    from beeline.dynamics.training import Training
    from beeline.networks import Draw

    fitted, judged = quality.kept_apart(quality.paths(columns["flags"]), options.holdout, options.seed)
    rows = quality.transitions(columns, fitted)
    if not fitted or not judged:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} in {path} has {len(rows.reward)} transitions: too few to train a model "
            "on some and judge it on others."
        )
    model = GaussianEnsemble(
        spaces["obs_dim"], len(spaces["action_low"]), options.members, options.elites, options.hidden, decay=(5e-5,),
        rate=options.rate, reward_unit=True,
    )  # fmt: skip
    training = Training(batches=options.batches, patience=options.patience)
    trained = training(model, model.init(Draw(options.seed, "init/model")), rows, seed=options.seed, counter=0)
    assert trained is not None  # nothing asks it to stop
    state, told = trained
    about = {"algo": plan.algo, "seed": plan.train.seed, "step": checkpoint.step, "rows": len(rows.reward)}
    bounds = tuple(spaces["action_low"]), tuple(spaces["action_high"])
    made = world.World(model, state, plan.env, *bounds, about)
    found = quality.measured(made, columns, judged, options.horizon, options.seed)
    result = {
        **about, "env": plan.env, "options": options.to_dict(), "epochs": told.epoch, "batches": told.batches,
        "holdout_mse": np.asarray(told.error, float).tolist(), "elites": np.asarray(state.elites).tolist(),
        "mean_r2": found.mean_r2, "poor": [quality.name_of(each, model.obs_dim) for each in found.poor],
        **dataclasses.asdict(found), "rows": len(rows.reward), "rows_judged": found.rows,
    }  # fmt: skip
    target = Path(out) if out else folder.path / FOLDER
    with explained(target):
        target.mkdir(parents=True, exist_ok=True)
    made.save(target / "model.npz")
    write_atomic(target / "model.json", (json.dumps(result, indent=1) + "\n").encode())
    title = f"{plan.env}: a model of {len(rows.reward):,} transitions that {plan.algo} met, judged on {found.rows:,} others"
    save_png(model_figure(found, title), target / "model.png")
    return result, target


def table(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers as lines of a small table."""
    steps, coverage = result["steps"], result["coverage"]
    lines = [
        ("training", f"{result['rows']:,} transitions, {result['epochs']} epochs, {result['batches']:,} batches"),
        ("judged on", f"{result['rows_judged']:,} transitions of other episodes"),
        ("R² of the reward", _cell(result["r2"][-1])),
        ("R² of the observation, mean", _cell(result["mean_r2"])),
        ("NLL, nats/dimension", _cell(result["nll"])),
        *((f"{float(level):.0%} intervals hold", f"{coverage[level]:.1%}") for level in ("0.5", "0.9")),
    ]
    shown = sorted({1, (len(steps) + 1) // 2, len(steps)}) if steps else []
    lines += [(f"error after {k} step{'s' if k > 1 else ''} / σ", _cell(steps[k - 1])) for k in shown]
    named = result["poor"][:8]
    more = f" and {len(result['poor']) - len(named)} more" if len(result["poor"]) > len(named) else ""
    return [*lines, ("predicted badly (R² < .5)", ", ".join(named) + more if named else "none")]


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
