"""Backups: what the critics are pulled towards. `Bee` decorates any of them; that is the paper's claim as a line of code.

    Soft      r + γ m (min_i Q̄_i(s', a') − α log π(a'|s')),  a' ~ π(·|s')          SAC
    Smoothed  r + γ m min_i Q̄_i(s', clip(π̄(s') + clip(ε, −c, c)))                  TD3
    Owned     r + γ m V̄(s') of a V of its own                                       DAC, XQL, IQL (owned.py, mixture.py)
    Bee       λ (r + γ m V(s')) + (1 − λ) (whatever the inner one says)             BAC, BEE-TD3, bee-…

An update calls a backup four times: `look` says at which pairs the target critics are asked, so that all are answered in one
product; `terms` makes the targets of the answers; `target` gives y, inside the critics' loss because a blend may look at the
live Q(s, a); `learn` is the backup's own step. Its own state is a pytree that the update carries for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline import operators, rng
from beeline.agents.actors import Actor
from beeline.agents.blends import Blend, Signals
from beeline.agents.critic import Critic
from beeline.agents.noise import PINK_LENGTH
from beeline.agents.objective import Entropy, Metrics
from beeline.memory import Batch
from beeline.networks import Draw, Learnable, Params, Slot

Pairs = list[tuple[Array, Array]]  # (s, a) at which the target critics are asked
Noise = dict[str, Array]  # standard normal noise of one update, by the name of its stream
VALUE_NAMES = ("loss/value", "value/mean")  # under which a V of its own is logged


class Terms(NamedTuple):
    """What a target is made of, `[B]`, or `[K, B]` where critics have targets of their own."""

    target: Array  # T_explore
    value: Array  # what is bootstrapped: Q̄_min(s', a') − ω, or V(s')
    exploit: Any = None  # T_exploit, where there is one
    here: Any = None  # Q̄_min(s, a), where it was asked
    told: Mapping[str, Array] = MappingProxyType({})  # metrics that are known already


class Backup(Protocol):
    """The target of the critics, with whatever it learns for itself."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The logged quantities."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the noise it wants."""

    def draw(self, seed: int, at: int) -> Any:
        """Initial parameters of its networks."""

    def init(self, drawn: Any) -> Any:
        """Its state, from these parameters."""

    def reward(self, batch: Batch) -> Array:
        """The reward term of its targets."""

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """At which (s, a) the target critics are asked, and what else was seen on the way."""

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The targets, from the answers `[*shape, B]` to `look`."""

    def target(self, own: Any, terms: Terms, q: Array) -> tuple[Array, Any, Metrics]:
        """y, given the live Q_min(s, a) without gradient; its state after that, and metrics."""

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """Its own step; `state` is everything as the steps before it left it, or as the update began: see `off_policy`."""

    def follow(self, own: Any, tau: float) -> Any:
        """Move its slowly following copies."""

    def renewed(self, own: Any, fresh: Any) -> Any:
        """Its state with the networks of a fresh one."""


class Plain:
    """A backup that owns nothing and bootstraps from the target critics."""

    metric_names: tuple[str, ...] = ()
    streams: tuple[str, ...] = ("explore",)

    def draw(self, seed: int, at: int) -> Any:
        """No networks."""
        return ()

    def init(self, drawn: Any) -> Any:
        """No state."""
        return ()

    def reward(self, batch: Batch) -> Array:
        """r."""
        return batch.reward

    def target(self, own: Any, terms: Terms, q: Array) -> tuple[Array, Any, Metrics]:
        """T_explore as it is."""
        return terms.target, own, {}

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """Nothing to learn."""
        return own, {}

    def follow(self, own: Any, tau: float) -> Any:
        """Nothing follows."""
        return own

    def renewed(self, own: Any, fresh: Any) -> Any:
        """Nothing to renew."""
        return own


@dataclasses.dataclass(frozen=True)
class Exploit:
    """An exploit loss with its strength: ℓ(Q, V) of every sample."""

    form: operators.ExploitLoss
    strength: float  # the expectile, or α

    def __call__(self, q: Array, v: Array) -> Array:
        """ℓ(Q, V), `[B]` or `[K, B]`."""
        return self.form(q, v, self.strength)


class Valued:
    """What backups share that have a V of their own, in `own["value"]`."""

    value: Learnable

    def v(self, params: Params, obs: Array) -> Array:
        """V(s), `[B]` or `[K, B]`."""
        return self.value.net.apply(params, obs)[..., 0]

    def regressed(
        self, own: Any, obs: Array, aim: Array, loss: Callable[[Array, Array], Array], names: tuple[str, str] = VALUE_NAMES
    ) -> tuple[Any, Metrics, Array]:
        """A step of V on mean ℓ(sg aim, V(s)); that loss and mean V(s) by these names, and V(s) as it was before the step."""
        aim = stop_gradient(aim)

        def value_loss(params: Params) -> tuple[Array, tuple[Array, Array]]:
            v = self.v(params, obs)
            mean = jnp.mean(loss(aim, v))
            return mean, (mean, v)

        slot, (mean, v) = self.value.step(own["value"], value_loss)
        return own | {"value": slot}, dict(zip(names, (mean, jnp.mean(v)))), v


@dataclasses.dataclass(frozen=True)
class Soft(Plain):
    """r + γ m (min_i Q̄_i(s', a') − α log π(a'|s')) with one a' ~ π(·|s') of the policy as it is (SAC)."""

    actor: Actor
    critic: Critic
    entropy: Entropy

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """One sample of the policy at s'."""
        action, log_prob = self.actor.sample(noise["explore"], self.actor.output(state.actor.live, batch.next_obs))
        return [(batch.next_obs, action)], log_prob

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The soft value of that sample, bootstrapped."""
        density, alpha = self.entropy.density(seen), self.entropy.temperature(state.objective)
        value = operators.entropy_value(self.critic.worst(answers[0]), density, alpha)
        return Terms(operators.bellman_target(batch.reward, batch.discount, value), value)


@dataclasses.dataclass(frozen=True)
class Smoothed(Plain):
    """r + γ m min_i Q̄_i(s', clip(π̄(s') + clip(σ ε, −c, c))): target policy smoothing (TD3); σ = 0 is none at all.

    White noise is another for every row. `pink` noise is one sequence with a 1/f spectrum that runs over the updates, from which
    all rows of an update take the same ε: the target stays on one side of the policy for a while.
    """

    actor: Actor
    critic: Critic
    sigma: float
    clip: float
    pink: bool

    @property
    def streams(self) -> tuple[str, ...]:  # type: ignore[override]
        """White noise is drawn with that of the others; pink noise is not."""
        return () if self.pink else ("explore",)

    def noise(self, state: Any, batch: Batch, drawn: Noise) -> Array:
        """ε of this update."""
        if not self.pink:
            return drawn["explore"]
        key = rng.fold(jax.random.wrap_key_data(state.key), "explore/pink", state.updates // PINK_LENGTH)
        return operators.colored_noise(key, 1.0, PINK_LENGTH, batch.action.shape[-1])[state.updates % PINK_LENGTH]

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """The following policy's action at s', with clipped noise."""
        action = self.actor.output(state.actor.target, batch.next_obs)
        smoothed = action + operators.smoothing_noise(self.noise(state, batch, noise), self.sigma, self.clip)
        return [(batch.next_obs, jnp.clip(smoothed, -1.0, 1.0))], ()

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The smaller critic's value, bootstrapped."""
        value = self.critic.worst(answers[0])
        reward = self.reward(batch)
        return Terms(operators.bellman_target(reward, jnp.broadcast_to(batch.discount, reward.shape), value), value)


@dataclasses.dataclass(frozen=True)
class Bee(Valued):
    """y = λ T_exploit + (1 − λ) T_explore: T_explore is the inner backup's target, T_exploit = r + γ m V(s').

    V is fitted to the buffer's actions so that it leans to the maximum of Q̄_min(s, ·) (expectile, sparse, exponential). With
    `entropy` it regresses to Q̄_min(s, a) − bonus(ã|s), as in the BAC release; without, to Q̄_min(s, a), as in the paper.
    """

    inner: Any  # a Backup
    actor: Actor
    critic: Critic
    value: Learnable
    loss: Exploit
    blend: Blend
    batch_size: int
    entropy: Entropy | None = None

    @property
    def metric_names(self) -> tuple[str, ...]:
        """λ and both targets, V's own, and what the inner backup logs."""
        blended = ("lambda", "q/exploit_target", "q/explore_target", "loss/exploit", "v/mean", "v/minus_q")
        return (*blended, *self.inner.metric_names)

    @property
    def streams(self) -> tuple[str, ...]:
        """The inner one's, and that of the bonus where there is one."""
        return (*self.inner.streams, *(("exploit",) if self.entropy else ()))

    def draw(self, seed: int, at: int) -> Any:
        """V's initial parameters and the inner backup's."""
        return {"value": self.value.draw(Draw(seed, "init/exploit", at)), "inner": self.inner.draw(seed, at)}

    def init(self, drawn: Any) -> Any:
        """V in a slot, the blend's memory, and the inner backup's state."""
        return {
            "value": self.value.slot(drawn["value"]),
            "blend": self.blend.init((*self.critic.shape[:-1], self.batch_size)),
            "inner": self.inner.init(drawn["inner"]),
        }

    @staticmethod
    def _inside(state: Any) -> Any:
        """The state as the inner backup sees it: what it owns is all there is."""
        return dataclasses.replace(state, backup=state.backup["inner"])

    def reward(self, batch: Batch) -> Array:
        """The inner backup's."""
        return self.inner.reward(batch)

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """What the inner backup asks, and Q̄(s, a) for V."""
        pairs, seen = self.inner.look(self._inside(state), batch, noise)
        return [*pairs, (batch.obs, batch.action)], seen

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """T_explore of the inner backup, and T_exploit with V as it was before this update."""
        inner = self.inner.terms(self._inside(state), batch, seen, answers[:-1])
        return inner._replace(exploit=self.exploit(state, batch), here=self.critic.worst(answers[-1]))

    def exploit(self, state: Any, batch: Batch) -> Array:
        """T_exploit = r + γ m V(s')."""
        reward = self.inner.reward(batch)
        next_v = self.v(state.backup["value"].live, batch.next_obs)
        return operators.bellman_target(reward, jnp.broadcast_to(batch.discount, reward.shape), next_v)

    def blended(self, own: Any, terms: Terms, q: Array) -> tuple[Array, Array, Any]:
        """y, λ of every sample, and the blend's next state."""
        signals = Signals(terms.exploit, terms.target, stop_gradient(terms.value), q, terms.here)
        return self.blend(own["blend"], signals)

    def target(self, own: Any, terms: Terms, q: Array) -> tuple[Array, Any, Metrics]:
        """The blend of both."""
        y, lam, blend = self.blended(own, terms, q)
        metrics = {
            "lambda": jnp.mean(lam),
            "q/exploit_target": jnp.mean(terms.exploit),
            "q/explore_target": jnp.mean(terms.target),
        }
        return y, own | {"blend": blend}, metrics

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """A step of V on the exploit loss for u = Q̄_min(s, a) − (V(s) + bonus), then the inner backup's own."""
        obs, q = batch.obs, terms.here
        if fit is not None:
            obs, q = fit.obs, self.critic.worst(self.critic.q(state.critic.target, fit.obs, fit.action))
        aim = q
        if self.entropy:
            _, log_prob = self.actor.sample(noise["exploit"], self.actor.output(state.actor.live, obs))
            aim = q - self.entropy.bonus(state.objective, log_prob)
        after, metrics, v = self.regressed(own, obs, aim, self.loss, ("loss/exploit", "v/mean"))
        inner, told = self.inner.learn(own["inner"], self._inside(state), batch, fit, terms, noise)
        return after | {"inner": inner}, metrics | {"v/minus_q": jnp.mean(v - q)} | told

    def follow(self, own: Any, tau: float) -> Any:
        """The inner backup's copies; V has none."""
        return own | {"inner": self.inner.follow(own["inner"], tau)}

    def renewed(self, own: Any, fresh: Any) -> Any:
        """A fresh V; the blend keeps its memory."""
        return own | {"value": fresh["value"], "inner": self.inner.renewed(own["inner"], fresh["inner"])}


def follow(slot: Slot, tau: float) -> Slot:
    """φ̄ ← τ φ + (1 − τ) φ̄, where a copy follows."""
    return slot if slot.target is None else slot._replace(target=operators.polyak(slot.target, slot.live, tau))
