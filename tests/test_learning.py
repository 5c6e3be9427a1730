"""Small trainings that must reach a score: each algorithm, its light preset, one fixed seed.

Where a training takes more than a minute it is marked `long` (`make test-long`); its small sister is in `make test`.
"""

from __future__ import annotations

from typing import Any

import pytest
from toys import Walk

import beeline
from beeline.agents import OWN

# On-policy: see tests/agents/test_ppo.py and test_trpo.py; with a learned model: tests/dynamics/test_learning_in_models.py.
OFF_POLICY = sorted(name for name, entry in OWN.items() if entry.group not in ("on-policy", "model-based"))
STEPS = {"grac": 20_000, "bee-grac": 20_000, "iql": 20_000}  # where it takes more than ten thousand
QUICK = ("bac", "sac", "bee-td3", "td3")


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.parametrize("algo", [pytest.param(a, marks=() if a in QUICK else pytest.mark.long) for a in OFF_POLICY])
def test_learns_pendulum(algo: str) -> None:
    """Mean of 20 deterministic episodes; a random policy has about −1200, a good one −150."""
    model: beeline.Model = beeline.model(algo)("gym/Pendulum-v1", preset="light", seed=0, eval_episodes=0, log_every=5_000)
    model.learn(STEPS.get(algo, 10_000))
    env_model = beeline.model(algo)("gym/Pendulum-v1", preset="light", seed=0, eval_episodes=20)
    env_model.trainer.state = model.trainer.state
    assert env_model.evaluate(episodes=20).mean >= -250


@pytest.mark.learns
@pytest.mark.parametrize("algo", OFF_POLICY)
def test_learns_to_stay_near_the_middle(algo: str) -> None:
    """The small sister: fifteen hundred steps of a walk on a line; untrained policies have −1.8 to −5.7, good ones −0.1."""
    options: dict[str, Any] = {
        "hidden": (32, 32), "batch_size": 32, "random_steps": 200, "learn_after": 200, "gamma": 0.9, "log_every": 500,
        "actor_lr": 1e-3, "critic_lr": 1e-3, "value_lr": 1e-3, "replay_capacity": 5_000, "limit": 20,
    }  # fmt: skip
    options |= {"alpha": 0.1} if "alpha" in beeline.agents.get(algo).config.names() else {}
    model = beeline.model(algo)(Walk, preset="light", eval_episodes=0, verbose=0, **options)
    judge = beeline.model(algo)(Walk, preset="light", eval_episodes=20, verbose=0, **options)
    assert judge.evaluate(episodes=20).mean < -1.5
    model.learn(1_500)
    judge.trainer.state = model.trainer.state
    # A policy that regresses onto what was taken follows more slowly.
    assert judge.evaluate(episodes=20).mean > (-0.3 if algo == "iql" else -0.2)


@pytest.mark.learns
@pytest.mark.slow
@pytest.mark.long
def test_the_default_learns_walker_run() -> None:
    """25,000 steps with the default preset, the middle of three seeds; a random policy has about 25."""
    pytest.importorskip("dm_control")
    found = []
    for seed in range(3):
        model = beeline.BAC("dmc/walker-run", seed=seed, threads=1, eval_episodes=0, log_every=5_000, verbose=0).learn(25_000)
        found.append(model.evaluate(episodes=5).mean)
    assert sorted(found)[1] >= 150, found


@pytest.mark.learns
@pytest.mark.parametrize(
    ("algo", "own"),
    [
        ("bac", {}),
        ("sac", {"value_head": "hl_gauss", "atoms": 51, "normalize_reward": True}),
        ("sac", {"preset": "wide", "hidden": (32,), "policy_hidden": (16,), "replay_decay": 1e-3}),
        ("bee-td3", {}),
    ],
    ids=["bac", "head", "wide", "bee-td3"],
)
def test_the_default_preset_learns_to_stay_near_the_middle(algo: str, own: dict[str, Any]) -> None:
    """Its small sister, in half of the steps that `light` is given above."""
    options: dict[str, Any] = {
        "hidden": (32, 32), "policy_hidden": (16, 16), "batch_size": 32, "random_steps": 200, "learn_after": 200, "gamma": 0.9,
        "actor_lr": 1e-3, "critic_lr": 1e-3, "value_lr": 1e-3, "replay_capacity": 5_000, "limit": 20, "log_every": 500, **own,
    }  # fmt: skip
    model = beeline.model(algo)(Walk, eval_episodes=0, verbose=0, **options).learn(750)
    judge = beeline.model(algo)(Walk, eval_episodes=20, verbose=0, **options)
    judge.trainer.state = model.trainer.state
    assert judge.evaluate(episodes=20).mean > -0.3
