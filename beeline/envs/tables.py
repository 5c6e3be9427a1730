"""Every suite and its tasks with (observation, action) sizes, so that listing them imports no simulator.

The tests compare the sizes with the simulators'.
"""

from __future__ import annotations

import dataclasses

Sizes = dict[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Suite:
    """Where a suite's code is, which extra brings its simulator, and how it reports success."""

    name: str
    title: str
    builder: str  # module of this package, colon, function
    probe: str  # the package that must be importable
    extra: str | None  # None: part of the core
    success_key: str | None
    tasks: Sizes
    options: str | None = None  # module, colon, the Config of the options that only this suite's ids have


def _same(names: str, sizes: tuple[int, int]) -> Sizes:
    return dict.fromkeys(names.split(), sizes)


GYM: Sizes = {
    "Ant-v5": (105, 8),
    "HalfCheetah-v5": (17, 6),
    "Hopper-v5": (11, 3),
    "Humanoid-v5": (348, 17),
    "HumanoidStandup-v5": (348, 17),
    "InvertedDoublePendulum-v5": (9, 1),
    "InvertedPendulum-v5": (4, 1),
    "MountainCarContinuous-v0": (2, 1),
    "Pendulum-v1": (3, 1),
    "Pusher-v5": (23, 7),
    "Reacher-v5": (10, 2),
    "Swimmer-v5": (8, 2),
    "Walker2d-v5": (17, 6),
}

# The lqr domain is left out: its actions are bounded by 1e10 and its episodes by nothing.
DMC: Sizes = {
    **_same("acrobot-swingup acrobot-swingup_sparse", (6, 1)),
    "ball_in_cup-catch": (8, 2),
    **_same("cartpole-balance cartpole-balance_sparse cartpole-swingup cartpole-swingup_sparse", (5, 1)),
    "cartpole-two_poles": (8, 1),
    "cartpole-three_poles": (11, 1),
    "cheetah-run": (17, 6),
    **_same("dog-stand dog-walk dog-trot dog-run", (223, 38)),
    "dog-fetch": (232, 38),
    "finger-spin": (9, 2),
    **_same("finger-turn_easy finger-turn_hard", (12, 2)),
    "fish-upright": (21, 5),
    "fish-swim": (24, 5),
    **_same("hopper-stand hopper-hop", (15, 4)),
    **_same("humanoid-stand humanoid-walk humanoid-run", (67, 21)),
    "humanoid-run_pure_state": (55, 21),
    **_same("humanoid_CMU-stand humanoid_CMU-walk humanoid_CMU-run", (137, 56)),
    **_same("manipulator-bring_ball manipulator-bring_peg manipulator-insert_ball manipulator-insert_peg", (44, 5)),
    "pendulum-swingup": (3, 1),
    **_same("point_mass-easy point_mass-hard", (4, 2)),
    **_same("quadruped-walk quadruped-run", (78, 12)),
    "quadruped-escape": (101, 12),
    "quadruped-fetch": (90, 12),
    **_same("reacher-easy reacher-hard", (6, 2)),
    "stacker-stack_2": (49, 5),
    "stacker-stack_4": (63, 5),
    "swimmer-swimmer6": (25, 5),
    "swimmer-swimmer15": (61, 14),
    **_same("walker-stand walker-walk walker-run", (24, 6)),
}

METAWORLD: Sizes = _same(
    "assembly basketball bin-picking box-close button-press button-press-topdown button-press-topdown-wall "
    "button-press-wall coffee-button coffee-pull coffee-push dial-turn disassemble door-close door-lock door-open "
    "door-unlock drawer-close drawer-open faucet-close faucet-open hammer hand-insert handle-press handle-press-side "
    "handle-pull handle-pull-side lever-pull peg-insert-side peg-unplug-side pick-out-of-hole pick-place "
    "pick-place-wall plate-slide plate-slide-back plate-slide-back-side plate-slide-side push push-back push-wall "
    "reach reach-wall shelf-place soccer stick-pull stick-push sweep sweep-into window-close window-open",
    (39, 4),
)

ADROIT: Sizes = {
    **_same("door doorSparse", (39, 28)),
    **_same("hammer hammerSparse", (46, 26)),
    **_same("pen penSparse", (45, 24)),
    **_same("relocate relocateSparse", (39, 30)),
}

_MANIPULATE = "BlockRotateZ BlockRotateParallel BlockRotateXYZ BlockFull Block EggRotate EggFull Egg PenRotate PenFull Pen"
SHADOWHAND: Sizes = {
    **_same("Reach ReachDense", (93, 20)),
    **_same(_MANIPULATE, (75, 20)),
    **_same(_MANIPULATE.replace(" ", "Dense ") + "Dense", (75, 20)),
}

# Those that need no download.
MANISKILL: Sizes = {
    "PickCube": (42, 8),
    "StackCube": (48, 8),
    **_same("PushCube PullCube", (35, 8)),
    "PegInsertionSide": (43, 8),
    "LiftPegUpright": (32, 8),
    "PlugCharger": (46, 8),
    "PokeCube": (54, 8),
    "RollBall": (44, 8),
    "StackPyramid": (64, 8),
    **_same("PlaceSphere PullCubeTool", (39, 8)),
}

# The basic tasks; those with weak (Sarc), tired (Fati) or transferred (Reaf) muscles and the challenges work as well.
MYOSUITE: Sizes = {
    **_same("myoElbowPoseTaskFixed myoElbowPoseTaskRandom", (9, 6)),
    **_same("myoLegDirectionalForward myoLegDirectionalBackward myoLegDirectionalRandom", (153, 80)),
    **_same("myoFingerReachFixed myoFingerReachRandom", (19, 5)),
    **_same("myoElbowPose1D6MFixed myoElbowPose1D6MRandom", (9, 6)),
    **_same("myoElbowPose1D6MExoFixed myoElbowPose1D6MExoRandom", (9, 7)),
    **_same("myoFingerPoseFixed myoFingerPoseRandom", (17, 5)),
    **_same(
        "myoHandPoseFixed myoHandPose0Fixed myoHandPose1Fixed myoHandPose2Fixed myoHandPose3Fixed "
        "myoHandPose4Fixed myoHandPose5Fixed myoHandPose6Fixed myoHandPose7Fixed myoHandPose8Fixed "
        "myoHandPose9Fixed myoHandPoseRandom",
        (108, 39),
    ),
    "myoLegStandRandom": (155, 80),
    **_same("myoLegWalk myoLegRoughTerrainWalk myoLegHillyTerrainWalk myoLegStairTerrainWalk", (403, 80)),
    **_same("myoHandReachFixed myoHandReachRandom", (115, 39)),
    **_same("myoHandKeyTurnFixed myoHandKeyTurnRandom", (93, 39)),
    **_same("myoHandObjHoldFixed myoHandObjHoldRandom", (91, 39)),
    **_same("myoHandPenTwirlFixed myoHandPenTwirlRandom", (83, 39)),
    "myoTorsoPoseFixed": (270, 216),
    "myoTorsoExoPoseFixed": (296, 216),
    **_same("myoHandReorient8 myoHandReorient100 myoHandReorientID myoHandReorientOOD", (200, 39)),
    **_same("myoArmReachFixed myoArmReachRandom", (92, 50)),
}

# Flip is left out: its texture is missing from the package.
PANDA: Sizes = {
    **_same("Reach ReachDense", (12, 3)),
    **_same("Push PushDense Slide SlideDense", (24, 3)),
    **_same("PickAndPlace PickAndPlaceDense", (25, 4)),
    **_same("Stack StackDense", (43, 4)),
    **_same("ReachJoints ReachJointsDense", (12, 7)),
    **_same("PushJoints PushJointsDense SlideJoints SlideJointsDense", (24, 7)),
    **_same("PickAndPlaceJoints PickAndPlaceJointsDense", (25, 8)),
    **_same("StackJoints StackJointsDense", (43, 8)),
}

MBPO: Sizes = {"hopper": (11, 3), "walker2d": (17, 6), "ant": (27, 8), "humanoid": (45, 17)}

DKITTY: Sizes = {
    **_same("stand-fixed stand-random stand-randomdynamics", (61, 12)),
    **_same("orient-fixed orient-random orient-randomdynamics", (53, 12)),
    **_same("walk-fixed walk-random walk-randomdynamics walk-medium walk-hard", (52, 12)),
    "stand-random-sparse": (61, 12),
    "orient-random-sparse": (53, 12),
    **_same("walk-smooth-road walk-rough-stone-road walk-uphill-stone-road walk-grassland", (52, 12)),
}

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("gym", "Gymnasium", "gym:build", "gymnasium", None, None, GYM),
        Suite("dmc", "DeepMind Control Suite", "dmc:build", "dm_control", "dmc", None, DMC),
        Suite("metaworld", "Meta-World v3", "metaworld:build", "metaworld", "metaworld", "success", METAWORLD),
        Suite("adroit", "Adroit", "hands:build_adroit", "gymnasium_robotics", "hands", "success", ADROIT),
        Suite(
            "shadowhand", "Shadow Hand", "hands:build_shadowhand", "gymnasium_robotics", "hands", "is_success", SHADOWHAND
        ),
        Suite("maniskill", "ManiSkill 3", "maniskill:build", "mani_skill", "maniskill", "success", MANISKILL),
        Suite("myosuite", "MyoSuite", "myo:build", "myosuite", "myo", "solved", MYOSUITE),
        Suite("panda", "panda-gym", "panda:build", "panda_gym", "panda", "is_success", PANDA),
        Suite("mbpo", "MuJoCo, truncated for models", "mbpo:build", "gymnasium", None, None, MBPO),
        Suite("dkitty", "D'Kitty", "dkitty:build", "mujoco", None, "success", DKITTY, "dkitty.options:SimToReal"),
    )
}
