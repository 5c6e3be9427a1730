"""The parts of OBAC: an in-sample critic beside SAC's own, and a policy that clones the buffer where that critic is ahead."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline import operators
from beeline.agents.backup import VALUE_NAMES, Exploit, Noise, Soft, Terms, Valued, follow
from beeline.agents.objective import Entropy, Metrics
from beeline.memory import Batch
from beeline.networks import Draw, Learnable, Params

LOW, HIGH = -20.0, 2.0  # bounds of the cloned log-density, for each dimension


@dataclasses.dataclass(frozen=True)
class Beside(Valued, Soft):
    """SAC's target, and beside it Q^μ ← r + γ m V^μ(s') with V^μ in-sample on Q̄^μ_min(s, a). Q^μ begins as Q^π does."""

    value: Learnable
    loss: Exploit
    metric_names: tuple[str, ...] = ("loss/behaviour", *VALUE_NAMES, "q/behaviour")

    def draw(self, seed: int, at: int) -> Any:
        """Initial parameters; Q^μ's are drawn as the critics' are."""
        critic = self.critic.learnable.draw(Draw(seed, "init/critic", at))
        return {"critic": critic, "value": self.value.draw(Draw(seed, "init/value", at))}

    def init(self, drawn: Any) -> Any:
        """Both in slots."""
        return {"critic": self.critic.learnable.slot(drawn["critic"]), "value": self.value.slot(drawn["value"])}

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """Steps of Q^μ and V^μ, both from the parameters of the start."""
        obs, action = batch.obs, batch.action
        y = operators.bellman_target(batch.reward, batch.discount, self.v(own["value"].live, batch.next_obs))
        aim = self.critic.worst(self.critic.q(own["critic"].target, obs, action))

        def critic_loss(params: Params) -> tuple[Array, Metrics]:
            out = self.critic.out(params, obs, action)
            loss = self.critic.loss(out, y)
            return loss, {"loss/behaviour": loss, "q/behaviour": jnp.mean(self.critic.worst(self.critic.head.value(out)))}

        critic, metrics = self.critic.learnable.step(own["critic"], critic_loss)
        after, told, _ = self.regressed(own, obs, aim, self.loss)
        return after | {"critic": critic}, metrics | told

    def follow(self, own: Any, tau: float) -> Any:
        """Q̄^μ."""
        return own | {"critic": follow(own["critic"], tau)}

    def renewed(self, own: Any, fresh: Any) -> Any:
        """Both anew."""
        return fresh


@dataclasses.dataclass(frozen=True)
class Cloning(Entropy):
    """SAC's L_π − w mean[clip(log N(a; μ(s), σ(s)), −20, 2)] where mean Q^μ_min(s, a) > mean Q^π_min(s, ã) (OBAC).

    The density is that of the Gaussian before tanh at the buffer's action itself, as in the authors' code.
    """

    weight: float = 0.0

    @property
    def metric_names(self) -> tuple[str, ...]:
        """SAC's, and whether the buffer was cloned."""
        return (*super().metric_names, "q/policy", "cloning")

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """The soft objective, and the cloning one where the buffer is ahead."""
        mean, log_std = output = self.actor.output(params, batch.obs)
        action, log_prob = self.actor.sample(noise, output)
        q = self.critic.worst(self.critic.q(critic, batch.obs, action))
        behaviour = self.critic.worst(self.critic.q(state.backup["critic"].live, batch.obs, batch.action))
        policy = stop_gradient(jnp.mean(q))
        behind = (policy < jnp.mean(behaviour)).astype(q.dtype)
        z = (batch.action - mean) * jnp.exp(-log_std)
        density = jnp.clip(-0.5 * jnp.square(z) - log_std - 0.5 * math.log(2 * math.pi), LOW, HIGH)
        alpha = stop_gradient(self.temperature(own))
        loss = jnp.mean(alpha * self.density(log_prob) - q) - behind * self.weight * jnp.mean(density)
        return loss, (log_prob, {"q/policy": policy, "cloning": behind})

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """SAC's."""
        own, metrics = super().learn(own, seen[0])
        return own, metrics | seen[1]
