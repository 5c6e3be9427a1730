"""MAXQ (a baseline of Ji et al. 2024): the target bootstraps from the better of the policy's action and the one taken at s'.

There are two entries, `maxq` on SAC and `maxq-td3` on TD3, and not one with an option `backbone`: so each has the options and
presets of its backbone and no others, and what does not apply is unknown instead of ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beeline.agents import sac, td3
from beeline.agents.sac import SACConfig
from beeline.agents.td3 import TD3Config

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class MAXQConfig(SACConfig):
    """SAC whose target takes the better of a sampled next action and the one that was taken."""


@dataclass(frozen=True)
class MAXQTD3Config(TD3Config):
    """TD3 whose target takes the better of its own next action and the one that was taken."""


def build(config: MAXQConfig, task: Task) -> OffPolicy:
    """The agent: SAC's, with `Maxq` around `Soft`."""
    from beeline.agents.taken import Maxq

    return sac.build(config, task, around=Maxq, next_action=True)


def build_td3(config: MAXQTD3Config, task: Task) -> OffPolicy:
    """The agent: TD3's, with `Maxq` around `Smoothed`."""
    from beeline.agents.taken import Maxq

    return td3.build(config, task, around=Maxq, next_action=True)


PRESETS, PRESETS_TD3 = sac.PRESETS, td3.PRESETS
