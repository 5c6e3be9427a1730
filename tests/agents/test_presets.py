"""The presets hold what the paper's tables say, column by column."""

from __future__ import annotations

import pytest

from beeline.agents import ALGORITHMS, make_config
from beeline.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("algo", "task", "expected"),
    [
        ("bac", "gym/Hopper-v5", {"hidden": (512, 512), "batch_size": 512, "actor_lr": 3e-4, "lam": 0.5, "expectile": 0.7}),
        ("bac", "dmc/dog-run", {"hidden": (512, 512), "batch_size": 512, "critic_lr": 3e-4, "tau": 0.005}),
        ("sac", "gym/Hopper-v5", {"hidden": (256, 256), "batch_size": 256, "alpha_beta1": 0.5, "target_interval": 1}),
        ("sac", "dmc/walker-run", {"hidden": (1024, 1024), "batch_size": 512, "actor_lr": 1e-4, "target_interval": 2}),
        ("sac", "dmc/dog-run", {"batch_size": 2048, "actor_lr": 3e-4, "alpha_lr": 3e-4}),
        ("sac", "metaworld/hammer", {"hidden": (256, 256), "batch_size": 500, "critic_lr": 3e-4}),
        ("td3", "gym/Hopper-v5", {"hidden": (400, 300), "batch_size": 100, "exploration_noise": 0.1}),
        ("td3", "dmc/walker-run", {"hidden": (512, 512), "batch_size": 256, "actor_lr": 1e-4}),
        ("td3", "dmc/dog-walk", {"batch_size": 512, "actor_lr": 3e-4}),
        ("bee-td3", "metaworld/hammer", {"hidden": (512, 512), "batch_size": 256, "lam": 0.5}),
        ("bee-td3", "dmc/walker-run", {"value_lr": 1e-4, "critic_lr": 1e-4}),
    ],
)
def test_paper_preset(algo: str, task: str, expected: dict) -> None:
    config = make_config(algo, task, "paper", {})
    assert {name: getattr(config, name) for name in expected} == expected


def test_warm_up_is_that_of_each_source() -> None:
    for algo in ("sac", "bac"):
        config = make_config(algo, "gym/Hopper-v5", "paper", {})
        assert (config.random_steps, config.learn_after) == (10_000, 0)
    for algo in ("td3", "bee-td3"):
        config = make_config(algo, "gym/Hopper-v5", "paper", {})
        assert (config.random_steps, config.learn_after) == (25_000, 25_000)


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_light_preset_is_for_a_laptop(algo: str) -> None:
    config = make_config(algo, "gym/Hopper-v5", "light", {})
    if "grac" in algo:  # an update takes many times the products of the others'
        assert (config.hidden, config.batch_size, config.random_steps) == ((128, 128), 128, 1_000)
    elif algo == "slbo":
        assert (config.stage_steps, config.rounds, config.policy_updates, config.model_hidden) == (5_000, 10, 20, (200, 200))
    elif algo == "pets":
        assert (config.hidden, config.population, config.particles, config.model_members) == ((128,) * 3, 128, 1, 5)
    elif algo in ("ppo", "trpo"):  # its own small networks and minibatches, and no warm-up
        assert (config.hidden, config.batch_size) == ((64, 64), 64)
    elif ALGORITHMS[algo].group == "model-based":  # a model wants more to begin with
        assert (config.hidden, config.batch_size, config.random_steps) == ((256, 256), 256, 5_000)
    else:
        assert (config.hidden, config.batch_size, config.random_steps) == ((256, 256), 256, 1_000)


def test_the_users_options_come_after_the_preset() -> None:
    assert make_config("bac", "gym/Hopper-v5", "paper", {"batch_size": 64}).batch_size == 64


def test_unknown_preset_and_tied_fields() -> None:
    with pytest.raises(UnknownNameError, match="light"):
        make_config("bac", "gym/Hopper-v5", "lite", {})
    with pytest.raises(ConfigError, match="alpha"):
        make_config("sac", "gym/Hopper-v5", "light", {"alpha": 0.0})
    with pytest.raises(ConfigError, match="whole ratio"):
        make_config("sac", "gym/Hopper-v5", "light", {"critic_updates_per_step": 3, "policy_updates_per_step": 2})


@pytest.mark.parametrize(
    ("critic", "policy", "interval", "rounds"), [(1, 1, 1, 1), (1, 0.5, 2, 1), (20, 1, 20, 1), (1, 2, 1, 2), (4, 2, 2, 1)]
)
def test_update_ratios(critic: int, policy: float, interval: int, rounds: int) -> None:
    own = {"critic_updates_per_step": critic, "policy_updates_per_step": policy}
    config = make_config("sac", "gym/Hopper-v5", "light", own)
    assert (config.policy_interval, config.policy_rounds) == (interval, rounds)


@pytest.mark.parametrize("algo", ["bac", "sac", "td3", "bee-td3"])
def test_the_default_preset_is_best(algo: str) -> None:
    config = make_config(algo, "dmc/walker-run", None, {})
    assert config == make_config(algo, "dmc/walker-run", "best", {})
    assert (config.network, config.initialiser) == ("ln", "orthogonal")
    assert (config.hidden, config.policy_hidden) == ((256, 256), (128, 128))
    assert (config.batch_size, config.critic_updates_per_step, config.policy_updates_per_step) == (128, 4, 2)
    assert (config.normalize_obs, config.double_q, config.gamma, config.random_steps, config.learn_after) == (
        True, "auto", 0.99, 2_500, 2_500
    )  # fmt: skip
    assert config.lam == (0.5 if algo.startswith("b") else 0.0)
    if algo in ("bac", "sac"):
        assert (config.alpha, config.target_entropy_per_action, config.log_std, config.v_entropy) == (0.01, -0.5, "tanh", False)
