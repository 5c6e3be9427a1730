"""A run in its folder: `train` begins one, `resume` goes on with one."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline import envs, files, runtime
from beeline.envs import trust
from beeline.errors import BeelineError, CheckpointError, ConfigError, Interrupted, copyable, notes
from beeline.loop import Callback, Trainer
from beeline.policies import film
from beeline.run import prior
from beeline.run.build import attach, build, closing, env_name, take_checkpoint, take_initial_policy, task_of
from beeline.run.checkpoint import CheckpointStore
from beeline.run.folder import RunFolder, absolute, differences
from beeline.run.opened import Run
from beeline.run.plan import Plan
from beeline.run.record import Recorder
from beeline.run.sinks import reason, tell
from beeline.run.vouched import check_before_building, check_length, check_meta
from beeline.stopping import Stopped, graceful_stop

Report = Callable[[str], None]
TRACE = "error.txt"


def quiet(message: str) -> None:
    """The default report: messages go through Python's warnings, so that they are seen once and can be filtered."""
    warnings.warn(message, stacklevel=3)


def record_of(trainer: Trainer) -> Recorder:
    """The record of a trainer that was built here; the loop itself knows only where rows go."""
    assert isinstance(trainer.recorder, Recorder)
    return trainer.recorder


def fixed_threads(plan: Plan) -> Plan:
    """The plan with the threads that JAX has in this process."""
    threads = runtime.configure(plan.train.threads, plan.train.device)
    if plan.train.threads not in (None, threads):
        quiet(f"threads = {plan.train.threads} comes too late: JAX has started with {threads} in this process.")
    return dataclasses.replace(plan, train=dataclasses.replace(plan.train, threads=threads))


def with_data(plan: Plan, trainer: Trainer) -> Plan:
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
    report: Report = quiet,
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
    plan = fixed_threads(plan)
    with closing(build(plan, env, eval_env, callbacks), env, eval_env) as trainer:
        check_length(trainer, plan)
        if trainer.collector.spec.assumption:
            report(trainer.collector.spec.assumption)
        take_initial_policy(trainer, plan)
        plan = with_data(plan, trainer)
        folder = RunFolder.create(path, plan)
        try:
            prior.keep(path, trainer.data)
            attach(trainer, plan, path)
            record_of(trainer).restart()
            return _drive(trainer, plan, folder, display or shown(verbose))
        finally:
            folder.unlock()


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    env: Any = None,
    eval_env: Any = None,
    callbacks: Sequence[Callback] = (),
    report: Report = quiet,
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
            return _drive(trainer, plan, folder, display or shown(verbose))
    finally:
        folder.unlock()


def _restore(trainer: Trainer, plan: Plan, folder: RunFolder, report: Report, accept: bool) -> list[dict[str, Any]]:
    """Bring a trainer to where its run was; return the changes of options that were accepted for it."""
    assert isinstance(trainer.store, CheckpointStore)
    record = record_of(trainer)
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
    use = f"Evaluate or film its policy ({copyable('eval', folder.path, '--video')}), or train" if policies else "Train"
    again = copyable("train", plan.algo, plan.env, "--seed", plan.train.seed, "--out", "DIR")
    return f"{use} anew into another folder ({again})."


def shown(verbose: int) -> Callable[[Trainer, Plan], Any]:
    """What is shown where nobody has chosen a display."""
    from beeline.display import automatic

    return automatic if verbose else lambda trainer, plan: None


def _drive(trainer: Trainer, plan: Plan, folder: RunFolder, display: Callable[[Trainer, Plan], Any]) -> Run:
    """Run to the planned steps with status, display, signals and record around the loop."""
    recorder = record_of(trainer)
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
    """Write the whole traceback into the run folder where code that is not ours has failed, and say so below its lines."""
    if isinstance(error, BeelineError) and not notes(error):
        return
    with contextlib.suppress(BeelineError, OSError):
        files.write_atomic(path / TRACE, "".join(traceback.format_exception(error)).encode())
        noted: BaseException | None = error
        while noted is not None and not hasattr(noted, "__notes__"):
            noted = noted.__cause__
        if noted is not None:  # last, and never behind the command that goes on, which is copied
            noted.add_note(f"The whole traceback is in {path / TRACE}")


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
