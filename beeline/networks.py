"""Multi-layer perceptrons as pure functions: a network is a tuple of layers, an ensemble has a leading axis on each.

Two bodies: `mlp` is Linear-ReLU throughout, as the SAC and TD3 sources have it; `bac` is Linear-LayerNorm-tanh and then
Linear-ELU, as the BAC release has it. The last layer is linear in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Params = tuple[dict[str, Array], ...]


def init_layer(draw: np.random.Generator, fan_in: int, fan_out: int, initialiser: str) -> dict[str, Any]:
    """Weights and bias of one layer."""
    if initialiser == "xavier":  # Glorot uniform, gain 1, zero bias: pranz24's SAC and the BAC release
        bound = math.sqrt(6.0 / (fan_in + fan_out))
        bias = np.zeros(fan_out)
    else:  # PyTorch's default for Linear: TD3
        bound = 1.0 / math.sqrt(fan_in)
        bias = draw.uniform(-bound, bound, fan_out)
    weights = draw.uniform(-bound, bound, (fan_in, fan_out))
    return {"w": weights.astype(np.float32), "b": bias.astype(np.float32)}


def init_mlp(draw: np.random.Generator, sizes: Sequence[int], body: str, initialiser: str) -> Params:
    """Parameters of a perceptron with layer widths `sizes`, input and output included.

    They are drawn by NumPy: with JAX, compiling the drawing takes longer than all else before the first step.
    """
    layers = []
    for depth, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layer = init_layer(draw, fan_in, fan_out, initialiser)
        if body == "bac" and depth == 0:
            layer |= {"scale": np.ones(fan_out, np.float32), "shift": np.zeros(fan_out, np.float32)}
        layers.append(layer)
    return tuple(layers)


def init_ensemble(draws: Sequence[np.random.Generator], sizes: Sequence[int], body: str, initialiser: str) -> Params:
    """Independent members, each drawn by a generator of its own, stacked along a leading axis."""
    members = [init_mlp(draw, sizes, body, initialiser) for draw in draws]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *members)


def _layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def elu(x: Array) -> Array:
    """x above zero, e^x − 1 below; `exp` because the kernel of `expm1` takes more than twice as long on the CPU."""
    below = jnp.where(x > 0.0, 0.0, x)
    return jnp.where(x > 0.0, x, jnp.exp(below) - 1.0)


def _activate(layer: dict[str, Array], x: Array, body: str, depth: int) -> Array:
    if body == "mlp":
        return jax.nn.relu(x)
    if depth == 0:
        return jnp.tanh(_layer_norm(x, layer["scale"], layer["shift"]))
    return elu(x)


def apply_mlp(params: Params, x: Array, body: str) -> Array:
    """The network's output `[B, out]` at inputs `[B, in]`."""
    for depth, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        if depth < len(params) - 1:
            x = _activate(layer, x, body, depth)
    return x


def apply_ensemble(params: Params, x: Array, body: str) -> Array:
    """Every member's output `[members, B, out]` at the same inputs `[B, in]`."""
    # One copy of x per member makes the first layer a batched product like the others; with a shared x, XLA computes
    # [B, members · width] in one product and then pays for three transpositions of it.
    copies = jnp.broadcast_to(x, (params[0]["b"].shape[0], *x.shape))
    return jax.vmap(apply_mlp, in_axes=(0, 0, None))(params, copies, body)


def init_normaliser(obs_dim: int) -> dict[str, np.ndarray]:
    """Running statistics of observations; with no data yet they leave observations as they are.

    They live on the host in double precision: in single precision a count stops at 2^24, and the variance grows from there on.
    """
    return {"count": np.zeros(()), "mean": np.zeros(obs_dim), "variance": np.ones(obs_dim)}


def observe(statistics: dict[str, np.ndarray], obs: np.ndarray) -> dict[str, np.ndarray]:
    """Merge a batch `[n, obs_dim]` into the statistics (Chan et al. 1979)."""
    obs = np.asarray(obs, np.float64)
    count, batch = statistics["count"], float(obs.shape[0])
    total = count + batch
    delta = obs.mean(axis=0) - statistics["mean"]
    mean = statistics["mean"] + delta * (batch / total)
    within = statistics["variance"] * count + obs.var(axis=0) * batch
    return {"count": total, "mean": mean, "variance": (within + np.square(delta) * (count * batch / total)) / total}


def normalise(statistics: Any, obs: Array, clip: float = 10.0) -> Array:
    """Observations in units of their running deviation, clipped; unchanged where there are no statistics."""
    if statistics is None:
        return obs
    scaled = (obs - statistics["mean"]) * jax.lax.rsqrt(statistics["variance"] + 1e-8)
    return jnp.clip(scaled, -clip, clip)


def parameter_count(tree: Any) -> int:
    """How many numbers a pytree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
