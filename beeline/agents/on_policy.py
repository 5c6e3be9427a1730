"""On-policy agents: they act, keep log π and V beside each action, and learn from whole rollouts, each of them once.

One update of PPO (Schulman et al. 2017; the details are those of CleanRL's `ppo_continuous_action.py`):
  1. δ_t = r_t + γ m_t V(s'_t) − V(s_t), A_t = δ_t + γ λ c_t A_{t+1}, R_t = A_t + V(s_t)
  2. in every epoch, for every minibatch of a new order: one Adam step on
     mean max(−A ρ, −A clip(ρ, 1 ± ε)) + c_V ½ mean max((V − R)², (V_old + clip(V − V_old, ± ε_V) − R)²) − c_H H(π)
  3. the observations of the rollout enter the statistics by which the next one is scaled
Here ρ = π(a|s) / π_old(a|s), and A is centred and scaled in each minibatch. TRPO's 2. is in `trust.py`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from beeline import rng
from beeline.agents.actors import write_net
from beeline.agents.base import Defaults, Task
from beeline.graph import Graph
from beeline.memory import Batch, Clock, Data, MemorySpec, Replay
from beeline.networks import Draw, Learnable, Net, Params, Slot, init_statistics, normalise, observe, write_normalised
from beeline.networks.base import move

if TYPE_CHECKING:
    from beeline.agents.ppo import OnPolicyConfig, PPOConfig

Metrics = dict[str, Array]
Rows = dict[str, Array]  # the columns of transitions, by name
Slots = tuple[Slot, Slot]  # of policy and V
REWARD_BOUND = 10.0


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """N(μ(s), σ²) with one σ per action that does not depend on the state. Samples are clipped outside of here."""

    net: Net
    log_std: float

    def init(self, draw: Any, inputs: int, *outputs: int) -> Params:
        """The mean's network, and log σ."""
        return {"mean": self.net.init(draw, inputs, *outputs), "log_std": np.full(sum(outputs), self.log_std, np.float32)}

    def apply(self, params: Params, x: Array) -> Array:
        """The mean μ(s)."""
        return self.net.apply(params["mean"], x)

    def sample(self, params: Params, obs: Array, noise: Array) -> tuple[Array, Array]:
        """a = μ(s) + σ ε, and its log-density by the formula that an update uses."""
        action = self.apply(params, obs) + jnp.exp(params["log_std"]) * noise
        return action, self.log_prob(params, obs, action)

    def log_prob(self, params: Params, obs: Array, action: Array) -> Array:
        """Σ_i log N(a_i; μ_i(s), σ_i)."""
        z = (action - self.apply(params, obs)) * jnp.exp(-params["log_std"])
        return -jnp.sum(0.5 * jnp.square(z) + params["log_std"] + 0.5 * math.log(2 * math.pi), axis=-1)

    def divergence(self, old: tuple[Array, Array], params: Params, obs: Array) -> Array:
        """KL(old ‖ new) at every observation; `old` are means and log σ.

        Σ_i (log σ_i − log σ_old,i + (σ_old,i² + (μ_old,i − μ_i)²) / 2σ_i² − ½).
        """
        mean, log_std = old
        spread = jnp.exp(2.0 * log_std) + jnp.square(mean - self.apply(params, obs))
        return jnp.sum(params["log_std"] - log_std + 0.5 * spread * jnp.exp(-2.0 * params["log_std"]) - 0.5, axis=-1)

    def entropy(self, params: Params) -> Array:
        """Σ_i (½ log 2πe + log σ_i)."""
        return jnp.sum(params["log_std"] + 0.5 * math.log(2 * math.pi * math.e))


def advantages(reward: Array, discount: Array, goes_on: Array, value: Array, next_value: Array, trace: float) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016) `[lanes, time]`; `trace` is γ λ.

    `discount` is γ, or 0 where nothing is bootstrapped; `goes_on` is 0 where the next column is another episode's.
    """
    delta = reward + discount * next_value - value

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = now[0] + trace * now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros(delta.shape[0]), (delta.T, goes_on.T), reverse=True)[1].T


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Policy and V with their optimisers, and what the host counts."""

    policy: Slot
    value: Slot
    host: dict[str, Any]  # NumPy: statistics of observations and of returns, each lane's return, transitions since the update


class OnPolicy(Defaults, abc.ABC):
    """What on-policy agents share: acting, statistics, rollouts and advantages; `learn` is a method's own.

    The statistics that acting reads change at an update and nowhere else, so that ρ begins at 1.
    """

    parts = ("policy", "value")
    on_policy = True

    def __init__(self, config: OnPolicyConfig, task: Task, policy: Learnable, value: Learnable) -> None:
        assert isinstance(policy.net, Gaussian)
        self.config, self.task, self.net = config, task, policy.net
        self.learnables = {"policy": policy, "value": value}
        self.decisions = config.rollout // task.lanes  # of each lane, per rollout
        columns = {"log_prob": (), "value": (), "unclipped": (task.spaces.action_dim,)}
        self.memories: Mapping[str, MemorySpec] = {"replay": MemorySpec(columns, self._capacity())}
        self._init = jax.jit(lambda drawn: {name: each.slot(drawn[name]) for name, each in self.learnables.items()})
        self._act = jax.jit(self._act_impl, static_argnames="greedy")
        self._update = jax.jit(self._update_impl, donate_argnums=0)

    def _capacity(self) -> int | None:
        """Rows for a rollout of the shortest episodes, and for the open episode, which resuming replays; None: not known."""
        if self.task.limit is None:
            return None
        return self.task.lanes * (2 * self.decisions + -(-self.task.limit // self.task.repeat) + 2)

    # --- state ------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """The state before the first step; each part draws from a stream of its own name."""
        slots = self._init({name: each.draw(Draw(seed, f"init/{name}")) for name, each in self.learnables.items()})
        host = {
            "statistics": self._no_statistics(),
            "returns": init_statistics(1) if self.config.normalize_reward else None,
            "running": np.zeros(self.task.lanes),
            "since": np.zeros(self.task.lanes, np.int64),
        }
        return State(**slots, host=host)

    def _no_statistics(self) -> Any:
        return init_statistics(self.task.spaces.obs_dim) if self.config.normalize_obs else None

    def renew(self, state: State, parts: Sequence[str], clock: Clock) -> State:
        """Networks and their optimisers anew; statistics stay. What the old policy has gathered since the update is not used."""
        fresh: dict[str, Any] = {}
        for name in parts:
            each = self.learnables[name]
            fresh[name] = jax.jit(each.slot)(each.draw(Draw(clock.seed, f"init/{name}", clock.step)))
        host = state.host | ({"since": np.zeros_like(state.host["since"])} if parts else {})
        return dataclasses.replace(state, **fresh, host=host)

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """The mean action as operations: observations scaled and clipped, the network, and its bounds."""
        mean = write_net(self.net.net, graph, policy["actor"]["mean"], write_normalised(graph, policy["normaliser"], obs))
        return graph.bounded(mean, -1.0, 1.0)

    def policy(self, state: State) -> Any:
        """The policy's parameters, those of V, which is kept beside each action, and the statistics that scale observations."""
        return {"actor": state.policy.live, "value": state.value.live, "normaliser": state.host["statistics"]}

    def blank_policy(self) -> Any:
        """A policy of the right shapes."""
        drawn = {name: jax.tree.map(jnp.asarray, each.draw(Draw(0, f"init/{name}"))) for name, each in self.learnables.items()}
        return {"actor": drawn["policy"], "value": drawn["value"], "normaliser": self._no_statistics()}

    def with_policy(self, state: State, policy: Any) -> State:
        """The state with policy, V and the statistics replaced."""
        actor, value = (jax.tree.map(jnp.array, policy[name]) for name in ("actor", "value"))
        host = state.host | {"statistics": policy["normaliser"]}
        return State(state.policy._replace(live=actor), state.value._replace(live=value), host)

    # --- acting -----------------------------------------------------------------------------------------------------

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """Clipped actions; where they are samples, with log π of the unclipped ones, these themselves, and V(s)."""
        counter = np.uint32(clock.decisions % 2**32)
        action, extras = self._act(policy, rng.root(clock.seed), counter, obs, greedy=mode == "greedy")
        return action, extras, carry

    def _act_impl(self, policy: Any, key: Array, counter: Array, obs: Array, greedy: bool) -> tuple[Array, dict[str, Array]]:
        seen = normalise(policy["normaliser"], obs)
        if greedy:
            return jnp.clip(self.net.apply(policy["actor"], seen), -1.0, 1.0), {}
        key = rng.fold(jax.random.wrap_key_data(key), "act", counter)
        noise = jax.random.normal(key, (obs.shape[0], self.task.spaces.action_dim))
        unclipped, log_prob = self.net.sample(policy["actor"], seen, noise)
        extras = {"log_prob": log_prob, "value": self._value(policy["value"], seen), "unclipped": unclipped}
        return jnp.clip(unclipped, -1.0, 1.0), extras

    def _value(self, params: Params, seen: Array) -> Array:
        return self.learnables["value"].net.apply(params, seen)[..., 0]

    def notice(self, state: State, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> State:
        """Count the transitions, and take the lanes' discounted returns G ← γ G + r into their statistics."""
        if not steps:
            return state
        lanes = [step.lane for step in steps]
        since, running, returns = state.host["since"].copy(), state.host["running"].copy(), state.host["returns"]
        since[lanes] += 1
        if returns is not None:
            running[[step.lane for step in steps if step.first]] = 0.0  # what was cut has told no end
            running[lanes] = self.config.gamma * running[lanes] + [step.reward for step in steps]
            returns = observe(returns, running[lanes, None])
            running[[step.lane for step in steps if step.terminated or step.truncated]] = 0.0
        return dataclasses.replace(state, host=state.host | {"since": since, "running": running, "returns": returns})

    # --- learning ---------------------------------------------------------------------------------------------------

    def draw(self, state: State, memories: Mapping[str, Replay], clock: Clock) -> Data | None:
        """The rollout as soon as every lane has its share of it, with scaled rewards, the rate, and the orders of all epochs."""
        if state.host["since"].min() < self.decisions:
            return None
        config = self.config
        rollout = memories["replay"].recent(self.decisions, config.gamma)
        kept = dict(rollout.extras or {})
        terminated, truncated = kept.pop("terminated"), kept.pop("truncated")
        order = rng.stream(clock.seed, "minibatches", clock.updates)
        whole = config.rollout // config.batch_size * config.batch_size
        rows = np.stack([order.permutation(config.rollout)[:whole] for _ in range(config.epochs)])
        extras = kept | {
            "goes_on": np.float32(~(terminated | truncated)),
            "order": rows.reshape(-1, config.batch_size).astype(np.int32),
            "rate": np.float32(self.rate(clock.step - self.decisions * self.task.steps_per_decision)),
        }
        discount = rollout.discount if config.bootstrap_limits else rollout.discount * ~truncated
        train = rollout._replace(reward=self.scaled(state.host["returns"], rollout.reward), discount=discount, extras=extras)
        return Data(jax.tree.map(lambda x: np.asarray(x)[None], train), clock.updates)

    def rate(self, step: int) -> float:
        """The learning rate of a rollout that began at this step, as a share of `lr`."""
        return 1.0

    def scaled(self, returns: Any, reward: np.ndarray) -> np.ndarray:
        """Rewards in units of the discounted return's deviation, clipped; no mean is taken off."""
        if returns is None:
            return reward
        scale = 1.0 / np.sqrt(returns["variance"] + 1e-8)
        return np.clip(reward * scale, -REWARD_BOUND, REWARD_BOUND).astype(np.float32)

    def update(self, state: State, data: Data) -> tuple[State, Metrics]:
        """All epochs in one compiled call; the given slots are consumed."""
        rollout = jax.tree.map(lambda x: x[0], data.train)
        statistics = state.host["statistics"]
        (policy, value), metrics = self._update((state.policy, state.value), statistics, rollout)
        if statistics is not None:
            statistics = observe(statistics, rollout.obs.reshape(-1, self.task.spaces.obs_dim))
        host = state.host | {"statistics": statistics, "since": np.zeros_like(state.host["since"])}
        return State(policy, value, host), metrics

    def _update_impl(self, slots: Slots, statistics: Any, rollout: Batch) -> tuple[Slots, Metrics]:
        extras = rollout.extras
        assert extras is not None
        seen, next_value = normalise(statistics, rollout.obs), self._value(slots[1].live, normalise(statistics, rollout.next_obs))
        trace = self.config.gamma * self.config.gae
        advantage = advantages(rollout.reward, rollout.discount, extras["goes_on"], extras["value"], next_value, trace)
        rows = {
            "obs": seen, "action": extras["unclipped"], "log_prob": extras["log_prob"], "value": extras["value"],
            "advantage": advantage, "target": advantage + extras["value"],
        }  # fmt: skip
        flat = {name: each.reshape(-1, *each.shape[2:]) for name, each in rows.items()}

        slots, told = self.learn(slots, flat, extras)
        unexplained = jnp.var(flat["target"] - flat["value"]) / jnp.maximum(jnp.var(flat["target"]), 1e-8)
        return slots, told | {"v/mean": jnp.mean(extras["value"]), "v/explained": 1.0 - unexplained}

    @abc.abstractmethod
    def learn(self, slots: Slots, flat: Rows, extras: Mapping[str, Array]) -> tuple[Slots, Metrics]:
        """The method's own steps on the rollout's rows; `extras` brings the orders of all epochs, and the rate."""


class PPO(OnPolicy):
    """Several epochs of clipped steps on minibatches."""

    config: PPOConfig
    metric_names = (
        "loss/actor", "loss/value", "entropy", "ratio/first", "ratio/clipped", "ratio/kl", "v/mean", "v/explained", "rate",
    )  # fmt: skip

    def rate(self, step: int) -> float:
        """It falls linearly over the schedule, where it is to."""
        config = self.config
        return max(0.0, 1.0 - step / config.schedule_steps) if config.anneal and config.schedule_steps else 1.0

    def learn(self, slots: Slots, flat: Rows, extras: Mapping[str, Array]) -> tuple[Slots, Metrics]:
        """One step on every minibatch."""

        def one(slots: Slots, order: Array) -> tuple[Slots, Metrics]:
            return self.one_step(slots, {name: each[order] for name, each in flat.items()}, extras["rate"])

        slots, metrics = jax.lax.scan(one, slots, extras["order"])
        told = {name: jnp.mean(each) for name, each in metrics.items()}
        return slots, told | {"ratio/first": metrics["ratio/first"][0], "rate": self.config.lr * extras["rate"]}

    def one_step(self, slots: Slots, rows: Rows, rate: Array) -> tuple[Slots, Metrics]:
        """One minibatch: the loss, the bound on its gradient over both networks, and a step of each."""
        config = self.config
        centred = rows["advantage"] - jnp.mean(rows["advantage"])
        advantage = centred / (jnp.std(rows["advantage"], ddof=1) + 1e-8)

        def loss(params: tuple[Params, Params]) -> tuple[Array, Metrics]:
            log_ratio = self.net.log_prob(params[0], rows["obs"], rows["action"]) - rows["log_prob"]
            ratio = jnp.exp(log_ratio)
            clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
            actor = jnp.mean(jnp.maximum(-advantage * ratio, -advantage * clipped))
            entropy = self.net.entropy(params[0])
            v = self._value(params[1], rows["obs"])
            error = jnp.square(v - rows["target"])
            if config.value_clip is not None:
                near = rows["value"] + jnp.clip(v - rows["value"], -config.value_clip, config.value_clip)
                error = jnp.maximum(error, jnp.square(near - rows["target"]))
            value = 0.5 * jnp.mean(error)
            told = {
                "loss/actor": actor, "loss/value": value, "entropy": entropy, "ratio/first": jnp.max(jnp.abs(ratio - 1.0)),
                "ratio/clipped": jnp.mean(jnp.abs(ratio - 1.0) > config.clip), "ratio/kl": jnp.mean(ratio - 1.0 - log_ratio),
            }  # fmt: skip
            return actor + config.value_weight * value - config.entropy_weight * entropy, told

        gradients, told = jax.grad(loss, has_aux=True)((slots[0].live, slots[1].live))
        if config.grad_clip is not None:
            bound = optax.clip_by_global_norm(config.grad_clip)
            gradients, _ = bound.update(gradients, bound.init(gradients))
        moved = [
            move(each.optimiser, slot, gradient, rate)
            for each, slot, gradient in zip(self.learnables.values(), slots, gradients, strict=True)
        ]
        return (moved[0], moved[1]), told
