"""TD3 (Fujimoto et al. 2018) and BEE-TD3: deterministic policy, target smoothing, policy and targets delayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beeline.agents.options import INITIALISERS, OffPolicyConfig
from beeline.agents.presets import SMALL, suite_column
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


SMOOTHED = ("explore", "smoothing", "pink")


@dataclass(frozen=True)
class TD3Config(OffPolicyConfig):
    """Twin delayed DDPG: deterministic policy, target smoothing as exploration term, policy and targets delayed."""

    initialiser: str = option("torch", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    policy_updates_per_step: float = option(0.5, "policy updates per decision; 0.5 is one every second decision", above=0.0)
    target_interval: int = option(2, "updates between two target updates", low=1)
    random_steps: int = option(25_000, "environment steps of uniformly random actions at the start", low=0)
    learn_after: int = option(25_000, "environment steps before the first update; 0: once a batch is there", low=0)
    explore: str = option(
        "smoothing", "exploration term of the target: noise of its own on every action, pink over the updates, or none",
        choices=("smoothing", "pink", "none"),
    )  # fmt: skip
    exploration_noise: float = option(0.1, "deviation of the noise added to actions while collecting", low=0.0)
    smoothing_noise: float = option(0.2, "deviation of the noise on the target policy's action", low=0.0, only=SMOOTHED)
    smoothing_clip: float = option(0.5, "bound on the noise on the target policy's action", low=0.0, only=SMOOTHED)


@dataclass(frozen=True)
class BEETD3Config(TD3Config):
    """TD3 under the BEE operator."""

    lam: float = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")


def build(config: TD3Config, task: Task, around: Any = None, next_action: bool = False, head: Any = None) -> OffPolicy:
    """The agent: `Smoothed`, or `around(Smoothed, critic)`, under `Bee` where λ asks for it; `head` is how critics are read."""
    from beeline.agents import make
    from beeline.agents.actors import DeterministicActor
    from beeline.agents.backup import Smoothed
    from beeline.agents.objective import FirstCritic

    actor = DeterministicActor(make.policy(config, task, followed=True), config.exploration_noise)
    critic = make.critic(config, task, read=head)
    sigma = 0.0 if config.explore == "none" else config.smoothing_noise
    explore = Smoothed(actor, critic, sigma, config.smoothing_clip, config.explore == "pink")
    backup = make.bee(config, around(explore, critic) if around else explore, actor, critic, task)
    return make.off_policy(config, task, actor, critic, FirstCritic(actor, critic), backup, next_action=next_action)


# --- presets ----------------------------------------------------------------------------------------------------------


def best(env_id: str) -> dict[str, Any]:
    """SAC's preset `best` as far as it applies: small LayerNorm networks, four updates a decision, TD3's own noise."""
    return dict(SMALL)


def light(env_id: str) -> dict[str, Any]:
    """Two layers of 256, batch 256, and a short warm-up."""
    return {"random_steps": 1_000, "learn_after": 1_000}


_PAPER: dict[str, dict[str, Any]] = {
    "gym": {"hidden": (400, 300), "batch_size": 100},
    "dmc": {"hidden": (512, 512)},
    "dmc-dog": {"hidden": (512, 512), "batch_size": 512},
    "metaworld": {"hidden": (512, 512)},
}
_RATES = {"dmc": 1e-4, "dmc-dog": 3e-4}


def paper(env_id: str) -> dict[str, Any]:
    """The paper's table "Hyperparameter settings for TD3"; the warm-up is the source's, 25k random steps without updates."""
    column = suite_column(env_id)
    rate = _RATES.get(column)
    return _PAPER[column] | ({} if rate is None else {"actor_lr": rate, "critic_lr": rate, "value_lr": rate})


PRESETS = {"best": best, "light": light, "paper": paper}
