"""One off-policy update with exchangeable parts: SAC, TD3, BAC, BEE-TD3 and their relatives are choices of these parts.

One update, in the order of the BAC release (Ji et al. 2024):
  1. y from the backup, with the parameters of the start, and a step of the critics on Σ_i mean(Q_i − y)²
  2. the backup's own step: V, where there is one
  3. every `policy_interval` updates: a step of the policy under the new critics, then one of its objective (α)
  4. every `target_interval` updates: φ̄ ← τφ + (1 − τ)φ̄

The order of 1 to 3 is a list of names (`ORDER`); IQL has another one. A step sees what those before it left, or, where the
agent is not `fresh`, everything as it was when the update began (DAC, OBAC).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from beeline import rng
from beeline.agents import schedule
from beeline.agents.actors import Actor
from beeline.agents.ahead import Ahead
from beeline.agents.backup import Backup, Noise, follow
from beeline.agents.base import Defaults, Task
from beeline.agents.critic import Critic
from beeline.agents.noise import ActingNoise
from beeline.agents.objective import Metrics, Objective
from beeline.agents.readings import Readings
from beeline.graph import Graph
from beeline.memory import Batch, Clock, Data, MemorySpec, Replay
from beeline.networks import Draw, Learnable, Params, Slot, init_statistics, normalise, observe, write_normalised
from beeline.networks.rewards import init_scale, met

if TYPE_CHECKING:
    from beeline.agents.options import OffPolicyConfig
    from beeline.feeds import Feed


ORDER = ("critic", "value", "policy")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Everything that learns or counts. Absent parts are empty: `()` or None."""

    key: Any
    updates: Array
    actor: Slot
    critic: Slot
    backup: Any
    objective: Any
    host: dict[str, Any]  # NumPy: what the compiled update reads and never changes


class OffPolicy(Readings, Defaults):
    """The agent: a config, the parts built from it, and compiled `act` and `update`."""

    def __init__(
        self,
        config: OffPolicyConfig,
        task: Task,
        actor: Actor,
        critic: Critic,
        objective: Objective,
        backup: Backup,
        feed: Feed,
        noise: ActingNoise,
        gamma: float,
        order: tuple[str, ...] = ORDER,
        fresh: bool = True,
    ) -> None:
        self.config, self.task, self.spaces, self.gamma = config, task, task.spaces, gamma
        self.actor, self.critic, self.objective, self.backup = actor, critic, objective, backup
        self.feed, self.noise = feed, noise
        self.order, self.fresh = order, fresh
        self.memories: Mapping[str, MemorySpec] = {"replay": MemorySpec()}
        self.metric_names = (
            "loss/critic", "loss/actor", "q/mean", "q/target", *backup.metric_names, *objective.metric_names,
        )  # fmt: skip
        self._period = math.lcm(config.policy_interval, config.target_interval)
        self._ahead = Ahead()
        # What `act` reads. Updated in place, it would make the update wait for the action that is chosen before it. With a policy
        # that changes at every update the gain is lost again: its new parameters then want other memory each time.
        self._keep_policy = config.policy_interval > 1
        # Compiled for the sake of its outputs: they are buffers of their own, also where two of them are equal (networks and
        # their targets), so that the state can be donated.
        self._init = jax.jit(self._init_impl)
        self._act = jax.jit(self._act_impl, static_argnames="mode")
        self._update = jax.jit(self._update_impl, static_argnames="phase", donate_argnums=2)

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        """Policy and critics, and the networks of the backup where it has any."""
        return ("policy", "critic", *(("value",) if jax.tree.leaves(self.backup.draw(0, 0)) else ()))

    # --- state ------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """The state before the first step; each part draws from a stream of its own name."""
        drawn = {
            "policy": self.actor.learnable.draw(Draw(seed, "init/actor")),
            "critic": self.critic.learnable.draw(Draw(seed, "init/critic")),
            "value": self.backup.draw(seed, 0),
        }
        return dataclasses.replace(self._init(rng.root(seed), drawn), host=self.init_host())

    def init_host(self) -> dict[str, Any]:
        """What lives on the host: the statistics of observations and the scale of rewards, where these are scaled."""
        return {
            "statistics": init_statistics(self.spaces.obs_dim) if self.config.normalize_obs else None,
            "scale": init_scale(self.task.lanes) if self.config.normalize_reward else None,
        }

    def _init_impl(self, key: Array, drawn: dict[str, Any]) -> State:
        return State(
            key=key,
            updates=jnp.int32(0),
            actor=self.actor.learnable.slot(drawn["policy"]),
            critic=self.critic.learnable.slot(drawn["critic"]),
            backup=self.backup.init(drawn["value"]),
            objective=self.objective.init(),
            host={},
        )

    def renew(self, state: State, parts: Sequence[str], clock: Clock) -> State:
        """Networks, targets and optimisers anew; α, the blend's memory, statistics and counters stay."""
        def slot(learnable: Learnable, name: str) -> Slot:
            return jax.jit(learnable.slot)(learnable.draw(Draw(clock.seed, name, clock.step)))

        fresh: dict[str, Any] = {}
        if "policy" in parts:
            fresh["actor"] = slot(self.actor.learnable, "init/actor")
        if "critic" in parts:
            fresh["critic"] = slot(self.critic.learnable, "init/critic")
        if "value" in parts:
            own = jax.jit(self.backup.init)(self.backup.draw(clock.seed, clock.step))
            fresh["backup"] = self.backup.renewed(state.backup, own)
        return dataclasses.replace(state, **fresh)

    # --- compiling --------------------------------------------------------------------------------------------------

    def warm(self, memories: Mapping[str, Replay], clock: Clock) -> None:
        """Compile actions and updates in a thread, by calling them on a state and on transitions that nobody else has."""
        specimens = {name: memory.specimen() for name, memory in memories.items()}
        self._ahead.start(lambda: self.rehearse(specimens, clock))

    def rehearse(self, memories: Mapping[str, Replay], clock: Clock) -> None:
        """Act as in training and as in evaluation, and update in every phase of the delays that calls will begin in."""
        state, lanes = self.init(clock.seed), self.task.lanes
        late = clock._replace(step=max(clock.step, self.config.random_steps))
        for mode, rows in (("collect", lanes), ("greedy", 1)):
            obs = np.zeros((rows, self.spaces.obs_dim), np.float32)
            self.act(self.policy(state), self.begin(rows), obs, np.ones(rows, bool), late, mode)
        count = self.config.critic_updates_per_step * lanes
        for phase in dict.fromkeys((clock.updates + call * count) % self._period for call in range(self._period)):
            state, _ = self.learn(state, self.feed(memories, clock._replace(updates=phase), count))

    # --- acting -----------------------------------------------------------------------------------------------------

    def begin(self, lanes: int) -> Any:
        """The acting noise's state."""
        return self.noise.init(lanes, self.spaces.action_dim)

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """Actions for observations `[n, obs_dim]`; see the protocol."""
        if mode == "collect":
            if clock.step < self.config.random_steps:
                uniform = rng.stream(clock.seed, "random actions", clock.decisions)
                return uniform.uniform(-1.0, 1.0, (len(obs), self.spaces.action_dim)).astype(np.float32), {}, carry
            mode = "sample"
        key, counter = rng.root(clock.seed), np.uint32(clock.decisions % 2**32)
        action, carry = self._act(policy["actor"], policy["normaliser"], key, carry, obs, first, counter, mode=mode)
        return action, {}, carry

    def _act_impl(
        self, params: Params, statistics: Any, key: Array, carry: Any, obs: Array, first: Array, counter: Array, mode: str
    ) -> tuple[Array, Any]:
        obs = normalise(statistics, obs)
        if mode == "greedy":
            return self.actor.greedy(params, obs), carry
        key = rng.fold(jax.random.wrap_key_data(key), "act", counter)
        noise, carry = self.noise(key, carry, first, (obs.shape[0], self.spaces.action_dim))
        return self.actor.explore(params, obs, noise), carry

    def notice(self, state: State, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> State:
        """Take the observations to come into the statistics, and the rewards into their scale, where there are any."""
        statistics, scale = state.host["statistics"], state.host["scale"]
        if statistics is None and scale is None:
            return state
        after = {
            "statistics": None if statistics is None else observe(statistics, obs),
            "scale": None if scale is None else met(scale, self.gamma, steps),
        }
        return dataclasses.replace(state, host=state.host | after)

    def policy(self, state: State) -> Any:
        """The policy's parameters, and the statistics it scales observations by."""
        return {"actor": state.actor.live, "normaliser": state.host["statistics"]}

    def blank_policy(self) -> Any:
        """A policy of the right shapes."""
        params = self.actor.learnable.draw(Draw(0, "init/actor"))
        return {"actor": jax.tree.map(jnp.asarray, params), "normaliser": self.init_host()["statistics"]}

    def write(self, graph: Graph, policy: Any, obs: str) -> str:
        """The greedy action as operations: observations scaled and clipped, then the actor."""
        return self.actor.write(graph, policy["actor"], write_normalised(graph, policy["normaliser"], obs))

    def with_policy(self, state: State, policy: Any) -> State:
        """The state with policy, target policy and statistics replaced."""
        live = jax.tree.map(jnp.array, policy["actor"])
        target = None if state.actor.target is None else jax.tree.map(jnp.array, policy["actor"])
        host = state.host | {"statistics": policy["normaliser"]}
        return dataclasses.replace(state, actor=state.actor._replace(live=live, target=target), host=host)

    # --- learning ---------------------------------------------------------------------------------------------------

    def draw(self, state: State, memories: Mapping[str, Replay], clock: Clock) -> Data | None:
        """The batches of the next update, once there is more than a batch and the warm-up is over."""
        if len(memories["replay"]) <= self.config.batch_size or clock.step < self.config.learn_after:
            return None
        return self.feed(memories, clock, self.config.critic_updates_per_step * self.task.lanes)

    def update(self, state: State, data: Data) -> tuple[State, Metrics]:
        """All updates of the data in one compiled call, once it is compiled: two threads would both compile it."""
        self._ahead.wait()
        return self.learn(state, data)

    def learn(self, state: State, data: Data) -> tuple[State, Metrics]:
        """The call itself; the given state is consumed, but for what is kept apart."""
        kept, rest = self._split(state)
        changed, rest, metrics = self._update(kept, state.host, rest, data.train, data.fit, phase=data.first % self._period)
        return self._join(kept | changed, dataclasses.replace(rest, host=state.host)), metrics

    def _split(self, state: State) -> tuple[dict[str, Any], State]:
        """What is not updated in place, and the state without it."""
        bare = dataclasses.replace(state, host={})
        if not self._keep_policy:
            return {}, bare
        kept = {"key": state.key, "policy": state.actor.live}
        return kept, dataclasses.replace(bare, key=None, actor=state.actor._replace(live=None))

    def _join(self, kept: dict[str, Any], rest: State) -> State:
        if not kept:
            return rest
        return dataclasses.replace(rest, key=kept["key"], actor=rest.actor._replace(live=kept["policy"]))

    def _update_impl(
        self, kept: dict[str, Any], host: Any, rest: State, train: Batch, fit: Batch | None, phase: int
    ) -> tuple[dict[str, Any], State, Metrics]:
        """The updates of a call; of what is kept apart, only what has changed is returned."""
        dues = schedule.due(phase, train.reward.shape[0], self.config.policy_interval, self.config.target_interval)
        state = self._join(kept, rest)
        noise = self.all_noise(state, train, fit, [policy for policy, _ in dues])

        def one(state: State, rows: Any, policy: bool, target: bool) -> tuple[State, Metrics]:
            batch, fit = (None if each is None else self.scaled(host, each) for each in rows[:2])
            state = dataclasses.replace(state, host=host)
            state, metrics = self.one_update(state, batch, fit, rows[2], policy=policy, target=target)
            return dataclasses.replace(state, host={}), metrics

        state, metrics = schedule.run(one, state, (train, fit, noise), dues, self._period)
        after, rest = self._split(state)
        return {name: value for name, value in after.items() if value is not kept[name]}, rest, metrics

    def scaled(self, host: Any, batch: Batch) -> Batch:
        """A batch as the networks see it: observations normalised, rewards scaled."""
        obs, next_obs = normalise(host["statistics"], batch.obs), normalise(host["statistics"], batch.next_obs)
        return batch._replace(obs=obs, next_obs=next_obs, reward=self.in_units(host, batch.reward))

    def all_noise(self, state: State, train: Batch, fit: Batch | None, policy: Sequence[bool]) -> Noise:
        """The noise of every update of a call, `[updates, …]`: drawn side by side it takes less time than in each by itself.

        It is what each update would draw alone, so it does not matter how updates are spread over calls. For updates without a
        step of the policy none is drawn for one; zeros stand in its place, which nobody looks at.
        """
        root, count = jax.random.wrap_key_data(state.key), len(policy)

        def drawn(draw: Any, first: int, step: int) -> Noise:
            numbers = state.updates + jnp.arange(first, count, step)
            rows = jax.tree.map(lambda x: x[first::step], (train, fit))
            return jax.vmap(lambda number, rows: draw(root, number, *rows))(numbers, rows)

        noise = drawn(self.draw_noise, 0, 1)
        if not any(policy):
            return noise
        first, every = policy.index(True), self.config.policy_interval
        own = drawn(self.draw_policy_noise, first, every)
        last = (count - 1 - first) % every
        spread = lambda x: jax.lax.pad(x, x.dtype.type(0), [(first, last, every - 1), *[(0, 0, 0)] * (x.ndim - 1)])  # noqa: E731
        return noise | jax.tree.map(spread, own)

    def draw_noise(self, root: Array, number: Any, batch: Batch, fit: Batch | None) -> Noise:
        """The standard normal noise of the update of that number, by the name of its stream, that of the policy's steps apart."""
        keys = {name: rng.fold(root, name, number) for name in self.backup.streams}
        drawn = {}
        if fit is not None and "exploit" in keys:  # a batch of its own, maybe of another size
            drawn["exploit"] = jax.random.normal(keys.pop("exploit"), fit.action.shape)
        return drawn | normals(keys, batch.action.shape)

    def draw_policy_noise(self, root: Array, number: Any, batch: Batch, fit: Batch | None) -> Noise:
        """That of the policy's steps."""
        rounds = range(self.config.policy_rounds if self.actor.stochastic else 0)
        key = rng.fold(root, "policy", number)
        return normals({f"policy/{turn}": jax.random.fold_in(key, turn) for turn in rounds}, batch.action.shape)

    def one_update(
        self, state: State, batch: Any, fit: Any, noise: Noise, *, policy: bool, target: bool
    ) -> tuple[State, Metrics]:
        """One update: the steps in their order; `state` is what it began with, all the way."""
        pairs, sight = self.backup.look(state, batch, noise)
        answers = self.ask(state.critic.target, pairs)
        terms = self.backup.terms(state, batch, sight, answers)
        now, metrics = state, dict[str, Array]()
        for step in self.order:
            seen = now if self.fresh else state
            if step == "critic":
                if seen.backup is not state.backup:  # V has moved already
                    terms = self.backup.terms(seen, batch, sight, answers)
                now, told = self._critic_step(now, batch, fit, terms)
            elif step == "value":
                own, told = self.backup.learn(now.backup, seen, batch, fit, terms, noise)
                now = dataclasses.replace(now, backup=own)
            else:
                now, told = self._policy_step(now, seen, batch, noise) if policy else (now, {})
            metrics |= told

        # the following copies
        actor, critic, own = now.actor, now.critic, now.backup
        if target:
            critic, actor = follow(critic, self.config.tau), follow(actor, self.config.tau)
            own = self.backup.follow(own, self.config.tau)
        return State(state.key, state.updates + 1, actor, critic, own, now.objective, state.host), metrics

    def _critic_step(self, now: State, batch: Batch, fit: Batch | None, terms: Any) -> tuple[State, Metrics]:
        """y, and a step of the critics."""

        def critic_loss(params: Params) -> tuple[Array, tuple[Any, Metrics]]:
            out = self.critic.out(params, batch.obs, batch.action)
            q = self.critic.head.value(out)
            y, own, told = self.backup.target(now.backup, terms, stop_gradient(self.critic.worst(q)))
            loss = self.critic.loss(out, y)
            return loss, (own, told | {**terms.told, "loss/critic": loss, "q/mean": jnp.mean(q), "q/target": jnp.mean(y)})

        critic, (own, metrics) = self.critic.learnable.step(now.critic, critic_loss)
        return dataclasses.replace(now, critic=critic, backup=own), metrics

    def _policy_step(self, now: State, seen: State, batch: Batch, noise: Noise) -> tuple[State, Metrics]:
        """Steps of the policy under the critics as they are seen, each followed by one of its temperature."""
        actor, objective, metrics = now.actor, now.objective, dict[str, Array]()
        for turn in range(self.config.policy_rounds):

            def policy_loss(params: Params, turn: int = turn, objective: Any = objective) -> tuple[Array, Any]:
                loss, told = self.objective.loss(params, objective, seen, seen.critic.live, batch, noise.get(f"policy/{turn}"))
                return loss, (loss, told)

            actor, (loss, told) = self.actor.learnable.step(actor, policy_loss)
            objective, told = self.objective.learn(objective, told)
            metrics |= {"loss/actor": loss} | told
        return dataclasses.replace(now, actor=actor, objective=objective), metrics

    def ask(self, params: Params, pairs: list[tuple[Array, Array]]) -> list[Array]:
        """Q at several batches of (s, a): one product over all takes less time than one each."""
        if not pairs:
            return []
        if len(pairs) == 1:
            return [self.critic.q(params, *pairs[0])]
        obs, action = (jnp.concatenate(each) for each in zip(*pairs))
        return jnp.split(self.critic.q(params, obs, action), len(pairs), axis=-1)


def normals(keys: Mapping[str, Array], shape: tuple[int, ...]) -> Noise:
    """Standard normal numbers of that shape for every key; in one call, which takes less time than one each."""
    if not keys:
        return {}
    return dict(zip(keys, jax.vmap(lambda key: jax.random.normal(key, shape))(jnp.stack(list(keys.values())))))
