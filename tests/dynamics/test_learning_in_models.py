"""Trainings in a learned model that must reach a score; the long one has a small sister."""

from __future__ import annotations

from typing import Any

import pytest
from toys import Walk

import beeline


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.long
def test_mbpo_holds_the_pole_upright() -> None:
    """Preset `light`, seed 0: 1000 in all evaluations from 5,000 steps on, the first 500 of which are random."""
    model = beeline.MBPO("gym/InvertedPendulum-v5", seed=0, preset="light", eval_every=500, eval_episodes=5, verbose=0)
    model.learn(6_000)
    late = [row["eval/return"] for row in model.trainer.recorder.rows if row["step"] >= 5_000 and "eval/return" in row]
    assert len(late) >= 3 and set(late) == {1000.0}


@pytest.mark.learns
@pytest.mark.parametrize("algo", ["mbpo", "mb-bac", "cmlo"])
def test_learns_to_stay_near_the_middle_with_few_steps(algo: str) -> None:
    """The small sister: 600 steps of a walk on a line, 150 of them random.

    Untrained policies have −1.8 to −5.7, good ones −0.1; without a model 1,500 steps are given.
    """
    options: dict[str, Any] = {
        "preset": "light", "hidden": (32, 32), "batch_size": 32, "random_steps": 150, "learn_after": 150, "gamma": 0.9,
        "actor_lr": 1e-3, "critic_lr": 1e-3, "value_lr": 1e-3, "alpha": 0.1, "replay_capacity": 5_000, "limit": 20,
        "critic_updates_per_step": 10, "policy_updates_per_step": 10.0, "model_members": 3, "model_elites": 2,
        "model_hidden": (32, 32), "model_decay": (1e-5,), "model_batches": 100, "model_first_batches": 300, "branches": 20,
        "epoch_steps": 250, "imagined_rows": 5_000, "model_every": 50, "event_first": 1, "event_every": 10, "event_least": 50,
        "target_entropy": None,
    }  # fmt: skip
    known = {*beeline.agents.get(algo).config.names(), "preset", "replay_capacity", "limit"}
    own = {name: value for name, value in options.items() if name in known}
    model = beeline.model(algo)(Walk, eval_episodes=0, verbose=0, **own)
    judge = beeline.model(algo)(Walk, eval_episodes=20, verbose=0, **own)
    assert judge.evaluate(episodes=20).mean < -1.5
    model.learn(600)
    judge.trainer.state = model.trainer.state
    assert judge.evaluate(episodes=20).mean > -0.25
