"""RRS (Sun et al. 2022): TD3 with a pair of critics per constant shift of the reward, one of which judges the policy at a time.

With critics that start near zero, a positive shift is pessimistic about what was not tried, a negative one optimistic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.td3 import TD3Config, best, light
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy

SEVEN = (-0.5, -1 / 3, -1 / 6, 0.0, 1 / 6, 1 / 3, 0.5)  # RRS-7 0.5; the source names the range and not the list


@dataclass(frozen=True)
class RRSConfig(TD3Config):
    """Random reward shift: TD3 with a pair of critics per shift of the reward, one of which judges the policy."""

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("value_head", "atoms", "support"), "each shift moves the values, and one support would not hold them all"
    )

    shifts: tuple[float, ...] = option(SEVEN, "what each pair of critics adds to the (scaled) reward")
    switch_every: int = option(1_000, "environment steps after which an episode's end draws the judging pair anew", low=1)

    def check(self) -> None:
        """A shift belongs to every reward of a return, and a batch does not say how many of them it has summed."""
        super().check()
        if self.n_step > 1:
            raise ConfigError(f"n_step = {self.n_step} does not go with shifted rewards; allowed: 1.")


def build(config: RRSConfig, task: Task) -> OffPolicy:
    """The agent: `Shifted`, under `Bee` (one V per shift) where λ asks for it, and the policy under the selected pair."""
    from beeline.agents import make
    from beeline.agents.actors import DeterministicActor
    from beeline.agents.shifted import Selected, Shifted, ShiftedAgent

    actor = DeterministicActor(make.policy(config, task, followed=True), config.exploration_noise)
    critic = make.critic(config, task, groups=(len(config.shifts),))
    sigma = 0.0 if config.explore == "none" else config.smoothing_noise
    shifted = Shifted(actor, critic, sigma, config.smoothing_clip, config.explore == "pink", config.shifts)
    backup = make.bee(config, shifted, actor, critic, task)
    return make.off_policy(config, task, actor, critic, Selected(actor, critic, shifts=config.shifts), backup, kind=ShiftedAgent)


# --- presets ----------------------------------------------------------------------------------------------------------


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code, on every task: two layers of 256, batch 256, 25k random steps without updates."""
    return {}


PRESETS = {"light": light, "paper": paper, "best": best}
