"""Presets are functions of a task's id, beside each method; here is what several of them ask.

A preset is a set of options that a method starts from; options given by the user come after it. It may set options of the run
as well. Numbers of steps are absolute, never a share of the budget, so that a run can be extended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beeline.config import Config

# What learns fastest of all we know on a plain CPU, and what every off-policy method's `best` begins with, so that methods are
# compared and not networks: small LayerNorm networks, scaled observations, four updates of the critics per decision.
SMALL: Mapping[str, Any] = {
    "network": "ln", "hidden": (256, 256), "policy_hidden": (128, 128), "initialiser": "orthogonal", "normalize_obs": True,
    "double_q": "auto", "batch_size": 128, "critic_updates_per_step": 4, "policy_updates_per_step": 2,
    "random_steps": 2_500, "learn_after": 2_500,
}  # fmt: skip


def applicable(config: type[Config], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some options that a method has."""
    names = config.names()
    return {name: value for name, value in options.items() if name in names}


def paper_preset(env_id: str) -> str:
    """The preset of the paper's tables for a task, and its column there."""
    return f"paper ({suite_column(env_id)})"


def suite_column(env_id: str) -> str:
    """Which column of the paper's tables a task belongs to."""
    suite, _, task = env_id.partition("/")
    if suite == "dmc":
        return "dmc-dog" if task.startswith("dog") else "dmc"
    return suite if suite == "metaworld" else "gym"
