import jax.numpy as jnp
import numpy as np
import pytest

from beeline import envs
from beeline.envs import known, tables


def obs(size, z, angle=0.0, **others):
    out = np.zeros(size)
    out[:2] = z, angle
    for place, value in others.items():
        out[int(place[1:])] = value
    return out


CASES = {
    "hopper": [
        (obs(11, 1.2), False),
        (obs(11, 0.7), True),
        (obs(11, 1.2, 0.19), False),
        (obs(11, 1.2, -0.2), True),
        (obs(11, 1.2, _5=100.0), True),
        (obs(11, 1.2, _5=-100.0), True),  # the original's misplaced bracket let this one live
        (obs(11, 1.2, _5=99.0), False),
        (obs(11, 150.0), False),  # the height itself has no upper bound
        (obs(11, 1.2, _3=np.nan), True),
        (obs(11, np.inf), True),
    ],
    "walker2d": [
        (obs(17, 1.25), False),
        (obs(17, 0.8), True),
        (obs(17, 2.0), True),
        (obs(17, 1.25, 0.99), False),
        (obs(17, 1.25, -1.0), True),
        (obs(17, np.nan), True),
    ],
    "ant": [
        (obs(27, 0.2), False),
        (obs(27, 1.0), False),
        (obs(27, 0.199), True),
        (obs(27, 1.001), True),
        (obs(27, 0.5, _20=np.inf), True),
        (obs(27, 0.5, _20=500.0), False),
    ],
    "humanoid": [
        (obs(45, 1.4), False),
        (obs(45, 1.0), False),
        (obs(45, 2.0), False),
        (obs(45, 0.99), True),
        (obs(45, 2.01), True),
    ],
}


@pytest.mark.parametrize("task", CASES)
def test_termination_by_hand_on_single_and_batched_numpy_and_jax(task):
    batch = np.stack([observation for observation, _ in CASES[task]])
    expected = np.array([ended for _, ended in CASES[task]])
    function = known.MBPO[task]
    np.testing.assert_array_equal([bool(function(one)) for one in batch], expected)
    np.testing.assert_array_equal(function(batch), expected)
    on_device = function(jnp.asarray(batch))
    assert isinstance(on_device, jnp.ndarray) and on_device.dtype == bool
    np.testing.assert_array_equal(on_device, expected)
    np.testing.assert_array_equal(function(np.stack([batch, batch])), np.stack([expected, expected]))


@pytest.mark.parametrize("task", tables.MBPO)
def test_sizes_limit_and_ends(task):
    env = envs.make(f"mbpo/{task}")
    assert (env.facts.obs_dim, env.facts.action_dim) == tables.MBPO[task]
    assert env.facts.max_episode_steps == 1000
    inner, draw, ends = env.env, np.random.default_rng(0), 0
    for seed in range(3):
        env.reset(seed=seed)
        for _ in range(100):
            seen, _, terminated, _, _ = env.step(draw.uniform(-1, 1, env.facts.action_dim))
            data = inner.robot.data
            velocity = np.clip(data.qvel, -10, 10) if task in ("hopper", "walker2d") else data.qvel
            skip = 1 if task in ("hopper", "walker2d") else 2
            full = np.concatenate([data.qpos[skip:], velocity])
            np.testing.assert_array_equal(seen, full.astype(np.float32))
            assert terminated == bool(known.MBPO[task](full))
            if terminated:
                ends += 1
                break
    assert ends == 3 or task == "ant"


def test_rewards_of_ant_and_humanoid_are_those_of_v2():
    for task, bonus in (("ant", 1.0), ("humanoid", 5.0)):
        env = envs.make(f"mbpo/{task}")
        robot = env.env.robot
        env.reset(seed=0)
        draw = np.random.default_rng(0)
        for _ in range(60):
            before = robot.data.body("torso").xpos[0] if task == "ant" else center(robot)
            action = draw.uniform(-1, 1, env.facts.action_dim)
            _, reward, terminated, _, _ = env.step(action)
            after = robot.data.body("torso").xpos[0] if task == "ant" else center(robot)
            forces = robot.data.cfrc_ext
            if task == "ant":
                forward = (after - before) / robot.dt
                cost = 0.5 * np.square(action).sum() + 0.5e-3 * np.square(np.clip(forces, -1, 1)).sum()
            else:
                forward = 0.25 * (after - before) / robot.model.opt.timestep
                cost = 0.1 * np.square(robot.data.ctrl).sum() + min(0.5e-6 * np.square(forces).sum(), 10.0)
            assert reward == pytest.approx(forward + bonus - cost, abs=1e-5), "the bonus is paid on the last step, too"
            if terminated:
                break
        assert terminated or task == "ant"


def center(robot):
    mass = robot.model.body_mass
    return float((mass * robot.data.xipos[:, 0]).sum() / mass.sum())
