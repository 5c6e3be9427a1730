"""From names to a running training: environments, agent, run folder, lock and signals."""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from beeline import agents, envs, files, runtime
from beeline.agents.base import Spaces
from beeline.checkpoint import CheckpointStore
from beeline.config import Config
from beeline.errors import CheckpointError, ConfigError, EnvError, RunFolderError
from beeline.loop import Callback, Trainer
from beeline.options import TrainConfig
from beeline.policy import read_arrays
from beeline.record import Recorder

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
        try:
            agent = agents.make_config(algo, env_id, preset, own)
        except ConfigError as error:
            if "unknown option" in str(error):
                _suggest(next(iter(set(own) - set(algorithm.config.names())), ""), algorithm.config, error)
            raise
        return cls(algorithm.name, env_id, preset, agent, TrainConfig.make(loop), init_from)

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


def _suggest(name: str, config: type[Config], error: ConfigError) -> None:
    import difflib

    known = [*config.names(), *TrainConfig.names()]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    ask = f" Did you mean {' or '.join(near)}?" if near else f" Known: {', '.join(known)}."
    raise ConfigError(f"unknown option {name!r}.{ask}") from error


# --- environments -----------------------------------------------------------------------------------------------------


def env_name(env: Any) -> str:
    """How a task is named in the record: its id, or what a factory or an instance is called."""
    if isinstance(env, str):
        return env
    inner = getattr(env, "unwrapped", None)
    if inner is not None:
        spec = getattr(env, "spec", None)
        return f"instance:{spec.id if spec else type(inner).__name__}"
    return f"factory:{getattr(env, '__name__', type(env).__name__)}"


def make_envs(env: Any, eval_env: Any, config: TrainConfig) -> tuple[list[gymnasium.Env], gymnasium.Env | None]:
    """The training lanes and the evaluation env of an id, a factory or an instance."""
    repeat = config.repeat or 1
    is_instance = not isinstance(env, str) and hasattr(env, "unwrapped")
    if is_instance and config.num_envs > 1:
        raise EnvError("num_envs > 1 needs an env id or a factory: one instance cannot be stepped side by side.")
    lanes: list[gymnasium.Env] = [envs.make(env, repeat=repeat) for _ in range(config.num_envs)]
    evaluation: gymnasium.Env | None = None
    if config.eval_episodes:
        if eval_env is not None:
            evaluation = envs.make(eval_env, repeat=repeat)
        elif not is_instance:
            evaluation = envs.make(env, repeat=repeat)
    return lanes, evaluation


def spaces_of(env: gymnasium.Env) -> Spaces:
    """What the agent has to know of an environment."""
    spec = envs.spec_of(env)
    low, high = (tuple(float(x) for x in bound) for bound in (spec.action_low, spec.action_high))
    return Spaces(spec.obs_dim, low, high)


def build(
    plan: Plan, env: Any, eval_env: Any = None, folder: Path | None = None, callbacks: Sequence[Callback] = ()
) -> Trainer:
    """A trainer at step 0."""
    runtime.configure(plan.train.threads, plan.train.device)
    lanes, evaluation = make_envs(env, eval_env, plan.train)
    agent = agents.get(plan.algo).build(plan.agent, spaces_of(lanes[0]))
    recorder = Recorder(
        folder, agent.metric_names, tensorboard=plan.train.tensorboard, wandb=plan.train.wandb, config=plan.to_dict()
    )
    store = CheckpointStore(folder, plan.train.keep_checkpoints) if folder else None
    trainer = Trainer(agent, lanes, evaluation, plan.train, recorder, store, plan.identity, callbacks)
    if plan.init_from:
        arrays, meta = read_arrays(Path(plan.init_from))
        try:
            trainer.state = agent.with_policy(trainer.state, arrays)
        except CheckpointError as error:
            made = f"{meta.get('algo')} on {meta.get('env')}"
            raise CheckpointError(f"init_from = {plan.init_from} ({made}) does not fit this run: {error}") from None
    return trainer


# --- run folders ------------------------------------------------------------------------------------------------------


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
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunFolderError(
                f"{path} exists already. Go on with it (beeline resume {path}) or choose another folder with --out."
            )
        with files.explained(path):
            path.mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.lock()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        config = plan.to_dict() | {"created": now, "versions": runtime.versions(), **runtime.machine()}
        config["threads"] = plan.train.threads
        files.write_atomic(path / "config.json", json.dumps(config, indent=1).encode())
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no config.json. List runs with: ls runs")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        try:
            return json.loads((self.path / "config.json").read_text())
        except ValueError as error:
            raise RunFolderError(f"{self.path / 'config.json'} is damaged ({error}).") from None

    def plan(self) -> Plan:
        """The plan the run was made from."""
        return Plan.from_dict(self.config())

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
