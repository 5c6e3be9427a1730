"""The backup of MAXQ, which looks at the action that was taken at s'."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from beeline import operators
from beeline.agents.around import Around
from beeline.agents.backup import Noise, Pairs, Terms
from beeline.agents.critic import Critic
from beeline.memory import Batch


@dataclasses.dataclass(frozen=True)
class Maxq(Around):
    """r + γ m max(v(s'), min_i Q̄_i(s', a_next)) per sample, where v is what the inner backup bootstraps from.

    a_next is the action that was taken at s' in the same episode. Where there is none (the episode was cut at s', or s' is the
    newest observation) it is the inner backup's target.
    """

    critic: Critic

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The inner one's, and how often the action that was taken is the better one."""
        return (*self.inner.metric_names, "taken")

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """What the inner backup asks, and Q̄(s', a_next)."""
        pairs, seen = self.inner.look(state, batch, noise)
        return [*pairs, (batch.next_obs, _extra(batch, "next_action"))], seen

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The larger value of each sample, bootstrapped."""
        inner = self.inner.terms(state, batch, seen, answers[:-1])
        taken = self.critic.worst(answers[-1])
        better = _extra(batch, "next_action_valid") & (taken > inner.value)
        value = jnp.where(better, taken, inner.value)
        reward = self.reward(batch)
        target = operators.bellman_target(reward, jnp.broadcast_to(batch.discount, reward.shape), value)
        return inner._replace(target=target, value=value, told={**inner.told, "taken": jnp.mean(better)})


def _extra(batch: Batch, name: str) -> Array:
    assert batch.extras is not None, "MAXQ learns from batches that bring the action taken at s'"
    return batch.extras[name]
