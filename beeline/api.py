"""The Python interface: models with learn / predict / save / load, beside `train`, `resume` and what is done with policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from beeline import agents, envs, files, models, runtime, trees
from beeline.envs import trust
from beeline.errors import CheckpointError, EnvError, RunFolderError
from beeline.evaluate import Evaluation, evaluate
from beeline.loop import Callback
from beeline.options import TrainConfig
from beeline.policies import evaluate_run, export, film, key_frames
from beeline.run import prior
from beeline.run.build import build, env_name, take_checkpoint, take_initial_policy, task_of
from beeline.run.checkpoint import CheckpointStore
from beeline.run.folder import RunFolder, absolute
from beeline.run.plan import Plan
from beeline.run.policy import Policy, describe, load_policy
from beeline.run.record import MetricsTable, parse_metrics
from beeline.run.vouched import check_before_building, check_meta
from beeline.stopping import graceful_stop
from beeline.training import Report, fixed_threads, quiet, record_of, resume, shown, train, with_data

__all__ = ["Model", "evaluate_run", "export", "film", "key_frames", "load", "model", "resume", "train"]


class Model:
    """A learner in memory: `learn`, `predict`, `evaluate`, `save`. Subclasses name the algorithm."""

    algo: ClassVar[str] = ""

    @models.answering
    def __init__(
        self,
        env: Any,
        *,
        preset: str | None = None,
        eval_env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        init_from: str | Path | None = None,
        verbose: int = 1,
        **options: Any,
    ) -> None:
        trust.allow(env, eval_env)
        env = envs.with_arguments(env, env_kwargs)
        plan = Plan.make(self.algo, env_name(env), preset, options, absolute(init_from))
        self._set_up(fixed_threads(plan), env, eval_env, callbacks, verbose=verbose)
        if self.trainer.collector.spec.assumption:
            quiet(self.trainer.collector.spec.assumption)
        take_initial_policy(self.trainer, plan)

    def _set_up(
        self, plan: Plan, env: Any, eval_env: Any, callbacks: Sequence[Callback], folder: Path | None = None, verbose: int = 1
    ) -> None:
        self.trainer = build(plan, env, eval_env, callbacks, folder)
        self.plan, self.verbose = with_data(plan, self.trainer), verbose
        self._calls = 0
        self._accepted: list[Any] = []

    def __repr__(self) -> str:
        score = next((row["eval/return"] for row in reversed(self.metrics) if row.get("eval/return") is not None), None)
        known = "" if score is None else f", return {score:,.1f}"
        return f"{type(self).__name__}({self.plan.env}, seed {self.plan.train.seed}, step {self.step:,}{known})"

    @property
    def step(self) -> int:
        """Environment steps trained so far."""
        return self.trainer.progress.step

    @models.answering
    def learn(self, steps: int, callbacks: Sequence[Callback] = (), verbose: int | None = None) -> Self:
        """Train for `steps` more environment steps; calling it again goes on where it stopped.

        It is shown on a terminal and in a notebook, unless `verbose` (the model's own where it is None) is 0.
        """
        trainer = self.trainer
        own, until = trainer.callbacks, trainer.progress.step + TrainConfig.read("steps", steps)
        trainer.callbacks = [*own, *callbacks]
        plan = dataclasses.replace(self.plan, train=dataclasses.replace(self.plan.train, steps=max(until, 1)))
        view = shown(self.verbose if verbose is None else verbose)(trainer, plan)
        try:
            with graceful_stop(trainer) as caught:
                trainer.run(until)
        finally:
            trainer.callbacks = own
            if view is not None:
                view.close()
        if caught:
            raise KeyboardInterrupt
        name, warm_up = self.plan.agent.warm_up
        if not trainer.progress.updates and self.step <= warm_up:
            quiet(f"nothing was learnt yet: learning begins after {name} = {warm_up} steps, and {self.step} were made.")
        return self

    @property
    def policy(self) -> Policy:
        """The policy as it is now."""
        agent = self.trainer.agent
        own = trees.to_arrays(agent.policy(self.trainer.state))  # a copy: the next update consumes what it is read from
        return Policy(agent, trees.from_arrays(agent.blank_policy(), own), self._meta(self.step), self.plan.train.seed)

    def _meta(self, step: int, score: float | None = None) -> dict[str, Any]:
        about = {"step": step, "eval_return": score, "repeat": self.plan.train.repeat, "limit": self.plan.train.limit}
        return describe(self.plan.algo, self.plan.env, self.trainer.agent, **about)

    @property
    def best_policy(self) -> Policy:
        """The best evaluated policy so far."""
        trainer = self.trainer
        if not trainer.best_policy:
            raise CheckpointError("no policy was evaluated yet: learn first, with an environment to evaluate on.")
        meta = self._meta(trainer.progress.best_step, trainer.progress.best_return)
        best = trees.from_arrays(trainer.agent.blank_policy(), trainer.best_policy)
        return Policy(trainer.agent, best, meta, self.plan.train.seed)

    def predict(self, obs: Any, state: Any = None, deterministic: bool = True) -> tuple[np.ndarray, Any]:
        """The action, in the environment's own units, for a raw observation or a batch of them."""
        agent = self.trainer.agent
        policy = Policy(agent, agent.policy(self.trainer.state), {}, self.plan.train.seed, self._calls)
        action = policy.predict(obs, state, deterministic)
        self._calls = policy.calls
        return action

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Evaluate the deterministic policy on fresh episodes."""
        if self.trainer.eval_env is None:
            raise EnvError("there is no environment to evaluate on: give eval_env=… (an instance is used for training).")
        return evaluate(self.trainer.player(), self.trainer.eval_env, seed=self.plan.train.seed + 1, episodes=episodes)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows recorded so far."""
        return self.trainer.recorder.rows

    def save(self, path: str | Path) -> Path:
        """Write everything needed to go on (replay included) into a folder; `beeline.load` reads it."""
        folder = Path(path)
        if (folder / "metrics.csv").exists():
            raise RunFolderError(f"{folder} is the folder of a run; save the model elsewhere.")
        with files.explained(folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise RunFolderError(f"{folder} is not a folder: a model is saved into one.") from None
        if not self.trainer.ready:
            self.trainer.begin()
        files.write_atomic(folder / "config.json", _config_text(self.plan, self._accepted))
        prior.keep(folder, self.trainer.data)
        self.trainer.save(CheckpointStore(folder, keep=1))
        self.policy.save(folder / "policy.npz")
        return folder


def _config_text(plan: Plan, accepted: Sequence[Any]) -> bytes:
    config = plan.to_dict() | {"versions": runtime.versions(), **runtime.machine()}
    return files.sealed(config | ({"accepted": list(accepted)} if accepted else {}))


def model(name: str) -> type[Model]:
    """The class of an algorithm, one of ours or of an installed package: `model("bac")` is `beeline.BAC`."""
    return models.make_class(agents.get(name), Model)


def load(
    path: str | Path,
    env: Any = None,
    eval_env: Any = None,
    callbacks: Sequence[Callback] = (),
    report: Report = quiet,
    accept_config: bool = False,
    **objects: Any,
) -> Any:
    """A `Model` from a saved folder or a run folder, ready to go on; a `Policy` from a policy file.

    As in `resume`, an option that has changed since the checkpoint is refused unless `accept_config` says that it is meant.
    What was given as an object in Python (`network=…`, `blend=…`, `exploit=…`) is given again.
    """
    trust.allow(env, eval_env)
    path = Path(path)
    if path.is_file():
        return load_policy(path, **objects)
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}.")
    folder = RunFolder.open(path)
    plan = folder.plan(objects)
    check_before_building(CheckpointStore(path), plan, folder.config().get("accepted"), accept_config)
    runtime.configure(plan.train.threads, plan.train.device)
    kind = model(plan.algo)
    found = kind.__new__(kind)
    found._set_up(plan, task_of(plan, env), eval_env, callbacks, path)
    table = MetricsTable(path / "metrics.csv", record_of(found.trainer).columns)

    def usable(meta: Mapping[str, Any]) -> None:
        check_meta(meta)
        table.recover(meta)

    checkpoint = CheckpointStore(path, plan.train.keep_checkpoints).load(report, usable=usable)
    known = folder.config().get("accepted")
    new = take_checkpoint(found.trainer, checkpoint, plan, path, report, known, accept_config)
    found._accepted = [*(known if isinstance(known, list) else []), *new]
    if "rows" not in checkpoint.meta:
        found.trainer.recorder.rows = parse_metrics(table.recover(checkpoint.meta))
    return found
