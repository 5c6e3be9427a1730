"""Probabilistic ensembles (Chua et al. 2018): each member says of (s, a) how Δs = s' − s and the reward r are distributed.

    μ, ℓ = net([s, a] in units of their deviation);  ℓ bent softly below max and above min, both learnt;  Δs, r ~ N(μ, e^ℓ)
    L = Σ_members mean_{rows, dims}[(μ − t)² e^{−ℓ} + ℓ] + .01 (Σ max − Σ min) + Σ_layers ½ c ‖W‖²

`GaussianEnsemble` is the object, like a network; its numbers are a `ModelState`. E members, B rows, d and m numbers of s and a:

    model = GaussianEnsemble(obs_dim, action_dim, members=7, hidden=(200,) * 4, decay=(2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4), …)
    model.init(Draw(seed, "init/model")) -> ModelState             before any data
    model.forward(params, x[E, B, d + m]) -> mean, log_var         [E, B, d + 1], of scaled inputs, in units of state.unit
    model.loss(params, x, target, weight[B]) -> scalar             L, rows weighted (the last batch of an epoch is short)
    model.step(slot, x, target, weight) -> slot                    one step of Adam on L
    model.scaled(state, obs, action) -> x                          [..., d + m]
    model.members_of(state, members) -> (state of these members)   the elites, say
    model.predict(state, obs[E, B, d], action[E, B, m]) -> mean, deviation of [Δs, r], [E, B, d + 1]
    model.sample(state, obs, action, noise[E, B, d + 1]) -> next_obs [E, B, d], reward [E, B]

All are pure and can be compiled. Training is in `dynamics.training`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline.networks import Draw, Params, Slot, adam
from beeline.networks.base import move

MBPO_DECAY = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)  # of the four hidden layers and the last one (janner/mbpo)
MAX_LOG_VAR, MIN_LOG_VAR = 0.5, -10.0  # where the learnt bounds begin
ACTIVATIONS = {"silu": jax.nn.silu, "relu": jax.nn.relu, "tanh": jnp.tanh}


class ModelState(NamedTuple):
    """Everything that a model has learnt; what is NumPy lives on the host."""

    slot: Slot  # {"layers": ({"w": [E, in, out], "b": [E, 1, out]}, …), "max", "min": [d + 1]} and Adam's moments
    mean: Any  # of the inputs, [d + m]
    deviation: Any  # of the inputs
    unit: Any  # in which targets are predicted, [d + 1]
    elites: np.ndarray  # the members that predict, best first
    error: np.ndarray  # mean squared error of each member on the rows held out of its last training
    trainings: np.ndarray  # how many there were


@dataclasses.dataclass(frozen=True)
class GaussianEnsemble:
    """The shape of an ensemble and how it is moved; it holds no numbers."""

    obs_dim: int
    action_dim: int
    members: int = 7
    elites: int = 5
    hidden: tuple[int, ...] = (200, 200, 200, 200)
    activation: str = "silu"
    decay: tuple[float, ...] = MBPO_DECAY  # of each layer's weights, the last one included; a single number is that of all
    rate: float = 1e-3
    bounds: bool = True  # whether the bounds of the log-variance are learnt
    reward_unit: bool = False  # predict rewards in units of their deviation

    @property
    def inputs(self) -> int:
        """Numbers of (s, a)."""
        return self.obs_dim + self.action_dim

    @property
    def outputs(self) -> int:
        """Numbers of [Δs, r]."""
        return self.obs_dim + 1

    @property
    def decays(self) -> tuple[float, ...]:
        """The decay of every layer."""
        layers = len(self.hidden) + 1
        if len(self.decay) not in (1, layers):
            raise ValueError(f"{len(self.decay)} decays for {layers} layers; give one of each, or one for all")
        return self.decay * (layers // len(self.decay))

    # --- parameters -------------------------------------------------------------------------------------------------

    def init(self, draw: Draw) -> ModelState:
        """Weights from normals of deviation 1/(2 √fan_in) cut at two of them, no bias; inputs are taken as they are."""
        widths = (self.inputs, *self.hidden, 2 * self.outputs)
        members = []
        for number in range(self.members):
            generator = draw.member(number)
            members.append([truncated_normal(generator, *pair) / (2.0 * math.sqrt(pair[0])) for pair in zip(widths, widths[1:])])
        layers = tuple(
            {"w": jnp.asarray(np.stack(each), jnp.float32), "b": jnp.zeros((self.members, 1, each[0].shape[1]), jnp.float32)}
            for each in zip(*members)
        )
        params = {
            "layers": layers,
            "max": jnp.full(self.outputs, MAX_LOG_VAR, jnp.float32),
            "min": jnp.full(self.outputs, MIN_LOG_VAR, jnp.float32),
        }
        return ModelState(
            slot=Slot(params, None, adam(self.rate).init(params)),
            mean=jnp.zeros(self.inputs, jnp.float32),
            deviation=jnp.ones(self.inputs, jnp.float32),
            unit=jnp.ones(self.outputs, jnp.float32),
            elites=np.arange(self.elites, dtype=np.int32),
            error=np.full(self.members, np.inf, np.float32),
            trainings=np.zeros((), np.int64),
        )

    def members_of(self, state: ModelState, members: Any) -> ModelState:
        """The state of some members alone, in this order: what `predict` and `sample` read."""
        params = state.slot.live
        layers = jax.tree.map(lambda leaf: leaf[members], params["layers"])
        return state._replace(slot=Slot(params | {"layers": layers}, None, ()))

    # --- prediction -------------------------------------------------------------------------------------------------

    def scaled(self, state: ModelState, obs: Any, action: Any) -> Any:
        """[s, a] in units of the deviation of the training rows."""
        return (jnp.concatenate([obs, action], axis=-1) - state.mean) / state.deviation

    def forward(self, params: Params, x: Array) -> tuple[Array, Array]:
        """Mean and log-variance `[E, B, d + 1]` at scaled inputs: one batched product per layer."""
        *hidden, last = params["layers"]
        activate = ACTIVATIONS[self.activation]
        for each in hidden:
            x = activate(_linear(each, x))
        mean, raw = jnp.split(_linear(last, x), 2, axis=-1)
        return mean, bounded_log_var(raw, params["min"], params["max"])

    def predict(self, state: ModelState, obs: Array, action: Array) -> tuple[Array, Array]:
        """Mean and deviation of [Δs, r] by every member, in their own units."""
        mean, log_var = self.forward(state.slot.live, self.scaled(state, obs, action))
        return mean * state.unit, jnp.exp(0.5 * log_var) * state.unit

    def sample(self, state: ModelState, obs: Array, action: Array, noise: Array) -> tuple[Array, Array]:
        """s' and r, each row drawn by the member whose row it is."""
        mean, deviation = self.predict(state, obs, action)
        drawn = mean + deviation * noise
        return obs + drawn[..., :-1], drawn[..., -1]

    # --- learning ---------------------------------------------------------------------------------------------------

    def loss(self, params: Params, x: Array, target: Array, weight: Array) -> Array:
        """L; `weight` `[B]` sums to one over the rows that count."""
        mean, log_var = self.forward(params, x)
        each = jnp.mean(gaussian_nll(mean, log_var, target), axis=-1)
        decay = sum(0.5 * c * jnp.sum(jnp.square(layer["w"])) for c, layer in zip(self.decays, params["layers"]) if c)
        spread = 0.01 * (jnp.sum(params["max"]) - jnp.sum(params["min"])) if self.bounds else 0.0
        return jnp.sum(each @ weight) + spread + decay

    def step(self, slot: Slot, x: Array, target: Array, weight: Array) -> Slot:
        """One step of Adam on L."""
        gradients = jax.grad(self.loss)(slot.live, x, target, weight)
        if not self.bounds:
            gradients |= {name: jnp.zeros_like(gradients[name]) for name in ("max", "min")}
        return move(adam(self.rate), slot, gradients)


def _linear(layer: dict[str, Array], x: Array) -> Array:
    return jnp.einsum("ebi,eio->ebo", x, layer["w"]) + layer["b"]


def bounded_log_var(raw: Array, low: Array, high: Array) -> Array:
    """ℓ between its bounds: high − softplus(high − ℓ), then low + softplus(ℓ − low)."""
    below = high - jax.nn.softplus(high - raw)
    return low + jax.nn.softplus(below - low)


def gaussian_nll(mean: Array, log_var: Array, target: Array) -> Array:
    """(μ − t)² e^{−ℓ} + ℓ: twice the negative log-likelihood, but for a constant."""
    return jnp.square(mean - target) * jnp.exp(-log_var) + log_var


def truncated_normal(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normals, drawn again until they lie within two deviations."""
    drawn = generator.standard_normal(shape)
    while (far := np.abs(drawn) > 2.0).any():
        drawn[far] = generator.standard_normal(int(far.sum()))
    return drawn
