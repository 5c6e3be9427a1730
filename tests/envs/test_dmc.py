import numpy as np
import pytest

pytest.importorskip("dm_control")

from gymnasium.utils.env_checker import check_env

from beeline import envs
from beeline.envs import dmc, tables
from beeline.errors import UnknownNameError


def actions(env, count):
    return np.random.default_rng(1).uniform(-1, 1, (count, env.facts.action_dim))


def test_equals_the_suite_itself():
    """Same physics, the spec's own key order, quadruped's uneven bounds: checked against dm_control used directly."""
    from dm_control import suite

    env = envs.make("dmc/quadruped-walk")
    assert env.facts.action_high.max() == 1.1 and env.facts.action_low.min() == -1.0
    obs, _ = env.reset(seed=11)
    random = np.random.RandomState(np.random.SeedSequence(11).generate_state(4))
    plain = suite.load("quadruped", "walk", task_kwargs={"random": random})
    step = plain.reset()
    for action in actions(env, 20):
        parts = [np.ravel(part) for part in step.observation.values()]
        np.testing.assert_array_equal(obs, np.hstack(parts).astype(np.float32))
        low, high = plain.action_spec().minimum, plain.action_spec().maximum
        step = plain.step(np.clip((high + low) / 2 + action * (high - low) / 2, low, high))
        obs, reward, terminated, _, _ = env.step(action)
        assert reward == pytest.approx(step.reward, abs=1e-12) and not terminated


@pytest.mark.parametrize("task", ["walker-run", "reacher-hard", "dog-run"])
def test_episodes_are_functions_of_the_seed(task):
    env = envs.make(f"dmc/{task}?noise=0.1")

    def play(seed):
        out = [env.reset(seed=seed)[0].tobytes()]
        for action in actions(env, 40):
            obs, reward, *_ = env.step(action)
            out += [obs.tobytes(), np.float64(reward).tobytes()]
        return b"".join(out)

    first = play(2**40 + 1)  # seeds beyond 32 bits as well
    assert play(1) != first
    assert play(2**40 + 1) == first


def test_never_terminates_and_truncates_at_1000():
    env = envs.make("dmc/cartpole-balance?repeat=4")
    env.reset(seed=0)
    ends = [env.step(action)[2:4] for action in actions(env, 250)]
    assert ends == [(False, False)] * 249 + [(False, True)]
    assert env.facts.max_episode_steps == 1000


def test_sparse_pays_where_the_reward_reaches_the_threshold():
    dense, sparse = envs.make("dmc/cartpole-balance"), envs.make("dmc/cartpole-balance?sparse=0.9")
    dense.reset(seed=0), sparse.reset(seed=0)
    rewards = np.array([[dense.step(a)[1], sparse.step(a)[1]] for a in actions(dense, 150)])
    assert 0 < rewards[:, 1].sum() < 150
    np.testing.assert_array_equal(rewards[:, 1], rewards[:, 0] >= 0.9)


@pytest.mark.parametrize(
    ("alias", "task"),
    [
        ("cup-catch", "ball_in_cup-catch"),
        ("cartpole-swingup-sparse", "cartpole-swingup_sparse"),
        ("finger-turn-easy", "finger-turn_easy"),
        ("humanoid_CMU-run", "humanoid_CMU-run"),
        ("point_mass-easy", "point_mass-easy"),
    ],
)
def test_aliases(alias, task):
    assert dmc.resolve(alias) == task


def test_the_table_has_every_task_and_its_sizes():
    from dm_control import suite

    assert set(tables.DMC) == {f"{d}-{t}" for d, t in suite.ALL_TASKS if d != "lqr"}
    for domain in {name.partition("-")[0]: name for name in tables.DMC}.values():
        spec = envs.spec_of(f"dmc/{domain}")
        assert (spec.obs_dim, spec.action_dim) == tables.DMC[domain], domain


def test_unknown_task_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="'dmc/walker-run'"):
        envs.make("dmc/walker-rn")


def test_gymnasium_checker_passes():
    check_env(envs.make("dmc/finger-spin"), skip_render_check=True)


def test_a_film_after_a_training_works_in_the_same_process():
    """dm_control chooses its renderer on import: the choice must be right before anyone asks for frames."""
    import os
    import subprocess
    import sys

    code = """
from beeline import envs
from beeline.envs import rendering
envs.make("dmc/walker-run").reset(seed=0)
film = envs.make("dmc/walker-run", render=True)
film.reset(seed=0)
print(rendering.choose_backend().name is None or film.render().std() > 5)
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
