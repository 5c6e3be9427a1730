"""A backup around another one, for those that only look at more or say something else of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array

from beeline.agents.backup import Noise, Pairs, Terms
from beeline.agents.objective import Metrics
from beeline.memory import Batch


@dataclasses.dataclass(frozen=True)
class Around:
    """A backup that owns nothing and changes what another one looks at or says; all else is the inner one's."""

    inner: Any  # a Backup

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The inner one's."""
        return self.inner.metric_names

    @property
    def streams(self) -> tuple[str, ...]:
        """The inner one's."""
        return self.inner.streams

    def draw(self, seed: int, at: int) -> Any:
        """The inner one's."""
        return self.inner.draw(seed, at)

    def init(self, drawn: Any) -> Any:
        """The inner one's."""
        return self.inner.init(drawn)

    def reward(self, batch: Batch) -> Array:
        """The inner one's."""
        return self.inner.reward(batch)

    def look(self, state: Any, batch: Batch, noise: Noise) -> tuple[Pairs, Any]:
        """The inner one's."""
        return self.inner.look(state, batch, noise)

    def terms(self, state: Any, batch: Batch, seen: Any, answers: list[Array]) -> Terms:
        """The inner one's."""
        return self.inner.terms(state, batch, seen, answers)

    def target(self, own: Any, terms: Terms, q: Array) -> tuple[Array, Any, Metrics]:
        """The inner one's."""
        return self.inner.target(own, terms, q)

    def learn(self, own: Any, state: Any, batch: Batch, fit: Batch | None, terms: Terms, noise: Noise) -> tuple[Any, Metrics]:
        """The inner one's."""
        return self.inner.learn(own, state, batch, fit, terms, noise)

    def follow(self, own: Any, tau: float) -> Any:
        """The inner one's."""
        return self.inner.follow(own, tau)

    def renewed(self, own: Any, fresh: Any) -> Any:
        """The inner one's."""
        return self.inner.renewed(own, fresh)
