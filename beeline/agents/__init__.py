"""The algorithms by name. Importing this costs nothing; configs and agents are imported where they are used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beeline.errors import UnknownNameError

if TYPE_CHECKING:
    from beeline.agents.base import Agent, Spaces
    from beeline.agents.options import ActorCriticConfig


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An entry of the table: what it is called, where its config is, and what it is in one line."""

    name: str
    config_name: str
    summary: str

    @property
    def config(self) -> type[ActorCriticConfig]:
        """The config class."""
        from beeline.agents import options

        return getattr(options, self.config_name)

    def build(self, config: ActorCriticConfig, spaces: Spaces) -> Agent:
        """The agent of a config and a task's spaces."""
        from beeline.agents.actor_critic import ActorCritic

        return ActorCritic(config, spaces)


ALGORITHMS = {
    entry.name: entry
    for entry in (
        Algorithm("bac", "BACConfig", "BEE actor-critic: SAC whose target blends in what the buffer has proved possible"),
        Algorithm("sac", "SACConfig", "soft actor-critic with tuned temperature"),
        Algorithm("bee-td3", "BEETD3Config", "TD3 under the BEE operator"),
        Algorithm("td3", "TD3Config", "twin delayed DDPG with target smoothing"),
    )
}


def get(name: str) -> Algorithm:
    """The algorithm of that name, or an error with the nearest names."""
    key = name.lower().replace("_", "-")
    if key not in ALGORITHMS:
        raise UnknownNameError("algorithm", name, ALGORITHMS, f"Known: {', '.join(ALGORITHMS)} (see: beeline algos).")
    return ALGORITHMS[key]


def make_config(algo: str, env_id: str, preset: str, options: Mapping[str, Any]) -> ActorCriticConfig:
    """The config of an algorithm: its preset for the task, then the user's own options."""
    from beeline.agents.presets import preset_options

    algorithm = get(algo)
    return algorithm.config.make({**preset_options(algorithm.name, env_id, preset), **options})
