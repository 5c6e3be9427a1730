"""OBAC (Luo et al. 2024): SAC beside an in-sample critic; where that one is ahead, the policy clones the buffer too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beeline.agents import sac
from beeline.agents.sac import SACConfig
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class OBACConfig(SACConfig):
    """SAC beside an in-sample critic of the buffer, whose actions the policy clones where that critic is ahead."""

    explore: str = option("entropy", "exploration term of the target", choices=("entropy", "none"))
    expectile: float = option(0.9, "expectile of the estimator `expectile`", low=0.5, high=0.9999)
    cloning: float = option(0.001, "weight of cloning where the buffer is ahead", low=0.0)

    def check(self) -> None:
        """Its in-sample critic stands beside the target, not in it."""
        super().check()
        if self.bee:
            raise ConfigError(
                f"lam = {self.lam:g} and blend = {self.blend}: obac keeps its in-sample critic beside the target instead of "
                "blending it in; leave both out, or see bac."
            )


def build(config: OBACConfig, task: Task) -> OffPolicy:
    """The agent: SAC's, with `Beside` around `Soft`, and `Cloning` as the policy's objective; all from the start's parameters."""
    from beeline.agents import make
    from beeline.agents.cloning import Beside, Cloning

    strength = config.expectile if config.exploit == "expectile" else config.exploit_alpha

    def around(soft: Any, critic: Any) -> Beside:
        value = make.value(config, task)
        return Beside(soft.actor, critic, soft.entropy, value, make.exploit_loss(config.exploit), strength)

    return sac.build(config, task, around=around, fresh=False, kind=Cloning, weight=config.cloning)


# --- presets ----------------------------------------------------------------------------------------------------------


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code, on every task; their dropout of .01 and the policy's third layer are left out."""
    return {"network": "bac", "hidden": (512, 512), "batch_size": 512, "random_steps": 5_000, "learn_after": 5_000}


def best(env_id: str) -> dict[str, Any]:
    """SAC's."""
    return sac.best(env_id)


PRESETS = {"light": sac.light, "paper": paper, "best": best}
