"""MB-BAC as the paper's text has it: T_exploit on what was met, T_explore on what was imagined, each in a loss of its own.

    L_Q = λ Σ_i mean_{B_e} (Q_i(s, a) − T_exploit)² + (1 − λ) Σ_i mean_B (Q_i(s, a) − T_explore)²

B_e are the real transitions that V is fitted on, B is the batch of real and imagined ones, on which policy and α learn too. With
both the same it is the update of `Bee`: the two losses differ by λ (1 − λ) (T_exploit − T_explore)², which no parameter moves.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from beeline.agents.backup import Bee
from beeline.agents.objective import Metrics
from beeline.agents.off_policy import OffPolicy, State
from beeline.memory import Batch
from beeline.networks import Params


class Apart(OffPolicy):
    """The agent whose backup is a `Bee` with one λ for all samples, and whose data bring a batch to fit V on."""

    backup: Bee

    def _critic_step(self, now: State, batch: Batch, fit: Batch | None, terms: Any) -> tuple[State, Metrics]:
        """A step of the critics on both losses, with V as it was before this update."""
        assert fit is not None
        met, lam, exploit = fit, now.backup["blend"]["lam"], self.backup.exploit(now, fit)

        def critic_loss(params: Params) -> tuple[Array, Metrics]:
            out = self.critic.out(params, batch.obs, batch.action)
            on_met = self.critic.loss(self.critic.out(params, met.obs, met.action), exploit)
            loss = lam * on_met + (1.0 - lam) * self.critic.loss(out, terms.target)
            return loss, {"loss/critic": loss, "q/mean": jnp.mean(self.critic.head.value(out))}

        critic, metrics = self.critic.learnable.step(now.critic, critic_loss)
        means = jnp.mean(exploit), jnp.mean(terms.target)
        metrics |= {"lambda": lam, "q/exploit_target": means[0], "q/explore_target": means[1]}
        target = lam * means[0] + (1.0 - lam) * means[1]
        return dataclasses.replace(now, critic=critic), {**terms.told, **metrics, "q/target": target}
