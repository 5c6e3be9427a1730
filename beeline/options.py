"""The options of a run that are not the algorithm's. Imports nothing heavy."""

from __future__ import annotations

import dataclasses

from beeline.config import Config, option
from beeline.errors import ConfigError

WANDB = ("wandb_project", "wandb_name", "wandb_group", "wandb_tags")
# Options of the loop that decide no number of a run: they may be changed between two commands.
FREE = ("steps", "checkpoint_every", "keep_checkpoints", "tensorboard", "wandb", *WANDB, "video")


@dataclasses.dataclass(frozen=True)
class TrainConfig(Config):
    """The loop's options."""

    steps: int = option(100_000, "environment steps of the whole run", low=1)
    seed: int = option(0, "seed of everything random", low=0, high=2**31 - 1)
    num_envs: int = option(1, "environments stepped side by side; updates are scaled with them", low=1, high=1024)
    repeat: int | None = option(None, "environment steps per decision; none: as the task's id says, else 1", low=1, high=100)
    limit: int | None = option(
        None, "environment steps after which an episode is cut; none: as the task declares, else 1000 decisions", low=1
    )
    eval_every: int = option(5_000, "environment steps between evaluations", low=1)
    eval_episodes: int = option(10, "episodes per evaluation; 0: no evaluation", low=0)
    diagnose: int | None = option(None, "environment steps between diagnoses of Q (docs/diagnostics.md); none: never", low=1)
    log_every: int = option(1_000, "environment steps between rows of the metrics table", low=1)
    checkpoint_every: int = option(10_000, "environment steps between checkpoints", low=1)
    keep_checkpoints: int = option(3, "checkpoints kept", low=1)
    replay_capacity: int = option(1_000_000, "rows of the replay ring; an episode of L decisions takes L + 1", low=2, high=10**12)
    threads: int | None = option(None, "CPU threads of the learner; none: all cores", low=1, high=1024)
    device: str | None = option(None, "where the learner runs; none: JAX's own choice", choices=("cpu", "gpu", "tpu"))
    tensorboard: bool = option(True, "write TensorBoard events into the run folder")
    wandb: bool = option(False, "log to Weights & Biases, offline unless WANDB_MODE says otherwise")
    wandb_project: str = option("beeline", "Weights & Biases: the project")
    wandb_name: str | None = option(None, "Weights & Biases: the run's name; none: its folder's")
    wandb_group: str | None = option(None, "Weights & Biases: the group of runs, such as the seeds of one experiment")
    wandb_tags: tuple[str, ...] | None = option(None, "Weights & Biases: tags, separated by commas")
    video: bool = option(False, "film one episode of the final policy")

    def check(self) -> None:
        """What says how Weights & Biases calls a run means nothing without it."""
        given = [name for name in WANDB if getattr(self, name) != type(self).__dataclass_fields__[name].default]
        if given and not self.wandb:
            raise ConfigError(f"{given[0]} = {getattr(self, given[0])!r} is for Weights & Biases: give wandb as well.")
