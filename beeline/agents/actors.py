"""Policies: how observations become actions, for learning (`sample`), for collecting (`explore`) and for use (`greedy`).

Actions lie in [-1, 1]; the environment rescales them to its own bounds.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from beeline import operators
from beeline.errors import ExportError
from beeline.graph import Graph
from beeline.networks import Learnable, Net, Params, Written


def write_net(net: Net, graph: Graph, params: Params, x: str) -> str:
    """A network's output as operations, if it knows how to be written."""
    if not isinstance(net, Written):
        raise ExportError(f"the network {type(net).__name__} has no `write` that would describe it as a graph of operations.")
    return net.write(graph, params, x)


@dataclasses.dataclass(frozen=True)
class GaussianActor:
    """Tanh-Gaussian policy with state-dependent deviation (SAC): a = tanh(μ(s) + σ(s) ε).

    With `smooth` bounds log σ = lo + (hi − lo)/2 · (1 + tanh ρ) of the network's ρ, as SimBa has it; without, it is clipped to
    them, as the SAC sources have it.
    """

    learnable: Learnable
    low: float = -20.0
    high: float = 2.0
    smooth: bool = False
    stochastic: ClassVar[bool] = True

    def output(self, params: Params, obs: Array) -> Any:
        """Mean and log σ of the Gaussian before tanh."""
        mean, log_std = jnp.split(self.learnable.net.apply(params, obs), 2, axis=-1)
        if self.smooth:
            return mean, self.low + 0.5 * (self.high - self.low) * (1.0 + jnp.tanh(log_std))
        return mean, jnp.clip(log_std, self.low, self.high)

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The reparameterised action for standard noise ε, and its log π in [-1, 1] units."""
        assert noise is not None, "a stochastic policy is sampled with noise"
        return operators.tanh_gaussian_sample(noise, *output)

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting, for standard noise ε (white or pink)."""
        mean, log_std = self.output(params, obs)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def greedy(self, params: Params, obs: Array) -> Array:
        """The deterministic action tanh(μ(s))."""
        return jnp.tanh(self.output(params, obs)[0])

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`greedy` as operations of a graph: the mean is the first half of what the network puts out."""
        out = write_net(self.learnable.net, graph, params, x)
        return graph.add("Tanh", graph.columns(out, 0, self.learnable.outputs[0]))


@dataclasses.dataclass(frozen=True)
class DeterministicActor:
    """Deterministic policy a = tanh(f(s)) (TD3); collecting adds N(0, σ²) and clips."""

    learnable: Learnable
    exploration_noise: float
    stochastic: ClassVar[bool] = False

    def output(self, params: Params, obs: Array) -> Any:
        """The action itself."""
        return jnp.tanh(self.learnable.net.apply(params, obs))

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The action; a deterministic policy has no density, and no part that needs one is built with it."""
        return output, jnp.zeros(output.shape[:-1])

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting: clip(π(s) + σ ε)."""
        return jnp.clip(self.output(params, obs) + self.exploration_noise * noise, -1.0, 1.0)

    def greedy(self, params: Params, obs: Array) -> Array:
        """The action π(s)."""
        return self.output(params, obs)

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`greedy` as operations of a graph."""
        return graph.add("Tanh", write_net(self.learnable.net, graph, params, x))


@dataclasses.dataclass(frozen=True)
class ClampedActor:
    """Gaussian policy around tanh(f(s)) whose samples are clamped (GRAC): a = clip(μ + σ ε), σ = softplus(·) + 10⁻³."""

    learnable: Learnable
    stochastic: ClassVar[bool] = True

    def output(self, params: Params, obs: Array) -> Any:
        """Mean and σ."""
        mean, spread = jnp.split(self.learnable.net.apply(params, obs), 2, axis=-1)
        return jnp.tanh(mean), jax.nn.softplus(spread) + 1e-3

    def log_prob(self, output: Any, action: Array) -> Array:
        """Σ_i log N(a_i; μ_i, σ_i): the density before clamping."""
        mean, std = output
        return -jnp.sum(0.5 * jnp.square((action - mean) / std) + jnp.log(std) + 0.5 * math.log(2 * math.pi), axis=-1)

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The clamped action for standard noise ε, and log π of the one before clamping."""
        assert noise is not None, "a stochastic policy is sampled with noise"
        action = output[0] + output[1] * noise
        return jnp.clip(action, -1.0, 1.0), self.log_prob(output, action)

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting, for standard noise ε."""
        return self.sample(noise, self.output(params, obs))[0]

    def greedy(self, params: Params, obs: Array) -> Array:
        """The mean."""
        return self.output(params, obs)[0]

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`greedy` as operations of a graph."""
        out = write_net(self.learnable.net, graph, params, x)
        return graph.add("Tanh", graph.columns(out, 0, self.learnable.outputs[0]))


Actor = GaussianActor | DeterministicActor | ClampedActor
