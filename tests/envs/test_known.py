"""What is known of tasks says at every step of random episodes what the environment says."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline import api, envs
from beeline.envs import known, registry, remote, tables
from beeline.envs.adapter import Adapter
from beeline.errors import EnvError
from beeline.options import TrainConfig
from beeline.rng import episode_seed
from beeline.run.build import make_resets, make_task
from tests import toys

STEPS = 400


def rollout(env: Adapter, steps: int, seed: int = 0, reach: float = 1.0) -> dict[str, np.ndarray]:
    """Rows of random actions; `ended` and `reward` are the environment's own."""
    draw, rows = np.random.default_rng(seed), []
    episode, obs = 0, env.reset(seed=seed)[0]
    for _ in range(steps):
        action = draw.uniform(-reach, reach, env.facts.action_dim).astype(np.float32)
        after, reward, ended, cut, _ = env.step(action)
        rows.append((obs, action, after, ended, reward))
        if ended or cut:
            episode += 1
            after = env.reset(seed=seed + episode)[0]
        obs = after
    env.close()
    names = ("obs", "action", "next_obs", "ended", "reward")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return {name: np.stack([np.asarray(each) for each in column]) for name, column in columns}


def check(env_id: str, rows: dict[str, np.ndarray], ends: bool | None) -> None:
    terminated = registry.spec_of(env_id).terminated
    assert terminated is not None
    given = rows["obs"], rows["action"], rows["next_obs"]
    said = terminated(*given)
    assert said.dtype == bool and said.shape == rows["ended"].shape
    np.testing.assert_array_equal(said, rows["ended"])
    assert ends is None or rows["ended"].any() == ends  # the comparison has met both
    device = jax.jit(terminated)(*map(jnp.asarray, given))
    assert device.dtype == bool
    np.testing.assert_array_equal(np.asarray(device), rows["ended"])
    assert bool(terminated(*(each[0] for each in given))) == rows["ended"][0]


ENDING = [name for name, ended in known.GYM.items() if ended is not known.never and not name.startswith("MountainCar")]
ENDLESS = [name for name, ended in known.GYM.items() if ended is known.never]


@pytest.mark.parametrize("task", [*(f"gym/{name}" for name in ENDING), *(f"mbpo/{name}" for name in tables.MBPO)])
def test_tasks_that_end(task: str) -> None:
    check(task, rollout(envs.make(task), STEPS), ends=True)


@pytest.mark.parametrize("name", ENDLESS)
def test_tasks_that_never_end(name: str) -> None:
    check(f"gym/{name}", rollout(envs.make(f"gym/{name}"), 60), ends=False)


def test_the_car_ends_on_the_hill() -> None:
    env = envs.make("gym/MountainCarContinuous-v0")
    obs, rows = env.reset(seed=0)[0], []
    for _ in range(300):  # push with the motion
        action = np.array([1.0 if obs[1] >= 0 else -1.0], np.float32)
        after, reward, ended, _, _ = env.step(action)
        rows.append((obs, action, after, ended, reward))
        obs = after
        if ended:
            break
    columns = [np.stack([np.asarray(each) for each in column]) for column in zip(*rows, strict=True)]
    check("gym/MountainCarContinuous-v0", dict(zip(("obs", "action", "next_obs", "ended", "reward"), columns, strict=True)), True)


@pytest.mark.suite
@pytest.mark.parametrize("task", ["dmc/cartpole-swingup", "dmc/hopper-hop", "metaworld/reach"])
def test_suites_without_terminal_states(task: str) -> None:
    if not registry.installed(tables.SUITES[task.partition("/")[0]]):
        pytest.skip("the suite's extra is not installed")
    check(task, rollout(envs.make(task), 30), ends=False)


@pytest.mark.parametrize("name", tables.DKITTY)
def test_the_robot_falls_or_leaves_the_terrain(name: str) -> None:
    rows = rollout(envs.make(f"dkitty/{name}"), 120, seed=3)
    check(f"dkitty/{name}", rows, None if name.startswith("stand") else True)  # Stand ends upside down, which is rare


def test_off_the_terrain_by_hand() -> None:
    ended = registry.spec_of("dkitty/walk-smooth-road").terminated
    flat = registry.spec_of("dkitty/walk-fixed").terminated
    assert ended is not None and flat is not None
    obs = np.zeros((6, 52), np.float32)
    obs[:, 48] = 0.95  # upright
    obs[:, 1] = 1.6
    obs[1, 48] = 0.89
    obs[2, 0], obs[3, 0] = 1.19, -1.21
    obs[4, 1], obs[5, 1] = 1.6 + 2.41, 1.6 - 2.39
    np.testing.assert_array_equal(ended(obs, None, obs), [False, True, False, True, True, False])
    np.testing.assert_array_equal(flat(obs, None, obs), [False, True, False, False, False, False])


def test_noisy_senses_do_not_tell_of_a_fall() -> None:
    assert registry.spec_of("dkitty/walk-fixed?sense=0.01").terminated is None
    assert registry.spec_of("dkitty/walk-fixed?latency=0.01").terminated is not None


@pytest.mark.parametrize("name", known.REWARDS)
def test_rewards(name: str) -> None:
    env_id = f"gym/{name}"
    rows, reward = rollout(envs.make(env_id), STEPS), registry.spec_of(env_id).reward
    assert reward is not None
    given = rows["obs"], rows["action"], rows["next_obs"]
    np.testing.assert_allclose(reward(*given), rows["reward"], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(jax.jit(reward)(*map(jnp.asarray, given)), rows["reward"], rtol=1e-4, atol=2e-5)
    assert rows["reward"].std() > 0


@pytest.mark.parametrize("change", ["repeat=2", "noise=0.1", "sparse=1", "g=9"])
def test_a_changed_task_has_another_reward(change: str) -> None:
    spec = registry.spec_of(f"gym/Pendulum-v1?{change}")
    assert spec.reward is None
    assert (spec.terminated is None) == (change == "g=9")  # of other arguments nothing is known


def test_repeated_actions_end_where_the_last_observation_says() -> None:
    check("gym/InvertedPendulum-v5?repeat=3", rollout(envs.make("gym/InvertedPendulum-v5?repeat=3"), STEPS), ends=True)


class Told(toys.Walk):
    """Its class says where it ends."""

    @staticmethod
    def beeline_terminated(obs, action, next_obs):
        return abs(next_obs[..., 0]) > 1

    def beeline_reward(self, obs, action, next_obs):
        return -(next_obs[..., 0] ** 2)


class Silent(toys.Walk):
    beeline_terminated = None  # type: ignore[assignment]


class Doubled(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return 2 * observation

    def beeline_terminated(self, obs, action, next_obs):
        return abs(next_obs[..., 0]) > 2


@pytest.mark.parametrize("make", [Told, lambda: gymnasium.wrappers.TimeLimit(Told(), 50), lambda: Doubled(Told())])
def test_an_environment_says_it_with_an_attribute(make) -> None:
    spec = registry.spec_of(make)
    rows = rollout(registry.make(make), 200)
    assert spec.terminated is not None and spec.reward is not None
    given = rows["obs"], rows["action"], rows["next_obs"]
    np.testing.assert_array_equal(spec.terminated(*given), rows["ended"])
    if not isinstance(make(), Doubled):
        np.testing.assert_allclose(spec.reward(*given), rows["reward"], rtol=1e-4, atol=1e-5)


def test_an_environment_that_does_not_say_is_not_known() -> None:
    spec = registry.spec_of(Silent)
    assert spec.terminated is None and spec.reward is None


def test_first_observations_are_those_of_their_seeds() -> None:
    resets = make_resets("gym/Pendulum-v1", [], TrainConfig())
    assert resets is not None
    env = envs.make("gym/Pendulum-v1")
    expected = [env.reset(seed=episode_seed(7, "virtual", 0, number))[0] for number in range(5)]
    np.testing.assert_array_equal(resets(7, 5), expected)
    assert make_resets(toys.Walk(), [], TrainConfig()) is None


def test_first_observations_of_an_environment_that_trains_are_refused() -> None:
    one = toys.Walk()
    made = registry.make(lambda: one)
    resets = make_resets(lambda: one, [made], TrainConfig())
    assert resets is not None
    with pytest.raises(EnvError, match="of their own"):
        resets(0, 1)


def test_lanes_in_processes_leave_the_functions_here() -> None:
    lanes = remote.make("gym/Pendulum-v1", 1)
    try:
        task = make_task("gym/Pendulum-v1", lanes, None, TrainConfig(env_processes=True))
        assert lanes[0].facts.terminated is None
        assert task.terminated is known.never and task.reward is known.pendulum_reward
    finally:
        lanes[0].close()


def test_an_agent_is_told() -> None:
    seen = api.model("sac")("gym/Pendulum-v1", verbose=0, steps=10).trainer.agent.task
    assert seen.terminated is known.never and seen.reward is known.pendulum_reward and seen.resets is not None


def test_the_page_lists_the_tasks() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    for name in known.TOLD:
        assert re.search(rf"`{re.escape(name)}`", page), name
