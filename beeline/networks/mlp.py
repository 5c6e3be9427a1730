"""Perceptrons: `Mlp` is Linear-ReLU throughout, as the SAC and TD3 sources have it, `Bac` the body of the BAC release, `Ln`
Linear-LayerNorm-ReLU, small and fit for many updates per step.

A network's parameters are a tuple of layers. They are drawn by NumPy: with JAX, compiling the drawing takes longer than all
else before the first step.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from beeline.graph import Graph
from beeline.networks.base import Params
from beeline.networks.passes import LN_EPSILON, linear, ln_relu

BAC_EPSILON = 1e-5  # PyTorch's


def layer(draw: np.random.Generator, fan_in: int, fan_out: int, initialiser: str, gain: float = 1.0) -> dict[str, Any]:
    """Weights and bias of one layer; `gain` scales orthogonal weights, the others have that of their sources."""
    if initialiser == "orthogonal":
        return {"w": orthogonal(draw, fan_in, fan_out, gain), "b": np.zeros(fan_out, np.float32)}
    if initialiser == "xavier":  # Glorot uniform, gain 1, zero bias: pranz24's SAC and the BAC release
        bound = math.sqrt(6.0 / (fan_in + fan_out))
        bias = np.zeros(fan_out)
    else:  # PyTorch's default for Linear: TD3
        bound = 1.0 / math.sqrt(fan_in)
        bias = draw.uniform(-bound, bound, fan_out)
    weights = draw.uniform(-bound, bound, (fan_in, fan_out))
    return {"w": weights.astype(np.float32), "b": bias.astype(np.float32)}


def orthogonal(draw: np.random.Generator, fan_in: int, fan_out: int, gain: float) -> np.ndarray:
    """W with WᵀW = g² I where it is tall, WWᵀ = g² I where it is wide (Saxe et al. 2014), uniform among them."""
    normal = draw.standard_normal((max(fan_in, fan_out), min(fan_in, fan_out)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diag(r))
    return (gain * (q if fan_in >= fan_out else q.T)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Mlp:
    """Linear-ReLU for every hidden width, and a linear last layer."""

    hidden: tuple[int, ...]
    initialiser: str = "xavier"
    head_gain: float = 1.0  # of orthogonal weights in the last layer

    def init(self, draw: Any, inputs: int, *outputs: int) -> Params:
        """Parameters; several outputs share the last layer, each drawn as if it were a layer of its own."""
        generator = draw.member(0)
        widths = (inputs, *self.hidden)
        layers = [self._hidden_layer(generator, depth, *pair) for depth, pair in enumerate(zip(widths, self.hidden))]
        heads = [layer(generator, widths[-1], width, self.initialiser, self.head_gain) for width in outputs]
        return (*layers, {name: np.concatenate([head[name] for head in heads], axis=-1) for name in heads[0]})

    def _hidden_layer(self, generator: np.random.Generator, depth: int, fan_in: int, fan_out: int) -> dict[str, Any]:
        return layer(generator, fan_in, fan_out, self.initialiser, math.sqrt(2.0))

    def apply(self, params: Params, x: Array) -> Array:
        """The output `[B, out]` at inputs `[B, in]`."""
        *hidden, last = params
        for depth, each in enumerate(hidden):
            x = self._activate(each, x @ each["w"] + each["b"], depth)
        return x @ last["w"] + last["b"]

    def _activate(self, params: dict[str, Array], x: Array, depth: int) -> Array:
        return jax.nn.relu(x)

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`apply` as operations of a graph."""
        *hidden, last = params
        for depth, each in enumerate(hidden):
            x = self._write_activation(graph, each, graph.linear(x, each["w"], each["b"]), depth)
        return graph.linear(x, last["w"], last["b"])

    def _write_activation(self, graph: Graph, params: dict[str, Array], x: str, depth: int) -> str:
        return graph.add("Relu", x)


class Tanh(Mlp):
    """Linear-tanh for every hidden width, and a linear last layer: PPO's body."""

    def _activate(self, params: dict[str, Array], x: Array, depth: int) -> Array:
        return jnp.tanh(x)

    def _write_activation(self, graph: Graph, params: dict[str, Array], x: str, depth: int) -> str:
        return graph.add("Tanh", x)


class Bac(Mlp):
    """The BAC release's body: Linear-LayerNorm-tanh, then Linear-ELU, and a linear last layer."""

    def _hidden_layer(self, generator: np.random.Generator, depth: int, fan_in: int, fan_out: int) -> dict[str, Any]:
        plain = super()._hidden_layer(generator, depth, fan_in, fan_out)
        return plain if depth else plain | {"scale": np.ones(fan_out, np.float32), "shift": np.zeros(fan_out, np.float32)}

    def _activate(self, params: dict[str, Array], x: Array, depth: int) -> Array:
        return elu(x) if depth else jnp.tanh(layer_norm(x, params["scale"], params["shift"], BAC_EPSILON))

    def _write_activation(self, graph: Graph, params: dict[str, Array], x: str, depth: int) -> str:
        if depth:
            return graph.add("Elu", x, alpha=1.0)
        return graph.add("Tanh", graph.layer_norm(x, params["scale"], params["shift"], BAC_EPSILON))


class Ln(Mlp):
    """Linear-LayerNorm-ReLU for every hidden width, and a linear last layer."""

    def _hidden_layer(self, generator: np.random.Generator, depth: int, fan_in: int, fan_out: int) -> dict[str, Any]:
        plain = super()._hidden_layer(generator, depth, fan_in, fan_out)
        return plain | {"scale": np.ones(fan_out, np.float32), "shift": np.zeros(fan_out, np.float32)}

    def apply(self, params: Params, x: Array) -> Array:
        """The output `[…, out]` at inputs `[…, in]`."""
        *hidden, last = params
        rows = x.reshape(-1, x.shape[-1])
        for each in hidden:
            rows = ln_relu(each, rows)
        return linear(last, rows).reshape(*x.shape[:-1], -1)

    def _write_activation(self, graph: Graph, params: dict[str, Array], x: str, depth: int) -> str:
        return graph.add("Relu", graph.layer_norm(x, params["scale"], params["shift"], LN_EPSILON))


def layer_norm(x: Array, scale: Array, shift: Array, epsilon: float = BAC_EPSILON) -> Array:
    """x in units of its deviation over the last axis, then scaled and shifted (Ba et al. 2016)."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * scale + shift


def elu(x: Array) -> Array:
    """x above zero, e^x − 1 below; `exp` because the kernel of `expm1` takes more than twice as long on the CPU."""
    below = jnp.where(x > 0.0, 0.0, x)
    return jnp.where(x > 0.0, x, jnp.exp(below) - 1.0)
