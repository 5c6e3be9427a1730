"""Useful floating-point operations of one update: the matrix products the mathematics asks for, and nothing else.

A product of [m, k] with [k, n] counts 2·m·k·n. Biases, activations, losses, optimisers and target averaging count
nothing, and neither does a product that an implementation adds (padding, recomputation, gradients nobody reads): the
rate this gives is the rate at which useful work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Mlp:
    """Layer widths of one network, from its input to its output."""

    widths: tuple[int, ...]

    def _layers(self, batch: int) -> list[int]:
        return [2 * batch * fan_in * fan_out for fan_in, fan_out in pairwise(self.widths)]

    def forward(self, batch: int) -> int:
        """One product per layer: y = x W."""
        return sum(self._layers(batch))

    def parameter_gradient(self, batch: int) -> int:
        """dW = xᵀ dy in every layer and dx = dy Wᵀ in all but the first, whose input is data."""
        layers = self._layers(batch)
        return 2 * sum(layers) - layers[0]

    def input_gradient(self, batch: int, inputs: int) -> int:
        """dx = dy Wᵀ in every layer; in the first only for the `inputs` columns that are asked for."""
        return sum(self._layers(batch)[1:]) + 2 * batch * inputs * self.widths[1]


def update_flops(
    obs_dim: int,
    act_dim: int,
    hidden: Sequence[int],
    batch: int,
    *,
    stochastic_actor: bool = True,
    exploit: bool = False,
    critics: int = 2,
    actor_critics: int | None = None,
    actor_delay: int = 1,
) -> float:
    """Useful operations of one update, averaged over `actor_delay` updates when the actor is delayed.

    Explore target π(s'), Q̄(s', a'); critic step Q(s, a); actor step π(s), Q(s, π(s)) through `actor_critics` of the
    critics (all by default; TD3 uses one). With `exploit`, also V(s'), a step of V(s), and Q̄(s, a) for its loss.
    """
    actor = Mlp((obs_dim, *hidden, (2 if stochastic_actor else 1) * act_dim))
    critic = Mlp((obs_dim + act_dim, *hidden, 1))
    value = Mlp((obs_dim, *hidden, 1))
    used = critics if actor_critics is None else actor_critics

    target = actor.forward(batch) + critics * critic.forward(batch)
    critic_step = critics * (critic.forward(batch) + critic.parameter_gradient(batch))
    actor_step = actor.forward(batch) + actor.parameter_gradient(batch)
    actor_step += used * (critic.forward(batch) + critic.input_gradient(batch, act_dim))
    total = target + critic_step + actor_step / actor_delay
    if exploit:
        total += 2 * value.forward(batch) + value.parameter_gradient(batch) + critics * critic.forward(batch)
    return total


def algorithm_flops(algo: str, obs_dim: int, act_dim: int, hidden: Sequence[int], batch: int) -> float:
    """`update_flops` of the algorithms in the benchmark: sac, bac, td3, bee-td3."""
    delayed = {"stochastic_actor": False, "actor_critics": 1, "actor_delay": 2}
    settings: dict[str, dict[str, int | bool]] = {
        "sac": {},
        "bac": {"exploit": True},
        "td3": delayed,
        "bee-td3": {**delayed, "exploit": True},
    }
    if algo not in settings:
        raise ValueError(f"no operation count for {algo!r}; known: {', '.join(settings)}")
    return update_flops(obs_dim, act_dim, hidden, batch, **settings[algo])  # type: ignore[arg-type]
