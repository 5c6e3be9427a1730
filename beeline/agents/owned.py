"""Backups that own a V: XQL's, a soft maximum over the policy's actions, and IQL's, one over the buffer's."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline import operators
from beeline.agents.actors import Actor
from beeline.agents.backup import VALUE_NAMES, Exploit, Noise, Pairs, Plain, Terms, Valued, follow
from beeline.agents.critic import Critic
from beeline.agents.objective import Metrics
from beeline.memory import Batch
from beeline.networks import Draw, Learnable


@dataclasses.dataclass(frozen=True)
class Owned(Valued, Plain):
    """y = r + γ m V(s') of a V of its own: its slowly following copy V̄ where there is one. The target critics are not asked."""

    value: Learnable

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """V's loss and mean."""
        return VALUE_NAMES

    def draw(self, seed: int, at: int) -> Any:
        """V's initial parameters."""
        return {"value": self.value.draw(Draw(seed, "init/value", at))}

    def init(self, drawn: Any) -> Any:
        """V in a slot."""
        return {"value": self.value.slot(drawn["value"])}

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """Nothing is asked."""
        return [], ()

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """V(s'), bootstrapped."""
        slot = state.backup["value"]
        value = self.v(slot.live if slot.target is None else slot.target, batch.next_obs)
        return Terms(operators.bellman_target(batch.reward, batch.discount, value), value)

    def follow(self, own: Any, tau: float) -> Any:
        """V̄, where there is one."""
        return own | {"value": follow(own["value"], tau)}

    def renewed(self, own: Any, fresh: Any) -> Any:
        """All networks anew."""
        return fresh


def gumbel_loss(aim: Array, pred: Array, beta: float, clip: float) -> Array:
    """e^(z−M) − z e^(−M) − e^(−M), z = clip((aim − pred)/β, ±c), M = sg max(max_batch z, −1) (XQL, Garg et al. 2023).

    It is e^z − z − 1, whose minimiser is β log E e^(aim/β), times e^(−M), which keeps gradients in float32's range.
    """
    z = jnp.clip((stop_gradient(aim) - pred) / beta, -clip, clip)
    shift = stop_gradient(jnp.maximum(jnp.max(z, axis=-1, keepdims=True), -1.0))
    return jnp.exp(z - shift) - z * jnp.exp(-shift) - jnp.exp(-shift)


@dataclasses.dataclass(frozen=True)
class Gumbel:
    """A critic's head whose loss is Gumbel regression instead of the squared error (X-TD3)."""

    beta: float
    clip: float
    width: int = 1

    def value(self, out: Array) -> Array:
        """The one number."""
        return out[..., 0]

    def loss(self, out: Array, y: Array) -> Array:
        """The rescaled Gumbel loss, with a shift for each critic's batch."""
        return gumbel_loss(y, self.value(out), self.beta, self.clip)


@dataclasses.dataclass(frozen=True)
class Extreme(Owned):
    """y = r + γ m V̄(s'), V by Gumbel regression on min_i Q_i(s, ã) of the live critics, ã ~ π(·|s) (X-SAC)."""

    actor: Actor
    critic: Critic
    beta: float
    clip: float
    streams: tuple[str, ...] = dataclasses.field(default=("value",), init=False)

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """A step of V, after the critics' own."""
        action, _ = self.actor.sample(noise["value"], self.actor.output(state.actor.live, batch.obs))
        q = self.critic.worst(self.critic.q(state.critic.live, batch.obs, action))
        return self.regressed(own, batch.obs, q, lambda aim, v: gumbel_loss(aim, v, self.beta, self.clip))[:2]


@dataclasses.dataclass(frozen=True)
class InSample(Owned):
    """y = r + γ m V(s'), V by an exploit loss on Q̄_min(s, a) of the buffer's actions (IQL): the BEE target at λ = 1."""

    critic: Critic
    loss: Exploit
    streams: tuple[str, ...] = dataclasses.field(default=(), init=False)

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """Q̄(s, a) for V."""
        return [(batch.obs, batch.action)], ()

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """V(s'), bootstrapped, and what V is fitted on."""
        return super().terms(state, batch, seen, answers)._replace(here=self.critic.worst(answers[0]))

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """A step of V."""
        obs, q = batch.obs, terms.here
        if fit is not None:
            obs, q = fit.obs, self.critic.worst(self.critic.q(state.critic.target, fit.obs, fit.action))
        return self.regressed(own, obs, q, self.loss)[:2]
