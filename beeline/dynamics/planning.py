"""What sequences of actions are worth under a learned model, and the search for the best one (PETS, Chua et al. 2018).

A sequence is scored by particles: each starts at the observation, and every member of the ensemble moves as many of them and
draws each next observation from its Gaussian. The score is the mean over particles of Σ_t r_t; after a terminal state a particle
is paid nothing more. Particles keep their member (`tsinf`), or are dealt out among the members anew after every step (`ts1`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from beeline.cem import TruncatedCem
from beeline.dynamics.ensemble import GaussianEnsemble, ModelState

if TYPE_CHECKING:
    from beeline.envs.known import Known

PROPAGATIONS = ("tsinf", "ts1")
WORST = -1e6  # the worth of a particle whose rewards are not finite


@dataclasses.dataclass(frozen=True)
class Planner:
    """The search for a sequence of `horizon` actions; `reward` None takes what the model predicts."""

    model: GaussianEnsemble
    search: TruncatedCem
    horizon: int
    particles: int  # of each member
    propagation: str
    terminated: Known
    reward: Known | None = None

    @property
    def size(self) -> int:
        """Numbers of a sequence."""
        return self.horizon * self.model.action_dim

    def plan(self, state: ModelState, obs: Array, start: Array, key: Array) -> Array:
        """The best sequences found `[B, horizon, m]` from observations `[B, d]`, the search beginning at `start` likewise."""

        def score(candidates: Array, key: Array) -> Array:
            return self.worth(state, obs, candidates.reshape(*candidates.shape[:2], self.horizon, -1), key)

        return self.search.search(score, start.reshape(len(obs), self.size), key).reshape(start.shape)

    def worth(self, state: ModelState, obs: Array, actions: Array, key: Array) -> Array:
        """The scores `[P, B]` of sequences `[P, B, horizon, m]` from observations `[B, d]`."""
        members, population, lanes = self.model.members, *actions.shape[:2]
        shape = (members, self.particles, population, lanes)

        def rows(each: Array) -> Array:
            return jnp.broadcast_to(each, (*shape, each.shape[-1])).reshape(members, -1, each.shape[-1])

        def step(carry: tuple[Array, Array, Array], now: tuple[Array, Array]) -> tuple[Any, None]:
            obs, total, alive = carry
            key, action = now[0], rows(now[1])
            draw, deal = jax.random.split(key)
            noise = jax.random.normal(draw, (*obs.shape[:-1], self.model.outputs))
            after, reward = self.model.sample(state, obs, action, noise)
            if self.reward is not None:
                reward = self.reward(obs, action, after)
            total = total + jnp.where(alive, reward, 0.0)
            alive = alive & ~self.terminated(obs, action, after)
            if self.propagation == "ts1":
                after, total, alive = (dealt(deal, each, shape) for each in (after, total, alive))
            return (after, total, alive), None

        begin = rows(obs)
        carry = (begin, jnp.zeros(begin.shape[:-1]), jnp.ones(begin.shape[:-1], bool))
        steps = (jax.random.split(key, self.horizon), jnp.moveaxis(actions, 2, 0))
        (_, total, _), _ = jax.lax.scan(step, carry, steps)
        total = jnp.where(jnp.isfinite(total), total, WORST)
        return total.reshape(-1, population, lanes).mean(axis=0)


def dealt(key: Array, rows: Array, shape: tuple[int, int, int, int]) -> Array:
    """Rows `[E, K · P · B, …]` with the E · K particles of each of P sequences in each of B lanes in a new order."""
    members, particles, *groups = shape
    order = jnp.argsort(jax.random.uniform(key, (members * particles, *groups)), axis=0)
    split = rows.reshape(members * particles, *groups, *rows.shape[2:])
    order = order.reshape(*order.shape, *(1,) * (split.ndim - order.ndim))
    return jnp.take_along_axis(split, order, axis=0).reshape(rows.shape)
