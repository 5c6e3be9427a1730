"""The agent of SLBO (Luo et al. 2019): it acts for a stage, then learns from all it has met, and from what its model says.

A stage, once `stage_steps` environment steps have been taken since the one before:
  1. means and deviations of states, their changes and rewards are those of all transitions in the replay
  2. `rounds` times: `model_steps` steps of Adam on the model (`dynamics.deterministic`), then `policy_updates` updates of TRPO
     (`trust.py`), each on a rollout of its own in the model, from first observations of a pool
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline import rng
from beeline.agents.base import Defaults, Task
from beeline.agents.on_policy import advantages
from beeline.agents.trust import TRPO
from beeline.dynamics.deterministic import LEAST, Deterministic, Scale, fitted, padded, paths_of
from beeline.errors import ConfigError, ModelError
from beeline.graph import Graph
from beeline.memory import Batch, Clock, Data, MemorySpec, Replay
from beeline.networks import Draw, Slot, init_statistics, normalise, observe

if TYPE_CHECKING:
    from beeline.agents.slbo import SLBOConfig

Metrics = dict[str, Any]
Slots = tuple[Slot, Slot]  # of policy and V
PIECE = 25  # steps of the model between two looks at `stop`
FOREVER = 1 << 30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Policy, V and model with their optimisers; the host has the statistics and how far the run was at the last stage."""

    policy: Slot
    value: Slot
    model: Slot
    host: dict[str, Any]  # NumPy


class SLBO(Defaults):
    """TRPO in a learned model, stage by stage."""

    parts = ("policy", "value", "model")
    metric_names = (
        *TRPO.metric_names, "model/error", "model/rows", "stage/number", "virtual/reward", "virtual/ends",
    )  # fmt: skip

    def __init__(self, config: SLBOConfig, task: Task, inner: TRPO) -> None:
        self.config, self.task, self.inner = config, task, inner
        self.memories: Mapping[str, MemorySpec] = {"replay": MemorySpec()}
        self.reward = task.reward if config.known_reward else None
        self.model = Deterministic(
            task.spaces.obs_dim, task.spaces.action_dim, config.model_hidden, config.model_lr, config.model_penalty,
            config.model_clip, learns_reward=self.reward is None,
        )  # fmt: skip
        self._pools: dict[int, Array] = {}  # by seed; made again where it is not here
        self._act = jax.jit(self._act_impl, static_argnames="mode")
        self._improve = jax.jit(self._improve_impl)

    # --- state ------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """The state before the first step; each part draws from a stream of its own name."""
        if self.task.resets is None:
            raise ConfigError(
                "slbo begins virtual episodes with observations from an environment of its own: give an env id or a factory "
                "instead of an instance."
            )
        drawn = {name: each.draw(Draw(seed, f"init/{name}")) for name, each in self.inner.learnables.items()}
        slots = {name: each.slot(_on_device(drawn[name])) for name, each in self.inner.learnables.items()}
        host = {
            "statistics": init_statistics(self.task.spaces.obs_dim), "stages": np.zeros((), np.int64),
            "step": np.zeros((), np.int64),
        }  # fmt: skip
        return State(**slots, model=self.model.init(Draw(seed, "init/model")), host=host)

    def renew(self, state: State, parts: Sequence[str], clock: Clock) -> State:
        """Networks and their optimisers anew; statistics stay."""
        fresh: dict[str, Any] = {}
        for name in parts:
            draw = Draw(clock.seed, f"init/{name}", clock.step)
            learnable = self.inner.learnables.get(name)
            fresh[name] = self.model.init(draw) if learnable is None else learnable.slot(_on_device(learnable.draw(draw)))
        return dataclasses.replace(state, **fresh)

    def policy(self, state: State) -> Any:
        """The policy's parameters, and the statistics that scale observations."""
        return {"actor": state.policy.live, "normaliser": state.host["statistics"]}

    def blank_policy(self) -> Any:
        """A policy of the right shapes."""
        drawn = self.inner.learnables["policy"].draw(Draw(0, "init/policy"))
        return {"actor": _on_device(drawn), "normaliser": init_statistics(self.task.spaces.obs_dim)}

    def with_policy(self, state: State, policy: Any) -> State:
        """The state with policy and statistics replaced."""
        live = jax.tree.map(jnp.array, policy["actor"])
        return dataclasses.replace(
            state, policy=state.policy._replace(live=live), host=state.host | {"statistics": policy["normaliser"]}
        )

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """The mean action as operations, as TRPO's."""
        return self.inner.write(graph, policy, obs)

    # --- acting -----------------------------------------------------------------------------------------------------

    def begin(self, lanes: int) -> np.ndarray:
        """Each lane's Ornstein-Uhlenbeck noise; episodes do not reset it."""
        return np.zeros((lanes, self.task.spaces.action_dim), np.float32)

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """Clipped actions: samples with noise while collecting, samples, or the mean."""
        counter = np.uint32(clock.decisions % 2**32)
        action, carry = self._act(policy, rng.root(clock.seed), counter, carry, obs, mode=mode)
        return action, {}, carry

    def _act_impl(self, policy: Any, key: Array, counter: Array, carry: Array, obs: Array, mode: str) -> tuple[Array, Array]:
        seen, net, config = normalise(policy["normaliser"], obs), self.inner.net, self.config
        if mode == "greedy":
            return jnp.clip(net.apply(policy["actor"], seen), -1.0, 1.0), carry
        key = rng.fold(jax.random.wrap_key_data(key), "act", counter)
        own, noise = jax.random.normal(key, (2, obs.shape[0], self.task.spaces.action_dim))
        action, _ = net.sample(policy["actor"], seen, own)
        if mode == "collect":
            carry = (1.0 - config.noise_decay) * carry + config.noise_scale * noise
            action = action + carry
        return jnp.clip(action, -1.0, 1.0), carry

    # --- learning ---------------------------------------------------------------------------------------------------

    def prepare(
        self, state: State, memories: Mapping[str, Replay], clock: Clock, stop: Callable[[], bool]
    ) -> tuple[State, Metrics] | None:
        """A stage, where it is time."""
        if clock.step - int(state.host["step"]) < self.config.stage_steps:
            return state, {}
        return self.stage(state, memories["replay"].whole(), clock, stop)

    def stage(self, state: State, rows: Batch, clock: Clock, stop: Callable[[], bool]) -> tuple[State, Metrics] | None:
        """All rounds on these rows."""
        config, stages = self.config, int(state.host["stages"])
        statistics, scale = scales(rows)
        paths, count = padded(paths_of(rows)), len(rows.reward)
        if count < config.path_steps:
            raise ModelError(f"{count} transitions are too few for paths of {config.path_steps} steps.")
        pool, root = self.pool(clock.seed), rng.root(clock.seed)
        slots, model = (state.policy, state.value), state.model
        told: Metrics = {}
        for number in range(config.rounds):
            counter = stages * config.rounds + number
            drawn = rng.stream(clock.seed, "virtual/paths", counter)
            starts = drawn.integers(0, count - config.path_steps + 1, (config.model_steps, config.model_batch_size), np.int32)
            for first in range(0, config.model_steps, PIECE):
                if stop():
                    return None
                model, error = fitted(self.model, model, scale, paths, starts[first : first + PIECE], config.path_steps)
                error.block_until_ready()
            if not np.isfinite(float(error)):
                raise ModelError("the model has diverged: its error on the transitions is not finite. Lower model_lr.")
            self.tell(f"stage {stages + 1}, round {number + 1} of {config.rounds}, model error {float(error):.3g}")
            for update in range(config.policy_updates):
                if stop():
                    return None
                at = np.uint32((counter * config.policy_updates + update) % 2**32)
                slots, told = self._improve(slots, model.live, statistics, scale, pool, root, at)
                jax.block_until_ready(told)
        host = state.host | {
            "statistics": statistics, "stages": np.asarray(stages + 1, np.int64), "step": np.asarray(clock.step, np.int64)
        }  # fmt: skip
        told = told | {"model/error": error, "model/rows": np.float32(count), "stage/number": np.float32(stages + 1)}
        return State(*slots, model, host), told

    def pool(self, seed: int) -> Array:
        """First observations, a function of the seed."""
        if seed not in self._pools:
            assert self.task.resets is not None
            self._pools = {seed: jnp.asarray(self.task.resets(seed, self.config.reset_pool))}
        return self._pools[seed]

    def _improve_impl(
        self, slots: Slots, model: Any, statistics: Any, scale: Scale, pool: Array, key: Array, counter: Array
    ) -> tuple[Slots, Metrics]:
        """One update of TRPO on a virtual rollout."""
        key = rng.fold(jax.random.wrap_key_data(key), "virtual", counter)
        walk, shuffle = jax.random.split(key)
        config = self.config
        rows = self.virtual(slots, model, statistics, scale, pool, walk)
        discount = config.gamma * (1.0 - rows["ended"])
        goes_on = 1.0 - jnp.maximum(rows["ended"], rows["cut"])
        next_value = self._value(slots[1].live, statistics, rows["next_obs"])
        advantage = advantages(rows["reward"], discount, goes_on, rows["value"], next_value, config.gamma * config.gae)
        rows |= {"advantage": advantage, "target": advantage + rows["value"], "obs": normalise(statistics, rows["obs"])}
        flat = {name: each.reshape(-1, *each.shape[2:]) for name, each in rows.items()}
        whole = config.virtual_steps // config.batch_size * config.batch_size
        orders = [jax.random.permutation(each, config.virtual_steps)[:whole] for each in jax.random.split(shuffle, config.epochs)]
        order = jnp.concatenate(orders).reshape(-1, config.batch_size)
        slots, told = self.inner.learn(slots, flat, {"order": order})
        unexplained = jnp.var(flat["target"] - flat["value"]) / jnp.maximum(jnp.var(flat["target"]), 1e-8)
        told |= {"v/mean": jnp.mean(flat["value"]), "v/explained": 1.0 - unexplained}
        return slots, told | {"virtual/reward": jnp.mean(flat["reward"]), "virtual/ends": jnp.mean(flat["ended"])}

    def _value(self, params: Any, statistics: Any, obs: Array) -> Array:
        return self.inner._value(params, normalise(statistics, obs))

    def virtual(
        self, slots: Slots, model: Any, statistics: Any, scale: Scale, pool: Array, key: Array
    ) -> dict[str, Array]:
        """A rollout in the model, `[virtual_envs, T, …]`; whatever ends begins anew with an observation of the pool."""
        config, spaces = self.config, self.task.spaces
        lanes = config.virtual_envs
        limit = FOREVER if self.task.limit is None else max(1, self.task.limit // self.task.repeat)

        def begin(key: Array) -> Array:
            return pool[jax.random.randint(key, (lanes,), 0, len(pool))]

        def step(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], dict[str, Array]]:
            obs, length = carry
            draw, fresh = jax.random.split(key)
            seen = normalise(statistics, obs)
            action, log_prob = self.inner.net.sample(slots[0].live, seen, jax.random.normal(draw, (lanes, spaces.action_dim)))
            taken = jnp.clip(action, -1.0, 1.0)
            after, reward = self.model.predict(model, scale, obs, taken)
            if self.reward is not None:
                reward = self.reward(obs, taken, after)
            assert self.task.terminated is not None
            ended = self.task.terminated(obs, taken, after)
            cut = (length + 1 >= limit) & ~ended
            row = {
                "obs": obs, "action": action, "log_prob": log_prob, "value": self.inner._value(slots[1].live, seen),
                "reward": reward, "next_obs": after, "ended": ended.astype(jnp.float32), "cut": cut.astype(jnp.float32),
            }  # fmt: skip
            over = ended | cut
            return (jnp.where(over[:, None], begin(fresh), after), jnp.where(over, 0, length + 1)), row

        first, rest = jax.random.split(key)
        start = (begin(first), jnp.zeros(lanes, jnp.int32))
        _, rows = jax.lax.scan(step, start, jax.random.split(rest, config.virtual_steps // lanes))
        return {name: jnp.swapaxes(each, 0, 1) for name, each in rows.items()}

    def draw(self, state: State, memories: Any, clock: Clock) -> Data | None:
        """What is learnt is learnt in stages."""
        return None

    def update(self, state: State, data: Data) -> tuple[State, Metrics]:
        """Never called, since nothing is drawn."""
        return state, {}


def scales(rows: Batch) -> tuple[dict[str, np.ndarray], Scale]:
    """The statistics of the states of these rows, and the means and deviations by which the model reads and predicts."""
    met = [observe(init_statistics(each.shape[1]), each) for each in (rows.obs, rows.next_obs - rows.obs, rows.reward[:, None])]
    obs, change, reward = (
        (each["mean"].astype(np.float32), np.maximum(np.sqrt(each["variance"]), LEAST).astype(np.float32)) for each in met
    )
    return met[0], Scale(obs, change, (reward[0][0], reward[1][0]))


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)

