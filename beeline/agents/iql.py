"""Implicit Q-learning (Kostrikov et al. 2022), online: an in-sample V, and a policy by advantage-weighted regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import INITIALISERS, OffPolicyConfig
from beeline.agents.presets import SMALL
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class IQLConfig(OffPolicyConfig):
    """Implicit Q-learning online: an in-sample V, and a policy by advantage-weighted regression."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("lam", "lambda", "blend"), "iql has the exploit target alone and nothing to blend it with; see bac"
    )

    initialiser: str = option("orthogonal", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    inverse_temperature: float = option(3.0, "β of the policy's weights exp(β (Q − V))", low=0.0)
    weight_bound: float = option(100.0, "bound on the policy's weights", above=0.0)


def build(config: IQLConfig, task: Task) -> OffPolicy:
    """The agent: `InSample`, whose V is fitted first, and `Weighted` regression of the policy."""
    from beeline.agents import make
    from beeline.agents.on_policy import Gaussian
    from beeline.agents.owned import InSample
    from beeline.agents.weighted import ClippedActor, Weighted
    from beeline.networks import Learnable

    spaces = task.spaces
    net = Gaussian(make.network(config, config.policy_hidden), 0.0)
    optimiser = make.optimiser(config, config.actor_lr)
    actor: Any = ClippedActor(Learnable(net, spaces.obs_dim, optimiser, (spaces.action_dim,)))
    critic = make.critic(config, task)
    backup = InSample(make.value(config, task), critic, make.exploit(config))
    objective = Weighted(actor, critic, backup, config.inverse_temperature, config.weight_bound)
    return make.off_policy(config, task, actor, critic, objective, backup, order=("value", "policy", "critic"))


# --- presets ----------------------------------------------------------------------------------------------------------


def light(env_id: str) -> dict[str, Any]:
    """Two layers of 256, batch 256, and a short warm-up."""
    return {"random_steps": 1_000}


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code for MuJoCo, on every task."""
    return {"random_steps": 5_000}


def best(env_id: str) -> dict[str, Any]:
    """The networks, batch and updates per decision of SAC's `best`."""
    return dict(SMALL)


PRESETS = {"light": light, "paper": paper, "best": best}
