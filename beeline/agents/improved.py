"""The parts of GRAC (Shao et al. 2021): a target from searched actions, its policy's objective, and the update around them.

One update, in the order of the authors' `GRAC.py`; Q is every critic as it was at the start, bounded to [Q_lo, Q_hi] in 1:
  1. a_0 ~ π(·|s'), a_1 = CEM(s', a_0; Q_2); a* is the one with the larger min_i Q_i; y = r + γ m min_i Q_i(s', a*)
  2. a step of the critics on Σ_i mean (Q_i(s, a) − y)²
  3. a step on L = Σ_i mean [(Q_i(s, a) − y)² + (Q_i(s', a*) − Q_i^start(s', a*))²]; L⁰ is its value before the step
  4. the same again, until a step began below `repeat_until` · L⁰, `repeat_most` times at most
  5. the backup's own step: V, under BEE
  6. a ~ π(·|s), a⁺ = CEM(s, a; Q_1) under the new critics, A = clip(Q_1(s, a⁺) − Q_1(s, a), 0, 20):
     a step of the policy on −mean [A log π(a⁺|s) / |A| + Q_1(s, a)] at the rate lr / (1 + the loss of 2)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient

from beeline import operators, rng
from beeline.agents.actors import ClampedActor
from beeline.agents.backup import Bee, Noise, Pairs, Plain, Terms
from beeline.agents.critic import Critic
from beeline.agents.objective import FirstCritic, Metrics
from beeline.agents.off_policy import OffPolicy, State
from beeline.cem import Cem, Found
from beeline.memory import Batch, Clock, Data
from beeline.networks import Draw, Params, Slot, normalise

if TYPE_CHECKING:
    from beeline.agents.grac import GRACConfig

REWARDS, EPISODES = 100_000, 1_000  # over which the smallest reward and the shortest episode are taken


def improve(critic: Critic, params: Params, which: int, search: Cem, obs: Array, start: Array, noise: Any) -> Found:
    """CEM(s, a; Q_which): better actions than `start` under one of the critics, without gradient."""
    one = jax.tree.map(lambda leaf: leaf[which : which + 1], params)

    def score(candidates: Array) -> Array:
        count, size, width = candidates.shape
        states = jnp.broadcast_to(obs, (count, *obs.shape)).reshape(count * size, -1)
        return critic.q(one, states, candidates.reshape(count * size, width))[0].reshape(count, size)

    return jax.tree.map(stop_gradient, search.search(score, stop_gradient(start), noise))


@dataclasses.dataclass(frozen=True)
class Improved(Plain):
    """r + γ m max(min_i Q_i(s', a_0), min_i Q_i(s', a_1)) with a_0 ~ π(·|s') and a_1 searched from it; Q is live and bounded."""

    actor: ClampedActor
    critic: Critic
    search: Cem
    metric_names: tuple[str, ...] = ("searched",)

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """The sample at s' and the searched action."""
        first, _ = self.actor.sample(noise["explore"], self.actor.output(state.actor.live, batch.next_obs))
        second = improve(self.critic, state.critic.live, 1, self.search, batch.next_obs, first, noise["search"]).best
        return [(batch.next_obs, first), (batch.next_obs, second)], (first, second)

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The larger of both smaller values, bootstrapped."""
        first, second = (self.critic.worst(each) for each in answers[:2])
        value = jnp.maximum(first, second)
        told = {"searched": jnp.mean(second > first)}
        return Terms(operators.bellman_target(batch.reward, batch.discount, value), value, told=told)


@dataclasses.dataclass(frozen=True)
class Improvement(FirstCritic):
    """L_π = −mean[A log π(a⁺|s) / |A| + Q_1(s, a)]: towards searched actions by what they gain, and up the first critic."""

    search: Cem = dataclasses.field(default_factory=Cem)
    most: float = 20.0
    metric_names: tuple[str, ...] = ("policy/advantage", "policy/deviation")

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Any) -> tuple[Array, Any]:
        """The objective under the new critics; `noise` is that of the sample and that of the search."""
        assert isinstance(self.actor, ClampedActor)
        output = self.actor.output(params, batch.obs)
        action, _ = self.actor.sample(noise[0], output)
        found = improve(self.critic, critic, 0, self.search, batch.obs, action, noise[1])
        advantage = jnp.clip(found.score - found.before, 0.0, self.most)
        towards = advantage * self.actor.log_prob(output, found.best) / action.shape[-1]
        q = self.critic.q(self.judge(critic, state), batch.obs, action)[0]
        return -jnp.mean(towards + q), {"policy/advantage": jnp.mean(advantage), "policy/deviation": jnp.mean(output[1])}

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """Nothing to learn; what was seen is told."""
        return own, seen


class Grac(OffPolicy):
    """Off-policy learning without target networks; acting searches too, so that the critics belong to the policy.

    The range of rewards and of lengths is kept on the host: the largest reward (1 at first) and the longest episode of the run
    (open ones included), the smallest of the last 100,000 rewards and the shortest of the last 1,000 episodes.
    """

    config: GRACConfig
    backup: Any
    soft = False

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.search: Cem = Cem(self.config.population, self.config.parents, self.config.iterations)
        self.metric_names = (*self.metric_names, "loss/regularised", "critic/steps", "q/low", "q/high", "rate")
        self._improve = jax.jit(self._improve_impl)

    # --- the range, on the host -------------------------------------------------------------------------------------

    def init_host(self) -> dict[str, Any]:
        """The statistics, what was met of rewards and lengths, the bounds made of it, and how far the schedules are."""
        met = {
            "largest": np.ones(()), "rewards": np.full(REWARDS, np.inf, np.float32), "longest": np.int64(1),
            "lengths": np.concatenate([[1000.0], np.full(EPISODES - 1, np.inf)]), "count": np.int64(0), "episodes": np.int64(1),
            "open": np.zeros(self.task.lanes, np.int64),
        }  # fmt: skip
        return super().init_host() | {"met": met, "bounds": np.array([-np.inf, np.inf], np.float32), "progress": np.float32(0.0)}

    def notice(self, state: State, memories: Any, steps: Sequence[Any], obs: np.ndarray, clock: Clock) -> State:
        """Take rewards and lengths into the range."""
        state = super().notice(state, memories, steps, obs, clock)
        host = state.host | {"progress": np.float32(self.progress(clock.step))}
        if steps:
            met = {name: np.array(each) for name, each in host["met"].items()}
            for step in steps:
                met["largest"] = np.maximum(met["largest"], step.reward)
                met["rewards"][met["count"] % REWARDS] = step.reward
                met["count"] += 1
                met["open"][step.lane] = 1 if step.first else met["open"][step.lane] + 1  # what was cut has told no end
                met["longest"] = np.maximum(met["longest"], met["open"][step.lane])
                if step.terminated or step.truncated:
                    met["lengths"][met["episodes"] % EPISODES] = met["open"][step.lane]
                    met["episodes"] += 1
                    met["open"][step.lane] = 0
            host |= {"met": met, "bounds": self.bounds(met)}
        return dataclasses.replace(state, host=host)

    def progress(self, step: int) -> float:
        """How much of the schedules is over; an agent that no plan has made stays at their beginning."""
        return min(1.0, step / self.config.schedule_steps) if self.config.schedule_steps else 0.0

    def bounds(self, met: dict[str, Any]) -> np.ndarray:
        """[Q_lo, Q_hi]: the smallest and the largest reward over as long as an episode can last, discounted."""

        def total(reward: float, length: float) -> float:
            gamma = self.gamma
            return self.config.reward_scale * reward * (length if gamma == 1.0 else (1.0 - gamma**length) / (1.0 - gamma))

        smallest, longest = float(met["rewards"].min()), float(met["longest"])
        low = total(smallest, float(met["lengths"].min()) if smallest >= 0.0 else longest)
        return np.array([low, total(float(met["largest"]), longest)], np.float32)

    # --- acting -----------------------------------------------------------------------------------------------------

    def act(
        self, policy: Any, carry: Any, obs: np.ndarray, first: np.ndarray, clock: Clock, mode: str
    ) -> tuple[Any, dict[str, Any], Any]:
        """The policy's sample; while collecting, each lane's is improved with a probability that falls from 1 to .05."""
        action, extras, carry = super().act(policy, carry, obs, first, clock, mode)
        if mode != "collect" or clock.step < self.config.random_steps:
            return action, extras, carry
        chance = 1.0 - min(0.95, 10.0 * self.progress(clock.step))
        chosen = rng.stream(clock.seed, "improve actions", clock.decisions).random(len(obs)) < chance
        if chosen.any():
            key, counter = rng.root(clock.seed), np.uint32(clock.decisions % 2**32)
            action = self._improve(policy["critic"], policy["normaliser"], key, counter, obs, action, chosen)
        return action, extras, carry

    def _improve_impl(
        self, critic: Params, statistics: Any, key: Array, counter: Array, obs: Array, action: Array, chosen: Array
    ) -> Array:
        """Searched under Q_2, and taken where min_i Q_i is not smaller there."""
        seen = normalise(statistics, obs)
        noise = self.search.noise(rng.fold(jax.random.wrap_key_data(key), "act/search", counter), action.shape)
        better = improve(self.critic, critic, 1, self.search, seen, action, noise).best
        before, after = (self.critic.worst(each) for each in self.ask(critic, [(seen, action), (seen, better)]))
        return jnp.where((chosen & (after >= before))[:, None], better, action)

    def policy(self, state: State) -> Any:
        """The policy's parameters, the critics that acting searches under, and the statistics."""
        return super().policy(state) | {"critic": state.critic.live}

    def blank_policy(self) -> Any:
        """A policy of the right shapes."""
        return super().blank_policy() | {
            "critic": jax.tree.map(jnp.asarray, self.critic.learnable.draw(Draw(0, "init/critic")))
        }

    def with_policy(self, state: State, policy: Any) -> State:
        """The state with policy, critics and statistics replaced."""
        state = super().with_policy(state, policy)
        return dataclasses.replace(state, critic=state.critic._replace(live=jax.tree.map(jnp.array, policy["critic"])))

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(self, state: State, data: Data) -> tuple[State, Metrics]:
        """All updates of the data in one compiled call, which reads of the range only the bounds."""
        read = {name: state.host[name] for name in ("statistics", "scale", "bounds", "progress")}
        after, metrics = super().learn(dataclasses.replace(state, host=read), data)
        return dataclasses.replace(after, host=state.host), metrics

    def draw_noise(self, root: Array, number: Any, batch: Batch, fit: Batch | None) -> dict[str, Any]:
        """A sample and a search at s'."""
        return dict(zip(("explore", "search"), self._pair(root, number, "explore", 0, batch)))

    def draw_policy_noise(self, root: Array, number: Any, batch: Batch, fit: Batch | None) -> dict[str, Any]:
        """A sample and a search at s for every step of the policy."""
        return {f"policy/{turn}": self._pair(root, number, "policy", turn, batch) for turn in range(self.config.policy_rounds)}

    def _pair(self, root: Array, number: Any, name: str, turn: int, batch: Batch) -> tuple[Array, Any]:
        normal, search = (jax.random.fold_in(rng.fold(root, each, number), turn) for each in (name, f"{name}/search"))
        return jax.random.normal(normal, batch.action.shape), self.search.noise(search, batch.action.shape)

    def bounded(self, state: State, q: Array) -> Array:
        """Q inside the range of what can be."""
        return jnp.clip(q, state.host["bounds"][0], state.host["bounds"][1])

    def one_update(
        self, state: State, batch: Any, fit: Any, noise: Any, *, policy: bool, target: bool
    ) -> tuple[State, Metrics]:
        """One update, top to bottom; `state` is what it began with, all the way."""
        # y of the better of two actions at s', and a step of the critics
        pairs, seen = self.backup.look(state, batch, noise)
        answers = [self.bounded(state, each) for each in self.ask(state.critic.live, pairs)]
        terms = self.backup.terms(state, batch, seen, answers)
        better = self.critic.worst(answers[1]) >= self.critic.worst(answers[0])
        chosen, held = jnp.where(better[:, None], seen[1], seen[0]), jnp.where(better, answers[1], answers[0])

        def first_loss(params: Params) -> tuple[Array, Any]:
            out = self.critic.out(params, batch.obs, batch.action)
            q = self.critic.head.value(out)
            y, own, told = self.backup.target(state.backup, terms, stop_gradient(self.critic.worst(q)))
            loss = self.critic.loss(out, y)
            return loss, (y, own, told | {**terms.told, "loss/critic": loss, "q/mean": jnp.mean(q), "q/target": jnp.mean(y)})

        critic, (y, own, metrics) = self.critic.learnable.step(state.critic, first_loss)
        critic, told = self.regularise(critic, state, batch, stop_gradient(y), chosen, held)
        metrics |= told | {"q/low": state.host["bounds"][0], "q/high": state.host["bounds"][1]}

        # the backup's own step, on the parameters of the start
        own, told = self.backup.learn(own, state, batch, fit, terms, noise)
        metrics |= told

        # a step of the policy under the new critics
        actor, objective = state.actor, state.objective
        rate = 1.0 / (1.0 + metrics["loss/critic"]) if self.config.adaptive_rate else jnp.float32(1.0)
        for turn in range(self.config.policy_rounds if policy else 0):

            def policy_loss(params: Params, turn: int = turn) -> tuple[Array, Any]:
                loss, seen = self.objective.loss(params, objective, state, critic.live, batch, noise[f"policy/{turn}"])
                return loss, (loss, seen)

            actor, (loss, seen) = self.actor.learnable.step(actor, policy_loss, rate)
            metrics |= {"loss/actor": loss, "rate": self.config.actor_lr * rate} | self.objective.learn(objective, seen)[1]
        return State(state.key, state.updates + 1, actor, critic, own, objective, state.host), metrics

    def regularise(
        self, critic: Slot, state: State, batch: Batch, y: Array, chosen: Array, held: Array
    ) -> tuple[Slot, Metrics]:
        """Steps on the error at (s, a) and on having moved at (s', a*), until they have gained enough."""
        obs, action = jnp.concatenate([batch.obs, batch.next_obs]), jnp.concatenate([batch.action, chosen])
        aim = jnp.concatenate([jnp.broadcast_to(y, held.shape), held], axis=-1)

        def loss(params: Params) -> tuple[Array, Array]:
            each = self.critic.head.loss(self.critic.out(params, obs, action), aim)
            value = jnp.sum(each) / len(y)
            return value, value

        config, progress = self.config, state.host["progress"]
        critic, start = self.critic.learnable.step(critic, loss)
        enough = (config.repeat_until + progress * (config.repeat_until_end - config.repeat_until)) * start

        def goes_on(carry: tuple[Slot, Array, Array]) -> Array:
            return (carry[1] < config.repeat_most) & (carry[2] >= enough)

        def again(carry: tuple[Slot, Array, Array]) -> tuple[Slot, Array, Array]:
            critic, value = self.critic.learnable.step(carry[0], loss)
            return critic, carry[1] + 1, value

        critic, count, last = jax.lax.while_loop(goes_on, again, (critic, jnp.int32(0), start))
        return critic, {"loss/regularised": last, "critic/steps": (count + 2).astype(jnp.float32)}

    # --- what instruments read --------------------------------------------------------------------------------------

    def lam(self, state: State, batch: Batch, key: Array) -> Array:
        """λ as the next update's blend would choose it."""
        assert isinstance(self.backup, Bee)
        batch = self.scaled(state.host, batch)
        keys = jax.random.split(key)
        shape = batch.action.shape
        noise: Any = {"explore": jax.random.normal(keys[0], shape), "search": self.search.noise(keys[1], shape)}
        pairs, seen = self.backup.look(state, batch, noise)
        terms = self.backup.terms(state, batch, seen, [self.bounded(state, each) for each in self.ask(state.critic.live, pairs)])
        worst = self.critic.worst(self.critic.q(state.critic.live, batch.obs, batch.action))
        return self.backup.blended(state.backup, terms, worst)[1]
