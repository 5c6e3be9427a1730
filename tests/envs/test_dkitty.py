"""The D'Kitty against the numbers of ROBEL's robot and tasks, computed by hand, and against what its legs can do."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import mujoco
import numpy as np
import pytest
from dkitty_trot import trot
from gymnasium.utils.env_checker import check_env
from pins import at_the_pins

from beeline import envs
from beeline.envs import ids, rendering, tables
from beeline.envs.dkitty import model, picture, robot, terrain
from beeline.envs.dkitty import world as dkitty_world
from beeline.envs.dkitty.env import DKitty
from beeline.envs.dkitty.observation import Reading, euler_of, euler_rates, heading, layout, observe
from beeline.envs.dkitty.options import SimToReal
from beeline.envs.dkitty.tasks import VARIANTS, draw_start, judge
from beeline.envs.sheet import one_frame, tasks_of
from beeline.errors import ConfigError, UnknownNameError

FLAT = dataclasses.replace(VARIANTS["walk-randomdynamics"], height=0.0)
ZERO = np.zeros(12)


def reading(position=(0.0, 0.0, 0.0), euler=(0.0, 0.0, 0.0), joints=ZERO):
    parts = (position, euler, joints, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), ZERO)
    return Reading(*(np.array(part, float) for part in parts))


def play(env, steps, seed=0, actions=None):
    """The bytes of an episode of random actions."""
    draw = np.random.default_rng(5)
    out = [env.reset(seed=seed)[0].tobytes()]
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(draw.uniform(-1, 1, 12) if actions is None else actions)
        out += [obs.tobytes(), np.float64(reward).tobytes()]
        if terminated or truncated:
            break
    return b"".join(out)


# --- robot ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    made = mujoco.MjModel.from_xml_string(model.xml())
    data = mujoco.MjData(made)
    mujoco.mj_forward(made, data)
    return made, data


@at_the_pins
def test_mass_and_inertia(plain):
    made, data = plain
    assert made.body_mass.sum() == pytest.approx(1.834, abs=1e-12)
    leg = [0.118, 0.118, 0.040]
    np.testing.assert_allclose(made.body_mass[1:], [0.73, *leg * 4], rtol=0, atol=1e-12)
    links = [(70.73, 70.46, 24.48), (65.67, 72.85, 24.49), (30.94, 34.95, 7.77)]
    np.testing.assert_allclose(made.body_inertia[1:] * 1e6, [(7638.9, 2562.7, 10071.8), *links * 4], rtol=1e-7)
    # (0.73·0.3 + 4·(0.118·0.224127 + 0.118·0.127669 + 0.040·0.0482)) / 1.834; the legs lean by 0.0016 rad
    assert data.subtree_com[1][2] == pytest.approx(0.21415, abs=1e-5)
    matrix = np.empty((18, 18))
    mujoco.mj_fullM(made, data, matrix)
    np.testing.assert_allclose(np.diag(matrix)[:3], 1.834, rtol=1e-9)


@at_the_pins
def test_inertia_of_a_knee(plain):
    """About the knee: 30.94e-6 + 0.040·0.0608² and the motor's 0.001."""
    made, data = plain
    matrix = np.empty((18, 18))
    mujoco.mj_fullM(made, data, matrix)
    knees = [8, 11, 14, 17]
    np.testing.assert_allclose(np.diag(matrix)[knees], 30.94e-6 + 0.040 * 0.0608**2 + 0.001, rtol=1e-7)


def test_joints_and_motors(plain):
    made, data = plain
    assert [made.joint(number).name for number in range(6, 18)] == list(robot.JOINTS)
    assert robot.JOINTS[:3] == ("FRJ10", "FRJ11", "FRJ12") and robot.JOINTS[9] == "BRJ40"
    right, left = [-3.419, 0.279], [-0.279, 3.419]
    pitch, knee = [-2.14, 2.14], [-1.57, 1.57]
    wanted = [right, pitch, knee, left, pitch, knee, left, pitch, knee, right, pitch, knee]
    np.testing.assert_array_equal(made.jnt_range[6:], wanted)
    np.testing.assert_array_equal(made.actuator_ctrlrange, wanted)
    np.testing.assert_array_equal(made.jnt_range[:6], [[-10, 10], [-10, 10], [-2, 2], *[[-3.14, 3.14]] * 3])
    assert (made.dof_damping[6:] == 1).all() and (made.dof_armature[6:] == 0.001).all() and not made.dof_damping[:6].any()
    assert (made.actuator_gainprm[:, 0] == 5).all() and (made.actuator_biasprm[:, 1] == -5).all()
    assert not made.actuator_forcelimited.any() and not made.dof_frictionloss.any()
    assert made.opt.timestep == 0.0025 and made.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    feet = np.array([data.site(f"{leg}foot").xpos for leg in robot.LEGS])
    np.testing.assert_allclose(
        feet[:, :2], [(0.08953, 0.122), (-0.08953, 0.122), (-0.08953, -0.122), (0.08953, -0.122)], atol=1e-5
    )


def test_signs_of_the_joints(plain):
    """Pitch > 0 moves the foot backwards, knee < 0 forwards, and outward roll is negative on the right, positive on the left."""
    made, _ = plain
    data = mujoco.MjData(made)

    def foot(leg, joint, angle):
        mujoco.mj_resetData(made, data)
        data.joint(joint).qpos[:] = angle
        mujoco.mj_forward(made, data)
        return data.site(f"{leg}foot").xpos.copy()

    assert foot("FR", "FRJ11", 0.3)[1] < 0.122 - 0.04 and foot("BL", "BLJ32", -0.3)[1] > -0.122 + 0.02
    assert foot("FR", "FRJ10", -0.3)[0] > 0.12 and foot("FL", "FLJ20", 0.3)[0] < -0.12


def test_a_contact_with_the_floor_is_mixed_as_in_the_original(plain):
    contact = plain[1].contact
    assert len(contact.dist) == 4 and (contact.dim == 4).all()
    np.testing.assert_allclose(contact.solimp[:, :3], [[0.85, 0.925, 0.0055]] * 4)
    np.testing.assert_allclose(contact.friction[:, 0], 1.0)


@at_the_pins
@pytest.mark.parametrize(("pose", "height"), [(ZERO, 0.302), (robot.CROUCH, 0.244)])
def test_standing_heights(pose, height):
    env = DKitty(VARIANTS["walk-fixed"])
    env.reset(seed=0)
    for _ in range(30):
        env.step(robot.action_for(pose))
    assert env.data.qpos[2] + 0.3 == pytest.approx(height, abs=1e-3)


# --- control and observation ------------------------------------------------------------------------------------------


def test_actions_ask_for_positions_of_the_command_range():
    low, high = robot.joint_targets(-np.ones(12)), robot.joint_targets(np.ones(12))
    np.testing.assert_allclose(low[:6], [-0.5, 0, -2.0, -0.279, 0, -2.0])
    np.testing.assert_allclose(high[:6], [0.279, math.pi / 2, 0, 0.5, math.pi / 2, 0], atol=1e-12)
    np.testing.assert_allclose(robot.joint_targets(np.zeros(12))[:3], [-0.1105, math.pi / 4, -1.0])
    np.testing.assert_allclose(robot.action_for(robot.joint_targets(np.full(12, 0.3))), 0.3)


def test_a_command_is_never_further_than_its_speed_allows():
    command = robot.limited(np.full(12, 2.0), np.full(12, 0.5))
    np.testing.assert_allclose(command, 0.5 + 0.1 * math.pi)
    env = DKitty(VARIANTS["walk-fixed"])
    env.reset(seed=0)
    env.step(np.ones(12))
    np.testing.assert_allclose(env.data.ctrl[:3], [0.279, 0.1 * math.pi, 0.0], atol=1e-12)


@pytest.mark.parametrize(("kind", "size"), [("walk", 52), ("stand", 61), ("orient", 53)])
def test_sizes_and_order_of_the_observation(kind, size):
    places = layout(kind)
    names = ["root_pos", "root_euler", "kitty_qpos", "root_vel", "root_angular_vel", "kitty_qvel", "last_action", "upright"]
    own = {"walk": ["heading", "target_error"], "stand": ["pose_error"], "orient": ["current_facing", "desired_facing"]}
    assert list(places) == names + own[kind] and list(places.values())[-1].stop == size
    seen = Reading(np.array([0.3, 0.5, 0.1]), np.array([0.1, 0.2, 0.3]), np.arange(12.0), np.array([7.0, 8, 9]),
                   np.array([4.0, 5, 6]), 20 + np.arange(12.0))  # fmt: skip
    goal = np.full(12, 0.5) if kind == "stand" else np.array([0.0, 2.0])
    obs = observe(kind, seen, np.full(12, -0.25), goal)
    assert obs.shape == (size,) and obs.dtype == np.float32
    np.testing.assert_allclose(obs[:6], [0.3, 0.5, 0.1, 0.1, 0.2, 0.3], rtol=1e-6)
    np.testing.assert_allclose(obs[6:18], np.arange(12.0))
    np.testing.assert_allclose(obs[18:24], [7, 8, 9, 4, 5, 6])
    np.testing.assert_allclose(obs[24:36], 20 + np.arange(12.0))
    np.testing.assert_allclose(obs[36:48], -0.25)
    assert obs[48] == pytest.approx(math.cos(0.1) * math.cos(0.2))
    if kind == "walk":
        np.testing.assert_allclose(obs[50:], [-0.3, 1.5], rtol=1e-6)
    elif kind == "stand":
        np.testing.assert_allclose(obs[49:], 0.5 - np.arange(12.0))
    else:
        np.testing.assert_allclose(obs[51:], np.array([-0.3, 1.5]) / math.sqrt(2.34), rtol=1e-6)


def test_facing_and_upright_are_columns_of_the_rotation():
    def turn(axis, angle):
        c, s = math.cos(angle), math.sin(angle)
        a, b = [(1, 2), (2, 0), (0, 1)][axis]
        matrix = np.eye(3)
        matrix[a, a] = matrix[b, b] = c
        matrix[a, b], matrix[b, a] = -s, s
        return matrix

    angles = (0.4, -0.7, 2.1)
    rotation = turn(0, 0.4) @ turn(1, -0.7) @ turn(2, 2.1)
    seen = reading(euler=angles)
    np.testing.assert_allclose(seen.facing, rotation[:2, 1], atol=1e-12)
    assert seen.upright == pytest.approx(rotation[2, 2])
    np.testing.assert_allclose(euler_of(rotation), angles, atol=1e-12)
    rates, small = np.array([0.3, -0.2, 0.5]), 1e-6
    moved = turn(0, 0.4 + small * 0.3) @ turn(1, -0.7 - small * 0.2) @ turn(2, 2.1 + small * 0.5)
    spin = rotation.T @ (moved - rotation) / small  # the body's angular velocity as a skew matrix
    np.testing.assert_allclose(euler_rates(np.array(angles), np.array([spin[2, 1], spin[0, 2], spin[1, 0]])), rates, atol=1e-5)
    at_the_pole = euler_rates(np.array([0.0, math.pi / 2, 0.0]), np.array([1.0, 1.0, 1.0]))
    assert np.isfinite(at_the_pole).all() and np.abs(at_the_pole).max() <= 50


def test_the_free_root_reads_as_the_hinges_do():
    """The same state on both kinds of root gives the same observation."""
    free, hinges = DKitty(VARIANTS["stand-fixed"]), DKitty(dataclasses.replace(VARIANTS["stand-fixed"], kind="walk"))
    free.reset(seed=0)
    hinges.reset(seed=0)
    angles, rates = np.array([0.3, -0.5, 0.8]), np.array([0.4, -0.6, 0.9])
    hinges.data.qpos[:6] = [0.1, 0.2, 0.05, *angles]
    hinges.data.qvel[:6] = [1.0, 2.0, 3.0, *rates]
    mujoco.mj_forward(hinges.model, hinges.data)
    free.data.qpos[:3] = 0.1, 0.2, 0.35
    mujoco.mju_mat2Quat(free.data.qpos[3:7], hinges.data.body("torso").xmat)
    spin = np.empty(6)
    mujoco.mj_objectVelocity(hinges.model, hinges.data, mujoco.mjtObj.mjOBJ_XBODY, hinges.model.body("torso").id, spin, 1)
    free.data.qvel[:6] = [1.0, 2.0, 3.0, *spin[:3]]
    one, other = free._read(), hinges._read()
    for field in ("position", "euler", "velocity", "rates"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), atol=1e-9, err_msg=field)


def test_the_observation_needs_nothing_but_numpy():
    code = """
import sys
from beeline.envs.dkitty import observation, robot
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"beeline"}
print(sorted(name for name in foreign if getattr(sys.modules.get(name), "__file__", None) and not name.startswith("_")))
"""
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + code],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "['numpy']"


# --- rewards, ends and success ----------------------------------------------------------------------------------------


def total(verdict):
    return sum(verdict.terms.values())


def test_walk_by_hand():
    seen = judge("walk", reading((0.3, 0.5, 0.0)), np.array([0.0, 2.0]))  # D = √2.34, heading = 1.5 / D
    assert seen.terms == {
        "upright": pytest.approx(1.0),
        "falling": 0.0,
        "target_distance": pytest.approx(-6.1188234),
        "heading": pytest.approx(1.6116135),
        "small_bonus": 5.0,
        "big_bonus": 0.0,
    }
    assert total(seen) == pytest.approx(1.4927901) and seen.score == pytest.approx(-1.5297059)
    assert total(judge("walk", reading((0, 1.999999, 0)), np.array([0.0, 2.0]))) == pytest.approx(18.0, abs=1e-4)
    away = judge("walk", reading((0, 3.0, 0)), np.array([0.0, 2.0]))
    assert away.terms["heading"] == pytest.approx(-38.0) and away.terms["small_bonus"] == 0
    assert heading(reading((0, 2.0, 0)), np.array([0.0, 2.0])) == 0.0  # on the target there is no direction


def test_walk_success_of_the_paper_and_of_robel():
    target = np.array([0.0, 2.0])
    near = judge("walk", reading((0, 1.6, 0)), target)
    assert near.success and near.score_success
    turned = judge("walk", reading((0, 1.6, 0), (0, 0, 1.0)), target)  # near, upright, but it faces elsewhere
    assert turned.success and not turned.score_success and turned.terms["small_bonus"] == 5
    tilted = judge("walk", reading((0, 1.6, 0), (math.acos(0.905), 0, 0)), target)  # between 0.9 and cos 25° = 0.9063
    assert not tilted.success and not tilted.fallen and tilted.score_success
    assert not judge("walk", reading((0, 1.49, 0)), target).success
    fallen = judge("walk", reading((0, 1.6, 0), (math.acos(0.899), 0, 0)), target)
    assert fallen.fallen and not fallen.success and fallen.terms["falling"] == -500
    assert fallen.terms["upright"] == pytest.approx(-0.01)
    lost = judge("walk", reading((0, 1.6, 0)), target, lost=True)
    assert lost.fallen and not lost.success and not lost.score_success and lost.terms["falling"] == -500


def test_stand_by_hand():
    seen = judge("stand", reading((0.03, 0.04, 0.12), (0, 0.3, 0), np.full(12, 0.1)), ZERO)  # |root_pos| = 0.13
    assert seen.terms == {
        "upright": pytest.approx(1.9106730),
        "falling": 0.0,
        "pose_error": pytest.approx(-0.4),
        "center_distance": pytest.approx(-0.26),
        "small_bonus": pytest.approx(4.7766824),
        "big_bonus": 10.0,
    }
    assert seen.success and seen.score == pytest.approx((1 - 0.1 / (math.pi / 3)) * math.cos(0.3))
    assert total(judge("stand", reading(), ZERO)) == pytest.approx(17.0)
    between = judge("stand", reading(joints=np.full(12, 0.3)), ZERO)  # π/12 < 0.3 < π/6
    assert between.terms["small_bonus"] == 5 and between.terms["big_bonus"] == 0 and not between.success
    over = judge("stand", reading(euler=(1.6, 0, 0)), ZERO)
    assert over.fallen and over.terms["falling"] == -100
    assert not judge("stand", reading(euler=(1.5, 0, 0)), ZERO).fallen
    assert judge("stand", reading(joints=np.full(12, 2.0)), ZERO).score == 0.0


def test_orient_by_hand():
    behind = judge("orient", reading(), np.array([0.0, -1.0]))
    assert behind.terms["orientation_error"] == pytest.approx(-4 * math.pi) and behind.score == pytest.approx(0.0)
    assert total(behind) == pytest.approx(2 - 4 * math.pi + 5)
    assert total(judge("orient", reading(), np.array([0.0, 1.0]))) == pytest.approx(17.0)
    seen = judge("orient", reading((0, 0, 0.05), (0, 0, 0.08)), np.array([0.0, 1.0]))
    assert seen.terms["orientation_error"] == pytest.approx(-0.32) and seen.terms["center_distance"] == pytest.approx(-0.2)
    assert seen.success and not judge("orient", reading(euler=(0, 0, 0.09)), np.array([0.0, 1.0])).success
    tilted = judge("orient", reading(euler=(0.3, 0, 0)), np.array([0.0, 1.0]))  # upright 0.955: no big bonus
    assert tilted.terms["small_bonus"] == 5 and tilted.terms["big_bonus"] == 0 and not tilted.fallen


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant(name):
    """Sizes, horizon, the same seed twice whatever came between, Gymnasium's checker."""
    env = envs.make(f"dkitty/{name}")
    assert (env.facts.obs_dim, env.facts.action_dim) == tables.DKITTY[name]
    steps = {"walk": 160, "stand": 80, "orient": 80}[name.partition("-")[0]]
    assert env.facts.max_episode_steps == (200 if name == "walk-smooth-road" else steps) and env.facts.success
    first = play(env, 12, seed=3)
    other = play(env, 12, seed=4)
    assert play(env, 12, seed=3) == first and play(envs.make(f"dkitty/{name}"), 12, seed=3) == first
    assert (other == first) == name.endswith("-fixed")
    check_env(env, skip_render_check=True, skip_close_check=True)
    check_env(env.env, skip_render_check=True, skip_close_check=True)


def test_the_tables_and_the_sheet_list_every_variant():
    assert list(tables.DKITTY) == list(VARIANTS) and len(VARIANTS) == 17
    assert [task.id for task in tasks_of("dkitty")] == [f"dkitty/{name}" for name in VARIANTS]


def test_a_fall_terminates_and_the_horizon_truncates():
    env = envs.make("dkitty/walk-fixed")
    env.reset(seed=0)
    for step in range(160):
        *_, terminated, truncated, info = env.step(robot.action_for(ZERO))
        assert not terminated and truncated == (step == 159)
    assert info["distance_walked"] == pytest.approx(2.0 - info["target_distance"]) and not info["success"]
    env.reset(seed=0)
    env.env.data.qpos[3] = math.acos(0.85)
    _, reward, terminated, truncated, info = env.step(robot.action_for(ZERO))
    assert terminated and not truncated and info["reward_terms"]["falling"] == -500 and reward < -490 and not info["success"]


def test_sparse_tasks_pay_success_and_no_fall():
    env = envs.make("dkitty/stand-random-sparse")
    env.reset(seed=0)
    env.env.data.qpos[3:7] = [0, 1, 0, 0]  # upside down
    _, reward, terminated, _, _ = env.step(ZERO)
    assert terminated and reward == 0.0
    env = envs.make("dkitty/orient-random-sparse")
    env.reset(seed=0)
    env.env.goal = np.array([0.0, 1.0])
    env.env.data.qpos[5] = 0.0
    _, reward, terminated, _, info = env.step(robot.action_for(ZERO))
    assert info["success"] and reward == 1.0 and not terminated


# --- randomisation and noise ------------------------------------------------------------------------------------------


def spread(values, low, high):
    """All in the range, and near both of its ends."""
    values = np.array(values)
    assert values.min() >= low and values.max() <= high
    assert values.min() < low + 0.1 * (high - low) and values.max() > high - 0.1 * (high - low)


@pytest.mark.parametrize(("name", "gains"), [("walk-randomdynamics", (2.8, 3.2)), ("stand-randomdynamics", (2.0, 4.0))])
def test_ranges_of_the_dynamics(name, gains, monkeypatch):
    monkeypatch.setattr(dkitty_world, "SETTLING", 1)
    env = DKitty(VARIANTS[name])
    rows, friction, highest = [], [], 0.0
    for seed in range(80):
        env.reset(seed=seed)
        made = env.model
        rows.append([made.dof_damping[-1], made.dof_frictionloss[-1], made.actuator_gainprm[0, 0], made.body_mass.sum()])
        friction.append(made.geom_friction[0].copy())
        assert (made.geom_friction == made.geom_friction[0]).all() and len(set(made.dof_damping[-12:])) == 1
        assert (made.actuator_biasprm[:12, 1] == -made.actuator_gainprm[0, 0]).all() and not made.dof_damping[:6].any()
        np.testing.assert_allclose(made.body_inertia[1] / made.body_mass[1], np.array([7638.9, 2562.7, 10071.8]) * 1e-6 / 0.73)
        assert made.hfield_data.min() >= 0
        highest = max(highest, made.hfield_data.max())
    for column, limits in zip(np.transpose(rows), ((0.1, 0.2), (0.001, 0.005), gains, (1.6, 2.0))):
        spread(column, *limits)
    for column, limits in zip(np.transpose(friction), ((0.8, 1.2), (0.003, 0.007), (5e-5, 1.5e-4))):
        spread(column, *limits)
    assert highest == pytest.approx(0.05, abs=1e-4) and made.hfield_data.size == 120 * 120


def test_the_mass_is_scaled_as_the_engine_scales_it():
    """All masses and inertias by one factor: what mj_setTotalmass does with the mass that was drawn."""
    env = DKitty(VARIANTS["walk-randomdynamics"])
    env.reset(seed=4)
    twin = mujoco.MjModel.from_xml_string(model.xml(field=True))
    mujoco.mj_setTotalmass(twin, env.model.body_mass.sum())
    assert abs(env.model.body_mass.sum() - 1.834) > 0.02
    for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat"):
        np.testing.assert_allclose(getattr(env.model, name), getattr(twin, name), rtol=1e-12, err_msg=name)


def test_draws_are_made_in_the_order_of_the_original():
    """Damping, friction loss, gain, the three frictions, mass, heights, then the task's own: a plain list of draws."""
    env = DKitty(VARIANTS["walk-medium"])
    env.reset(seed=11)
    draw = np.random.default_rng(11)
    made = env.model
    assert made.dof_damping[-1] == draw.uniform(0.1, 0.2) and made.dof_frictionloss[-1] == draw.uniform(0.001, 0.005)
    assert made.actuator_gainprm[0, 0] == draw.uniform(2.8, 3.2)
    assert list(made.geom_friction[0]) == [draw.uniform(0.8, 1.2), draw.uniform(0.003, 0.007), draw.uniform(5e-5, 1.5e-4)]
    assert made.body_mass.sum() == pytest.approx(draw.uniform(1.6, 2.0), rel=1e-12)
    np.testing.assert_array_equal(made.hfield_data, draw.uniform(0.0, 0.07, 120 * 120).astype(np.float32))
    length, angle = draw.uniform(1.0, 2.0), draw.uniform(-math.pi / 3, math.pi / 3)
    np.testing.assert_allclose(env.goal, [-length * math.sin(angle), length * math.cos(angle)], atol=1e-12)


def test_medium_is_lower_than_hard():
    for name, height in (("walk-medium", 0.07), ("walk-hard", 0.09)):
        env = DKitty(VARIANTS[name])
        env.reset(seed=0)
        assert env.model.hfield_data.max() == pytest.approx(height, abs=1e-4)


def test_fixed_and_random_have_the_plain_robot_on_a_plane():
    for name in ("walk-fixed", "walk-random", "orient-random", "stand-random-sparse"):
        env = DKitty(VARIANTS[name])
        env.reset(seed=0)
        assert env.model.nhfield == 0 and (env.model.actuator_gainprm[:, 0] == 5).all()
        assert env.model.body_mass.sum() == pytest.approx(1.834)


def test_starts():
    draw = np.random.default_rng(0)
    np.testing.assert_allclose(draw_start(VARIANTS["walk-fixed"], draw).goal, [0, 2])
    np.testing.assert_allclose(draw_start(VARIANTS["orient-fixed"], draw).goal, [0, -1], atol=1e-12)
    np.testing.assert_allclose(draw_start(VARIANTS["stand-fixed"], draw).joints, [0, math.pi / 4, -math.pi / 2] * 4)
    assert draw.random() == np.random.default_rng(0).random(), "fixed starts draw nothing"
    walks = [draw_start(VARIANTS["walk-random"], draw).goal for _ in range(200)]
    spread([math.hypot(*goal) for goal in walks], 1, 2)
    spread([math.atan2(goal[0], goal[1]) for goal in walks], -math.pi / 3, math.pi / 3)  # from straight ahead
    turns = [draw_start(VARIANTS["orient-random"], draw) for _ in range(200)]
    spread([start.yaw for start in turns], -math.pi / 3, math.pi / 3)
    spread(
        [math.atan2(start.goal[1], start.goal[0]) % (2 * math.pi) - math.pi / 2 for start in turns],
        2 * math.pi / 3,
        4 * math.pi / 3,
    )
    poses = np.array([draw_start(VARIANTS["stand-random"], draw).joints for _ in range(200)])
    for joint, limits in enumerate(robot.COMMAND_RANGE):
        spread(poses[:, joint], *limits)


def test_noise_of_the_joints():
    """0.05 · width · U(-½, ½) on positions and 0.05 · 2π · U(-½, ½) on velocities, the torso without."""
    env = DKitty(FLAT)
    env.reset(seed=0)
    readings = [env._read() for _ in range(300)]
    widths = 0.05 * np.array([0.779, math.pi / 2, 2.0] * 4) / 2
    position = np.array([seen.joints for seen in readings]) - env.data.qpos[6:]
    velocity = np.array([seen.joint_velocities for seen in readings]) - env.data.qvel[6:]
    for joint, width in enumerate(widths):
        spread(position[:, joint], -width, width)
        spread(velocity[:, joint], -0.05 * math.pi, 0.05 * math.pi)
    assert all((seen.position == readings[0].position).all() and (seen.euler == readings[0].euler).all() for seen in readings)
    quiet = DKitty(VARIANTS["walk-random"])
    obs, _ = quiet.reset(seed=0)
    assert not obs[6:18].any() and not obs[24:36].any()


def test_the_start_on_a_field_is_above_it():
    env = DKitty(VARIANTS["walk-hard"])
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        heights, cell = env.model.hfield_data.reshape(120, 120), 9 / 119
        tops = []
        for x, y in robot.HIPS:
            columns, rows = ((np.array([place - 0.02, place + 0.02]) + 4.5) / cell for place in (x, y))
            touched = heights[math.floor(rows[0]) : math.ceil(rows[1]) + 1, math.floor(columns[0]) : math.ceil(columns[1]) + 1]
            tops.append(touched.max())
        assert obs[2] == pytest.approx(max(tops) - 0.005 + 0.002, abs=1e-6)
        assert all(env.data.contact.dist > -1e-3)
    stand = DKitty(VARIANTS["stand-randomdynamics"])
    stand.reset(seed=0)
    assert np.isfinite(stand.data.qpos).all()


def test_nothing_that_is_not_finite_comes_out_of_a_simulation_that_diverged():
    for name in ("walk-hard", "stand-random"):
        env = DKitty(VARIANTS[name])
        env.reset(seed=0)
        env.data.qpos[1] = 0.5
        before, *_ = env.step(robot.action_for(ZERO))
        env.data.qvel[3] = np.nan
        obs, reward, terminated, _, info = env.step(ZERO)
        assert terminated and np.isfinite(obs).all() and math.isfinite(reward)
        assert (obs[:6] == before[:6]).all(), "where it was last seen"
        assert not info["success"] and info["reward_terms"]["falling"] < 0
        obs, _ = env.reset(seed=0)
        *_, terminated, _, _ = env.step(robot.action_for(ZERO))
        assert not terminated


def random_stands(episodes):
    env, draw = DKitty(VARIANTS["stand-random"]), np.random.default_rng(0)
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        for _ in range(80):
            assert np.isfinite(obs).all() and np.abs(obs).max() < 1e3
            obs, reward, terminated, _, _ = env.step(draw.uniform(-1, 1, 12))
            assert math.isfinite(reward)
            if terminated:
                break


def test_random_stands_stay_finite():
    random_stands(20)


@pytest.mark.slow
def test_a_thousand_random_stands_stay_finite():
    random_stands(1000)


# --- terrains ---------------------------------------------------------------------------------------------------------


def test_grids():
    assert terrain.RANDOM_FIELD.cell == pytest.approx(0.0756, abs=1e-4) and terrain.PATH.cell == pytest.approx(0.02)
    x, y = terrain.PATH.vertices()
    assert (x[0], x[-1], y[0], y[-1]) == pytest.approx((-1.2, 1.2, -0.8, 4.0)) and (len(x), len(y)) == (121, 241)
    heights = np.zeros((241, 121))
    heights[50, 70] = 1.0  # y = 0.2, x = 0.2
    assert terrain.PATH.highest(heights, 0.21, 0.21, 0.005) == 1 and terrain.PATH.highest(heights, 0.23, 0.2, 0.005) == 0
    assert terrain.PATH.holds(1.1, 3.9) and not terrain.PATH.holds(1.3, 0) and not terrain.PATH.holds(0, -0.9)


def test_the_slope_by_hand():
    """tan 8° = 0.1405408; 0 up to 0.1, (y - 0.1)²/0.6 up to 0.4, then y - 0.25."""
    y = np.array([-0.5, 0.1, 0.25, 0.4, 1.0])
    np.testing.assert_allclose(terrain.ramp(y, 8.0), 0.1405408 * np.array([0, 0, 0.0375, 0.15, 0.75]), rtol=1e-6)


def test_paving(monkeypatch):
    """Blocks of 10 by 5 cells between joints one vertex wide at -6 mm; every second course is shifted by half a block."""
    surface = terrain.rough_stone(np.random.default_rng(0))
    assert surface.std() == pytest.approx(0.004, abs=0.001) and np.abs(surface).max() < 0.02
    monkeypatch.setattr(terrain, "_stones", lambda *_: 0.0)
    monkeypatch.setattr(terrain, "smooth", lambda *_: 0.0)
    joint = terrain.rough_stone(np.random.default_rng(0))
    assert set(np.unique(joint)) == {-0.006, 0.0}
    courses = np.flatnonzero((joint < 0).all(1))
    assert (np.diff(courses) == 5).all() and len(courses) in (48, 49)
    ends = [np.flatnonzero(joint[course + 2] < 0) for course in courses[:-1]]
    assert all((np.diff(each) == 10).all() for each in ends)
    assert {(two[0] - one[0]) % 10 for one, two in zip(ends, ends[1:])} == {5}


def test_flagstones():
    draw = np.random.default_rng(0)
    x, y = terrain.PATH.vertices()
    surface = terrain.uphill_stone(draw) - terrain.ramp(y, 8.0)[:, None]
    near, _, places = terrain._voronoi(np.random.default_rng(0), x, y, 0.27)
    brute = np.argmin(((places.reshape(-1, 1, 1, 2) - np.stack(np.meshgrid(x, y), -1)) ** 2).sum(-1), axis=0)
    assert (near[0] * places.shape[1] + near[1] == brute).mean() > 0.999
    stones = len(np.unique(brute)) / (2.4 * 4.8)
    assert 1 / math.sqrt(stones) == pytest.approx(0.27, abs=0.04)
    joints = np.abs(surface + 0.012) < 0.004
    assert 0.05 < joints.mean() < 0.3 and 0.006 < surface.std() < 0.012


def test_grass_has_its_roughness_at_its_lengths():
    draw = np.random.default_rng(0)
    fine = np.array([terrain.smooth(draw, 0.012, 0.08) for _ in range(20)])
    assert fine.std() == pytest.approx(0.012, rel=0.05)
    at = (fine[:, :, :-4] * fine[:, :, 4:]).mean() / fine.var()  # four cells are 8 cm
    assert at == pytest.approx(math.exp(-1), abs=0.03)
    assert np.mean([terrain.grassland(draw).std() for _ in range(20)]) == pytest.approx(math.hypot(0.012, 0.015), rel=0.12)


@pytest.mark.parametrize("name", terrain.TERRAINS)
def test_a_terrain_has_its_friction_its_start_and_its_target(name):
    env, kind = DKitty(VARIANTS[f"walk-{name}"]), terrain.TERRAINS[name]
    slides = []
    for seed in range(30):
        env.reset(seed=seed)
        slides.append(env.model.geom("ground").friction[0])
    spread(slides, *kind.slide)
    assert env.goal == pytest.approx([0, 3 if name == "smooth-road" else 1])
    for _ in range(3):
        env.step(robot.action_for(ZERO))
    assert len(env.data.contact.dist) and (env.data.contact.dim == 4).all()
    ground = (env.model.geom_bodyid[env.data.contact.geom] == 0).any(1)
    np.testing.assert_allclose(env.data.contact.friction[ground, 0], slides[-1])  # the ground's, whatever the foot's is
    if kind.surface:
        heights = env.model.hfield_data.reshape(241, 121)
        x, y = terrain.PATH.vertices()
        patch = heights[np.ix_(np.abs(y) < 0.2, np.abs(x) < 0.16)].max() + env.model.geom("ground").pos[2]
        assert heights.min() >= 0 and patch == pytest.approx(0.0, abs=1e-6)


def test_leaving_the_ground_is_a_fall():
    env = DKitty(VARIANTS["walk-grassland"])
    env.reset(seed=0)
    env.data.qpos[0] = 1.3
    *_, terminated, _, info = env.step(robot.action_for(ZERO))
    assert terminated and info["reward_terms"]["falling"] == -500


@at_the_pins
def test_soil_gives_way_and_stalks_drag():
    grass = dataclasses.replace(terrain.TERRAINS["grassland"], surface=None)
    env = DKitty(dataclasses.replace(VARIANTS["walk-grassland"], terrain=grass))
    env.reset(seed=0)
    env._nominal.restore(env.model)
    for _ in range(30):
        env.step(robot.action_for(ZERO))
    assert 0.302 - (0.3 + env.data.qpos[2]) == pytest.approx(0.0116, abs=1e-4)  # sinks by 11.6 mm
    mujoco.mj_resetData(env.model, env.data)
    env.data.qpos[2], env.data.qvel[1] = 1.0, 0.5
    mujoco.mj_forward(env.model, env.data)
    assert env.data.qfrc_actuator[1] == pytest.approx(-4 * 1.0 * 0.5)  # four shanks, 1 N·s/m each


# --- what the legs can do ---------------------------------------------------------------------------------------------


def test_a_trot_walks_three_metres():
    env = DKitty(FLAT)
    for seed in range(8):
        obs, _ = env.reset(seed=seed)
        for step in range(160):
            obs, _, terminated, _, _ = env.step(trot(step, float(obs[5])))
            assert not terminated, f"seed {seed} fell at step {step}"
        assert obs[1] >= 3.0, f"seed {seed} walked {obs[1]:.2f} m"


@pytest.mark.parametrize(("axis", "speed", "falls"), [(0, 0.3, False), (0, 0.6, True), (1, 0.3, False), (1, 1.0, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_passive_stand_survives_a_small_push_and_no_large_one(axis, speed, falls, sign):
    env = DKitty(VARIANTS["walk-fixed"])
    env.reset(seed=0)
    env.model.dof_damping[6:], env.model.dof_frictionloss[6:] = 0.15, 0.003  # the middle of the randomised gains
    env.model.actuator_gainprm[:, 0], env.model.actuator_biasprm[:, 1] = 3.0, -3.0
    fell = False
    for step in range(60):
        if step == 20:
            env.data.qvel[axis] += sign * speed
        *_, terminated, _, _ = env.step(robot.action_for(ZERO))
        fell |= terminated
    assert fell == falls


# --- options ----------------------------------------------------------------------------------------------------------


def with_options(name="walk-fixed", **options):
    return DKitty(VARIANTS[name], SimToReal.make(options))


def test_options_of_an_id():
    env_id = "dkitty/walk-medium?drop=0.1&latency=0.02&motor=0.2&payload=0.3&push=0.5&sense=0.05"
    assert envs.make(env_id).facts.id == env_id
    assert envs.make("dkitty/walk-medium?latency=0&wide=0").facts.id == "dkitty/walk-medium"
    assert ids.split("dkitty/stand-random?wide=1")[2].own == (("wide", True),)
    with pytest.raises(ConfigError, match=r"latency = 0.5 is out of range; allowed: >= 0 and <= 0.1"):
        envs.make("dkitty/walk-medium?latency=0.5")
    with pytest.raises(ConfigError, match="payload = 'heavy' is not a number"):
        envs.make("dkitty/walk-medium?payload=heavy")
    with pytest.raises(UnknownNameError, match="'latency'"):
        envs.make("dkitty/walk-medium?latncy=0.02")
    with pytest.raises(UnknownNameError, match="'latency'"):
        envs.make("gym/Hopper-v5?latency=0.02")
    with pytest.raises(ConfigError, match="push twice"):
        envs.make("dkitty/walk-medium?push=0.5&push=0.3")


@pytest.mark.parametrize("name", SimToReal.names())
def test_every_option_changes_the_episode_and_repeats(name):
    value = {
        "latency": 0.02,
        "payload": 0.3,
        "push": 0.5,
        "motor": 0.2,
        "torque": 0.2,
        "sense": 0.05,
        "offset": 0.03,
        "drop": 0.5,
    }
    options = {name: value.get(name, True)}
    still = robot.action_for(robot.CROUCH)
    still[::3] += 0.1
    plain = play(with_options(), 50, actions=still if name != "drop" else None)
    changed = play(with_options(**options), 50, actions=still if name != "drop" else None)
    assert changed != plain
    assert play(with_options(**options), 50, actions=still if name != "drop" else None) == changed


def test_latency_keeps_the_old_command_for_its_substeps():
    env, twin = with_options(latency=0.02), DKitty(VARIANTS["walk-fixed"])
    for each in (env, twin):
        each.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 12))
    for action in actions:
        command = robot.limited(robot.joint_targets(action), twin.data.qpos[6:])
        mujoco.mj_step(twin.model, twin.data, 8)
        twin.data.ctrl[:] = command
        mujoco.mj_step(twin.model, twin.data, 32)
        env.step(action)
        assert (env.data.qpos == twin.data.qpos).all()


def test_payload_and_motors():
    env = with_options("walk-randomdynamics", payload=0.3, motor=0.2)
    plain = DKitty(VARIANTS["walk-randomdynamics"])
    factors = []
    for seed in range(30):
        env.reset(seed=seed)
        plain.reset(seed=seed)
        assert env.model.body_mass[1] - plain.model.body_mass[1] == pytest.approx(0.3)
        factors += list(env.model.actuator_gainprm[:, 0] / plain.model.actuator_gainprm[:, 0])
        np.testing.assert_allclose(env.model.actuator_biasprm[:, 1], -env.model.actuator_gainprm[:, 0])
    spread(factors, 0.8, 1.2)


def test_a_push_comes_every_four_seconds():
    env, twin = with_options(push=0.5), DKitty(VARIANTS["walk-fixed"])
    env.reset(seed=0)
    twin.reset(seed=0)
    for step in range(42):
        if step == 40:  # after 4 s
            twin.data.qvel[:] = env.data.qvel
            angle = np.random.default_rng(0)
            angle.bit_generator.state = env.np_random.bit_generator.state
            turn = angle.uniform(0, 2 * math.pi)
            twin.data.qvel[:2] += 0.5 * math.cos(turn), 0.5 * math.sin(turn)
        env.step(robot.action_for(ZERO))
        twin.step(robot.action_for(ZERO))
        assert (env.data.qpos == twin.data.qpos).all(), step


def test_sensing_noise_is_seen_and_not_paid():
    env, plain = with_options(sense=0.05), DKitty(VARIANTS["walk-fixed"])
    env.reset(seed=0)
    plain.reset(seed=0)
    angles, places = [], []
    for _ in range(100):
        noisy, reward, *_ = env.step(robot.action_for(ZERO))
        clean, wanted, *_ = plain.step(robot.action_for(ZERO))
        assert reward == wanted
        angles.append(noisy[3:6] - clean[3:6])
        places.append(noisy[:3] - clean[:3])
        np.testing.assert_array_equal(noisy[6:48], clean[6:48])
    assert np.std(angles) == pytest.approx(0.05, rel=0.15) and np.std(places) == pytest.approx(0.01, rel=0.15)


def test_lost_commands_repeat_the_last_one_but_the_policy_sees_its_own():
    env = with_options(drop=1.0)
    env.reset(seed=0)
    middle = robot.joint_targets(np.zeros(12))
    for _ in range(5):
        before = env.data.qpos[6:].copy()
        obs, *_ = env.step(np.full(12, 0.7))
        np.testing.assert_array_equal(env.data.ctrl, robot.limited(middle, before))
        np.testing.assert_allclose(obs[36:48], 0.7, rtol=1e-6)


def test_offset_torque_and_wide_range():
    env = with_options(offset=0.03, torque=0.2)
    obs, _ = env.reset(seed=0)
    first = obs[6:18] - env.data.qpos[6:]
    assert 0 < np.abs(first).max() <= 0.03
    for _ in range(5):
        obs, *_ = env.step(np.ones(12))
        np.testing.assert_allclose(obs[6:18] - env.data.qpos[6:], first, atol=1e-6)
        assert np.abs(env.data.actuator_force).max() <= 0.2
    wide = with_options("stand-fixed", wide=True)
    np.testing.assert_allclose(robot.joint_targets(np.ones(12), wide.command_range)[:3], [0.279, 2.14, 1.57])


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_drawing_changes_nothing_and_shows_the_ground_of_the_episode():
    if rendering.choose_backend().name is None:
        pytest.skip(rendering.INSTALL)
    drawn, plain = envs.make("dkitty/walk-rough-stone-road", render=True), envs.make("dkitty/walk-rough-stone-road")
    frames = []
    for seed in (0, 1):
        pairs = [env.reset(seed=seed)[0].tobytes() for env in (drawn, plain)]
        for _ in range(4):
            frames.append(drawn.render())
            pairs += [env.step(robot.action_for(ZERO))[0].tobytes() for env in (drawn, plain)]
        assert pairs[::2] == pairs[1::2]
    assert frames[0].shape == (480, 640, 3) and frames[0].std() > 20
    drawn.close()
    fresh = envs.make("dkitty/walk-rough-stone-road", render=True)
    fresh.reset(seed=1)
    assert (fresh.render() == frames[4]).all() and (frames[4] != frames[0]).any(), "the ground is that of the episode"
    fresh.close()
    red, green, blue = one_frame("dkitty/walk-grassland")[300:].mean((0, 1))
    assert green > blue + 20 and red > blue, "grass and soil are painted"


@pytest.mark.parametrize("name", ["walk-smooth-road", "walk-medium", "orient-randomdynamics", "walk-uphill-stone-road"])
def test_the_disc_of_the_target_lies_on_the_ground(name):
    env = DKitty(VARIANTS[name])
    env.reset(seed=1)
    site = env.model.site("target")
    np.testing.assert_array_equal(site.pos[:2], env.goal)
    bottom = site.pos[2] - site.size[1]
    if env.grid is None:
        assert bottom == 0.0
        return
    x, y = env.grid.vertices()
    beside = np.hypot(x[None] - env.goal[0], y[:, None] - env.goal[1]) < 1.5 * env.grid.cell
    heights = env.model.hfield_data.reshape(len(y), len(x))[beside] + env.model.geom("ground").pos[2]
    assert heights.min() <= bottom <= heights.max() + 1e-6 and bottom > -0.02


def test_the_ground_of_a_picture_has_no_specks():
    """Away from the robot the tiles are as bright in every picture: nothing there has a shadow."""
    if rendering.choose_backend().name is None:
        pytest.skip(rendering.INSTALL)
    env = envs.make("dkitty/walk-smooth-road", render=True)
    env.reset(seed=1)
    frame = env.render()
    env.close()
    assert frame[110:, :225].min() > 120 and frame[250:, 420:].min() > 120


def test_paint_is_linear_between_the_vertices():
    fine = picture._finer(np.array([[0.0, 8.0], [16.0, 24.0]]), 0)
    np.testing.assert_allclose(fine, [[2, 10], [6, 14], [10, 18], [14, 22]])
    np.testing.assert_allclose(picture._finer(fine, 1)[0], [3, 5, 7, 9])
