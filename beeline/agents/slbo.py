"""SLBO (Luo et al. 2019): TRPO in a learned model, in stages: meet the world, then improve model and policy in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import BODIES, INITIALISERS, MethodConfig
from beeline.agents.ppo import refusals
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.stages import SLBO


@dataclass(frozen=True)
class SLBOConfig(MethodConfig):
    """Stochastic lower bound optimisation: a model trained over several steps, a policy by TRPO on its rollouts."""

    scales_observations = True
    refused: ClassVar[Mapping[str, str]] = {
        **refusals("slbo"),
        **dict.fromkeys(("clip", "value_clip", "value_weight", "grad_clip"), "slbo's policy is moved by TRPO's step"),
        "rollout": "slbo's rollouts are virtual: see virtual_steps",
        "normalize_obs": "slbo scales observations by all that it has met, for model, policy and V",
    }

    network: str = option("tanh", "body of policy and V: tanh, or one of the other methods'", choices=("tanh", *BODIES))
    hidden: tuple[int, ...] = option((64, 64), "widths of V's hidden layers", low=1)
    policy_hidden: tuple[int, ...] = option((32, 32), "widths of the policy's hidden layers", low=1)
    initialiser: str = option("orthogonal", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    log_std: float = option(0.0, "initial log σ of the actions, in units of half their range", low=-10.0, high=2.0)
    noise_decay: float = option(0.15, "θ of the Ornstein-Uhlenbeck noise on actions: its loss per decision", low=0.0, high=1.0)
    noise_scale: float = option(0.3, "σ of it: its gain per decision; 0: none", low=0.0)
    stage_steps: int = option(10_000, "environment steps between two stages of learning", low=1)
    rounds: int = option(20, "rounds of a stage: model_steps, then policy_updates", low=1)
    model_steps: int = option(100, "steps of Adam on the model in a round", low=1)
    policy_updates: int = option(40, "updates of TRPO in a round, each on virtual_steps of its own", low=1)
    virtual_steps: int = option(4_000, "virtual decisions per update, over all virtual envs", low=2)
    virtual_envs: int = option(8, "virtual environments side by side", low=1)
    reset_pool: int = option(4_096, "first observations for virtual episodes, from an environment of their own", low=1)
    model_hidden: tuple[int, ...] = option((500, 500), "widths of the model's hidden layers", low=1)
    model_lr: float = option(1e-3, "learning rate of the model", above=0.0)
    model_penalty: float = option(1e-5, "weight of half the squared norm of the model's parameters in its loss", low=0.0)
    model_clip: float = option(2.0, "bound on the model's gradient norm", above=0.0)
    model_batch_size: int = option(128, "paths in a batch of the model's training", low=1)
    path_steps: int = option(2, "steps of the paths that the model is trained on", low=1, high=20)
    known_reward: bool = option(True, "use the task's own reward where it is known; false: the model's")
    gamma: float = option(0.99, "discount per decision", low=0.0, high=1.0)
    gae: float = option(0.95, "λ of the generalised advantage estimate", low=0.0, high=1.0)
    radius: float = option(0.01, "δ: the divergence KL(π_old ‖ π) that a full step aims at", above=0.0, high=1.0)
    slack: float = option(1.5, "a step is taken where its divergence is at most so many times `radius`", low=1.0)
    damping: float = option(0.1, "added to the diagonal of the Fisher matrix", low=0.0)
    cg_iterations: int = option(10, "conjugate gradients per step", low=1)
    search_tries: int = option(10, "lengths that the line search tries, each half of the one before", low=1, high=100)
    entropy_weight: float = option(0.005, "weight of the entropy bonus", low=0.0)
    epochs: int = option(5, "passes of V over a rollout", low=1)
    batch_size: int = option(64, "transitions per gradient step of V; what is left of an epoch is not used", low=2)
    lr: float = option(1e-3, "learning rate of V", above=0.0)

    def check(self) -> None:
        """V needs a minibatch, every virtual env a share of the rollout, the model a path."""
        if self.virtual_steps < self.batch_size:
            raise ConfigError(f"batch_size = {self.batch_size} is more than virtual_steps = {self.virtual_steps}.")
        if self.virtual_steps % self.virtual_envs:
            raise ConfigError(f"virtual_steps = {self.virtual_steps} is no multiple of virtual_envs = {self.virtual_envs}.")

    @property
    def needs_terminated(self) -> bool:
        """A model does not say where an episode ends."""
        return True

    @property
    def warm_up(self) -> tuple[str, int]:
        """A run must be longer than what comes before its first stage."""
        return "stage_steps", self.stage_steps

    @property
    def least_transitions(self) -> tuple[str, int]:
        """A path."""
        return f"path_steps = {self.path_steps}", self.path_steps

    @property
    def refuses_prior(self) -> str:
        """The model is of the run's own transitions."""
        return "its model is of the run's own transitions"


def build(config: SLBOConfig, task: Task) -> SLBO:
    """The agent: a model, and TRPO's networks and step on its rollouts."""
    import dataclasses

    from beeline.agents import trpo
    from beeline.agents.stages import SLBO

    shared = {name: getattr(config, name) for name in trpo.TRPOConfig.names() if name in SLBOConfig.names()}
    inner = trpo.TRPOConfig(**shared, rollout=config.virtual_steps, normalize_reward=False)
    return SLBO(config, task, trpo.build(inner, dataclasses.replace(task, lanes=config.virtual_envs)))


# --- presets ----------------------------------------------------------------------------------------------------------


def light(env_id: str) -> dict[str, Any]:
    """Stages half as long, half of the policy updates for each environment step, and a smaller model."""
    return {
        "stage_steps": 5_000, "rounds": 10, "policy_updates": 20, "model_hidden": (200, 200), "reset_pool": 1_024,
        "eval_every": 5_000,
    }  # fmt: skip


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code."""
    return {}


PRESETS = {"light": light, "paper": paper}
