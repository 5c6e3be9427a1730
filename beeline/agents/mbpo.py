"""MBPO (Janner et al. 2019), MB-BAC (Ji et al. 2024) and CMLO (Ji et al. 2022): SAC or BAC on what a learned model imagines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from beeline.agents.sac import SACConfig
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.model_based import ModelBased
    from beeline.agents.off_policy import OffPolicy

SCHEDULES = ("mbpo", "autombpo", "autombpo-ant")
STOPS = ("original", "mbrl")
TARGETS = ("blend", "split")


@dataclass(frozen=True)
class MBPOConfig(SACConfig):
    """Model-based policy optimisation: SAC on short rollouts of a learned model that branch off from what was met."""

    refused: ClassVar[Mapping[str, str]] = {
        "n_step": "imagined transitions stand alone: nothing is known of what follows them",
        "normalize_obs": "the model has a scaler of its own, and statistics would move between a rollout and its use",
        **dict.fromkeys(("replay_decay", "replay_floor"), "most of what it learns from is imagined, and that memory is short"),
    }

    random_steps: int = option(5_000, "environment steps of uniformly random actions at the start", low=0)
    learn_after: int = option(5_000, "environment steps before the first update; 0: once a batch is there", low=0)
    critic_updates_per_step: int = option(20, "critic updates per decision of each env", low=1)
    policy_updates_per_step: float = option(20.0, "policy updates per decision; 0.5 is one every second decision", above=0.0)
    entropy_units: str = option("unit", "count log π in the env's own action units or in [-1, 1]", choices=("env", "unit"))
    act_greedy: bool = option(False, "act without noise in the environment once the random steps are over")
    model_members: int = option(7, "networks of the model", low=1, high=1000)
    model_elites: int = option(5, "of them, those with the least error predict", low=1)
    model_hidden: tuple[int, ...] = option((200, 200, 200, 200), "widths of the model's hidden layers", low=1)
    model_lr: float = option(1e-3, "learning rate of the model", above=0.0)
    model_decay: tuple[float, ...] = option(
        (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4), "decay of the model's weights: one number for each layer, or one for all", low=0.0
    )
    model_bounds: bool = option(True, "learn the bounds of the model's log-variance")
    model_batch_size: int = option(256, "rows of each network in a batch of the model's training", low=1)
    model_every: int = option(250, "environment steps between two trainings of the model", low=1)
    model_holdout: float = option(0.2, "share of the rows that is held out of a training, 5,000 at most", low=0.01, high=0.9)
    model_patience: int = option(5, "epochs without improvement after which a training ends", low=1)
    model_stop: str = option("original", "rule of early stopping: the original's, or mbrl-lib's", choices=STOPS)
    model_batches: int | None = option(None, "most batches of a training; none: until its rule ends it", low=1)
    model_first_batches: int | None = option(None, "the same for the first training; none: no bound", low=1)
    epoch_steps: int = option(1_000, "environment steps of an epoch, by which rollouts grow and the memory is sized", low=1)
    branches: int = option(400, "branches that are rolled out for every environment step", low=1)
    rollout_schedule: tuple[int, ...] = option(
        (20, 150, 1, 1), "rollouts grow from epoch a to epoch b, from c to d steps: a,b,c,d", low=0
    )
    retain_epochs: int = option(1, "epochs of rollouts that the memory holds", low=1)
    imagined_rows: int = option(1_000_000, "most imagined transitions that are held; beyond it fewer branches are taken", low=2)
    real_ratio: float = option(0.05, "share of real transitions in a batch", low=0.0, high=1.0)
    schedule: str = option(
        "mbpo", "ratio, updates and rollout length: as the options say, or AutoMBPO (fixed schedule)", choices=SCHEDULES
    )
    controller: str | None = option(None, "file of a trained controller that sets them as the run goes (beeline autombpo)")
    schedule_steps: int | None = option(
        None, "environment steps of the schedules; none: the steps planned at the start", low=1
    )

    def check(self) -> None:
        """Elites are members, decays fit the layers, a schedule has four numbers, the memory holds a batch."""
        super().check()
        if self.model_elites > self.model_members:
            raise ConfigError(f"model_elites = {self.model_elites} is more than model_members = {self.model_members}.")
        layers = len(self.model_hidden) + 1
        if len(self.model_decay) not in (1, layers):
            raise ConfigError(
                f"model_decay has {len(self.model_decay)} numbers, and the model {layers} layers; allowed: 1 or {layers} numbers."
            )
        if len(self.rollout_schedule) != 4 or not self._grows():
            raise ConfigError(
                f"rollout_schedule = {','.join(map(str, self.rollout_schedule))} is none; allowed: four numbers a,b,c,d with "
                "a < b (epochs) and 1 <= c <= d (steps)."
            )
        least = max(self.batch_size, self.most_length * self.epoch_steps * self.retain_epochs)
        if self.imagined_rows < least:
            raise ConfigError(
                f"imagined_rows = {self.imagined_rows} is out of range; allowed: >= {least}, a batch and one branch per step of "
                f"{self.most_length} steps over retain_epochs x epoch_steps = {self.retain_epochs * self.epoch_steps} steps."
            )

        if self.controller is not None and self.schedule != "mbpo":
            raise ConfigError(f"schedule = {self.schedule} and a controller set the same things; allowed: one of them.")
        if self.controller is None and self.schedule_steps is not None:
            raise ConfigError(f"schedule_steps = {self.schedule_steps} is for a controller: give one, or leave it out.")
        if self.schedule_steps is not None and self.schedule_steps <= self.warm_up[1]:
            raise ConfigError(f"schedule_steps = {self.schedule_steps} is within the warm-up; allowed: > {self.warm_up[1]}.")

    def scheduled(self, steps: int) -> Self:
        """A controller is told how far a run is: of so many steps, unless the options say of how many."""
        alone = self.controller is None or self.schedule_steps is not None or steps <= self.warm_up[1]
        return self if alone else dataclasses.replace(self, schedule_steps=steps)

    def begin(self, env_id: str) -> None:
        """A controller is one for this task."""
        if self.controller is not None:
            from beeline.dynamics import controller

            controller.load(self.controller).fits(env_id, self.controller, self.epoch_steps)

    def _grows(self) -> bool:
        first, last, shortest, longest = self.rollout_schedule
        return first < last and 1 <= shortest <= longest

    @property
    def most_length(self) -> int:
        """The longest rollout that is asked for by the options."""
        return self.rollout_schedule[3]

    @property
    def varies(self) -> bool:
        """Whether the number of updates per step changes on the way."""
        return self.schedule != "mbpo" or self.controller is not None

    @property
    def refuses_prior(self) -> str:
        """Batches are mixed of what was met and what was imagined."""
        return "its batches are mixed of what it has met and what its model imagines"

    @property
    def needs_terminated(self) -> bool:
        """A model does not say where an episode ends."""
        return True


@dataclass(frozen=True)
class MBBACConfig(MBPOConfig):
    """MBPO under the BEE operator: V is fitted to real transitions, both targets are taken on the model's."""

    lam: float = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")
    targets: str = option(
        "blend", "both targets on the batch and blended, or split: T_exploit on real transitions, T_explore on the batch",
        choices=TARGETS,
    )  # fmt: skip

    def check(self) -> None:
        """Two losses have one weight."""
        super().check()
        if self.targets == "split" and self.blend != "fixed":
            raise ConfigError(
                f"targets = split weighs two losses by one λ, and blend = {self.blend} chooses one for every sample; allowed: "
                "blend = fixed, or targets = blend."
            )


@dataclass(frozen=True)
class CMLOConfig(MBPOConfig):
    """MBPO whose model is trained when what was met has outgrown it, with branches at every step."""

    refused: ClassVar[Mapping[str, str]] = {
        **MBPOConfig.refused,
        "model_every": "cmlo decides when the model is trained: see event_every and event_threshold",
        "schedule": "cmlo decides when the model is trained, which AutoMBPO's schedule does too",
        "controller": "cmlo decides when the model is trained, which a controller does too",
        "schedule_steps": "it belongs to a controller, which cmlo does not have",
    }

    act_greedy: bool = option(True, "act without noise in the environment once the random steps are over")
    event_every: int = option(20, "environment steps between two looks at what was met", low=1)
    event_threshold: float = option(1.2, "the model is trained when the summed growth exceeds it", above=0.0)
    event_first: int = option(250, "environment steps from the warm-up to the first training; errors count from there", low=1)
    event_least: int = option(150, "fewest environment steps between two trainings", low=1)
    event_most: int = option(500, "most environment steps between two trainings", low=1)

    def check(self) -> None:
        """The fewest steps are no more than the most."""
        super().check()
        if self.event_least > self.event_most:
            raise ConfigError(f"event_least = {self.event_least} is more than event_most = {self.event_most}.")


def build(config: MBPOConfig, task: Task) -> ModelBased:
    """The agent: SAC, under `Bee` where λ asks for it, in a model of the world."""
    from beeline.agents import sac
    from beeline.agents.model_based import ModelBased
    from beeline.dynamics.ensemble import GaussianEnsemble
    from beeline.dynamics.training import Training
    from beeline.dynamics.triggers import EventTriggered, Every, Growing, Linear

    model = GaussianEnsemble(
        task.spaces.obs_dim, task.spaces.action_dim, config.model_members, config.model_elites, tuple(config.model_hidden),
        decay=tuple(config.model_decay), rate=config.model_lr, bounds=config.model_bounds,
    )  # fmt: skip
    first, later = (
        Training(
            config.model_batch_size, config.model_holdout, patience=config.model_patience, rule=config.model_stop, batches=most
        )
        for most in (config.model_first_batches, config.model_batches)
    )
    schedule: Any = Growing(config.schedule == "autombpo-ant")
    if config.schedule == "mbpo":
        a, b, c, d = config.rollout_schedule
        schedule = Linear(config.real_ratio, config.critic_updates_per_step, (a, b, c, d))
    trigger: Any = Every(schedule, config.epoch_steps, config.model_every)
    if isinstance(config, CMLOConfig):
        bounds = (config.event_first, config.event_least, config.event_most)
        trigger = EventTriggered(schedule, config.epoch_steps, config.event_every, config.event_threshold, *bounds)
    inner = sac.build(config, task, agent=_steps(config))
    if config.controller is None:
        return ModelBased(config, task, inner, model, later, first, trigger)
    from beeline.agents.controlled import ControlledAgent
    from beeline.dynamics.controlled import DECISIONS, Controlled

    if config.epoch_steps < DECISIONS * task.steps_per_decision:
        raise ConfigError(
            f"epoch_steps = {config.epoch_steps} is too short for a controller, which decides {DECISIONS} times an epoch; "
            f"allowed: >= {DECISIONS * task.steps_per_decision}, {DECISIONS} decisions of {task.steps_per_decision} "
            "environment steps."
        )
    warm_up = config.warm_up[1]
    steps = max((config.schedule_steps or 0) - warm_up, 1)
    trigger = Controlled(config.controller, schedule, config.epoch_steps, steps, config.most_length, config.model_every)
    return ControlledAgent(config, task, inner, model, later, first, trigger)


def _steps(config: MBPOConfig) -> type[OffPolicy] | None:
    """The agent whose losses are split, where these are asked for and there is an exploit part."""
    if not (isinstance(config, MBBACConfig) and config.targets == "split" and config.bee):
        return None
    from beeline.agents.apart import Apart

    return Apart


# --- presets ----------------------------------------------------------------------------------------------------------

# By robot: rollout_schedule, G, H̄, and the rest that differs (ALGORITHMS.md, section 16).
_ORIGINAL: dict[str, dict[str, Any]] = {
    "hopper": {"rollout_schedule": (20, 150, 1, 15), "target_entropy": -1.0},
    "walker2d": {"rollout_schedule": (20, 150, 1, 1), "target_entropy": -3.0},
    "halfcheetah": {"rollout_schedule": (20, 150, 1, 1), "target_entropy": -3.0, "updates": 40},
    "ant": {"rollout_schedule": (20, 100, 1, 25), "target_entropy": -4.0},
    "humanoid": {
        "rollout_schedule": (20, 300, 1, 25), "target_entropy": -2.0, "model_every": 1_000, "model_hidden": (400, 400, 400, 400),
        "retain_epochs": 5,
    },
    "invertedpendulum": {
        "rollout_schedule": (1, 15, 1, 1), "target_entropy": -0.05, "updates": 10, "epoch_steps": 250, "random_steps": 500,
        "learn_after": 500,
    },
    "inverteddoublependulum": {
        "rollout_schedule": (1, 15, 1, 1), "target_entropy": -0.5, "updates": 20, "epoch_steps": 250, "random_steps": 500,
        "learn_after": 500,
    },
}  # fmt: skip
# The matched pair of the paper, by robot: mbrl-lib's settings with the paper's rollouts.
_MBRL: dict[str, dict[str, Any]] = {
    "hopper": {"rollout_schedule": (20, 100, 1, 15), "hidden": (512, 512), "rate": 3e-4, "updates": 40},
    "walker2d": {"rollout_schedule": (20, 150, 1, 1), "hidden": (512, 512), "rate": 1e-4, "updates": 20, "model_patience": 10},
    "halfcheetah": {
        "rollout_schedule": (20, 150, 1, 1), "hidden": (512, 512), "rate": 3e-4, "updates": 10, "tune_alpha": True, "alpha": 1.0,
        "target_entropy": -1.0, "target_interval": 1,
    },
    "invertedpendulum": {
        "rollout_schedule": (1, 15, 1, 1), "hidden": (256, 256), "rate": 3e-4, "updates": 10, "epoch_steps": 250,
        "tune_alpha": True, "alpha": 1.0, "target_entropy": -1.0, "target_interval": 1,
    },
    "ant": {
        "rollout_schedule": (20, 100, 1, 25), "hidden": (1024, 1024), "rate": 1e-4, "updates": 20, "model_patience": 10,
        "model_lr": 3e-4, "model_decay": (5e-5,),
    },
    "humanoid": {
        "rollout_schedule": (20, 300, 1, 25), "hidden": (1024, 1024), "rate": 1e-4, "updates": 20, "model_patience": 10,
        "model_lr": 3e-4, "model_decay": (5e-5,), "retain_epochs": 5,
    },
}  # fmt: skip
# Where the paper's table is not mbrl-lib's, which CMLO's authors have kept.
_FORK: dict[str, dict[str, Any]] = {"hopper": {"rollout_schedule": (20, 150, 1, 15)}, "walker2d": {"hidden": (1024, 1024)}}
_EVENTS = {"walker2d": (20, 3.0), "hopper": (20, 1.2), "ant": (50, 2.0), "humanoid": (50, 2.5)}


def robot(env_id: str) -> str:
    """The robot of a task: mbpo/hopper and gym/Hopper-v5 have the same."""
    return env_id.partition("?")[0].rpartition("/")[2].partition("-")[0].lower()


def _table(rows: Mapping[str, dict[str, Any]], env_id: str, default: dict[str, Any]) -> dict[str, Any]:
    own = dict(rows.get(robot(env_id), default))
    updates, rate = own.pop("updates", 20), own.pop("rate", None)
    own |= {"critic_updates_per_step": updates, "policy_updates_per_step": float(updates)}
    return own | ({} if rate is None else {"actor_lr": rate, "critic_lr": rate, "alpha_lr": rate, "value_lr": rate})


def paper(env_id: str) -> dict[str, Any]:
    """The settings of janner/mbpo for its robots, and Walker2d's without a target entropy of its own elsewhere."""
    return _table(_ORIGINAL, env_id, {"rollout_schedule": (20, 150, 1, 1)}) | {"imagined_rows": 6_000_000}


def mbrl(env_id: str) -> dict[str, Any]:
    """The matched pair of the paper: the configuration of mbrl-lib, the same for MBPO and MB-BAC."""
    fixed = {
        "tune_alpha": False, "alpha": 0.2, "target_interval": 4, "entropy_units": "env", "act_greedy": True,
        "model_stop": "mbrl", "model_bounds": False, "model_decay": (1e-5,), "imagined_rows": 6_000_000, "retain_epochs": 1,
    }  # fmt: skip
    return fixed | _table(_MBRL, env_id, _MBRL["walker2d"])


def light(env_id: str) -> dict[str, Any]:
    """A model of five small networks with a budget of batches, and LayerNorm networks of 256 with fewer policy updates."""
    own = _table(_ORIGINAL, env_id, {"rollout_schedule": (20, 150, 1, 1)})
    updates = min(20, own["critic_updates_per_step"])
    own |= {
        "model_members": 5, "model_elites": 3, "model_hidden": (128, 128, 128, 128), "model_batches": 300,
        "model_first_batches": 3_000, "branches": 100, "network": "ln", "model_every": 250, "retain_epochs": 1,
        "critic_updates_per_step": updates, "policy_updates_per_step": updates / 5.0,
    }  # fmt: skip
    if robot(env_id) == "hopper":
        own["rollout_schedule"] = (20, 100, 1, 15)
    return own


def _with_events(preset: Any, env_id: str) -> dict[str, Any]:
    every, threshold = _EVENTS.get(robot(env_id), (50, 2.0))
    own = {name: value for name, value in preset(env_id).items() if name not in CMLOConfig.refused}
    return own | {"event_every": every, "event_threshold": threshold}


def light_cmlo(env_id: str) -> dict[str, Any]:
    """MBPO's `light` with the authors' events."""
    return _with_events(light, env_id)


def paper_cmlo(env_id: str) -> dict[str, Any]:
    """The authors' code: mbrl-lib's settings, 5 % real data, their events."""
    return _with_events(mbrl, env_id) | _FORK.get(robot(env_id), {})


PRESETS = {"light": light, "paper": paper, "mbrl": mbrl}
PRESETS_CMLO = {"light": light_cmlo, "paper": paper_cmlo}
