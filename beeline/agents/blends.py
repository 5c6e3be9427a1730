"""Blends: how λ is chosen in y = λ T_exploit + (1 − λ) T_explore."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array

from beeline import operators


class Signals(NamedTuple):
    """What a blend may look at, per sample and without gradient."""

    exploit: Array  # T_exploit
    explore: Array  # T_explore
    explore_value: Array  # Q̄_min(s', a') − ω
    q: Array  # Q_min(s, a)
    target_q: Array  # Q̄_min(s, a)


@runtime_checkable
class Blend(Protocol):
    """Chooses λ; returns the target, λ per sample and the next state. `shape` is that of the targets, `[B]` or `[K, B]`."""

    def init(self, shape: tuple[int, ...]) -> Any:
        """The blend's state."""

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The target y, λ of each sample, and the next state."""


@dataclasses.dataclass(frozen=True)
class FixedBlend:
    """One λ for all samples; it lives in the state, so a compiled update serves every λ."""

    lam: float

    def init(self, shape: tuple[int, ...]) -> Any:
        """λ as a traced number."""
        return {"lam": jnp.float32(self.lam)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """λ T_exploit + (1 − λ) T_explore."""
        return *operators.blend_fixed(signals.exploit, signals.explore, state["lam"]), state


@dataclasses.dataclass(frozen=True)
class ExtremeBlend:
    """The smaller or the larger target of each sample."""

    largest: bool

    def init(self, shape: tuple[int, ...]) -> Any:
        """No state."""
        return ()

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """min or max, element by element."""
        choose = operators.blend_max if self.largest else operators.blend_min
        return *choose(signals.exploit, signals.explore), state


@dataclasses.dataclass(frozen=True)
class AdaBlend:
    """λ_i = clip(δ_i / δ_i^prev, 0, 1) per sample slot; δ is the release's (`ada`) or that of H2O+ (`ada_h2o`)."""

    h2o: bool

    def init(self, shape: tuple[int, ...]) -> Any:
        """δ of the previous update; ones before the first."""
        return {"delta": jnp.ones(shape)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The blend under the ratio of this update's δ to the last one's."""
        delta = (signals.explore_value if self.h2o else signals.target_q) - signals.q
        lam = operators.ada_ratio(delta, state["delta"])
        return operators.blend(signals.exploit, signals.explore, lam), lam, {"delta": delta}


@dataclasses.dataclass(frozen=True)
class AdaBatchBlend:
    """λ = clip(mean|y − Q| / previous mean, 0, 1) with y under the last λ: one λ per batch, close to 1 in practice."""

    def init(self, shape: tuple[int, ...]) -> Any:
        """The previous mean error and λ."""
        return {"error": jnp.float32(1.0), "lam": jnp.float32(0.5)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The blend under the ratio of mean errors."""
        error = operators.blend(signals.exploit, signals.explore, state["lam"]) - signals.q
        lam, mean = operators.ada_batch_ratio(error, state["error"])
        return operators.blend(signals.exploit, signals.explore, lam), lam, {"error": mean, "lam": jnp.ravel(lam)[0]}


def make_blend(name: Any, lam: float) -> Blend:
    """The blend of that name, or the object itself; `lam` is used by `fixed` alone."""
    if not isinstance(name, str):
        return name
    if name == "fixed":
        return FixedBlend(lam)
    if name in ("min", "max"):
        return ExtremeBlend(largest=name == "max")
    return AdaBatchBlend() if name == "ada_batch" else AdaBlend(h2o=name == "ada_h2o")
