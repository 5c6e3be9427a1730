"""The Python interface: `train`, `resume`, `load`, and models with learn / predict / save / load."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from beeline import files, runtime, trees
from beeline.envs import registry, trust
from beeline.errors import BeelineError, CheckpointError, ConfigError, EnvError, RunFolderError
from beeline.evaluate import Evaluation, evaluate
from beeline.loop import Callback, Trainer
from beeline.run import prior
from beeline.run.build import (
    attach,
    build,
    closing,
    env_name,
    recorded_task,
    spaces_of,
    take_checkpoint,
    take_initial_policy,
    task_of,
)
from beeline.run.checkpoint import CheckpointStore
from beeline.run.folder import RunFolder, absolute, differences
from beeline.run.plan import Plan
from beeline.run.policy import Policy, describe, load_policy
from beeline.run.record import Recorder, read_metrics
from beeline.stopping import Stopped, graceful_stop

Report = Callable[[str], None]


def _quiet(message: str) -> None:
    """The default report: messages go through Python's warnings, so that they are seen once and can be filtered."""
    warnings.warn(message, stacklevel=3)


@dataclasses.dataclass
class Run:
    """A run folder with its results."""

    path: Path

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return RunFolder.open(self.path).config()

    @property
    def metrics(self) -> list[dict[str, float | None]]:
        """The rows of the metrics table."""
        return read_metrics(self.path / "metrics.csv")

    def policy(self, best: bool = False) -> Policy:
        """The latest policy, or the best evaluated one."""
        return load_policy(self.path / ("policy-best.npz" if best else "policy.npz"), within=self.path)

    @property
    def final_return(self) -> float | None:
        """The last evaluation's mean return."""
        scores = [row["eval/return"] for row in self.metrics if row.get("eval/return") is not None]
        return scores[-1] if scores else None


def _fixed_threads(plan: Plan) -> Plan:
    threads = runtime.configure(plan.train.threads, plan.train.device)
    if plan.train.threads not in (None, threads):
        _quiet(f"threads = {plan.train.threads} comes too late: JAX has started with {threads} in this process.")
    return dataclasses.replace(plan, train=dataclasses.replace(plan.train, threads=threads))


def _with_data(plan: Plan, trainer: Trainer) -> Plan:
    """The plan with the SHA-256 of the data of others that its trainer has read."""
    return dataclasses.replace(plan, data={option: each.sha256 for option, each in trainer.data.items()})


def train(
    algo: str,
    env: Any,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    eval_env: Any = None,
    init_from: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    display: Callable[[Trainer, Plan], Any] | None = None,
    **options: Any,
) -> Run:
    """Train an algorithm on a task into a run folder.

    `env` is an id, a factory or an instance; `options` are fields of the algorithm's config and of `TrainConfig`.
    """
    trust.allow(env, eval_env)
    plan = Plan.make(algo, env_name(env), preset, options, absolute(init_from))
    plan.check_budget()
    path = Path(out) if out else RunFolder.default_path(plan)
    RunFolder.refuse_existing(path)
    plan = _fixed_threads(plan)
    with closing(build(plan, env, eval_env, callbacks), env, eval_env) as trainer:
        take_initial_policy(trainer, plan)
        plan = _with_data(plan, trainer)
        folder = RunFolder.create(path, plan)
        try:
            prior.keep(path, trainer.data)
            attach(trainer, plan, path)
            return _drive(trainer, plan, folder, display)
        finally:
            folder.unlock()


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    env: Any = None,
    eval_env: Any = None,
    callbacks: Sequence[Callback] = (),
    report: Report = _quiet,
    display: Callable[[Trainer, Plan], Any] | None = None,
) -> Run:
    """Go on with a run from its newest intact checkpoint; with `steps`, extend it to that many in all."""
    trust.allow(env, eval_env)
    folder = RunFolder.open(Path(path))
    folder.lock()
    try:
        plan = folder.plan()
        task = task_of(plan, env)
        if steps is not None:
            if steps < plan.train.steps:
                raise ConfigError(f"steps = {steps} is less than the {plan.train.steps} this run was planned for.")
            plan = dataclasses.replace(plan, train=dataclasses.replace(plan.train, steps=steps))
            folder.rewrite(plan)
        threads = runtime.configure(plan.train.threads, plan.train.device)
        if threads != plan.train.threads:
            report(f"this process has {threads} threads, the run began with {plan.train.threads}: bytes may differ.")
        for difference in differences(folder.config()):
            report(difference)
        with closing(build(plan, task, eval_env, callbacks, folder.path), task, eval_env) as trainer:
            prior.keep(folder.path, trainer.data)  # if it was stopped before they were written
            attach(trainer, plan, folder.path)
            _restore(trainer, plan, folder.path, report)
            return _drive(trainer, plan, folder, display)
    finally:
        folder.unlock()


def _restore(trainer: Trainer, plan: Plan, path: Path, report: Report) -> None:
    assert isinstance(trainer.store, CheckpointStore) and isinstance(trainer.recorder, Recorder)
    if not trainer.store.steps():
        report("the run was stopped before its first checkpoint; it starts from the beginning.")
        trainer.recorder.restart()
        take_initial_policy(trainer, plan)
        return
    take_checkpoint(trainer, trainer.store.load(report), plan, path, report)


def _drive(trainer: Trainer, plan: Plan, folder: RunFolder, display: Callable[[Trainer, Plan], Any] | None) -> Run:
    """Run to the planned steps with status, display, signals and record around the loop."""
    recorder = trainer.recorder
    assert isinstance(recorder, Recorder)
    step = trainer.progress.step
    view = None
    try:
        with graceful_stop(trainer) as caught:
            recorder.status("running", step)
            recorder.open(step + 1 if trainer.progress.rows else 0)  # the row of a checkpoint's own step is before it
            view = display(trainer, plan) if display else None
            done = trainer.run(plan.train.steps)
            step = trainer.progress.step
            if caught and not done:
                recorder.status("stopped", step, signal.Signals(caught[0]).name)
                raise Stopped(caught[0], folder.path, step)
            if done:
                trainer.finish()
                if plan.train.video:
                    _film_final(trainer, plan, folder.path)
        recorder.status("finished" if done else "stopped", step, "" if done else "a callback ended the training")
    except Exception as error:
        reason = str(error) if isinstance(error, BeelineError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(BeelineError, OSError):  # a full disk cannot take the status either; the error itself tells
            recorder.status("failed", trainer.progress.step, reason)
        raise
    finally:
        if view is not None:
            view.close()
        with contextlib.suppress(OSError):
            recorder.close()
    return Run(folder.path)


def _film_final(trainer: Trainer, plan: Plan, path: Path) -> None:
    if plan.env.startswith(("instance:", "factory:")):
        return
    video = path / "videos" / f"step-{trainer.progress.step:012d}.mp4"
    try:
        film(trainer.player(), plan.env, plan.train.repeat, video, plan.train.seed)
    except Exception as error:  # whatever a renderer may do, the training has succeeded
        print(f"the video could not be made: {error}")


def film(act: Callable[[np.ndarray], np.ndarray], env: Any, repeat: int | None, path: Path, seed: int) -> str:
    """Film one episode; where no GL library is found, say which package brings one. Returns what happened."""
    from beeline.envs import rendering, video

    with warnings.catch_warnings():
        # JAX warns of every fork; here it is followed at once by exec (the GL probe, ffmpeg), which is safe.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        outside = Path(os.path.realpath(path.parent))
        if not outside.is_relative_to(os.path.realpath(path.parent.parent)):
            raise RunFolderError(f"{path.parent} is a link that leads out of its folder (to {outside}); it is not followed.")
        backend, message = rendering.choose_backend()
        if backend is None:
            print(message)
            return message
        filmed = registry.make(env, repeat=repeat or 1, render=True)
        try:
            video.record_episode(filmed, act, path, seed)
        finally:
            filmed.close()
    return str(path)


# --- models -----------------------------------------------------------------------------------------------------------


class Model:
    """A learner in memory: `learn`, `predict`, `evaluate`, `save`. Subclasses name the algorithm."""

    algo: ClassVar[str] = ""

    def __init__(
        self,
        env: Any,
        *,
        preset: str | None = None,
        eval_env: Any = None,
        callbacks: Sequence[Callback] = (),
        init_from: str | Path | None = None,
        **options: Any,
    ) -> None:
        trust.allow(env, eval_env)
        plan = Plan.make(self.algo, env_name(env), preset, options, absolute(init_from))
        self._set_up(_fixed_threads(plan), env, eval_env, callbacks)
        take_initial_policy(self.trainer, plan)

    def _set_up(
        self, plan: Plan, env: Any, eval_env: Any, callbacks: Sequence[Callback], folder: Path | None = None
    ) -> None:
        self.trainer = build(plan, env, eval_env, callbacks, folder)
        self.plan = _with_data(plan, self.trainer)
        self._calls = 0

    @property
    def step(self) -> int:
        """Environment steps trained so far."""
        return self.trainer.progress.step

    def learn(self, steps: int, callbacks: Sequence[Callback] = ()) -> Self:
        """Train for `steps` more environment steps; calling it again goes on where it stopped."""
        trainer = self.trainer
        own = trainer.callbacks
        trainer.callbacks = [*own, *callbacks]
        try:
            with graceful_stop(trainer) as caught:
                trainer.run(trainer.progress.step + steps)
        finally:
            trainer.callbacks = own
        if caught:
            raise KeyboardInterrupt
        return self

    @property
    def policy(self) -> Policy:
        """The policy as it is now."""
        agent = self.trainer.agent
        own = trees.to_arrays(agent.policy(self.trainer.state))  # a copy: the next update consumes what it is read from
        return Policy(agent, trees.from_arrays(agent.blank_policy(), own), self._meta(self.step), self.plan.train.seed)

    def _meta(self, step: int, score: float | None = None) -> dict[str, Any]:
        about = {"step": step, "eval_return": score, "repeat": self.plan.train.repeat}
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
        files.write_atomic(folder / "config.json", _config_text(self.plan))
        prior.keep(folder, self.trainer.data)
        self.trainer.save(CheckpointStore(folder, keep=1))
        self.policy.save(folder / "policy.npz")
        return folder


def _config_text(plan: Plan) -> bytes:
    import json

    return json.dumps(plan.to_dict() | {"versions": runtime.versions(), **runtime.machine()}, indent=1).encode()


class SAC(Model):
    """Soft actor-critic."""

    algo = "sac"


class BAC(Model):
    """BEE actor-critic."""

    algo = "bac"


class TD3(Model):
    """Twin delayed DDPG."""

    algo = "td3"


class BEETD3(Model):
    """TD3 under the BEE operator."""

    algo = "bee-td3"


MODELS: dict[str, type[Model]] = {model.algo: model for model in (SAC, BAC, TD3, BEETD3)}


def load(
    path: str | Path, env: Any = None, eval_env: Any = None, callbacks: Sequence[Callback] = (), report: Report = _quiet
) -> Any:
    """A `Model` from a saved folder or a run folder, ready to go on; a `Policy` from a policy file."""
    trust.allow(env, eval_env)
    path = Path(path)
    if path.is_file():
        return load_policy(path)
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}.")
    plan = RunFolder.open(path).plan()
    runtime.configure(plan.train.threads, plan.train.device)
    model = MODELS[plan.algo].__new__(MODELS[plan.algo])
    model._set_up(plan, task_of(plan, env), eval_env, callbacks, path)
    checkpoint = CheckpointStore(path, plan.train.keep_checkpoints).load(report)
    take_checkpoint(model.trainer, checkpoint, plan, path, report)
    if (path / "metrics.csv").is_file():
        model.trainer.recorder.rows = read_metrics(path / "metrics.csv", checkpoint.meta["metrics_bytes"])
    else:
        model.trainer.recorder.rows = checkpoint.meta.get("rows", [])
    return model


def evaluate_run(
    path: str | Path, *, episodes: int = 10, best: bool = False, seed: int = 1, env: Any = None
) -> tuple[Evaluation, Policy]:
    """Evaluate the policy of a run folder (or a policy file) on fresh episodes."""
    trust.allow(env)
    path = Path(path)
    policy = load_policy(path) if path.is_file() else Run(RunFolder.open(path).path).policy(best)
    task = env if env is not None else recorded_task(policy.meta["env"])
    test_env = registry.make(task, repeat=policy.meta.get("repeat") or 1)
    try:
        if spaces_of(test_env) != policy.agent.task.spaces:
            raise CheckpointError(f"this policy was trained on {policy.meta['env']!r} and does not fit {task!r}.")
        result = evaluate(policy.player(seed), test_env, seed=seed, episodes=episodes)
    finally:
        test_env.close()
    return result, policy

