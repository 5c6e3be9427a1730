"""The policy of IQL: a Gaussian whose samples are clipped, and advantage-weighted regression onto the buffer's actions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

from beeline.agents.actors import write_net
from beeline.agents.critic import Critic
from beeline.agents.objective import Metrics
from beeline.agents.owned import InSample
from beeline.graph import Graph
from beeline.networks import Learnable, Params

LOW, HIGH = -5.0, 2.0  # bounds of log σ


@dataclasses.dataclass(frozen=True)
class ClippedActor:
    """a = clip(tanh f(s) + σ ε) with one σ for each action's dimension, whatever the state."""

    learnable: Learnable
    stochastic: ClassVar[bool] = False  # its loss is a regression and draws no actions

    def output(self, params: Params, obs: Array) -> Any:
        """Mean and log σ."""
        mean = jnp.tanh(self.learnable.net.apply(params, obs))
        return mean, jnp.broadcast_to(jnp.clip(params["log_std"], LOW, HIGH), mean.shape)

    def log_prob(self, output: Any, action: Array) -> Array:
        """Σ_i log N(a_i; μ_i, σ_i)."""
        mean, log_std = output
        z = (action - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * jnp.square(z) + log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    def sample(self, noise: Array | None, output: Any) -> tuple[Array, Array]:
        """The clipped action for standard noise ε; what clipping makes of it has no density."""
        assert noise is not None, "a stochastic policy is sampled with noise"
        mean, log_std = output
        return jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0), jnp.zeros(mean.shape[:-1])

    def explore(self, params: Params, obs: Array, noise: Array) -> Array:
        """The action taken while collecting."""
        return self.sample(noise, self.output(params, obs))[0]

    def greedy(self, params: Params, obs: Array) -> Array:
        """The mean."""
        return self.output(params, obs)[0]

    def write(self, graph: Graph, params: Params, x: str) -> str:
        """`greedy` as operations of a graph."""
        net: Any = self.learnable.net
        return graph.add("Tanh", write_net(net.net, graph, params["mean"], x))


@dataclasses.dataclass(frozen=True)
class Weighted:
    """L_π = −mean[ min(exp(β (Q̄_min(s, a) − V(s))), w) log π(a|s) ]: advantage-weighted regression (IQL)."""

    actor: ClippedActor
    critic: Critic
    backup: InSample
    beta: float
    bound: float
    metric_names: tuple[str, ...] = ("entropy", "weight/mean", "weight/bounded")

    def init(self) -> Any:
        """No state."""
        return ()

    def bonus(self, own: Any, log_prob: Array) -> Array:
        """No entropy is rewarded."""
        return jnp.zeros_like(log_prob)

    def loss(self, params: Params, own: Any, state: Any, critic: Params, batch: Any, noise: Array | None) -> tuple[Array, Any]:
        """The regression under V as its step left it; `learn` only logs."""
        q = self.critic.worst(self.critic.q(state.critic.target, batch.obs, batch.action))
        free = jnp.exp(self.beta * (q - self.backup.v(state.backup["value"].live, batch.obs)))
        weight = stop_gradient(jnp.minimum(free, self.bound))
        output = self.actor.output(params, batch.obs)
        loss = -jnp.mean(weight * self.actor.log_prob(output, batch.action))
        entropy = jnp.sum(output[1][0] + 0.5 * math.log(2 * math.pi * math.e))
        return loss, {"entropy": entropy, "weight/mean": jnp.mean(weight), "weight/bounded": jnp.mean(free > self.bound)}

    def learn(self, own: Any, seen: Any) -> tuple[Any, Metrics]:
        """Nothing to learn."""
        return own, seen
