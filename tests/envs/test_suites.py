"""Every suite that is installed: one task each, or all of the paper's with BEELINE_ALL_TASKS=1."""

import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import beeline
from beeline import envs
from beeline.envs import ids, tables
from beeline.envs.paper import PAPER_TASKS
from beeline.envs.registry import installed
from beeline.errors import EnvError, UnknownNameError

pytestmark = pytest.mark.suite

ALL = os.environ.get("BEELINE_ALL_TASKS") == "1"
SAMPLE = {
    "gym": "gym/Swimmer-v5",
    "dmc": "dmc/reacher-hard",
    "metaworld": "metaworld/hammer?limit=200",
    "adroit": "adroit/door",
    "shadowhand": "shadowhand/EggRotateDense",
    "maniskill": "maniskill/PickCube",
    "myosuite": "myosuite/myoHandKeyTurnRandom",
    "panda": "panda/ReachJoints",
    "mbpo": "mbpo/ant",
    "dkitty": "dkitty/walk-medium",
}
# On which the first observation does not depend on the seed: the suite fixes the start.
FIXED_START = {"myosuite/myoHandKeyTurnFixed", "myosuite/myoHandPenTwirlFixed", "myosuite/myoHandReachFixed"}


def has(suite):
    return pytest.mark.skipif(not installed(tables.SUITES[suite]), reason=f"the extra of {suite} is not installed")


def tasks():
    names = [task.id for task in PAPER_TASKS] + [f"mbpo/{task}" for task in tables.MBPO]
    return [pytest.param(name, marks=has(ids.split(name)[0])) for name in (names if ALL else SAMPLE.values())]


def episode(env, seed):
    """Play a whole episode of fixed random actions; return its bytes, its first observation and how it ended."""
    draw = np.random.default_rng(7)
    obs, _ = env.reset(seed=seed)
    first, out, done, steps = obs, [obs.tobytes()], False, 0
    while not done:
        obs, reward, terminated, truncated, info = env.step(draw.uniform(-1, 1, env.facts.action_dim))
        assert obs.dtype == np.float32 and obs.shape == (env.facts.obs_dim,)
        assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
        assert not env.facts.success or type(info["success"]) is bool
        out += [obs.tobytes(), np.float64(reward).tobytes()]
        steps += 1
        done = terminated or truncated
    assert terminated or steps == env.facts.max_episode_steps
    return b"".join(out), first.tobytes()


def test_the_sample_has_every_suite():
    assert set(SAMPLE) == set(tables.SUITES)


@pytest.mark.parametrize("env_id", tasks())
def test_task(env_id):
    """Sizes, types, a whole episode, bit-for-bit seeds and Gymnasium's checker."""
    env = envs.make(env_id)
    suite, task, _ = ids.split(env_id)
    assert env.facts.id == env_id
    assert (env.facts.obs_dim, env.facts.action_dim) == tables.SUITES[suite].tasks[task]
    assert env.facts.success == (tables.SUITES[suite].success_key is not None)
    (first, start), (_, other) = episode(env, 3), episode(env, 4)
    assert episode(env, 3)[0] == first, "an episode is a function of its seed, whatever came before"
    assert (start == other) == (env_id in FIXED_START)
    fresh = envs.make(env_id)
    assert episode(fresh, 3)[0] == first, "also in another instance"
    check_env(env, skip_render_check=True, skip_close_check=True)
    env.close()
    fresh.close()


@pytest.mark.parametrize("env_id", tasks())
def test_a_short_training(env_id, tmp_path):
    small = {"preset": "light", "hidden": (16, 16), "batch_size": 16, "random_steps": 50, "tensorboard": False}
    run = beeline.train("bac", env_id, out=tmp_path / "run", steps=300, eval_every=300, eval_episodes=1, seed=0, **small)
    last = run.metrics[-1]
    assert last["step"] == 300
    assert run.final_return is not None and np.isfinite(run.final_return)
    losses = [value for name, value in last.items() if "loss" in name and value is not None]
    assert losses and np.isfinite(losses).all()


@pytest.mark.parametrize("suite", [pytest.param(name, marks=has(name)) for name in tables.SUITES])
def test_sizes_in_the_table_are_true(suite):
    known = tables.SUITES[suite].tasks
    names = list(known) if ALL else list({sizes: name for name, sizes in known.items()}.values())[:4]
    for name in names:
        spec = envs.spec_of(f"{suite}/{name}")
        assert (spec.obs_dim, spec.action_dim) == known[name], name


@pytest.mark.parametrize("suite", [pytest.param(name, marks=has(name)) for name in tables.SUITES])
def test_unknown_tasks_offer_the_nearest(suite):
    name = next(iter(tables.SUITES[suite].tasks))
    with pytest.raises(UnknownNameError, match=f"'{suite}/{name}'"):
        envs.make(f"{suite}/{name[:-2]}x{name[-2:]}")


@has("metaworld")
def test_metaworld_redraws_the_goal_shows_it_and_pays_success():
    env = envs.make("metaworld/pick-place")
    goals = {tuple(env.reset(seed=seed)[0][36:39]) for seed in range(5)} | {tuple(env.reset()[0][36:39])}
    assert len(goals) == 6 and all(any(goal) for goal in goals)
    np.testing.assert_allclose(env.reset(seed=0)[0][36:39], env.env.sawyer._target_pos, rtol=1e-6)
    objects = {tuple(env.reset(seed=seed)[0][4:7]) for seed in range(5)}
    assert len(objects) == 5
    assert env.facts.max_episode_steps == 500


@has("metaworld")
def test_metaworld_can_be_solved_and_sparse_pays_the_success():
    """Meta-World's scripted policy solves a task through the adapter, and the sparse reward is its success."""
    from metaworld.policies import SawyerDrawerOpenV3Policy

    env, policy = envs.make("metaworld/drawer-open?sparse=1"), SawyerDrawerOpenV3Policy()
    obs, _ = env.reset(seed=0)
    rewards, successes = [], []
    for _ in range(200):
        obs, reward, _, _, info = env.step(np.clip(policy.get_action(obs.astype(np.float64)), -1, 1))
        rewards.append(reward)
        successes.append(info["success"])
    assert any(successes) and rewards == [float(success) for success in successes]


@has("maniskill")
def test_maniskill_downloads_are_errors_not_prompts():
    for task in ("TurnFaucet", "PickSingleYCB", "AnymalC-Reach"):
        with pytest.raises(EnvError, match=r"not here.*download_asset"):
            envs.make(f"maniskill/{task}")


PLAY = """
import sys, numpy as np
from beeline import envs
from beeline.envs import maniskill
env = envs.make("maniskill/PlaceSphere")
obs, _ = env.reset(seed=1)
out = [obs.tobytes()]
for action in np.random.default_rng(0).uniform(-1, 1, (50, 8)):
    obs, reward, *_ = env.step(action)
    out += [obs.tobytes(), np.float64(reward).tobytes()]
import hashlib
print(maniskill.ensure_materials(), hashlib.sha256(b"".join(out)).hexdigest())
"""


@has("maniskill")
def test_maniskill_without_a_vulkan_device_has_the_same_physics():
    def play(**more):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PLAY], env={**os.environ, **more}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-2:]

    hidden = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    (drawn, digest), (stubbed, other) = play(), play(**hidden)
    assert stubbed == "False" and digest == other
    if drawn == "False":
        pytest.skip("no Vulkan device here: only the stand-in was tried")


@pytest.mark.parametrize("env_id", tasks())
def test_frames_have_light(env_id):
    from beeline.envs.rendering import choose_backend
    from beeline.envs.sheet import one_frame

    if choose_backend().name is None:
        pytest.skip("no off-screen OpenGL")
    if env_id.startswith("maniskill"):
        from beeline.envs.maniskill import ensure_materials

        if not ensure_materials():
            pytest.skip("no Vulkan device")
    frame = one_frame(env_id)
    assert frame.dtype == np.uint8 and frame.shape[2] == 3
    assert frame.max() > 120 and frame.std() > 10
