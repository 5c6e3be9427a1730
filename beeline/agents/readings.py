"""What instruments read off an off-policy agent: its actions, Q, V and λ, as pure functions of its state (`base.Judged`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax import Array

from beeline.agents.backup import Bee
from beeline.memory import Batch
from beeline.networks import normalise
from beeline.networks.rewards import divisor

if TYPE_CHECKING:
    from beeline.agents.actors import Actor
    from beeline.agents.backup import Backup
    from beeline.agents.base import Spaces
    from beeline.agents.critic import Critic
    from beeline.agents.objective import Objective
    from beeline.agents.options import OffPolicyConfig

BOUND = 5.0  # of discounted returns whose rewards are scaled (SimbaV2)


class Readings:
    """The readings of `OffPolicy`, whose parts these are."""

    if TYPE_CHECKING:
        actor: Actor
        critic: Critic
        objective: Objective
        backup: Backup
        spaces: Spaces
        config: OffPolicyConfig

        scaled: Callable[[Any, Batch], Batch]
        ask: Callable[[Any, Any], list[Array]]

    @property
    def soft(self) -> bool:
        """Whether the policy has an entropy."""
        return self.actor.stochastic

    @property
    def has_value(self) -> bool:
        """Whether there is an exploit estimator."""
        return isinstance(self.backup, Bee)

    has_blend = has_value

    def seen(self, state: Any, obs: Array) -> Array:
        """Observations as the networks see them."""
        return normalise(state.host["statistics"], obs)

    def rewarded(self, state: Any, reward: Any) -> Any:
        """Rewards in the units of Q."""
        return self.in_units(state.host, reward)

    def in_units(self, host: Any, reward: Any) -> Any:
        """Rewards `reward_scale` times, and divided by the scale that was found, where there is one."""
        scaled = self.config.reward_scale * reward
        return scaled if host["scale"] is None else scaled / divisor(host["scale"], BOUND)

    def acting(self, state: Any) -> Any:
        """Policy, statistics and temperature."""
        return state.actor.live, state.host["statistics"], state.objective

    def sample(self, acting: Any, key: Array, obs: Array) -> tuple[Array, Array]:
        """ã ~ π(·|s), deterministic where the policy is, and its bonus −α log π(ã|s)."""
        params, statistics, objective = acting
        noise = jax.random.normal(key, (*obs.shape[:-1], self.spaces.action_dim))
        action, log_prob = self.actor.sample(noise, self.actor.output(params, normalise(statistics, obs)))
        return action, self.objective.bonus(objective, log_prob)

    def q(self, state: Any, obs: Array, action: Array) -> Array:
        """Every live critic's Q(s, a)."""
        return self.critic.q(state.critic.live, self.seen(state, obs), action)

    def v(self, state: Any, obs: Array) -> Array:
        """The exploit estimator's V(s)."""
        assert isinstance(self.backup, Bee)
        return self.backup.v(state.backup["value"].live, self.seen(state, obs))

    def lam(self, state: Any, batch: Batch, key: Array) -> Array:
        """λ as the next update's blend would choose it."""
        batch = self.scaled(state.host, batch)
        noise = {name: jax.random.normal(key, batch.action.shape) for name in self.backup.streams}
        pairs, seen = self.backup.look(state, batch, noise)
        terms = self.backup.terms(state, batch, seen, self.ask(state.critic.target, pairs))
        worst = self.critic.worst(self.critic.q(state.critic.live, batch.obs, batch.action))
        assert isinstance(self.backup, Bee)
        return self.backup.blended(state.backup, terms, worst)[1]
