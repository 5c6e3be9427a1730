"""Useful floating-point operations of one update: the matrix products the mathematics asks for, and nothing else.

A product of [m, k] with [k, n] counts 2·m·k·n. Biases, activations, losses, optimisers and target averaging count
nothing, and neither does a product that an implementation adds (padding, recomputation, gradients nobody reads): the
rate this gives is the rate at which useful work is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


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
    values: int = 1,
    more_targets: int = 0,
    policy_hidden: Sequence[int] | None = None,
) -> float:
    """Useful operations of one update, averaged over `actor_delay` updates when the actor is delayed.

    Explore target π(s'), Q̄(s', a'); critic step Q(s, a); actor step π(s), Q(s, π(s)) through `actor_critics` of the
    critics (all by default; TD3 uses one). With `exploit`, also V(s'), a step of V(s), and Q̄(s, a) for its loss, for each of
    `values` V. `more_targets` are further actions at s' that the target critics judge (MAXQ).
    """
    actor = Mlp((obs_dim, *(policy_hidden or hidden), (2 if stochastic_actor else 1) * act_dim))
    critic = Mlp((obs_dim + act_dim, *hidden, 1))
    value = Mlp((obs_dim, *hidden, 1))
    used = critics if actor_critics is None else actor_critics

    target = actor.forward(batch) + (1 + more_targets) * critics * critic.forward(batch)
    critic_step = critics * (critic.forward(batch) + critic.parameter_gradient(batch))
    actor_step = actor.forward(batch) + actor.parameter_gradient(batch)
    actor_step += used * (critic.forward(batch) + critic.input_gradient(batch, act_dim))
    total = target + critic_step + actor_step / actor_delay
    if exploit:
        total += values * (2 * value.forward(batch) + value.parameter_gradient(batch)) + critics * critic.forward(batch)
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


def method_flops(algo: str, obs_dim: int, act_dim: int, hidden: Sequence[int], config: Any, seen: Mapping[str, float]) -> float:
    """Useful operations for each environment step of any registered method, with its config and the metrics of an update."""
    bee = algo.startswith("bee-")
    name = algo.removeprefix("bee-") if algo != "bee-td3" else algo
    if name in ("sac", "bac", "td3", "bee-td3"):
        return config.critic_updates_per_step * algorithm_flops(name, obs_dim, act_dim, hidden, config.batch_size)
    delayed = {"stochastic_actor": False, "actor_critics": 1, "actor_delay": 2}
    settings: dict[str, dict[str, Any]] = {
        "maxq": {"more_targets": 1},
        "maxq-td3": {**delayed, "more_targets": 1},
        "rrs": {**delayed, "critics": 2 * len(getattr(config, "shifts", ())), "values": len(getattr(config, "shifts", ()))},
    }
    if name in settings:
        return update_flops(obs_dim, act_dim, hidden, config.batch_size, exploit=bee, **settings[name])
    if name == "grac":
        return grac_flops(obs_dim, act_dim, hidden, config, seen["critic/steps"], bee)
    if name in ("ppo", "trpo"):
        return on_policy_flops(name, obs_dim, act_dim, hidden, config, seen)
    raise ValueError(f"no operation count for {algo!r}")


def grac_flops(obs_dim: int, act_dim: int, hidden: Sequence[int], config: Any, steps: float, exploit: bool) -> float:
    """Of one update of GRAC with so many steps of the critics.

    π(s'), a search at s' under one critic, both critics at two actions; the first step at (s, a), the others at (s', a*) too;
    the policy's step, a search at s, and Q_1 with its slope by the action.
    """
    actor, critic, value = Mlp((obs_dim, *hidden, 2 * act_dim)), Mlp((obs_dim + act_dim, *hidden, 1)), Mlp((obs_dim, *hidden, 1))
    batch = config.batch_size
    search = critic.forward(batch * (config.population * config.iterations + 1))
    one = 2 * (critic.forward(batch) + critic.parameter_gradient(batch))
    total = actor.forward(batch) + search + 2 * critic.forward(2 * batch) + one + 2 * (steps - 1) * one
    total += actor.forward(batch) + actor.parameter_gradient(batch) + search
    total += critic.forward(batch) + critic.input_gradient(batch, act_dim)
    if exploit:
        total += 2 * value.forward(batch) + value.parameter_gradient(batch) + 2 * critic.forward(batch)
    return total


def on_policy_flops(
    algo: str, obs_dim: int, act_dim: int, hidden: Sequence[int], config: Any, seen: Mapping[str, float]
) -> float:
    """Of a rollout's update, for each of its transitions.

    V(s'), and V's steps. PPO: as many of the policy. TRPO: one gradient; for each product with the Fisher matrix the change of
    all outputs along a direction (x dW in every layer, dx W in all but the first) and a gradient back; one pass for each length
    that was tried.
    """
    actor, value = Mlp((obs_dim, *(getattr(config, "policy_hidden", None) or hidden), act_dim)), Mlp((obs_dim, *hidden, 1))
    total = value.forward(1) + config.epochs * (value.forward(1) + value.parameter_gradient(1))
    gradient = actor.forward(1) + actor.parameter_gradient(1)
    if algo == "ppo":
        return total + config.epochs * gradient
    along = 2 * actor.forward(1) - Mlp(actor.widths[:2]).forward(1) + actor.parameter_gradient(1)
    return total + gradient + (config.cg_iterations + 1) * along + seen["step/tries"] * actor.forward(1)
