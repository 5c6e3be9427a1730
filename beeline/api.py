"""The Python interface: `train`, `resume`, `load`, and models with learn / predict / save / load."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from beeline import agents, envs, files, models, runtime, trees
from beeline.envs import registry, trust
from beeline.errors import BeelineError, CheckpointError, ConfigError, EnvError, Interrupted, RunFolderError, notes
from beeline.evaluate import Evaluation, evaluate, never
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
from beeline.run.opened import Run
from beeline.run.plan import Plan
from beeline.run.policy import Policy, describe, load_policy
from beeline.run.record import MetricsTable, Recorder, parse_metrics
from beeline.run.sinks import reason, tell
from beeline.run.vouched import check_before_building, check_length, check_meta
from beeline.stopping import Stopped, graceful_stop

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.envs.video import KeyFrame

Report = Callable[[str], None]
TRACE = "error.txt"


def _quiet(message: str) -> None:
    """The default report: messages go through Python's warnings, so that they are seen once and can be filtered."""
    warnings.warn(message, stacklevel=3)


def _record(trainer: Trainer) -> Recorder:
    """The record of a trainer that was built here; the loop itself knows only where rows go."""
    assert isinstance(trainer.recorder, Recorder)
    return trainer.recorder


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
    env_kwargs: Mapping[str, Any] | None = None,
    init_from: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    report: Report = _quiet,
    look: Callable[[Plan], None] = lambda plan: None,
    verbose: int = 1,
    display: Callable[[Trainer, Plan], Any] | None = None,
    **options: Any,
) -> Run:
    """Train an algorithm on a task into a run folder, and show it on a terminal and in a notebook unless `verbose` is 0.

    `env` is an id, a factory or an instance, and `env_kwargs` are arguments for it; `options` are fields of the
    algorithm's config and of `TrainConfig`. `look` sees the plan before anything is built.
    """
    trust.allow(env, eval_env)
    env = envs.with_arguments(env, env_kwargs)
    plan = Plan.make(algo, env_name(env), preset, options, absolute(init_from))
    plan.check_budget()
    path = Path(out) if out else RunFolder.default_path(plan)
    RunFolder.refuse_existing(path)
    look(plan)
    plan = _fixed_threads(plan)
    with closing(build(plan, env, eval_env, callbacks), env, eval_env) as trainer:
        check_length(trainer, plan)
        if trainer.collector.spec.assumption:
            report(trainer.collector.spec.assumption)
        take_initial_policy(trainer, plan)
        plan = _with_data(plan, trainer)
        folder = RunFolder.create(path, plan)
        try:
            prior.keep(path, trainer.data)
            attach(trainer, plan, path)
            _record(trainer).restart()
            return _drive(trainer, plan, folder, display or _display(verbose))
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
    verbose: int = 1,
    display: Callable[[Trainer, Plan], Any] | None = None,
    accept_config: bool = False,
    **objects: Any,
) -> Run:
    """Go on with a run from its newest intact checkpoint; with `steps`, extend it to that many in all.

    An option in config.json that is not as the checkpoint says is refused, or taken and written down with `accept_config`.
    What the run was given as an object in Python (`network=…`, `blend=…`, `exploit=…`) is given again, as `env` is.
    """
    trust.allow(env, eval_env)
    folder = RunFolder.open(Path(path))
    folder.lock()
    try:
        plan = folder.plan(objects)
        task = task_of(plan, env)
        check_before_building(CheckpointStore(folder.path), plan, folder.config().get("accepted"), accept_config)
        if steps is not None:
            if steps < plan.train.steps:
                raise ConfigError(f"steps = {steps} is less than the {plan.train.steps} this run was planned for.")
            plan = dataclasses.replace(plan, train=dataclasses.replace(plan.train, steps=steps))
        threads = runtime.configure(plan.train.threads, plan.train.device)
        if threads != plan.train.threads:
            report(f"this process has {threads} threads, the run began with {plan.train.threads}: bytes may differ.")
        for difference in differences(folder.config()):
            report(difference)
        with closing(build(plan, task, eval_env, callbacks, folder.path), task, eval_env) as trainer:
            prior.keep(folder.path, trainer.data)  # if it was stopped before they were written
            attach(trainer, plan, folder.path)
            check_length(trainer, plan)
            accepted = _restore(trainer, plan, folder, report, accept_config)
            if steps is not None or accepted or folder.config().get("seed") != plan.train.seed:
                folder.rewrite(plan, accepted)
            return _drive(trainer, plan, folder, display or _display(verbose))
    finally:
        folder.unlock()


def _restore(trainer: Trainer, plan: Plan, folder: RunFolder, report: Report, accept: bool) -> list[dict[str, Any]]:
    """Bring a trainer to where its run was; return the changes of options that were accepted for it."""
    assert isinstance(trainer.store, CheckpointStore)
    record = _record(trainer)
    if not trainer.store.steps():
        if traces := folder.traces():
            raise CheckpointError(
                f"{folder.path} has no checkpoint to go on from, but it holds a run that had begun: {', '.join(traces)}. "
                f"It is left as it is. {_instead(plan, folder)}"
            )
        report("the run was stopped before its first checkpoint; it starts from the beginning.")
        record.restart()
        take_initial_policy(trainer, plan)
        return []

    def usable(meta: Mapping[str, Any]) -> None:
        check_meta(meta)
        record.usable(meta)

    try:
        checkpoint = trainer.store.load(report, usable=usable)
    except CheckpointError as error:
        raise CheckpointError(f"{error} The run is left as it is. {_instead(plan, folder)}") from None
    planned = checkpoint.meta.get("plan", {}).get("steps", plan.train.steps)
    if planned != (said := folder.config()["train"]["steps"]):
        report(f"config.json says steps = {said}; when the checkpoint was made it was {planned}.")
    return take_checkpoint(trainer, checkpoint, plan, folder.path, report, folder.config().get("accepted"), accept)


def _instead(plan: Plan, folder: RunFolder) -> str:
    """What can be done with a run that cannot go on."""
    policies = [name for name in ("policy.npz", "policy-best.npz") if (folder.path / name).is_file()]
    use = f"Evaluate or film its policy (beeline eval {quote(str(folder.path))} --video), or train" if policies else "Train"
    again = f"beeline train {plan.algo} {quote(plan.env)} --seed {plan.train.seed} --out DIR"
    return f"{use} anew into another folder ({again})."


def _display(verbose: int) -> Callable[[Trainer, Plan], Any]:
    """What is shown where nobody has chosen a display."""
    from beeline.display import automatic

    return automatic if verbose else lambda trainer, plan: None


def _drive(trainer: Trainer, plan: Plan, folder: RunFolder, display: Callable[[Trainer, Plan], Any]) -> Run:
    """Run to the planned steps with status, display, signals and record around the loop."""
    recorder = _record(trainer)
    progress, view, good = trainer.progress, None, False
    caught: list[int] = []
    with contextlib.suppress(OSError):
        (folder.path / TRACE).unlink(missing_ok=True)

    def leave(state: str, reason: str, step: int | None = None) -> None:
        with contextlib.suppress(BeelineError, OSError):  # not even in place: then the error itself must tell
            recorder.status(state, trainer.progress.step if step is None else step, reason)

    try:
        with graceful_stop(trainer, lambda number: leave("stopped", f"{number.name} twice: no checkpoint")) as caught:
            recorder.status("running", progress.step)
            recorder.open(progress.step + 1 if progress.rows else 0)  # the row of a checkpoint's own step is before it
            view = display(trainer, plan)
            done = trainer.run(plan.train.steps)
            if caught and not done:
                leave("stopped", signal.Signals(caught[0]).name)
                raise Stopped(caught[0], folder.path, trainer.progress.step)
            if done:
                trainer.finish()
                recorder.finish()
                if plan.train.video:
                    _film_final(trainer, plan, folder.path)
        recorder.status("finished" if done else "stopped", trainer.progress.step, "" if done else "a callback ended the training")
        good = True
    except Stopped:
        raise
    except KeyboardInterrupt as error:  # the last evaluation was given up, or a second Ctrl-C did not wait
        assert isinstance(trainer.store, CheckpointStore)
        number, step = caught[0] if caught else signal.SIGINT, max(trainer.store.steps(), default=0)
        name = signal.Signals(number).name
        leave("stopped", name if isinstance(error, Interrupted) else f"{name} (Ctrl-C twice: no checkpoint)", step)
        raise Stopped(number, folder.path, step) from None
    except Exception as error:
        _keep_trace(error, folder.path)
        leave("failed", str(error) if isinstance(error, BeelineError) else f"{type(error).__name__}: {error}")
        raise
    finally:
        if view is not None:
            view.close()
        recorder.close(good)
    return Run(folder.path)


def _keep_trace(error: Exception, path: Path) -> None:
    """Write the whole traceback into the run folder where code that is not ours has failed, and say so in the message."""
    if isinstance(error, BeelineError) and not notes(error):
        return
    with contextlib.suppress(BeelineError, OSError):
        files.write_atomic(path / TRACE, "".join(traceback.format_exception(error)).encode())
        if isinstance(error, BeelineError):
            error.args = (f"{error} The whole traceback is in {path / TRACE}",)


def _film_final(trainer: Trainer, plan: Plan, path: Path) -> None:
    if plan.env.startswith(("instance:", "factory:")):
        return
    video = path / "videos" / f"step-{trainer.progress.step:012d}.mp4"
    try:
        film(trainer.player(), plan.env, plan.train.repeat, video, plan.train.seed, plan.train.limit, trainer.stop_requested)
    except Interrupted:
        print("the video was given up; the training is finished.")
    except Exception as error:  # whatever a renderer may do, the training has succeeded
        tell(f"the video could not be made: {reason(error)}")


def film(
    act: Callable[[np.ndarray], np.ndarray], env: Any, repeat: int | None, path: Path, seed: int, limit: int | None = None,
    stop: Callable[[], bool] = never,
) -> str:  # fmt: skip
    """Film one episode; where no GL library is found, say which package brings one. Returns what happened."""
    from beeline.envs import rendering, video

    with warnings.catch_warnings():
        # JAX warns of every fork; here it is followed at once by exec (the GL probe, ffmpeg), which is safe.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        backend, message = rendering.choose_backend()
        if backend is None:
            print(message)
            return message
        files.own_folder(path.parent)
        filmed = registry.make(env, repeat=repeat or 1, limit=limit, render=True)
        try:
            video.record_episode(filmed, act, path, seed, stop=stop)
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
        env_kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        init_from: str | Path | None = None,
        verbose: int = 1,
        **options: Any,
    ) -> None:
        trust.allow(env, eval_env)
        env = envs.with_arguments(env, env_kwargs)
        plan = Plan.make(self.algo, env_name(env), preset, options, absolute(init_from))
        self._set_up(_fixed_threads(plan), env, eval_env, callbacks, verbose=verbose)
        if self.trainer.collector.spec.assumption:
            _quiet(self.trainer.collector.spec.assumption)
        take_initial_policy(self.trainer, plan)

    def _set_up(
        self, plan: Plan, env: Any, eval_env: Any, callbacks: Sequence[Callback], folder: Path | None = None, verbose: int = 1
    ) -> None:
        self.trainer = build(plan, env, eval_env, callbacks, folder)
        self.plan, self.verbose = _with_data(plan, self.trainer), verbose
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

    def learn(self, steps: int, callbacks: Sequence[Callback] = (), verbose: int | None = None) -> Self:
        """Train for `steps` more environment steps; calling it again goes on where it stopped.

        It is shown on a terminal and in a notebook, unless `verbose` (the model's own where it is None) is 0.
        """
        trainer = self.trainer
        own, until = trainer.callbacks, trainer.progress.step + steps
        trainer.callbacks = [*own, *callbacks]
        plan = dataclasses.replace(self.plan, train=dataclasses.replace(self.plan.train, steps=max(until, 1)))
        view = _display(self.verbose if verbose is None else verbose)(trainer, plan)
        try:
            with graceful_stop(trainer) as caught:
                trainer.run(until)
        finally:
            trainer.callbacks = own
            if view is not None:
                view.close()
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
    report: Report = _quiet,
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
    table = MetricsTable(path / "metrics.csv", _record(found.trainer).columns)

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


def evaluate_run(
    path: str | Path, *, episodes: int = 10, best: bool = False, seed: int = 1, env: Any = None, **objects: Any
) -> tuple[Evaluation, Policy]:
    """Evaluate the policy of a run folder (or a policy file) on fresh episodes; objects handed over in Python are given again."""
    trust.allow(env)
    policy = _policy_of(path, best, **objects)
    with _fitting_env(policy, env) as test_env:
        result = evaluate(policy.player(seed), test_env, seed=seed, episodes=episodes)
    return result, policy


def key_frames(
    path: str | Path, count: int, *, best: bool = False, seed: int = 1, env: Any = None, **objects: Any
) -> tuple[list[KeyFrame], float, Policy]:
    """Evenly spaced frames of one episode of a run's or file's greedy policy, the episode's return, and the policy."""
    from beeline.envs import rendering, video

    trust.allow(env)
    policy = _policy_of(path, best, **objects)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)  # as in `film`
        backend, message = rendering.choose_backend()
        if backend is None:
            raise EnvError(message)
        with _fitting_env(policy, env, render=True) as filmed:
            frames, total = video.key_frames(filmed, lambda: policy.player(seed), seed, count)
    return frames, total, policy


def export(
    path: str | Path, out: str | Path, *, best: bool = False, env: Any = None
) -> tuple[Path, Policy, float]:
    """Write the policy of a run folder (or a policy file) as ONNX; the file, the policy, and how far their actions differ."""
    from beeline.run import export as exporting

    trust.allow(env)
    policy = _policy_of(path, best)
    with _fitting_env(policy, env) as made:
        return Path(out), policy, exporting.export(policy, Path(out), made)


def _policy_of(path: str | Path, best: bool, **objects: Any) -> Policy:
    path = Path(path)
    return load_policy(path, **objects) if path.is_file() else Run(RunFolder.open(path).path).policy(best, **objects)


@contextlib.contextmanager
def _fitting_env(policy: Policy, env: Any, render: bool = False) -> Iterator[Adapter]:
    """The task of a policy, or another one with the same spaces, open for as long as it is needed."""
    task = env if env is not None else recorded_task(policy.meta["env"])
    limit = policy.meta.get("limit") if env is None else None
    made = registry.make(task, repeat=policy.meta.get("repeat") or 1, limit=limit, render=render)
    try:
        if spaces_of(made) != policy.agent.task.spaces:
            raise CheckpointError(f"this policy was trained on {policy.meta['env']!r} and does not fit {task!r}.")
        yield made
    finally:
        made.close()
