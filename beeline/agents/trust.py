"""The agent of TRPO (Schulman et al. 2015): rollouts and advantages as PPO's, one step of the policy inside a trust region.

One update, its details those of SLBO's inner optimiser (Luo et al. 2019):
  1. δ_t, A_t and R_t as in `on_policy.py`; A is centred and scaled over the whole rollout
  2. one `trust_step` on mean(ρ A) + c_H H(π) under mean KL(π_old ‖ π)
  3. in every epoch, for every minibatch of a new order: one Adam step on mean (V − R)²
  4. the observations of the rollout enter the statistics by which the next one is scaled
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline.agents.natural import TrustRegion, trust_step
from beeline.agents.on_policy import Metrics, OnPolicy, Rows, Slots
from beeline.networks import Params, Slot

if TYPE_CHECKING:
    from beeline.agents.trpo import TRPOConfig


class TRPO(OnPolicy):
    """One natural step of the policy per rollout, then several epochs of V."""

    config: TRPOConfig
    metric_names = (
        "loss/value", "entropy", "ratio/first", "step/gain", "step/kl", "step/share", "step/tries", "step/gradient", "v/mean",
        "v/explained",
    )  # fmt: skip

    @property
    def region(self) -> TrustRegion:
        """The options that say how far a step may go."""
        config = self.config
        return TrustRegion(
            radius=config.radius, slack=config.slack, damping=config.damping, iterations=config.cg_iterations,
            tries=config.search_tries,
        )  # fmt: skip

    def learn(self, slots: Slots, flat: Rows, extras: Mapping[str, Array]) -> tuple[Slots, Metrics]:
        """The policy's step, then V's epochs."""
        policy, value = slots
        live, told = self.policy_step(policy.live, flat)

        def fit(slot: Slot, order: Array) -> tuple[Slot, Array]:
            def loss(params: Params) -> tuple[Array, Array]:
                error = jnp.mean(jnp.square(self._value(params, flat["obs"][order]) - flat["target"][order]))
                return error, error

            return self.learnables["value"].step(slot, loss)

        value, errors = jax.lax.scan(fit, value, extras["order"])
        return (policy._replace(live=live), value), told | {"loss/value": jnp.mean(errors)}

    def policy_step(self, params: Params, rows: Rows) -> tuple[Params, Metrics]:
        """One `trust_step` on the surrogate of these rows."""
        advantage = rows["advantage"] - jnp.mean(rows["advantage"])
        advantage = advantage / jnp.maximum(jnp.std(advantage), 1e-8)
        old = stop_gradient((self.net.apply(params, rows["obs"]), params["log_std"]))
        before = stop_gradient(self.net.log_prob(params, rows["obs"], rows["action"]))

        def surrogate(params: Params) -> Array:
            ratio = jnp.exp(self.net.log_prob(params, rows["obs"], rows["action"]) - before)
            return jnp.mean(ratio * advantage) + self.config.entropy_weight * self.net.entropy(params)

        def divergence(params: Params) -> Array:
            return jnp.mean(self.net.divergence(old, params, rows["obs"]))

        moved, told = trust_step(params, surrogate, divergence, self.region)
        first = jnp.max(jnp.abs(jnp.exp(before - rows["log_prob"]) - 1.0))
        return moved, told | {"entropy": self.net.entropy(params), "ratio/first": first}
