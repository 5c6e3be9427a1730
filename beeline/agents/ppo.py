"""PPO (Schulman et al. 2017): rollouts of the policy's own, GAE, and several epochs of clipped updates on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import BODIES, INITIALISERS, MethodConfig
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.on_policy import PPO


def refusals(algo: str) -> dict[str, str]:
    """The options of off-policy methods that an on-policy one cannot have, with the reason."""
    return {
        **dict.fromkeys(("lam", "lambda", "blend", "exploit", "expectile", "exploit_alpha"), f"{algo} has no Q to blend"),
        **dict.fromkeys(("value_head", "atoms", "support"), f"{algo} has no Q: its V is a number"),
        **dict.fromkeys(("replay_decay", "replay_floor"), f"{algo} learns from its newest rollout alone"),
        "weight_decay": f"{algo} has plain Adam",
        **dict.fromkeys(("random_steps", "learn_after"), f"{algo} learns from its own actions alone, from the first rollout on"),
    }


class OnPolicyConfig(MethodConfig):
    """What the on-policy agent asks of a config: these are fields of every method's own."""

    if TYPE_CHECKING:
        rollout: int
        epochs: int
        batch_size: int
        gamma: float
        gae: float
        normalize_obs: bool
        normalize_reward: bool
        bootstrap_limits: bool

    @property
    def warm_up(self) -> tuple[str, int]:
        """A run must be longer than its first rollout."""
        return "rollout", self.rollout

    @property
    def least_transitions(self) -> tuple[str, int]:
        """A rollout."""
        return f"rollout = {self.rollout}", self.rollout


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation: on-policy, a clipped surrogate, V as baseline."""

    refused: ClassVar[Mapping[str, str]] = refusals("ppo")

    network: str = option("tanh", "body of policy and V: tanh, or one of the other methods'", choices=("tanh", *BODIES))
    hidden: tuple[int, ...] = option((64, 64), "widths of the hidden layers", low=1)
    initialiser: str = option("orthogonal", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    log_std: float = option(0.0, "initial log σ of the actions, in units of half their range", low=-10.0, high=2.0)
    rollout: int = option(2048, "decisions per update, over all envs", low=2)
    epochs: int = option(10, "passes over a rollout", low=1)
    batch_size: int = option(64, "transitions per gradient step", low=2)
    gamma: float = option(0.99, "discount per decision", low=0.0, high=1.0)
    gae: float = option(0.95, "λ of the generalised advantage estimate", low=0.0, high=1.0)
    clip: float = option(0.2, "ε: how far the ratio of probabilities may move", above=0.0)
    value_clip: float | None = option(0.2, "how far V may move in one update; none: no bound", above=0.0)
    value_weight: float = option(0.5, "weight of V's loss", low=0.0)
    entropy_weight: float = option(0.0, "weight of the entropy bonus", low=0.0)
    lr: float = option(3e-4, "learning rate of policy and V", above=0.0)
    anneal: bool = option(True, "let the learning rate fall to zero, linearly over schedule_steps")
    schedule_steps: int | None = option(None, "environment steps of the schedule; none: the steps planned at the start", low=1)
    grad_clip: float | None = option(0.5, "bound on the gradient norm over all networks; none: no bound", above=0.0)
    normalize_obs: bool = option(True, "scale observations by their running mean and deviation")
    normalize_reward: bool = option(True, "scale rewards by the running deviation of the discounted return")
    bootstrap_limits: bool = option(True, "a time limit still has a value; false: it counts as an end, as in the sources")

    def check(self) -> None:
        """Every epoch uses every transition once."""
        if self.rollout % self.batch_size:
            raise ConfigError(f"rollout = {self.rollout} is no multiple of batch_size = {self.batch_size}.")


def build(config: PPOConfig, task: Task) -> PPO:
    """The agent: a Gaussian policy with a state-independent σ, and V."""
    from beeline.agents.on_policy import PPO, Gaussian
    from beeline.networks import Learnable, adam, body

    if config.rollout % task.lanes:
        raise ConfigError(f"rollout = {config.rollout} is no multiple of num_envs = {task.lanes}.")
    spaces, optimiser = task.spaces, adam(config.lr, eps=1e-5)
    mean = body(config.network, config.hidden, config.initialiser, head_gain=0.01)
    value = body(config.network, config.hidden, config.initialiser)
    policy = Learnable(Gaussian(mean, config.log_std), spaces.obs_dim, optimiser, (spaces.action_dim,))
    return PPO(config, task, policy, Learnable(value, spaces.obs_dim, optimiser))


# --- presets ----------------------------------------------------------------------------------------------------------


def light(env_id: str) -> dict[str, Any]:
    """The sources' constants; a time limit is no end."""
    return {}


def paper(env_id: str) -> dict[str, Any]:
    """The sources' constants and their rule that a time limit ends an episode like a terminal state."""
    return {"bootstrap_limits": False}


def best(env_id: str) -> dict[str, Any]:
    """As `light`: LayerNorm steadies a Q that learns from itself many times per step, and here is none; tanh networks stay."""
    return light(env_id)


PRESETS = {"light": light, "paper": paper, "best": best}
