"""The exchangeable parts of the update: explore terms, exploit estimators and blends.

A part may own parameters, an optimiser and a loss; its state is a pytree that the update carries for it. The update
composes parts by these methods and does not know their names. Parts that own nothing have `()` for a state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.lax import stop_gradient

from beeline import operators
from beeline.agents.actors import Actor
from beeline.networks import Params, apply_mlp, init_mlp

Metrics = dict[str, Array]


def gradient_step(optimiser: Any, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    """One optimiser step: new parameters and new optimiser state."""
    updates, state = optimiser.update(gradients, state, params)
    return optax.apply_updates(params, updates), state


# --- explore: ω in T_explore = r + γ m E_π[Q(s', a') − ω] ------------------------------------------------------------


class ExploreTerm(Protocol):
    """The exploration term, and the policy objective that belongs to it."""

    @property
    def target_actor(self) -> bool:
        """Whether T_explore looks at a slowly following copy of the policy."""

    @property
    def policy_critics(self) -> int | None:
        """How many of the critics the policy objective looks at; None: all."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The logged quantities."""

    def init(self) -> Any:
        """The term's state."""

    def next_action(self, noise: Array, actor: Actor, output: Any) -> tuple[Array, Array]:
        """The action at s' that T_explore looks at, for standard noise, and its log π."""

    def value(self, state: Any, q: Array, log_prob: Array) -> Array:
        """Q(s', a') − ω for each sample, given the ensemble's Q `[E, B]`."""

    def bonus(self, state: Any, log_prob: Array) -> Array:
        """−ω(ã|s), as the BAC release subtracts it from V in the exploit regression."""

    def policy_loss(self, state: Any, q: Array, log_prob: Array) -> Array:
        """What the policy minimises, given Q `[policy_critics, B]` at its own actions."""

    def update(self, state: Any, log_prob: Array) -> tuple[Any, Metrics]:
        """The term's own learning step, with the log π of the policy step."""


@dataclasses.dataclass(frozen=True)
class Entropy:
    """ω = α log π (SAC), with α fixed or tuned towards a target entropy. A fixed α = 0 is no exploration term at all."""

    alpha: float
    tuned: bool
    target_entropy: float
    scale: tuple[float, ...] | None  # of the env's actions, in whose units log π is counted; None: in [-1, 1]
    optimiser: Any
    target_actor: bool = False
    policy_critics: int | None = None

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The logged quantities."""
        return ("alpha", "entropy", "loss/alpha") if self.tuned else ("alpha", "entropy")

    def init(self) -> Any:
        """log α and its optimiser, or the fixed α."""
        if not self.tuned:
            return {"alpha": jnp.float32(self.alpha)}
        log_alpha = jnp.float32(math.log(self.alpha))
        return {"log_alpha": log_alpha, "opt": self.optimiser.init(log_alpha)}

    def temperature(self, state: Any) -> Array:
        """The current α."""
        return jnp.exp(state["log_alpha"]) if self.tuned else state["alpha"]

    def _density(self, log_prob: Array) -> Array:
        return log_prob if self.scale is None else operators.env_log_prob(log_prob, jnp.array(self.scale))

    def next_action(self, noise: Array, actor: Actor, output: Any) -> tuple[Array, Array]:
        """One sample a' ~ π(·|s')."""
        return actor.sample(noise, output)

    def value(self, state: Any, q: Array, log_prob: Array) -> Array:
        """min_i Q̄_i(s', a') − α log π(a'|s')."""
        return operators.entropy_value(jnp.min(q, axis=0), self._density(log_prob), self.temperature(state))

    def bonus(self, state: Any, log_prob: Array) -> Array:
        """−α log π(ã|s)."""
        return -self.temperature(state) * self._density(log_prob)

    def policy_loss(self, state: Any, q: Array, log_prob: Array) -> Array:
        """L_π = mean[α log π(ã|s) − min_i Q_i(s, ã)]."""
        alpha = stop_gradient(self.temperature(state))
        return jnp.mean(alpha * self._density(log_prob) - jnp.min(q, axis=0))

    def update(self, state: Any, log_prob: Array) -> tuple[Any, Metrics]:
        """L_α = −mean[log α · (log π + H̄)]; the logged α is the one that was used in this update."""
        density = self._density(log_prob)
        metrics = {"alpha": self.temperature(state), "entropy": -jnp.mean(density)}
        if not self.tuned:
            return state, metrics
        loss, gradient = jax.value_and_grad(operators.temperature_loss)(
            state["log_alpha"], density, self.target_entropy
        )
        log_alpha, opt = gradient_step(self.optimiser, gradient, state["opt"], state["log_alpha"])
        return {"log_alpha": log_alpha, "opt": opt}, metrics | {"loss/alpha": loss}


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """Target policy smoothing (TD3): a' = clip(π̄(s') + clip(ε, −c, c)); σ = 0 is no exploration term at all."""

    sigma: float
    clip: float
    target_actor: bool = True
    policy_critics: int | None = 1
    metric_names: tuple[str, ...] = ()

    def init(self) -> Any:
        """No state."""
        return ()

    def next_action(self, noise: Array, actor: Actor, output: Any) -> tuple[Array, Array]:
        """The target policy's action with clipped noise."""
        action, log_prob = actor.sample(noise, output)
        return jnp.clip(action + operators.smoothing_noise(noise, self.sigma, self.clip), -1.0, 1.0), log_prob

    def value(self, state: Any, q: Array, log_prob: Array) -> Array:
        """min_i Q̄_i(s', a')."""
        return jnp.min(q, axis=0)

    def bonus(self, state: Any, log_prob: Array) -> Array:
        """No entropy exists."""
        return jnp.zeros_like(log_prob)

    def policy_loss(self, state: Any, q: Array, log_prob: Array) -> Array:
        """L_π = −mean Q_1(s, π(s)): the first critic alone."""
        return -jnp.mean(q[0])

    def update(self, state: Any, log_prob: Array) -> tuple[Any, Metrics]:
        """Nothing to learn."""
        return state, {}


# --- exploit: V in T_exploit = r + γ m V(s') --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class InSampleMaximum:
    """A network V(s) fitted to the buffer's actions so that it leans to the maximum of Q (expectile, sparse, exponential).

    With `entropy`, V regresses to Q̄_min(s, a) − bonus(ã|s) as in the BAC release; without, to Q̄_min(s, a) as in the paper.
    """

    loss_name: str
    strength: float
    entropy: bool
    hidden: Sequence[int]
    body: str
    initialiser: str
    optimiser: Any
    metric_names: tuple[str, ...] = ("loss/exploit", "v/mean", "v/minus_q")

    def draw(self, draw: np.random.Generator, obs_dim: int) -> Params:
        """V's initial parameters."""
        return init_mlp(draw, (obs_dim, *self.hidden, 1), self.body, self.initialiser)

    def init(self, params: Params) -> Any:
        """V's parameters and optimiser."""
        return {"params": params, "opt": self.optimiser.init(params)}

    def value(self, params: Params, obs: Array) -> Array:
        """V(s) for each sample."""
        return apply_mlp(params, obs, self.body)[..., 0]

    def update(self, state: Any, obs: Array, q: Array, bonus: Array | None) -> tuple[Any, Metrics]:
        """One step on the exploit loss, for u = Q̄_min(s, a) − (V(s) + bonus); the bonus is needed with `entropy` alone."""
        aim = stop_gradient(q if bonus is None else q - bonus)

        def loss(params: Params) -> tuple[Array, Array]:
            v = self.value(params, obs)
            return jnp.mean(operators.EXPLOIT[self.loss_name](aim, v, self.strength)), v

        (value, v), gradients = jax.value_and_grad(loss, has_aux=True)(state["params"])
        params, opt = gradient_step(self.optimiser, gradients, state["opt"], state["params"])
        metrics = {"loss/exploit": value, "v/mean": jnp.mean(v), "v/minus_q": jnp.mean(v - q)}
        return {"params": params, "opt": opt}, metrics


# --- blends: λ in y = λ T_exploit + (1 − λ) T_explore -----------------------------------------------------------------


class Signals(NamedTuple):
    """What a blend may look at, per sample and without gradient."""

    exploit: Array  # T_exploit
    explore: Array  # T_explore
    explore_value: Array  # Q̄_min(s', a') − ω
    q: Array  # Q_min(s, a)
    target_q: Array  # Q̄_min(s, a)


class Blend(Protocol):
    """Chooses λ; returns the target, λ per sample and the next state."""

    def init(self, batch_size: int) -> Any:
        """The blend's state."""

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The target y, λ of each sample, and the next state."""


@dataclasses.dataclass(frozen=True)
class FixedBlend:
    """One λ for all samples; it lives in the state, so a compiled update serves every λ."""

    lam: float

    def init(self, batch_size: int) -> Any:
        """λ as a traced number."""
        return {"lam": jnp.float32(self.lam)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """λ T_exploit + (1 − λ) T_explore."""
        return *operators.blend_fixed(signals.exploit, signals.explore, state["lam"]), state


@dataclasses.dataclass(frozen=True)
class ExtremeBlend:
    """The smaller or the larger target of each sample."""

    largest: bool

    def init(self, batch_size: int) -> Any:
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

    def init(self, batch_size: int) -> Any:
        """δ of the previous update; ones before the first."""
        return {"delta": jnp.ones(batch_size)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The blend under the ratio of this update's δ to the last one's."""
        delta = (signals.explore_value if self.h2o else signals.target_q) - signals.q
        lam = operators.ada_ratio(delta, state["delta"])
        return operators.blend(signals.exploit, signals.explore, lam), lam, {"delta": delta}


@dataclasses.dataclass(frozen=True)
class AdaBatchBlend:
    """λ = clip(mean|y − Q| / previous mean, 0, 1) with y under the last λ: one λ per batch, close to 1 in practice."""

    def init(self, batch_size: int) -> Any:
        """The previous mean error and λ."""
        return {"error": jnp.float32(1.0), "lam": jnp.float32(0.5)}

    def __call__(self, state: Any, signals: Signals) -> tuple[Array, Array, Any]:
        """The blend under the ratio of mean errors."""
        error = operators.blend(signals.exploit, signals.explore, state["lam"]) - signals.q
        lam, mean = operators.ada_batch_ratio(error, state["error"])
        return operators.blend(signals.exploit, signals.explore, lam), lam, {"error": mean, "lam": lam[0]}


def make_blend(name: str, lam: float) -> Blend:
    """The blend of that name; `lam` is used by `fixed` alone."""
    if name == "fixed":
        return FixedBlend(lam)
    if name in ("min", "max"):
        return ExtremeBlend(largest=name == "max")
    return AdaBatchBlend() if name == "ada_batch" else AdaBlend(h2o=name == "ada_h2o")
