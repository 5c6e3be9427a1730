"""The target: y = r + γ m (1/K) Σ_k [min_i Q̄_i(s', a'_k) − α log π(a'_k|s')] with a'_k ~ π(·|s')."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from beeline import operators
from beeline.agents.backup import Soft, Terms


@dataclass(frozen=True)
class Expected(Soft):
    """The soft target averaged over `samples` actions of the policy."""

    samples: int = 4

    @property
    def streams(self) -> tuple[str, ...]:
        """One stream of noise per action. The first is SAC's own, so that one sample is SAC to the byte."""
        return ("explore", *(f"explore/{k}" for k in range(1, self.samples)))

    def look(self, state: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
        """K actions at s': the pairs at which the target critics are asked, and log π of each."""
        output = self.actor.output(state.actor.live, batch.next_obs)
        drawn = [self.actor.sample(noise[name], output) for name in self.streams]
        return [(batch.next_obs, action) for action, _ in drawn], [log_prob for _, log_prob in drawn]

    def terms(self, state: Any, batch: Any, seen: Any, answers: Any) -> Terms:
        """The mean of the K soft values, bootstrapped."""
        alpha, density, worst = self.entropy.temperature(state.objective), self.entropy.density, self.critic.worst
        values = [operators.entropy_value(worst(q), density(log_prob), alpha) for q, log_prob in zip(answers, seen)]
        value = jnp.mean(jnp.stack(values), axis=0)
        return Terms(operators.bellman_target(batch.reward, batch.discount, value), value)
