"""From a plan to a trainer: environments, agent, instruments, record, and the checkpoint it goes on from."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import agents, events, options, runtime, trees
from beeline.agents.base import Agent, Spaces, Task
from beeline.collect import Collector
from beeline.envs import ids, known, registry, remote, trust
from beeline.errors import BeelineError, CheckpointError, ConfigError, EnvError, UnknownNameError
from beeline.imagined import Imagined
from beeline.loop import Callback, Diagnoser, Trainer
from beeline.memory import Replay
from beeline.options import TrainConfig
from beeline.rng import episode_seed
from beeline.run import prior
from beeline.run.checkpoint import Checkpoint, CheckpointStore
from beeline.run.plan import Plan
from beeline.run.policy import PolicyFiles, describe, read_arrays
from beeline.run.record import Recorder
from beeline.run.sinks import import_wandb, reason, tell
from beeline.run.vouched import description, settle

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
    lanes: list[gymnasium.Env]
    if config.env_processes:
        lanes = [*remote.make(env, config.num_envs, **how)]
    else:
        lanes = [registry.make(env, **how) for _ in range(config.num_envs)]
    evaluation: gymnasium.Env | None = None
    if config.eval_episodes:
        if eval_env is not None:
            evaluation = registry.make(eval_env, **how)
        elif not is_instance(env):
            evaluation = registry.make(env, **how)
    inner = [getattr(each, "env", each) for each in (*lanes, *([evaluation] if evaluation else []))]
    if len({id(each) for each in inner}) < len(inner):
        raise EnvError(
            "the same environment object would be used twice: eval_env must be another one than env, and a factory must "
            "make a new one each time."
        )
    return lanes, evaluation


def spaces_of(env: gymnasium.Env) -> Spaces:
    """The sizes of an environment."""
    spec = registry.spec_of(env)
    low, high = (tuple(float(x) for x in bound) for bound in (spec.action_low, spec.action_high))
    return Spaces(spec.obs_dim, low, high)


def facts_of(env: gymnasium.Env, lanes: int = 1) -> Task:
    """What the agent is told of its world."""
    spec = registry.spec_of(env)
    return Task(spaces_of(env), spec.limit, spec.repeat, lanes, spec.ends, reward=spec.reward, terminated=spec.terminated)


def make_task(env: Any, lanes: Sequence[gymnasium.Env], evaluation: gymnasium.Env | None, config: TrainConfig) -> Task:
    """All that an agent is told when a run begins."""
    task = facts_of(lanes[0], len(lanes))
    if config.env_processes:  # they tell numbers, not functions
        spec = registry.spec_of(env if evaluation is None else evaluation, repeat=config.repeat or 1)
        task = dataclasses.replace(task, reward=spec.reward, terminated=spec.terminated)
    share = config.prior_share if config.prior else 0.0
    return dataclasses.replace(task, prior_share=share, resets=make_resets(env, [*lanes, evaluation], config))


def make_resets(
    env: Any, others: Sequence[gymnasium.Env | None], config: TrainConfig
) -> Callable[[int, int], np.ndarray] | None:
    """The first observations of so many episodes, from an environment that is made for it; None for an instance."""
    if is_instance(env):
        return None

    def resets(seed: int, count: int) -> np.ndarray:
        own = registry.make(env, repeat=config.repeat or 1, limit=config.limit)
        if any(getattr(each, "env", each) is own.env for each in others):
            raise EnvError("first observations need an environment of their own: the factory must make a new one each time.")
        try:
            return np.stack([own.reset(seed=episode_seed(seed, "virtual", 0, number))[0] for number in range(count)])
        finally:
            own.close()

    return resets


def build(
    plan: Plan, env: Any, eval_env: Any = None, callbacks: Sequence[Callback] = (), folder: Path | None = None
) -> Trainer:
    """A trainer at step 0, in memory. Nothing is written, so whatever is wrong leaves no trace.

    `folder` is where a run that goes on has its copies of the data of others.
    """
    config = plan.train
    runtime.configure(config.threads, config.device)
    if config.wandb:
        import_wandb()
    lanes, evaluation = make_envs(env, eval_env, config)
    facts = make_task(env, lanes, evaluation, config)
    if plan.agent.needs_terminated and facts.terminated is None:
        raise ConfigError(
            f"{plan.algo} needs to know where episodes of {plan.env} end, which a learned model does not say. Known are "
            f"{', '.join(known.TOLD)}; an environment of yours says it by a function beeline_terminated(obs, action, next_obs) "
            "(docs/environments.md)."
        )
    if folder is None:
        plan.agent.begin(plan.env)
    agent = agents.get(plan.algo).build(plan.agent, facts)
    renewed = make_renewals(agent, plan)
    diagnoser = make_diagnoser(agent, env, [*lanes, evaluation], config) if config.diagnose else None
    given = prior.gather(plan, facts.spaces, folder)
    memories = make_memories(agent, plan, len(given["load_prior"].rows["flags"]) if "load_prior" in given else 0)
    collector = Collector(lanes, memories["replay"], config.seed)
    recorder = Recorder(None, agent.metric_names, tensorboard=False, wandb=False, config={})
    happenings = [events.Observe(), *renewed, *make_loading(given, memories, plan), events.Checkpoint()]
    if "prior" in given:
        memories["prior"] = given["prior"].memory()
    trainer = Trainer(agent, collector, memories, evaluation, config, plan.identity, recorder, happenings, callbacks)
    trainer.diagnoser, trainer.data = diagnoser, given
    trainer.description = description(plan)
    return trainer


def make_renewals(agent: Agent, plan: Plan) -> list[events.Event]:
    """The renewals of a plan, if the agent has the parts that they name."""
    asked = options.renewals(plan.train.renew)
    known = agent.parts if asked else ()
    for part in (part for each in asked for part in each.parts if part not in known):
        hint = f"Known for {plan.algo} with these options: {', '.join(known) or 'none'}."
        raise UnknownNameError("part to renew", part, known, hint)
    return [events.Renew(*each) for each in asked]


def make_loading(given: Mapping[str, prior.Prior], memories: Mapping[str, Replay], plan: Plan) -> list[events.Event]:
    """The loading of data into the replay, if they fit into it."""
    load, stored = options.loading(plan.train.load_prior), memories["replay"].extra_columns
    if given and stored:
        raise ConfigError(f"{next(iter(given))} is not for {plan.algo}: data lack what it stores ({', '.join(stored)}).")
    return [events.LoadPrior(prior.rows_by_lane(given["load_prior"], memories["replay"]), load.step)] if load else []


def make_memories(agent: Agent, plan: Plan, loaded: int = 0) -> dict[str, Replay]:
    """The memories that an agent wants, if they fit into the memory that is free; `loaded` rows come from elsewhere."""
    spaces, made = agent.task.spaces, dict[str, Replay]()
    for name, spec in agent.memories.items():
        capacity = spec.capacity or plan.train.replay_capacity
        option = "imagined_rows" if spec.imagined else "replay_capacity"
        try:
            if spec.imagined:
                plan.check_free(option, capacity, capacity, 2 * spaces.obs_dim + spaces.action_dim + 1)
                made[name] = Imagined(capacity, spaces.obs_dim, spaces.action_dim)
                continue
            plan.check_memory(spaces.obs_dim, spaces.action_dim, sum(map(math.prod, spec.columns.values())), loaded)
            made[name] = Replay(capacity, spaces.obs_dim, spaces.action_dim, agent.task.lanes, spec.columns)
        except MemoryError as error:
            raise ConfigError(f"this run asks for more memory than there is ({error}): lower {option} = {capacity}.") from error
    return made


def make_diagnoser(agent: Agent, env: Any, others: Sequence[gymnasium.Env | None], config: TrainConfig) -> Diagnoser:
    """The instruments, on an environment that nothing else steps."""
    from beeline.diagnostics.monitor import Diagnoser

    if is_instance(env):
        raise EnvError("diagnose needs an environment of its own: give an env id or a factory instead of an instance.")
    own = registry.make(env, repeat=config.repeat or 1, limit=config.limit)
    if any(getattr(each, "env", each) is own.env for each in others):
        raise EnvError("diagnose needs an environment of its own: the factory must make a new one each time.")
    return Diagnoser(agent, own, config.seed)


def attach(trainer: Trainer, plan: Plan, folder: Path) -> None:
    """Let a trainer write into a run folder."""
    names = [*trainer.agent.metric_names, *(trainer.diagnoser.columns if trainer.diagnoser else ())]
    names += ["events"] if plan.train.events else []
    trainer.recorder = Recorder(
        folder, names, tensorboard=plan.train.tensorboard, wandb=plan.train.wandb, config=plan.to_dict()
    )
    trainer.store = CheckpointStore(folder, plan.train.keep_checkpoints)
    about = {"repeat": plan.train.repeat, "limit": plan.train.limit}
    trainer.policies = PolicyFiles(folder, describe(plan.algo, plan.env, trainer.agent, **about))


def take_initial_policy(trainer: Trainer, plan: Plan) -> None:
    """Start from the policy that `init_from` names; only ever at step 0, so a resumed run no longer needs the file."""
    if not plan.init_from:
        return
    arrays, meta = read_arrays(Path(plan.init_from))
    agent = trainer.agent
    try:
        trainer.state = agent.with_policy(trainer.state, trees.from_arrays(agent.blank_policy(), arrays))
    except CheckpointError as error:
        made, advice = f"{meta.get('algo')} on {meta.get('env')}", _advice(meta, plan)
        raise CheckpointError(f"init_from = {plan.init_from} ({made}) does not fit this run: {error}{advice}") from None


def _advice(meta: Mapping[str, Any], plan: Plan) -> str:
    """Which options of a policy's network are others than this run's, as they would have to be given."""
    try:
        theirs = agents.get(str(meta.get("algo"))).config.recorded(meta["agent"], {})
    except (BeelineError, LookupError, TypeError, AttributeError):
        return ""
    own, made = plan.agent.to_dict(), theirs.to_dict()
    shaping = ("network", "hidden", "policy_hidden", "normalize_obs")
    differ = {name: getattr(theirs, name) for name in shaping if name in own and name in made and own[name] != made[name]}
    if not differ:
        return ""
    return f" It was made with {', '.join(f'{name} = {_plain(value)}' for name, value in differ.items())}: give these options."


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


@contextlib.contextmanager
def closing(trainer: Trainer, env: Any, eval_env: Any) -> Iterator[Trainer]:
    """Close the environments that were made here; an instance is the user's to close."""
    try:
        yield trainer
    finally:
        made = [] if is_instance(env) else list(trainer.collector.envs)
        if trainer.eval_env is not None and not is_instance(eval_env):
            made.append(trainer.eval_env)
        if trainer.diagnoser is not None:
            made.append(trainer.diagnoser.env)
        for each in made:
            try:
                each.close()
            except Exception as error:  # the run is over, and what it was is on the disk
                tell(f"an environment could not be closed: {reason(error)}")


def task_of(plan: Plan, env: Any) -> Any:
    """The task of a run that goes on: as it was named, or as the user gives it again."""
    if isinstance(env, str) and env != plan.env:
        raise CheckpointError(f"this was trained on {plan.env!r}, not on {env!r}.")
    if env is not None:
        return env
    return recorded_task(plan.env)


def recorded_task(env_id: str) -> str:
    """The task that a file names: it must have an id, and the user must have named its module, if it has one."""
    if env_id.startswith(("instance:", "factory:")):
        raise EnvError(
            f"this was trained on {env_id!r}, which has no id: give it again with env=… (beeline eval: give the task with --env)."
        )
    trust.require(ids.module_of(env_id), env_id)
    return trust.Recorded(env_id)


def take_checkpoint(
    trainer: Trainer,
    checkpoint: Checkpoint,
    plan: Plan,
    path: Path,
    report: Callable[[str], None],
    accepted: Any = None,
    accept: bool = False,
) -> list[dict[str, Any]]:
    """Restore a checkpoint, if it is one of this plan; return what has changed in it and is accepted now."""
    found, wanted = checkpoint.meta.get("identity"), plan.identity
    if found != wanted:
        theirs = f"{found.get('algo')} on {found.get('env')}" if isinstance(found, dict) else "something else"
        raise CheckpointError(
            f"{path} holds a checkpoint of {theirs}, but its config.json says {wanted['algo']} on {wanted['env']}."
        )
    try:
        new = settle(checkpoint, plan, accepted, accept, report)
        trainer.restore(checkpoint, report)
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint of step {checkpoint.step} in {path} cannot be used: {error}") from error
    return new
