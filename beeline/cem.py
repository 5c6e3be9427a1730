"""The cross-entropy method: a search for the inputs at which a score is highest, many of them side by side.

Candidates are drawn around a mean, the best of them make the next mean and spread. Nothing here knows what is scored: actions
under a critic (GRAC), or sequences of them under a model (PETS).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Score = Callable[[Array], Array]  # candidates [P, B, D] -> [P, B]


class Found(NamedTuple):
    """What a search ends with: the best inputs, their scores, and those of where it began."""

    best: Array
    score: Array
    before: Array


@dataclasses.dataclass(frozen=True)
class Cem:
    """Gaussian candidates with a spread per coordinate, the best of them weighted by rank (as in GRAC's `ES.py`).

    With parents z_1 … z_k of the last mean μ, best first, w_i ∝ log((k + 1) / i) and Σ w_i = 1:
    μ' = Σ w_i z_i and σ² = (1/k) Σ w_i (z_i − μ)² + d, where d falls from `damping` towards `damping_end`.
    """

    population: int = 25
    parents: int = 5
    iterations: int = 2
    variance: float = 0.01  # of the first candidates
    reach: float = 0.5  # bound on a candidate's distance from the mean, in every coordinate
    damping: float = 0.1
    damping_end: float = 0.05
    low: float = -1.0
    high: float = 1.0

    @property
    def weights(self) -> Array:
        """w_1 … w_k."""
        raw = [math.log((self.parents + 1) / rank) for rank in range(1, self.parents + 1)]
        return jnp.array(raw) / sum(raw)

    def noise(self, key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """What a search for inputs of this shape draws: the candidates' noise, and its first elite U(0, √variance)."""
        normal, uniform = jax.random.split(key)
        drawn = jax.random.normal(normal, (self.iterations, self.population, *shape))
        return drawn, math.sqrt(self.variance) * jax.random.uniform(uniform, shape)

    def search(self, score: Score, start: Array, noise: tuple[Array, Array]) -> Found:
        """The best candidate of the last iteration, or where it began, `[B, D]`, if that scores higher.

        The last candidate of every iteration is the best one of the iteration before.
        """
        drawn, elite = noise
        mean, variance, damping, before = start, jnp.full_like(start, self.variance), self.damping, None
        for number in range(self.iterations):
            spread = jnp.clip(drawn[number] * jnp.sqrt(variance), -self.reach, self.reach)
            candidates = jnp.clip((mean + spread).at[-1].set(elite), self.low, self.high)
            if before is None:  # where it begins is scored in one call with the first candidates
                scores = score(jnp.concatenate([candidates, start[None]]))
                scores, before = scores[:-1], scores[-1]
            else:
                scores = score(candidates)
            order = jnp.argsort(-scores, axis=0)[: self.parents]
            parents = jnp.take_along_axis(candidates, order[..., None], axis=0)
            damping = 0.95 * damping + 0.05 * self.damping_end
            variance = jnp.tensordot(self.weights, jnp.square(parents - mean), axes=1) / self.parents + damping
            mean = jnp.tensordot(self.weights, parents, axes=1)
            elite, best = parents[0], jnp.take_along_axis(scores, order[:1], axis=0)[0]
        assert before is not None
        worse = best < before
        return Found(jnp.where(worse[..., None], start, elite), jnp.where(worse, before, best), before)
