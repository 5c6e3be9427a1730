"""The scale of rewards, found while collecting: host state beside the statistics of observations.

    G ← γ G + r along every lane's episode, from 0 at its start
    divisor = max(√(Var G + 1e-8), max |G| / bound)

The variance is the population's over every G so far, so returns come to have a deviation of about one and stay within the bound
(SimbaV2, Lee et al. 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline.networks.normaliser import TINY, init_statistics, observe

Scale = dict[str, Any]


def init_scale(lanes: int) -> Scale:
    """A scale that has met no reward yet and leaves rewards nearly as they are."""
    return {"returns": init_statistics(1), "running": np.zeros(lanes), "largest": np.zeros(())}


def met(scale: Scale, gamma: float, steps: Sequence[Any]) -> Scale:
    """The scale after these transitions, one of each lane that did not fail."""
    if not steps:
        return scale
    lanes = [step.lane for step in steps]
    running = scale["running"].copy()
    running[[step.lane for step in steps if step.first]] = 0.0  # what was cut has told no end
    running[lanes] = gamma * running[lanes] + [step.reward for step in steps]
    largest = np.maximum(scale["largest"], np.abs(running[lanes]).max())
    returns = observe(scale["returns"], running[lanes, None])
    running[[step.lane for step in steps if step.terminated or step.truncated]] = 0.0
    return {"returns": returns, "running": running, "largest": largest}


def divisor(scale: Scale, bound: float) -> Array:
    """What rewards are divided by."""
    return jnp.maximum(jnp.sqrt(scale["returns"]["variance"][0] + TINY), scale["largest"] / bound)
