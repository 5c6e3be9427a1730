"""Small trainings that must reach a score: each algorithm, its light preset, one fixed seed."""

from __future__ import annotations

import pytest

import beeline
from beeline.agents import OWN


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(set(OWN) - {"ppo"}))  # on-policy: see tests/agents/test_ppo.py
def test_learns_pendulum_within_ten_thousand_steps(algo: str) -> None:
    """Mean of 20 deterministic episodes; a random policy has about −1200, a good one −150."""
    model: beeline.Model = beeline.model(algo)("gym/Pendulum-v1", seed=0, eval_episodes=0, log_every=5_000)
    model.learn(10_000)
    env_model = beeline.model(algo)("gym/Pendulum-v1", seed=0, eval_episodes=20)
    env_model.trainer.state = model.trainer.state
    assert env_model.evaluate(episodes=20).mean >= -250
