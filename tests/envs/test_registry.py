import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from beeline import envs
from beeline.envs import registry, tables
from beeline.errors import ConfigError, EnvError, MissingExtraError, UnknownNameError


def episode(env, seed, decisions=200):
    """Return the bytes of a seeded episode with fixed random actions."""
    draw = np.random.default_rng(7)
    obs, _ = env.reset(seed=seed)
    out = [obs.tobytes()]
    for _ in range(decisions):
        obs, reward, terminated, truncated, _ = env.step(draw.uniform(-1, 1, env.facts.action_dim))
        out += [obs.tobytes(), np.float64(reward).tobytes()]
        if terminated or truncated:
            break
    return b"".join(out)


@pytest.mark.parametrize("env_id", ["gym/Hopper-v5", "gym/Pendulum-v1?noise=0.3", "gym/Swimmer-v5?noise=0.2&repeat=2"])
def test_episodes_are_functions_of_the_seed(env_id):
    env, other = envs.make(env_id), envs.make(env_id)
    first = episode(env, 3)
    assert episode(env, 4) != first
    assert episode(env, 3) == first, "an episode in between must leave no trace"
    assert episode(other, 3) == first


def test_gym_and_module_ids():
    spec = envs.spec_of("gym/Humanoid-v5?repeat=2")
    assert (spec.id, spec.obs_dim, spec.action_dim, spec.repeat) == ("gym/Humanoid-v5?repeat=2", 348, 17, 2)
    assert spec.max_episode_steps == 1000
    np.testing.assert_array_equal(spec.action_high, np.full(17, 0.4, np.float32))
    module = envs.make("gymnasium.envs.mujoco:Hopper-v5")
    assert module.facts.id == "gymnasium.envs.mujoco:Hopper-v5"
    assert episode(module, 0) == episode(envs.make("gym/Hopper-v5"), 0)


def test_factory_instance_and_repeat_keyword():
    by_id = episode(envs.make("gym/Pendulum-v1", repeat=2), 5)
    assert by_id == episode(envs.make("gym/Pendulum-v1?repeat=2", repeat=2), 5)
    assert by_id == episode(envs.make(lambda: gymnasium.make("Pendulum-v1"), repeat=2), 5)
    instance = envs.make(gymnasium.make("Pendulum-v1"), repeat=2)
    assert by_id == episode(instance, 5)
    assert instance.facts.id == "gym/Pendulum-v1?repeat=2" and instance.facts.max_episode_steps == 200
    assert envs.make(instance) is instance and envs.make(lambda: instance, repeat=2) is instance
    with pytest.raises(ConfigError, match="repeat"):
        envs.make(instance, repeat=3)
    with pytest.raises(ConfigError, match="repeat"):
        envs.make("gym/Pendulum-v1?repeat=2", repeat=3)


def test_time_limits_are_truncations_and_may_be_changed():
    for query, length in (("", 200), ("?limit=250", 250), ("?limit=3", 3)):
        env = envs.make(f"gym/Pendulum-v1{query}")
        env.reset(seed=0)
        ends = [env.step(np.zeros(1))[2:4] for _ in range(length)]
        assert ends == [(False, False)] * (length - 1) + [(False, True)]


@pytest.mark.parametrize("task", tables.GYM)
def test_gym_sizes_in_the_table_are_true(task):
    spec = envs.spec_of(f"gym/{task}")
    assert (spec.obs_dim, spec.action_dim) == tables.GYM[task]


def test_gymnasium_checker_passes():
    check_env(envs.make("gym/Walker2d-v5?noise=0.1&repeat=2"), skip_render_check=True)


@pytest.mark.parametrize(
    ("env_id", "near"),
    [
        ("gym/Hoper-v5", "'gym/Hopper-v5'"),
        ("gym/Hopper-v77", "'gym/Hopper-v5'"),
        ("dcm/walker-run", "'dmc'"),
        ("Hopper-v5", "'gym/Hopper-v5'"),
        ("Hoper-v5", "'gym/Hopper-v5'"),
        ("gymnasium:Hoper-v5", "'gymnasium:Hopper-v5'"),
    ],
)
def test_unknown_names_offer_the_nearest(env_id, near):
    with pytest.raises(UnknownNameError, match=near):
        envs.make(env_id)


def test_missing_extra_names_the_pip_command(monkeypatch):
    monkeypatch.setattr(registry, "installed", lambda suite: suite.extra is None)
    with pytest.raises(MissingExtraError, match=r"dmc/walker-run.*pip install -e .*\[dmc\]'"):
        envs.make("dmc/walker-run")
    assert envs.spec_of("gym/Pendulum-v1").obs_dim == 3


def test_other_errors_say_what_to_do():
    with pytest.raises(EnvError, match=r"gym/CartPole-v1.*continuous"):
        envs.make("gym/CartPole-v1")
    with pytest.raises(EnvError, match="-v5 or -v4"):
        envs.make("gym/Hopper-v3")
    with pytest.raises(EnvError, match="no_such_module"):
        envs.make("no_such_module:Env-v0")
    with pytest.raises(EnvError, match="int is not a"):
        envs.make(lambda: 3)


def test_importing_is_light():
    code = "import sys, json, beeline.envs; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"gymnasium", "mujoco", "dm_control", "jax", "imageio", "matplotlib", "torch"}
    assert heavy.isdisjoint(json.loads(done.stdout))
