"""The cross-entropy method: a search for the inputs at which a score is highest, many of them side by side.

Candidates are drawn around a mean, the best of them make the next mean and spread. Nothing here knows what is scored: actions
under a critic (`Cem`, as GRAC searches), or sequences of them under a model (`TruncatedCem`, as PETS does).
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


@dataclasses.dataclass(frozen=True)
class TruncatedCem:
    """Candidates from normals cut at two deviations, as in PETS (Chua et al. 2018; kchua/handful-of-trials, `cem.py`).

    The deviation of a coordinate is at most half its mean's distance from the nearer bound, so no candidate is outside. With the
    mean m and the variance v of the `elites` best (over all of them: ddof 0), μ ← α μ + (1 − α) m and σ² ← α σ² + (1 − α) v.
    A search ends early once no variance is above `least`; what is found is the last mean.
    """

    population: int = 400
    elites: int = 40
    iterations: int = 5
    momentum: float = 0.1  # α
    least: float = 1e-3
    low: float = -1.0
    high: float = 1.0

    @property
    def variance(self) -> float:
        """Of the first candidates: the squared width of the box by 16."""
        return (self.high - self.low) ** 2 / 16.0

    def candidates(self, key: Array, mean: Array, variance: Array) -> Array:
        """`population` draws around each mean, `[P, B, D]`."""
        room = jnp.minimum(mean - self.low, self.high - mean) / 2.0
        deviation = jnp.sqrt(jnp.minimum(jnp.square(room), variance))
        drawn = jax.random.truncated_normal(key, -2.0, 2.0, (self.population, *mean.shape))
        return mean + drawn * deviation

    def refit(self, mean: Array, variance: Array, candidates: Array, scores: Array) -> tuple[Array, Array]:
        """The next mean and variance, from the best candidates."""
        order = jnp.argsort(-scores, axis=0)[: self.elites]
        best = jnp.take_along_axis(candidates, order[..., None], axis=0)
        kept = self.momentum
        return kept * mean + (1.0 - kept) * best.mean(0), kept * variance + (1.0 - kept) * best.var(0)

    def search(self, score: Callable[[Array, Array], Array], start: Array, key: Array) -> Array:
        """The mean that a search from `start`, `[B, D]`, ends with; each row's search ends by itself.

        `score` is given a key of its own in every iteration.
        """

        def active(variance: Array) -> Array:
            return jnp.max(variance, axis=-1, keepdims=True) > self.least

        def goes_on(carry: tuple[Array, Array, Array]) -> Array:
            number, _, variance = carry
            return (number < self.iterations) & active(variance).any()

        def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            number, mean, variance = carry
            draw, judge = jax.random.split(jax.random.fold_in(key, number))
            drawn = self.candidates(draw, mean, variance)
            refitted = self.refit(mean, variance, drawn, score(drawn, judge))
            on = active(variance)
            mean, variance = (jnp.where(on, new, old) for new, old in zip(refitted, (mean, variance), strict=True))
            return number + 1, mean, variance

        begin = (jnp.int32(0), start, jnp.full_like(start, self.variance))
        return jax.lax.while_loop(goes_on, iterate, begin)[1]
