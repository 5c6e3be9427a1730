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
    module: str
    probe: str  # the package that must be importable
    extra: str | None  # None: part of the core
    success_key: str | None
    tasks: Sizes


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

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("gym", "Gymnasium", "beeline.envs.gym", "gymnasium", None, None, GYM),
        Suite("dmc", "DeepMind Control Suite", "beeline.envs.dmc", "dm_control", "dmc", None, DMC),
    )
}
