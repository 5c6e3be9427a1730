"""The options of a run that are not the algorithm's. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from beeline.config import Config, option, whole_number
from beeline.errors import ConfigError

WANDB = ("wandb_project", "wandb_name", "wandb_group", "wandb_tags")
# Options of the loop that decide no number of a run: they may be changed between two commands.
FREE = ("steps", "checkpoint_every", "keep_checkpoints", "tensorboard", "wandb", *WANDB, "video", "env_processes")


class Renewal(NamedTuple):
    """Parts of an agent that begin anew at a step."""

    parts: tuple[str, ...]
    step: int


class Loading(NamedTuple):
    """Data that enter the replay at a step."""

    path: str
    step: int


def _at(name: str, text: str, whole: str, example: str, least: int) -> tuple[str, int]:
    """What stands before the last @, and the step after it."""
    what, _, step = text.strip().rpartition("@")
    try:
        if not what.strip() or (number := whole_number(step.strip())) < least:
            raise ValueError
    except (ValueError, OverflowError):
        raise ConfigError(f"{name} = {whole!r} cannot be read: write {example}, with a step >= {least}.") from None
    return what.strip(), number


def renewals(text: str | None) -> tuple[Renewal, ...]:
    """The renewals that `policy,critic@100_000; value@2e5` says, by step."""
    found = []
    for each in text.split(";") if text is not None else ():
        what, step = _at("renew", each, str(text), "policy,critic,value@100_000, several of them separated by ;", 1)
        parts = tuple(part.strip() for part in what.split(","))
        if "" in parts or len(set(parts)) < len(parts):
            raise ConfigError(f"renew = {text!r} cannot be read: {what!r} has an empty part, or one twice.")
        found.append(Renewal(parts, step))
    if len({each.step for each in found}) < len(found):
        raise ConfigError(f"renew = {text!r} has a step twice: give all parts that begin anew there at once.")
    return tuple(sorted(found, key=lambda each: each.step))


def loading(text: str | None) -> Loading | None:
    """The data and the step that `FILE@0` says."""
    return None if text is None else Loading(*_at("load_prior", text, text, "FILE@0 or FILE@10_000", 0))


@dataclasses.dataclass(frozen=True)
class TrainConfig(Config):
    """The loop's options."""

    steps: int = option(100_000, "environment steps of the whole run", low=1)
    seed: int = option(0, "seed of everything random", low=0, high=2**31 - 1)
    num_envs: int = option(1, "environments stepped side by side; updates are scaled with them", low=1, high=1024)
    env_processes: bool = option(False, "step every environment in a process of its own, for slow simulators; the same numbers")
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
    renew: str | None = option(None, "networks to begin anew and when, such as policy,critic,value@100_000; several with ;")
    prior: str | None = option(None, "data of others to learn from beside the replay: .npz, run folder or Minari data set")
    prior_share: float = option(0.5, "share of every batch that is drawn from `prior`", above=0.0, high=1.0)
    load_prior: str | None = option(None, "data of others to put into the replay, and when: FILE@0")
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
        """Events can be read, a share has something to be a share of, and what names a run at Weights & Biases has it."""
        renewals(self.renew)
        loading(self.load_prior)
        if self.prior is None and self.changed("prior_share"):
            raise ConfigError(f"prior_share = {self.prior_share:g} needs prior: the data to draw from.")
        given = [name for name in WANDB if self.changed(name)]
        if given and not self.wandb:
            raise ConfigError(f"{given[0]} = {getattr(self, given[0])!r} is for Weights & Biases: give wandb as well.")

    @property
    def events(self) -> bool:
        """Whether anything happens once, at a step of its own."""
        return self.renew is not None or self.load_prior is not None
