"""GRAC (Shao et al. 2021): a critic that is held by itself instead of by a target network, and actions improved by search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import INITIALISERS, OffPolicyConfig
from beeline.agents.presets import SMALL, applicable
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.improved import Grac


@dataclass(frozen=True)
class GRACConfig(OffPolicyConfig):
    """Self-guided and self-regularised actor-critic: no target networks, actions improved by the cross-entropy method."""

    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("tau", "target_interval"), "grac has no target networks"),
        "double_q": "grac searches under one of two critics and judges by the smaller of both",
        **dict.fromkeys(("value_head", "atoms", "support"), "grac bounds its critics by the returns that it has met"),
        "normalize_reward": "grac bounds its critics by the rewards that it has met, as they are",
    }

    initialiser: str = option("torch", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    learn_after: int = option(10_000, "environment steps before the first update; 0: once a batch is there", low=0)
    population: int = option(25, "candidates of a search in each iteration", low=2)
    parents: int = option(5, "best candidates that make the next ones", low=1)
    iterations: int = option(2, "iterations of a search", low=1)
    repeat_most: int = option(10, "most further steps of the critics per update", low=1)
    repeat_until: float = option(0.7, "they end below this share of the regularised loss, at the start", above=0.0, high=1.0)
    repeat_until_end: float = option(0.85, "the same at the end of schedule_steps", above=0.0, high=1.0)
    advantage_clip: float = option(20.0, "bound on what a searched action is said to be better by", above=0.0)
    adaptive_rate: bool = option(True, "divide the policy's rate by 1 + the critics' loss")
    schedule_steps: int | None = option(None, "environment steps of the schedules; none: the steps planned at the start", low=1)

    def check(self) -> None:
        """Parents are candidates, and a blend that looks at target critics has none to look at."""
        super().check()
        if self.parents > self.population:
            raise ConfigError(f"parents = {self.parents} is more than population = {self.population}.")
        if self.blend == "ada":
            raise ConfigError("blend = 'ada' compares target critics with live ones, and grac has none; ada_h2o does not.")

    @property
    def refuses_prior(self) -> str:
        """Values are bounded by the range of rewards that was met, which others' data may leave."""
        return "its values are bounded by the rewards that it has met itself"


def build(config: GRACConfig, task: Task) -> Grac:
    """The agent: `Improved`, under `Bee` where λ asks for it."""
    from beeline.agents import make
    from beeline.agents.actors import ClampedActor
    from beeline.agents.improved import Grac, Improved, Improvement
    from beeline.cem import Cem

    actor = ClampedActor(make.policy(config, task, heads=2))
    critic = make.critic(config, task, followed=False)
    search = Cem(config.population, config.parents, config.iterations)
    backup = make.bee(config, Improved(actor, critic, search), actor, critic, task)
    objective = Improvement(actor, critic, search=search, most=config.advantage_clip)
    agent = make.off_policy(config, task, actor, critic, objective, backup, kind=Grac)
    assert isinstance(agent, Grac)
    return agent


# --- presets ----------------------------------------------------------------------------------------------------------


def light(env_id: str) -> dict[str, Any]:
    """A quarter of the source's products in a layer and half its batch, because one update has about sixteen times SAC's."""
    return {"hidden": (128, 128), "batch_size": 128, "random_steps": 1_000, "learn_after": 1_000}


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code, on every task: two layers of 256, batch 256, 10k random steps without updates."""
    return {}


def best(env_id: str) -> dict[str, Any]:
    """The networks and batch of SAC's `best`, but one update per decision: it has up to a dozen steps of the critics in it."""
    return applicable(GRACConfig, SMALL) | {"critic_updates_per_step": 1, "policy_updates_per_step": 1}


PRESETS = {"light": light, "paper": paper, "best": best}
