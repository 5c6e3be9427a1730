"""What a policy maximises: Q with an entropy bonus (SAC), or the first critic's Q alone (TD3)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline import operators
from beeline.agents.actors import Actor
from beeline.agents.critic import Critic
from beeline.networks import Params, Slot, adam, descend

Metrics = dict[str, Array]


class Objective(Protocol):
    """The policy's loss, and what is learnt beside it, such as a temperature."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The logged quantities."""

    def init(self) -> Any:
        """The objective's own state."""

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """What the policy minimises, and what `learn` looks at.

        `critic` are the critics, and `state` is everything, as the steps before this one left it, or as the update began.
        """

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """The objective's own step."""

    def bonus(self, own: Any, log_prob: Array) -> Array:
        """−ω(a|s) of an action with this log π; zero where there is no exploration term."""


@dataclasses.dataclass(frozen=True)
class Entropy:
    """L_π = mean[α log π(ã|s) − min_i Q_i(s, ã)], with α fixed or tuned towards a target entropy (SAC).

    A fixed α = 0 is no exploration term at all.
    """

    actor: Actor
    critic: Critic
    alpha: float
    tuned: bool
    target_entropy: float
    scale: tuple[float, ...] | None  # of the env's actions, in whose units log π is counted; None: in [-1, 1]
    optimiser: Any = dataclasses.field(default_factory=lambda: adam(3e-4))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The logged quantities."""
        return ("alpha", "entropy", "loss/alpha") if self.tuned else ("alpha", "entropy")

    def init(self) -> Any:
        """log α in a slot, or the fixed α."""
        if not self.tuned:
            return {"alpha": jnp.float32(self.alpha)}
        log_alpha = jnp.float32(math.log(self.alpha))
        return {"log_alpha": Slot(log_alpha, None, self.optimiser.init(log_alpha))}

    def temperature(self, own: Any) -> Array:
        """The current α."""
        return jnp.exp(own["log_alpha"].live) if self.tuned else own["alpha"]

    def density(self, log_prob: Array) -> Array:
        """log π in the units in which it is counted."""
        return log_prob if self.scale is None else operators.env_log_prob(log_prob, jnp.array(self.scale))

    def bonus(self, own: Any, log_prob: Array) -> Array:
        """−α log π(ã|s)."""
        return -self.temperature(own) * self.density(log_prob)

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """The soft objective under the new critics; `learn` looks at log π."""
        action, log_prob = self.actor.sample(noise, self.actor.output(params, batch.obs))
        q = self.critic.worst(self.critic.q(critic, batch.obs, action))
        alpha = stop_gradient(self.temperature(own))
        return jnp.mean(alpha * self.density(log_prob) - q), log_prob

    def learn(self, own: Any, seen: Array) -> tuple[Any, Metrics]:
        """L_α = −mean[log α · (log π + H̄)]; the logged α is the one that was used in this update."""
        density = self.density(seen)
        metrics = {"alpha": self.temperature(own), "entropy": -jnp.mean(density)}
        if not self.tuned:
            return own, metrics

        def loss(log_alpha: Array) -> tuple[Array, Array]:
            value = operators.temperature_loss(log_alpha, density, self.target_entropy)
            return value, value

        slot, value = descend(self.optimiser, own["log_alpha"], loss)
        return {"log_alpha": slot}, metrics | {"loss/alpha": value}


@dataclasses.dataclass(frozen=True)
class FirstCritic:
    """L_π = −mean Q_1(s, π(s)): the first critic alone (TD3)."""

    actor: Actor
    critic: Critic
    metric_names: tuple[str, ...] = ()

    def init(self) -> Any:
        """No state."""
        return ()

    def bonus(self, own: Any, log_prob: Array) -> Array:
        """No entropy exists."""
        return jnp.zeros_like(log_prob)

    def judge(self, critic: Params, state: Any) -> Params:
        """The one critic that judges the policy, as an ensemble of one."""
        return jax.tree.map(lambda leaf: leaf[:1], critic)

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """−mean Q_1 at the policy's own actions."""
        action = self.actor.output(params, batch.obs)
        return -jnp.mean(self.critic.q(self.judge(critic, state), batch.obs, action)[0]), ()

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """Nothing to learn."""
        return own, {}
