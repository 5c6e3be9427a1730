"""Extreme Q-learning online (Garg et al. 2023): X-SAC with a V, and X-TD3 with critics, fitted by Gumbel regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents import sac, td3
from beeline.agents.sac import SACConfig
from beeline.agents.td3 import TD3Config
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class XQLConfig(SACConfig):
    """Extreme Q-learning on SAC: a V by Gumbel regression on the policy's actions is what is bootstrapped."""

    explore: str = option("entropy", "exploration term of the policy's loss", choices=("entropy", "none"))
    alpha: float = option(0.1, "initial temperature, or the fixed one (0: no entropy)", low=0.0)
    v_entropy: bool = option(False, "entropy term in V's regression, as the release has it and the paper's text does not")
    beta: float = option(2.0, "temperature of the Gumbel regression: small leans to the maximum, large to the mean", above=0.0)
    gumbel_clip: float = option(10.0, "bound on (target − prediction)/beta", above=0.0)


@dataclass(frozen=True)
class XTD3Config(TD3Config):
    """TD3 whose critics are fitted by Gumbel regression."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("value_head", "atoms", "support"), "xtd3's critics have a loss of their own"
    )

    beta: float = option(2.0, "temperature of the Gumbel regression: small leans to the maximum, large to the mean", above=0.0)
    gumbel_clip: float = option(8.0, "bound on (target − prediction)/beta", above=0.0)


def build(config: XQLConfig, task: Task) -> OffPolicy:
    """The agent: SAC's, with `Extreme` in place of `Soft`."""
    from beeline.agents import make
    from beeline.agents.owned import Extreme

    def around(soft: Any, critic: Any) -> Extreme:
        return Extreme(make.value(config, task, followed=True), soft.actor, critic, config.beta, config.gumbel_clip)

    return sac.build(config, task, around=around, asked=False)


def build_td3(config: XTD3Config, task: Task) -> OffPolicy:
    """The agent: TD3's, with the head `Gumbel` on its critics."""
    from beeline.agents.owned import Gumbel

    return td3.build(config, task, head=Gumbel(config.beta, config.gumbel_clip))


# --- presets ----------------------------------------------------------------------------------------------------------

BETAS = {"cheetah-run": 2.0, "hopper-hop": 1.0, "walker-run": 2.0, "quadruped-run": 5.0}
BETAS_TD3 = {"cheetah-run": 5.0, "walker-run": 2.0, "hopper-hop": 2.0, "quadruped-run": 5.0}


def light(env_id: str) -> dict[str, Any]:
    """Two layers of 256, batch 256, and a short warm-up."""
    return {"random_steps": 1_000}


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code for DMControl, on every task; beta is 2 where they name none."""
    rates = dict.fromkeys(("actor_lr", "critic_lr", "value_lr", "alpha_lr"), 1e-4)
    return rates | {
        "hidden": (1024, 1024), "batch_size": 1024, "initialiser": "orthogonal", "random_steps": 5_000, "learn_after": 5_000,
        "policy_updates_per_step": 0.5, "target_interval": 2, "beta": BETAS.get(env_id.partition("/")[2], 2.0),
    }  # fmt: skip


def paper_td3(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code for two critics, on every task; beta is 2 where they name none."""
    task = env_id.partition("/")[2]
    rates = dict.fromkeys(("actor_lr", "critic_lr", "value_lr"), 1e-3)
    return rates | {"beta": BETAS_TD3.get(task, 2.0), "exploration_noise": 0.05 if task == "hopper-hop" else 0.1}


PRESETS = {"light": light, "paper": paper, "best": sac.best}
PRESETS_TD3 = {"light": td3.light, "paper": paper_td3, "best": td3.best}
