"""OBAC (Luo et al. 2024): SAC beside an in-sample critic; where that one is ahead, the policy clones the buffer too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents import sac
from beeline.agents.presets import applicable
from beeline.agents.sac import SACConfig
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class OBACConfig(SACConfig):
    """SAC beside an in-sample critic of the buffer, whose actions the policy clones where that critic is ahead."""

    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("lam", "lambda", "blend"), "obac keeps its in-sample critic beside the target; to blend it in, see bac"),
        "v_entropy": "obac fits V on its in-sample critic alone",
    }

    explore: str = option("entropy", "exploration term of the target", choices=("entropy", "none"))
    expectile: float = option(0.9, "expectile of the estimator `expectile`", low=0.5, high=0.9999, only=("exploit", "expectile"))
    cloning: float = option(0.001, "weight of cloning where the buffer is ahead", low=0.0)


def build(config: OBACConfig, task: Task) -> OffPolicy:
    """The agent: SAC's, with `Beside` around `Soft`, and `Cloning` as the policy's objective; all from the start's parameters."""
    from beeline.agents import make
    from beeline.agents.cloning import Beside, Cloning

    def around(soft: Any, critic: Any) -> Beside:
        return Beside(soft.actor, critic, soft.entropy, make.value(config, task), make.exploit(config))

    return sac.build(config, task, around=around, fresh=False, kind=Cloning, weight=config.cloning)


# --- presets ----------------------------------------------------------------------------------------------------------


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code, on every task; their dropout of .01 and the policy's third layer are left out."""
    return {"network": "bac", "hidden": (512, 512), "batch_size": 512, "random_steps": 5_000, "learn_after": 5_000}


def best(env_id: str) -> dict[str, Any]:
    """SAC's, as far as it applies."""
    return applicable(OBACConfig, sac.best(env_id))


PRESETS = {"light": sac.light, "paper": paper, "best": best}
