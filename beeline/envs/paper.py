"""The paper's tasks, as far as they can be had today (docs/environments.md tells what differs)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class PaperTask:
    """A task of the paper: its id here, the paper's benchmark it belongs to, and what is different."""

    id: str
    benchmark: str
    note: str = ""

    @property
    def suite(self) -> str:
        """The suite's name."""
        return self.id.partition("/")[0]


def _tasks(benchmark: str, pattern: str, names: str, **notes: str) -> tuple[PaperTask, ...]:
    return tuple(PaperTask(pattern.format(name), benchmark, notes.get(name, "")) for name in names.split())


_REAL = "walk-smooth-road walk-rough-stone-road walk-uphill-stone-road walk-grassland"

PAPER_TASKS: tuple[PaperTask, ...] = (
    *_tasks("MuJoCo", "gym/{}-v5", "Swimmer Ant Humanoid HumanoidStandup Hopper Walker2d"),
    *_tasks(
        "DMControl",
        "dmc/{}",
        "acrobot-swingup ball_in_cup-catch cartpole-swingup cheetah-run dog-run dog-walk finger-spin hopper-stand "
        "humanoid-run humanoid-walk quadruped-walk reacher-easy reacher-hard walker-run walker-stand",
    ),
    *_tasks(
        "Meta-World",
        "metaworld/{}?limit=200",
        "assembly basketball button-press-wall coffee-button coffee-push dial-turn door-open door-unlock drawer-open "
        "hammer hand-insert pick-place plate-slide window-open",
    ),
    *_tasks("Adroit", "adroit/{}", "door hammer pen"),
    *_tasks("Shadow Hand", "shadowhand/{}Dense", "BlockRotateZ EggRotate PenRotate"),
    *_tasks(
        "ManiSkill",
        "maniskill/{}",
        "PickCube StackCube LiftPegUpright PlaceSphere PushCube",
        LiftPegUpright="stands in for LiftCube, which ManiSkill 3 does not have",
        PlaceSphere="stands in for PickSingleYCB, which needs a download",
        PushCube="stands in for TurnFaucet, which needs a download",
    ),
    *_tasks(
        "MyoSuite",
        "myosuite/{}",
        "myoHandKeyTurnFixed myoHandKeyTurnRandom myoHandPenTwirlFixed myoHandReachFixed myoHandReachRandom",
    ),
    *_tasks("panda-gym", "panda/{}", "ReachJoints"),
    *_tasks(
        "D'Kitty",
        "dkitty/{}",
        f"walk-randomdynamics walk-medium walk-hard {_REAL} stand-random-sparse orient-random-sparse",
        **dict.fromkeys(_REAL.split(), "our simulation of a real terrain"),
    ),
)
