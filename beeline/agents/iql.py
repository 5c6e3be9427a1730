"""Implicit Q-learning (Kostrikov et al. 2022), online: an in-sample V, and a policy by advantage-weighted regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beeline.agents.options import INITIALISERS, OffPolicyConfig
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class IQLConfig(OffPolicyConfig):
    """Implicit Q-learning online: an in-sample V, and a policy by advantage-weighted regression."""

    initialiser: str = option("orthogonal", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    inverse_temperature: float = option(3.0, "β of the policy's weights exp(β (Q − V))", low=0.0)
    weight_bound: float = option(100.0, "bound on the policy's weights", above=0.0)

    def check(self) -> None:
        """There is one target, so nothing to blend."""
        super().check()
        if self.bee:
            raise ConfigError(
                f"lam = {self.lam:g} and blend = {self.blend}: iql has the exploit target alone and nothing to blend it with; "
                "leave both out, or see bac."
            )


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
    strength = config.expectile if config.exploit == "expectile" else config.exploit_alpha
    backup = InSample(make.value(config, task), critic, make.exploit_loss(config.exploit), strength)
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
    """The body, sizes and updates per decision of SAC's `best`, as far as they apply."""
    from beeline.agents import sac

    return {name: value for name, value in sac.best(env_id).items() if name in IQLConfig.names()}


PRESETS = {"light": light, "paper": paper, "best": best}
