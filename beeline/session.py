"""From names to a running training: environments, agent, run folder, lock and signals."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from beeline import agents, envs, files, runtime
from beeline.agents.base import Agent, Spaces
from beeline.agents.presets import preset_options
from beeline.checkpoint import Checkpoint, CheckpointStore
from beeline.errors import CheckpointError, ConfigError, EnvError, RunFolderError
from beeline.loop import Callback, Diagnoser, Trainer
from beeline.options import TrainConfig
from beeline.policy import read_arrays
from beeline.record import Recorder, import_wandb

if TYPE_CHECKING:
    import gymnasium

    from beeline.agents.options import ActorCriticConfig

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides a run's numbers, in plain values; `config.json` is this and the machine it ran on."""

    algo: str
    env: str
    preset: str
    agent: ActorCriticConfig
    train: TrainConfig
    init_from: str | None = None

    @classmethod
    def make(cls, algo: str, env_id: str, preset: str, options: Mapping[str, Any], init_from: str | None = None) -> Plan:
        """Sort loose options into the loop's and the agent's; an unknown one is an error."""
        algorithm = agents.get(algo)
        loop = {name: value for name, value in options.items() if name in TrainConfig.names()}
        own = {name: value for name, value in options.items() if name not in loop}
        agent = algorithm.config.make({**preset_options(algorithm.name, env_id, preset), **own}, also=TrainConfig.names())
        plan = cls(algorithm.name, env_id, preset, agent, TrainConfig.make(loop), init_from)
        plan.check_ring()
        return plan

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": FORMAT, "algo": self.algo, "env": self.env, "seed": self.train.seed, "preset": self.preset,
            "init_from": self.init_from, "agent": self.agent.to_dict(), "train": self.train.to_dict(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that a `config.json` holds."""
        if data.get("format") != FORMAT:
            raise CheckpointError(f"config.json has format {data.get('format')!r}, but this version reads {FORMAT}.")
        algorithm = agents.get(data["algo"])
        agent, train = algorithm.config.make(data["agent"]), TrainConfig.make(data["train"])
        return cls(algorithm.name, data["env"], data["preset"], agent, train, data.get("init_from"))

    def check_ring(self) -> None:
        """The replay must hold an episode's rows in every lane and more than a batch, or nothing would be learnt."""
        capacity, lanes, batch = self.train.replay_capacity, self.train.num_envs, self.agent.batch_size
        least = max(2 * lanes, batch + 2 * lanes)
        if capacity < least:
            raise ConfigError(
                f"replay_capacity = {capacity} is out of range; allowed: >= {least} with num_envs = {lanes} and "
                f"batch_size = {batch}, because learning begins with more than a batch."
            )

    def check_budget(self) -> None:
        """A run must be longer than its warm-up, or nothing would be learnt."""
        warmup = max(self.agent.random_steps, self.agent.learn_after)
        if self.train.steps <= warmup:
            name = "random_steps" if self.agent.random_steps >= self.agent.learn_after else "learn_after"
            raise ConfigError(
                f"steps = {self.train.steps} is not more than the warm-up ({name} = {warmup}), so the policy would "
                f"never act. Give more steps or lower {name}."
            )

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree with."""
        return {"algo": self.algo, "env": self.env}


# --- environments -----------------------------------------------------------------------------------------------------


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
    repeat = config.repeat or 1
    if is_instance(env) and config.num_envs > 1:
        raise EnvError("num_envs > 1 needs an env id or a factory: one instance cannot be stepped side by side.")
    lanes: list[gymnasium.Env] = [envs.make(env, repeat=repeat) for _ in range(config.num_envs)]
    evaluation: gymnasium.Env | None = None
    if config.eval_episodes:
        if eval_env is not None:
            evaluation = envs.make(eval_env, repeat=repeat)
        elif not is_instance(env):
            evaluation = envs.make(env, repeat=repeat)
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
    own = envs.make(env, repeat=config.repeat or 1)
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


# --- run folders ------------------------------------------------------------------------------------------------------


def _siblings(path: Path) -> list[Path]:
    try:
        return [each for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        return []


class RunFolder:
    """A run on disk, with one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @staticmethod
    def default_path(plan: Plan, root: Path = Path("runs")) -> Path:
        """A new folder's name: algorithm, task and seed, with a number if it is taken."""
        task = "".join(c if c.isalnum() or c in "-_." else "-" for c in plan.env)
        base = root / f"{plan.algo}-{task}-seed{plan.train.seed}"
        candidates = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, 10_000))
        return next(path for path in candidates if not path.exists())

    @classmethod
    def create(cls, path: Path, plan: Plan) -> RunFolder:
        """Make a new run folder; one that holds a run already is refused."""
        cls.refuse_existing(path)
        try:
            with files.explained(path):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a file where a folder should be, a name too long, a loop of links
            raise RunFolderError(f"cannot make {path}: {error.strerror}. Choose another folder with --out.") from error
        run = cls(path)
        run.lock()
        try:
            cls.refuse_existing(path)  # again: another process may have been quicker before the lock was ours
            run._write_config(plan)
        except BaseException:
            run.unlock()
            raise
        return run

    @staticmethod
    def refuse_existing(path: Path) -> None:
        """Raise if there is something at `path`; what a process that died before the config left there is nothing."""
        ours = {".lock", ".config.json.tmp"}
        try:
            taken = path.exists() and (not path.is_dir() or any(each.name not in ours for each in path.iterdir()))
        except OSError as error:
            raise RunFolderError(f"cannot read {path}: {error.strerror}. Choose another folder with --out.") from error
        if taken:
            advice = f"Go on with it (beeline resume {path}) or choose" if (path / "config.json").exists() else "Choose"
            raise RunFolderError(f"{path} exists already. {advice} another folder with --out.")

    def _write_config(self, plan: Plan) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        config = plan.to_dict() | {"created": now, "versions": runtime.versions(), **runtime.machine()}
        files.write_atomic(self.path / "config.json", json.dumps(config, indent=1).encode())

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not path.exists():
            near = difflib.get_close_matches(path.name, [each.name for each in _siblings(path)], n=3, cutoff=0.5)
            ask = f" Did you mean {' or '.join(str(path.parent / name) for name in near)}?" if near else ""
            raise RunFolderError(f"there is no run folder {path}.{ask}")
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.json.")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        try:
            return json.loads((self.path / "config.json").read_text())
        except ValueError as error:
            raise RunFolderError(f"{self.path / 'config.json'} is damaged ({error}).") from None

    def plan(self) -> Plan:
        """The plan the run was made from."""
        try:
            return Plan.from_dict(self.config())
        except (KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{self.path / 'config.json'} is damaged ({error!r}).") from None

    def rewrite(self, plan: Plan) -> None:
        """Store a changed plan (more steps); everything else stays as it was at creation."""
        files.write_atomic(self.path / "config.json", json.dumps(self.config() | plan.to_dict(), indent=1).encode())

    def lock(self) -> None:
        """Become the one writer; the lock ends with the process, however it ends."""
        path = self.path / ".lock"
        with files.explained(path):
            handle = path.open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            owner = handle.read().strip() or "another process"
            handle.close()
            raise RunFolderError(f"{self.path} is in use by {owner}; a run has one writer.") from None
        handle.truncate(0)
        handle.write(f"process {os.getpid()}\n")
        handle.flush()
        self._lock = handle

    def unlock(self) -> None:
        """Let another process write."""
        if self._lock:
            self._lock.close()
            self._lock = None


# --- going on ---------------------------------------------------------------------------------------------------------


def absolute(path: str | Path | None) -> str | None:
    """A path that means the same from every folder."""
    return str(Path(path).absolute()) if path else None


def task_of(plan: Plan, env: Any) -> Any:
    """The task of a run that goes on: as it was named, or as the user gives it again."""
    if isinstance(env, str) and env != plan.env:
        raise CheckpointError(f"this was trained on {plan.env!r}, not on {env!r}.")
    if env is not None:
        return env
    if plan.env.startswith(("instance:", "factory:")):
        raise EnvError(f"this run was trained on {plan.env!r}, which has no id: give it again with env=….")
    return plan.env


def differences(config: Mapping[str, Any]) -> list[str]:
    """What on this machine is not as it was when the run began, as far as it can change a result."""
    found = []
    if config.get("cpu") != runtime.processor():
        found.append(f"the CPU is {runtime.processor()!r}, the run began on {config.get('cpu')!r}: bytes may differ.")
    now = runtime.versions()
    for name in ("jax", "jaxlib", "numpy", "optax", "gymnasium", "mujoco", "dm-control", "dm_control"):
        before = config.get("versions", {}).get(name)
        if before and now.get(name) != before:
            found.append(f"{name} is {now.get(name)}, the run began with {before}: bytes may differ.")
    return found


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
