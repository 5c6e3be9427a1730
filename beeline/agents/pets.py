"""PETS (Chua et al. 2018): no policy is learnt; every action begins the best sequence that a search under the model finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beeline.agents.options import MethodConfig
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.planner import PETS


MOST_IMAGINED = 10**8  # three hundred times what the largest preset asks for


@dataclass(frozen=True)
class PETSConfig(MethodConfig):
    """Probabilistic ensembles with trajectory sampling: planning by the cross-entropy method under a learned model."""

    scales_observations = True
    refused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("lam", "lambda", "blend", "exploit", "expectile", "exploit_alpha"), "pets has no Q to blend"),
        **dict.fromkeys(("gamma", "actor_lr", "critic_lr", "alpha"), "pets plans, and learns neither a policy nor a critic"),
        "random_steps": "pets acts at random until its model is trained for the first time: see model_every",
    }

    lookahead: int = option(25, "decisions that are planned ahead", low=1, high=1000)
    population: int = option(400, "sequences of actions that a search tries in each iteration", low=2)
    elites: int = option(40, "best sequences that make the next ones", low=1)
    iterations: int = option(5, "iterations of a search", low=1, high=1000)
    momentum: float = option(0.1, "share of the last mean and variance in the next ones", low=0.0, high=0.99)
    propagation: str = option(
        "tsinf", "a particle keeps its net (tsinf), or changes it at every step (ts1)", choices=("tsinf", "ts1")
    )
    particles: int = option(4, "particles of each net that follow a sequence", low=1)
    known_reward: bool = option(True, "plan with the task's own reward where it is known; false: with the model's")
    model_members: int = option(5, "nets of the model", low=1, high=1000)
    hidden: tuple[int, ...] = option((200, 200, 200), "widths of each net's hidden layers", low=1)
    model_lr: float = option(1e-3, "learning rate of the model", above=0.0)
    model_decay: tuple[float, ...] = option(
        (5e-5,), "decay of the model's weights: one number for each layer, or one for all", low=0.0
    )
    model_every: int | None = option(None, "environment steps between trainings of the model; none: after every episode", low=1)
    model_epochs: int = option(5, "passes over all transitions in a training of the model", low=1)
    model_batches: int | None = option(None, "most steps of Adam in a training; none: no bound", low=1)
    batch_size: int = option(32, "transitions of each step of Adam", low=1)

    def check(self) -> None:
        """The best sequences are some of those that were tried, and memory holds what is imagined for them."""
        if self.elites > self.population:
            raise ConfigError(f"elites = {self.elites} is more than population = {self.population}.")
        imagined = self.population * self.particles * self.model_members * self.lookahead
        if imagined > MOST_IMAGINED:
            raise ConfigError(
                f"population × particles × model_members × lookahead is {imagined:,}: so many steps are imagined at once in an "
                f"iteration of a search; at most {MOST_IMAGINED:,} are allowed."
            )
        layers = len(self.hidden) + 1
        if len(self.model_decay) not in (1, layers):
            raise ConfigError(
                f"model_decay has {len(self.model_decay)} numbers, and the model {layers} layers; allowed: 1 or {layers} numbers."
            )

    @property
    def needs_terminated(self) -> bool:
        """A model does not say where an episode ends."""
        return True

    @property
    def refuses_prior(self) -> str:
        """It plans under a model of its own task."""
        return "its model is of the run's own transitions"

    @property
    def policy_networks(self) -> int:
        """The nets of the model."""
        return self.model_members


def build(config: PETSConfig, task: Task) -> PETS:
    """The agent: an ensemble, and the search under it."""
    from beeline.agents.planner import PETS

    return PETS(config, task)


# --- presets ----------------------------------------------------------------------------------------------------------

FAST = {"eval_episodes": 1}  # an evaluation plans as long as training does
DEEP = (200, 200, 200, 200)


def light(env_id: str) -> dict[str, Any]:
    """Five small nets, one particle each, and short searches: twenty to forty planned decisions in a second of two cores."""
    return FAST | {
        "hidden": (128, 128, 128), "lookahead": 20, "population": 128, "elites": 13, "iterations": 4, "particles": 1,
        "model_epochs": 100, "model_batches": 2_000,
    }  # fmt: skip


def paper(env_id: str) -> dict[str, Any]:
    """The sources' constants for the task, and mbrl-lib's for MuJoCo's walking robots; seconds per decision on two cores."""
    name = env_id.partition("?")[0].lower()
    if "cartpole" in name or "pendulum" in name:
        return FAST | {"hidden": (500, 500, 500), "lookahead": 25, "model_decay": (1e-4, 2.5e-4, 2.5e-4, 5e-4)}
    if "reacher" in name:
        return FAST | {"hidden": DEEP, "lookahead": 25, "model_lr": 7.5e-4, "model_decay": (2.5e-4, 5e-4, 5e-4, 5e-4, 7.5e-4)}
    if "pusher" in name:
        return FAST | {"lookahead": 25, "population": 500, "elites": 50, "model_decay": (2.5e-4, 5e-4, 5e-4, 7.5e-4)}
    if "cheetah" in name:
        decay = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
        return FAST | {"hidden": DEEP, "lookahead": 30, "population": 500, "elites": 50, "model_decay": decay}
    walking = {"hidden": DEEP, "lookahead": 30, "population": 350, "elites": 35, "propagation": "ts1"}
    learning = {"model_lr": 2e-4, "model_decay": (3e-5,), "model_every": 250, "model_epochs": 25, "known_reward": False}
    return FAST | walking | learning


PRESETS = {"light": light, "paper": paper}
