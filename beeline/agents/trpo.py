"""TRPO (Schulman et al. 2015): one natural step per rollout, inside a bound on how far the policy's distribution may move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import BODIES, INITIALISERS
from beeline.agents.ppo import OnPolicyConfig, refusals
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.trust import TRPO


@dataclass(frozen=True)
class TRPOConfig(OnPolicyConfig):
    """Trust region policy optimisation: on-policy, a natural gradient step with a line search, V as baseline."""

    refused: ClassVar[Mapping[str, str]] = refusals("trpo") | dict.fromkeys(
        ("clip", "value_clip", "value_weight", "grad_clip"), "trpo bounds a step by its divergence, and has no clipped loss"
    )

    network: str = option("tanh", "body of policy and V: tanh, or one of the other methods'", choices=("tanh", *BODIES))
    hidden: tuple[int, ...] = option((64, 64), "widths of V's hidden layers", low=1)
    policy_hidden: tuple[int, ...] = option((32, 32), "widths of the policy's hidden layers", low=1)
    initialiser: str = option("orthogonal", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    log_std: float = option(0.0, "initial log σ of the actions, in units of half their range", low=-10.0, high=2.0)
    rollout: int = option(2048, "decisions per update, over all envs", low=2)
    gamma: float = option(0.99, "discount per decision", low=0.0, high=1.0)
    gae: float = option(0.95, "λ of the generalised advantage estimate", low=0.0, high=1.0)
    radius: float = option(0.01, "δ: the divergence KL(π_old ‖ π) that a full step aims at", above=0.0, high=1.0)
    slack: float = option(1.5, "a step is taken where its divergence is at most so many times `radius`", low=1.0)
    damping: float = option(0.1, "added to the diagonal of the Fisher matrix", low=0.0)
    cg_iterations: int = option(10, "conjugate gradients per step", low=1)
    search_tries: int = option(10, "lengths that the line search tries, each half of the one before", low=1, high=100)
    entropy_weight: float = option(0.0, "weight of the entropy bonus", low=0.0)
    epochs: int = option(5, "passes of V over a rollout", low=1)
    batch_size: int = option(64, "transitions per gradient step of V; what is left of an epoch is not used", low=2)
    lr: float = option(1e-3, "learning rate of V", above=0.0)
    normalize_obs: bool = option(True, "scale observations by their running mean and deviation")
    normalize_reward: bool = option(True, "scale rewards by the running deviation of the discounted return")
    bootstrap_limits: bool = option(True, "a time limit still has a value; false: it counts as an end")

    def check(self) -> None:
        """V needs a minibatch."""
        if self.rollout < self.batch_size:
            raise ConfigError(f"batch_size = {self.batch_size} is more than rollout = {self.rollout}.")


def build(config: TRPOConfig, task: Task) -> TRPO:
    """The agent: a Gaussian policy with a state-independent σ, which no optimiser moves, and V."""
    import optax

    from beeline.agents.on_policy import Gaussian
    from beeline.agents.trust import TRPO
    from beeline.networks import Learnable, adam, body

    if config.rollout % task.lanes:
        raise ConfigError(f"rollout = {config.rollout} is no multiple of num_envs = {task.lanes}.")
    spaces = task.spaces
    mean = body(config.network, config.policy_hidden, config.initialiser, head_gain=0.01)
    policy = Learnable(Gaussian(mean, config.log_std), spaces.obs_dim, optax.identity(), (spaces.action_dim,))
    value = body(config.network, config.hidden, config.initialiser)
    return TRPO(config, task, policy, Learnable(value, spaces.obs_dim, adam(config.lr)))


# --- presets ----------------------------------------------------------------------------------------------------------


def light(env_id: str) -> dict[str, Any]:
    """The source's constants but for a rollout of 2048 and scaled rewards, as PPO has them."""
    return {}


def paper(env_id: str) -> dict[str, Any]:
    """The constants of SLBO's inner optimiser: 4000 transitions, rewards as they are, an entropy bonus."""
    return {"rollout": 4_000, "normalize_reward": False, "entropy_weight": 0.005}


def best(env_id: str) -> dict[str, Any]:
    """As `light`: LayerNorm steadies a Q that learns from itself many times per step, and here is none; tanh networks stay."""
    return light(env_id)


PRESETS = {"light": light, "paper": paper, "best": best}
