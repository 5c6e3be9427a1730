"""Expected SAC: the soft target, averaged over K actions at s' as Expected SARSA averages (van Seijen et al. 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beeline.agents import Entry, bee
from beeline.agents.sac import PRESETS, SACConfig
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Agent, Task


@dataclass(frozen=True)
class ExpectedSACConfig(SACConfig):
    """Soft actor-critic whose target is an average over several actions."""

    samples: int = option(4, "actions at s' that the target is averaged over; 1 is SAC", low=1, high=64)


def build(config: ExpectedSACConfig, task: Task) -> Agent:
    """The parts of SAC, with a backup of our own; JAX is imported here and not above."""
    from beeline.agents import make
    from beeline.agents.actors import GaussianActor
    from expected_sac.backup import Expected

    actor, critic = GaussianActor(make.policy(config, task, heads=2)), make.critic(config, task)
    entropy = make.entropy(config, task, actor, critic)
    expected = Expected(actor, critic, entropy, config.samples)
    backup = make.bee(config, expected, actor, critic, task, entropy if config.v_entropy else None)
    return make.off_policy(config, task, actor, critic, entropy, backup)


SUMMARY = "SAC whose target is averaged over several actions"
ENTRY = Entry("expected-sac", SUMMARY, ExpectedSACConfig, build, PRESETS, group="actor-critic")
BEE = bee(ENTRY, f"{SUMMARY}, under the BEE operator")
