"""The parts of off-policy methods, made from their common options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import operators
from beeline.agents.backup import Backup, Bee, Exploit
from beeline.agents.base import Task
from beeline.agents.blends import make_blend
from beeline.agents.critic import Critic
from beeline.agents.noise import PinkNoise, WhiteNoise
from beeline.agents.objective import Entropy
from beeline.agents.off_policy import OffPolicy
from beeline.feeds import Uniform, WithPrior
from beeline.memory import Recency
from beeline.networks import HEADS, Ensemble, Head, Learnable, Net, Scalar, adam, body

if TYPE_CHECKING:
    from beeline.agents.actors import Actor
    from beeline.agents.objective import Objective
    from beeline.agents.options import OffPolicyConfig
    from beeline.agents.sac import SACConfig
    from beeline.feeds import Feed


def network(config: OffPolicyConfig, hidden: tuple[int, ...] | None = None) -> Net:
    """The body of the critics and of V, or with other widths: by its name, or an object as it is."""
    own: Any = config.network
    return body(own, hidden or config.hidden, config.initialiser) if isinstance(own, str) else own


def discount(config: OffPolicyConfig, task: Task) -> float:
    """γ as given, or by the length of an episode: 1 − 5/T within [.95, .995] for T decisions (TD-MPC2's rule)."""
    if not isinstance(config.gamma, str):
        return config.gamma
    decisions = 500.0 if task.limit is None else task.limit / task.repeat
    return float(np.clip(1.0 - 5.0 / decisions, 0.95, 0.995))


def optimiser(config: OffPolicyConfig, rate: float) -> Any:
    """The optimiser of a network."""
    return adam(rate, clip=config.grad_clip, decay=config.weight_decay)


def head(config: OffPolicyConfig) -> Head:
    """What the critics put out."""
    return Scalar() if config.value_head == "scalar" else HEADS[config.value_head](config.atoms, *config.support)


def policy(config: OffPolicyConfig, task: Task, *, heads: int = 1, followed: bool = False) -> Learnable:
    """The policy's network, with `heads` outputs for every action."""
    spaces = task.spaces
    net, outputs = network(config, config.policy_hidden), (spaces.action_dim,) * heads
    return Learnable(net, spaces.obs_dim, optimiser(config, config.actor_lr), outputs, followed)


def critic(
    config: OffPolicyConfig, task: Task, groups: tuple[int, ...] = (), *, followed: bool = True, read: Head | None = None
) -> Critic:
    """One critic or two, in each of the groups that have targets of their own; `read` is a method's own head."""
    spaces = task.spaces
    two = task.ends if config.double_q == "auto" else config.double_q != "off"
    shape = (*groups, 2 if two else 1)
    net, own = Ensemble(network(config), shape), read or head(config)
    inputs, moved = spaces.obs_dim + spaces.action_dim, optimiser(config, config.critic_lr)
    return Critic(Learnable(net, inputs, moved, (own.width,), followed), own, shape, mean=config.double_q == "mean")


def value(config: OffPolicyConfig, task: Task, *, followed: bool = False) -> Learnable:
    """A network over states, of the critics' body."""
    return Learnable(network(config), task.spaces.obs_dim, optimiser(config, config.value_lr), followed=followed)


def entropy(config: SACConfig, task: Task, actor: Actor, critic: Critic, kind: Any = Entropy, **more: Any) -> Any:
    """The soft objective of these options, of that kind."""
    present, spaces, per_action = config.explore != "none", task.spaces, config.target_entropy_per_action
    return kind(
        actor=actor,
        critic=critic,
        alpha=config.alpha if present else 0.0,
        tuned=config.tune_alpha and present,
        target_entropy=per_action * spaces.action_dim if config.target_entropy is None else config.target_entropy,
        scale=spaces.action_scale if config.entropy_units == "env" else None,
        optimiser=adam(config.alpha_lr, beta1=config.alpha_beta1, clip=config.grad_clip),
        **more,
    )


def bee(
    config: OffPolicyConfig, inner: Any, actor: Actor, critic: Critic, task: Task, entropy: Entropy | None = None
) -> Backup:
    """The backup under the BEE operator; the backup itself where a fixed λ is 0."""
    if not config.bee:
        return inner
    groups, net = critic.shape[:-1], network(config)
    value = Learnable(Ensemble(net, groups) if groups else net, task.spaces.obs_dim, optimiser(config, config.value_lr))
    return Bee(
        inner=inner,
        actor=actor,
        critic=critic,
        value=value,
        loss=exploit(config),
        blend=make_blend(config.blend, config.lam),
        batch_size=config.batch_size,
        entropy=entropy,
    )


def exploit(config: OffPolicyConfig) -> Exploit:
    """The exploit loss of these options, by its name or the object itself."""
    own: Any = config.exploit
    strength = config.expectile if own == "expectile" else config.exploit_alpha
    return Exploit(operators.EXPLOIT[own] if isinstance(own, str) else own, strength)


def recency(config: OffPolicyConfig) -> Recency | None:
    """How a transition's weight in a draw falls with its age; None where it does not."""
    return Recency(config.replay_decay, config.replay_floor) if config.replay_decay else None


def off_policy(
    config: OffPolicyConfig, task: Task, actor: Actor, critic: Critic, objective: Objective, backup: Backup,
    feed: Uniform | None = None, *, next_action: bool = False, kind: type[OffPolicy] = OffPolicy, **more: Any,
) -> OffPolicy:  # fmt: skip
    """The agent of these parts; with `next_action`, batches bring the action that was taken at s'; `more` orders its steps."""
    gamma = discount(config, task)
    uniform = feed or Uniform(config.batch_size, gamma, config.n_step, next_action, recency(config))
    drawn: Feed = WithPrior(uniform, task.prior_share) if task.prior_share else uniform
    noise = PinkNoise() if config.acting_noise == "pink" else WhiteNoise()
    return kind(config, task, actor, critic, objective, backup, drawn, noise, gamma, **more)
