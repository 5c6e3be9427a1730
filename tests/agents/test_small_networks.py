"""The preset `best` of every method: the same small networks, finite losses, and a policy that finds the better action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from states import SPACES

from beeline.agents import OWN, get, make_config
from beeline.agents.base import Task
from beeline.agents.presets import SMALL
from beeline.memory import Batch, Clock, Data
from beeline.run.plan import Plan

ON_POLICY = {name for name, entry in OWN.items() if entry.group == "on-policy"}
METHODS = sorted(name for name, entry in OWN.items() if entry.group in ("bee", "actor-critic", "in-sample"))


@pytest.mark.parametrize("algo", METHODS)
def test_the_networks_are_those_of_all_others(algo: str) -> None:
    options = Plan.make(algo, "gym/Hopper-v5", "best", {}).agent.to_dict()
    expected: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value for name, value in SMALL.items()}
    if "grac" in algo:  # one of its updates has up to a dozen steps of the critics, and it always has two of them
        expected |= {"critic_updates_per_step": 1, "policy_updates_per_step": 1}
        del expected["double_q"]
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize("algo", sorted(ON_POLICY))
def test_methods_without_a_q_keep_their_networks(algo: str) -> None:
    plan = Plan.make(algo, "gym/Hopper-v5", "best", {})
    assert plan.agent == Plan.make(algo, "gym/Hopper-v5", "light", {}).agent and plan.preset == "best"


@pytest.mark.parametrize("algo", METHODS)
def test_it_learns_the_best_action_of_a_task_of_one_step(algo: str) -> None:
    """Reward −Σ (a − c)² and then the end: the policy comes near c, and every number on the way is finite."""
    narrow = {"hidden": (32, 32), "policy_hidden": (32, 32), "batch_size": 32, "actor_lr": 3e-3, "critic_lr": 3e-3}
    config = make_config(algo, "gym/Hopper-v5", "best", narrow)
    a: Any = get(algo).build(config, Task(SPACES))
    best, r = np.array([0.5, -0.25]), np.random.default_rng(0)
    state, number = a.init(0), 200
    for first in range(0, 600 if "grac" in algo else 3_000, number):
        obs = r.normal(size=(number, 32, 5)).astype(np.float32)
        action = r.uniform(-1, 1, (number, 32, 2)).astype(np.float32)
        reward = -np.square(action - best).sum(-1).astype(np.float32)
        extras = {"next_action": action, "next_action_valid": np.zeros((number, 32), bool)}
        data = Batch(obs, action, reward, np.zeros((number, 32), np.float32), obs, extras)
        state, metrics = a.update(state, Data(data, first))
        infinite = {name for name, value in metrics.items() if not np.isfinite(value).all()}
        assert infinite == ({"q/low", "q/high"} if "grac" in algo else set())  # no reward was met that would bound them
    found, _, _ = a.act(a.policy(state), a.begin(32), obs[0], np.ones(32, bool), Clock(0, 10**6), "greedy")
    np.testing.assert_allclose(np.asarray(found).mean(0), best, atol=0.15)
