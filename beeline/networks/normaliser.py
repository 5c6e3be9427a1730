"""Running statistics of what is met, in double precision on the host, and the scaling made from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline.graph import Graph

Statistics = dict[str, np.ndarray]
TINY = 1e-8  # added to the variance: what never changes is not divided by zero


def init_statistics(width: int) -> Statistics:
    """Statistics that have met nothing yet and leave observations as they are.

    Double precision is not a luxury: in single precision a count stops at 2^24, and the variance grows from there on.
    """
    return {"count": np.zeros(()), "mean": np.zeros(width), "variance": np.ones(width)}


def observe(statistics: Statistics, rows: np.ndarray) -> Statistics:
    """Merge rows `[n, width]` into the statistics (Chan et al. 1979); the variance is the population's."""
    rows = np.asarray(rows, np.float64)
    count, batch = statistics["count"], float(rows.shape[0])
    total = count + batch
    delta = rows.mean(axis=0) - statistics["mean"]
    mean = statistics["mean"] + delta * (batch / total)
    within = statistics["variance"] * count + rows.var(axis=0) * batch
    return {"count": total, "mean": mean, "variance": (within + np.square(delta) * (count * batch / total)) / total}


def normalise(statistics: Any, obs: Array, clip: float = 10.0) -> Array:
    """Observations in units of their running deviation, clipped; unchanged where there are no statistics."""
    if statistics is None:
        return obs
    scaled = (obs - statistics["mean"]) * jax.lax.rsqrt(statistics["variance"] + TINY)
    return jnp.clip(scaled, -clip, clip)


def write_normalised(graph: Graph, statistics: Any, x: str, clip: float = 10.0) -> str:
    """`normalise` as operations of a graph."""
    if statistics is None:
        return x
    variance = np.asarray(statistics["variance"], np.float32)
    centred = graph.add("Sub", x, graph.constant(statistics["mean"]))
    scaled = graph.add("Mul", centred, graph.constant(1.0 / np.sqrt(variance + np.float32(TINY))))
    return graph.bounded(scaled, -clip, clip)
