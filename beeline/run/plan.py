"""What decides a run's numbers, in plain values: the plan that `config.json` holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline import agents, foreign, runtime
from beeline.errors import CheckpointError, ConfigError
from beeline.options import TrainConfig, loading, renewals

if TYPE_CHECKING:
    from beeline.agents.options import MethodConfig

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides a run's numbers, in plain values; `config.json` is this and the machine it ran on."""

    algo: str
    env: str
    preset: str
    agent: MethodConfig
    train: TrainConfig
    init_from: str | None = None
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)  # SHA-256 of the data of others, by option (run/prior.py)

    @classmethod
    def make(cls, algo: str, env_id: str, preset: str | None, options: Mapping[str, Any], init_from: str | None = None) -> Plan:
        """Sort loose options into the loop's and the agent's; an unknown one is an error."""
        algorithm = agents.get(algo)
        preset = preset or algorithm.default_preset
        given = {**algorithm.preset(preset, env_id), **options}
        loop = {name: value for name, value in given.items() if name in TrainConfig.names()}
        own = {name: value for name, value in given.items() if name not in loop}
        for name in ("prior", "load_prior"):  # paths that mean the same from every folder
            if isinstance(loop.get(name), str | Path) and str(loop[name]).lower() != "none":
                loop[name] = str(Path(loop[name]).absolute())
        if isinstance(own.get("controller"), str | Path) and str(own["controller"]).lower() != "none":
            own["controller"] = str(Path(own["controller"]).absolute())
        agent = algorithm.config.make(own, also=[*TrainConfig.names(), *foreign.WORDS], owners=agents.owners)
        train = TrainConfig.make(loop)
        plan = cls(algorithm.name, env_id, preset, agent.scheduled(train.steps), train, init_from)
        plan.check_ring()
        plan.check_prior()
        return plan

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        more = {"data": dict(self.data)} if self.data else {}
        return more | {
            "format": FORMAT, "algo": self.algo, "env": self.env, "seed": self.train.seed, "preset": self.preset,
            "init_from": self.init_from, "agent": self.agent.to_dict(), "train": self.train.to_dict(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], objects: Mapping[str, Any] | None = None) -> Plan:
        """The plan that a `config.json` holds; objects that were handed over in Python are given again."""
        if data.get("format") != FORMAT:
            raise CheckpointError(f"config.json has format {data.get('format')!r}, but this version reads {FORMAT}.")
        texts = {name: data[name] for name in ("algo", "env", "preset")} | {"init_from": data.get("init_from") or ""}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} = {value!r} is no text")
        hashes = data.get("data", {})
        if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
            raise TypeError(f"data = {hashes!r} are no SHA-256 by option")
        algorithm = agents.get(data["algo"])
        agent, train = algorithm.config.recorded(data["agent"], objects or {}), TrainConfig.make(data["train"])
        return cls(algorithm.name, data["env"], data["preset"], agent, train, data.get("init_from"), hashes)

    def check_prior(self) -> None:
        """Data of others are for methods that learn from a replay."""
        asked = [name for name in ("prior", "load_prior") if getattr(self.train, name) is not None]
        if asked and self.agent.refuses_prior:
            raise ConfigError(f"{asked[0]} is not for {self.algo}: {self.agent.refuses_prior}.")

    def check_ring(self) -> None:
        """The replay must hold what learning begins with, however short the episodes are, or nothing would be learnt.

        In a lane of r rows one is open, and of the others every second may be a final observation, which starts no transition:
        (r − 1) // 2 transitions are sure.
        """
        capacity, lanes = self.train.replay_capacity, self.train.num_envs
        why, needed = self.agent.least_transitions
        least = lanes * (2 * math.ceil(needed / lanes) + 1)
        if capacity < least:
            raise ConfigError(
                f"replay_capacity = {capacity} is out of range; allowed: >= {least} with num_envs = {lanes}"
                f"{' and ' if why else ''}{why}, because learning begins with {needed} transitions and episodes may be as short "
                "as a step."
            )

    def check_memory(self, obs_dim: int, action_dim: int, more: int = 0, loaded: int = 0) -> None:
        """The rows that this run will write must fit into the memory that is free, or the system would end it on the way.

        `more` is how many numbers a row has beside observation, action and reward, `loaded` how many rows come from elsewhere.
        """
        rows = min(self.train.replay_capacity, self.train.steps + self.train.num_envs + loaded)
        self.check_free("replay_capacity", self.train.replay_capacity, rows, obs_dim + action_dim + 1 + more)

    def check_free(self, option: str, given: int, rows: int, numbers: int) -> None:
        """So many rows of so many numbers must fit into the memory that is free."""
        each = 4 * numbers + 1  # as memory.py stores them: float32, and a byte of flags
        free = runtime.free_memory()
        if free is not None and rows * each > free:
            raise ConfigError(
                f"{option} = {given} is too much: {rows:,} rows of {each:,} bytes are "
                f"{rows * each / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB of memory are free; allowed here: <= {free // each}."
            )

    def check_budget(self) -> None:
        """A run must be longer than its warm-up, or nothing would be learnt, and must reach what shall happen in it."""
        load = loading(self.train.load_prior)
        moments = [("renew", each.step) for each in renewals(self.train.renew)] + ([("load_prior", load.step)] if load else [])
        for name, step in moments:
            if step >= self.train.steps:
                given = getattr(self.train, name)
                raise ConfigError(f"{name} = {given!r} is never reached: the run has {self.train.steps} steps.")
        name, warm_up = self.agent.warm_up
        if self.train.steps <= warm_up:
            raise ConfigError(
                f"steps = {self.train.steps} is not more than the warm-up ({name} = {warm_up}), so the policy would "
                f"never act or never learn. Give more steps or lower {name}."
            )

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint must agree with."""
        return {"algo": self.algo, "env": self.env}
