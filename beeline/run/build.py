"""From a plan to a trainer: environments, agent, instruments, record, and the checkpoint it goes on from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline import agents, envs, runtime
from beeline.agents.base import Agent, Spaces
from beeline.errors import CheckpointError, EnvError
from beeline.loop import Callback, Diagnoser, Trainer
from beeline.options import TrainConfig
from beeline.run.checkpoint import Checkpoint, CheckpointStore
from beeline.run.plan import Plan
from beeline.run.policy import read_arrays
from beeline.run.record import Recorder, import_wandb

if TYPE_CHECKING:
    import gymnasium


def env_name(env: Any) -> str:
    """How a task is named in the record: its id, or what a factory or an instance is called."""
    if isinstance(env, str):
        return env
    if is_instance(env):
        spec = getattr(env, "spec", None)
        return f"instance:{spec.id if spec else type(env.unwrapped).__name__}"
    return f"factory:{getattr(env, '__name__', type(env).__name__)}"


def is_instance(env: Any) -> bool:
    """Whether this is an environment itself, not the name or the maker of one."""
    return not isinstance(env, str | type) and hasattr(env, "unwrapped")


def make_envs(env: Any, eval_env: Any, config: TrainConfig) -> tuple[list[gymnasium.Env], gymnasium.Env | None]:
    """The training lanes and the evaluation env of an id, a factory or an instance."""
    how: Any = {"repeat": config.repeat or 1, "limit": config.limit}
    if is_instance(env) and config.num_envs > 1:
        raise EnvError("num_envs > 1 needs an env id or a factory: one instance cannot be stepped side by side.")
    lanes: list[gymnasium.Env] = [envs.make(env, **how) for _ in range(config.num_envs)]
    evaluation: gymnasium.Env | None = None
    if config.eval_episodes:
        if eval_env is not None:
            evaluation = envs.make(eval_env, **how)
        elif not is_instance(env):
            evaluation = envs.make(env, **how)
    inner = [getattr(each, "env", each) for each in (*lanes, *([evaluation] if evaluation else []))]
    if len({id(each) for each in inner}) < len(inner):
        raise EnvError(
            "the same environment object would be used twice: eval_env must be another one than env, and a factory must "
            "make a new one each time."
        )
    return lanes, evaluation


def spaces_of(env: gymnasium.Env) -> Spaces:
    """What the agent has to know of an environment."""
    spec = envs.spec_of(env)
    low, high = (tuple(float(x) for x in bound) for bound in (spec.action_low, spec.action_high))
    return Spaces(spec.obs_dim, low, high)


def build(plan: Plan, env: Any, eval_env: Any = None, callbacks: Sequence[Callback] = ()) -> Trainer:
    """A trainer at step 0, in memory. Nothing is written, so whatever is wrong leaves no trace."""
    runtime.configure(plan.train.threads, plan.train.device)
    if plan.train.wandb:
        import_wandb()
    lanes, evaluation = make_envs(env, eval_env, plan.train)
    agent = agents.get(plan.algo).build(plan.agent, spaces_of(lanes[0]))
    diagnoser = make_diagnoser(agent, env, [*lanes, evaluation], plan.train) if plan.train.diagnose else None
    recorder = Recorder(None, agent.metric_names, tensorboard=False, wandb=False, config={})
    trainer = Trainer(agent, lanes, evaluation, plan.train, recorder, None, plan.identity, callbacks)
    trainer.diagnoser = diagnoser
    return trainer


def make_diagnoser(agent: Agent, env: Any, others: Sequence[gymnasium.Env | None], config: TrainConfig) -> Diagnoser:
    """The instruments, on an environment that nothing else steps."""
    from beeline.diagnostics.monitor import Diagnoser

    if is_instance(env):
        raise EnvError("diagnose needs an environment of its own: give an env id or a factory instead of an instance.")
    own = envs.make(env, repeat=config.repeat or 1, limit=config.limit)
    if any(getattr(each, "env", each) is own.env for each in others):
        raise EnvError("diagnose needs an environment of its own: the factory must make a new one each time.")
    return Diagnoser(agent, own, config.seed)


def attach(trainer: Trainer, plan: Plan, folder: Path) -> None:
    """Let a trainer write into a run folder."""
    names = [*trainer.agent.metric_names, *(trainer.diagnoser.columns if trainer.diagnoser else ())]
    trainer.recorder = Recorder(
        folder, names, tensorboard=plan.train.tensorboard, wandb=plan.train.wandb, config=plan.to_dict()
    )
    trainer.store = CheckpointStore(folder, plan.train.keep_checkpoints)


def take_initial_policy(trainer: Trainer, plan: Plan) -> None:
    """Start from the policy that `init_from` names; only ever at step 0, so a resumed run no longer needs the file."""
    if not plan.init_from:
        return
    arrays, meta = read_arrays(Path(plan.init_from))
    try:
        trainer.state = trainer.agent.with_policy(trainer.state, arrays)
    except CheckpointError as error:
        made = f"{meta.get('algo')} on {meta.get('env')}"
        raise CheckpointError(f"init_from = {plan.init_from} ({made}) does not fit this run: {error}") from None


@contextlib.contextmanager
def closing(trainer: Trainer, env: Any, eval_env: Any) -> Iterator[Trainer]:
    """Close the environments that were made here; an instance is the user's to close."""
    try:
        yield trainer
    finally:
        if not is_instance(env):
            for lane in trainer.collector.envs:
                lane.close()
        if trainer.eval_env is not None and not is_instance(eval_env):
            trainer.eval_env.close()
        if trainer.diagnoser is not None:
            trainer.diagnoser.env.close()


def task_of(plan: Plan, env: Any) -> Any:
    """The task of a run that goes on: as it was named, or as the user gives it again."""
    if isinstance(env, str) and env != plan.env:
        raise CheckpointError(f"this was trained on {plan.env!r}, not on {env!r}.")
    if env is not None:
        return env
    if plan.env.startswith(("instance:", "factory:")):
        raise EnvError(f"this run was trained on {plan.env!r}, which has no id: give it again with env=….")
    return plan.env


def take_checkpoint(trainer: Trainer, checkpoint: Checkpoint, plan: Plan, path: Path, report: Callable[[str], None]) -> None:
    """Restore a checkpoint, if it is one of this algorithm and environment."""
    found, wanted = checkpoint.meta.get("identity"), plan.identity
    if found != wanted:
        theirs = f"{found.get('algo')} on {found.get('env')}" if isinstance(found, dict) else "something else"
        raise CheckpointError(
            f"{path} holds a checkpoint of {theirs}, but its config.json says {wanted['algo']} on {wanted['env']}."
        )
    try:
        trainer.restore(checkpoint, report)
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint of step {checkpoint.step} in {path} cannot be used: {error}") from error
