"""Exported policies for tests: a small untrained one, written the way `beeline export` writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from beeline import agents
from beeline.agents.base import Spaces
from beeline.envs import registry
from beeline.envs.dkitty import robot
from beeline.run import export as exporting
from beeline.run.policy import Policy, describe


def small_policy(path: Path, env_id: str = "dkitty/walk-medium", repeat: int = 1) -> Policy:
    """Write a policy that stands with bent legs and moves a little with what it sees; the policy itself."""
    env = registry.make(env_id, repeat=repeat)
    spaces = Spaces(env.facts.obs_dim, tuple(env.facts.action_low.tolist()), tuple(env.facts.action_high.tolist()))
    config = agents.make_config("bac", env_id, "light", {"hidden": (16, 16), "normalize_obs": True})
    agent = agents.get("bac").build(config, spaces)
    policy = agent.blank_policy()
    last = {name: np.array(leaf) * 0.2 for name, leaf in policy["actor"][-1].items()}
    pose = robot.action_for(np.tile([0.0, 0.5, -1.0], 4))
    last["b"][:12] = np.arctanh(np.clip(pose, -0.99, 0.99))
    policy["actor"] = (*policy["actor"][:-1], last)
    made = Policy(agent, policy, describe("bac", env_id, agent, step=0, repeat=repeat))
    exporting.export(made, path, env)
    env.close()
    return made
