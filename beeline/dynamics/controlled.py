"""A controller at work within a run: it decides when the model is trained and sets real ratio, G and k (AutoMBPO).

Every eighth of an epoch it looks at the run's signs and decides; what it saw, did and got is kept in its state, which is what the
next controller is trained on. Everything that it needs of its file is in that state too, so a run that goes on does not need it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from beeline import rng
from beeline.dynamics import controller as auto
from beeline.dynamics.controller import PARTS, Scales, Settings, Signs
from beeline.dynamics.triggers import Due, Look, Own, Schedule, crossed
from beeline.errors import CheckpointError

DECISIONS = 8  # of an epoch
DIMS = tuple(name for part in PARTS for name, _ in part.choices)  # the columns of what was done
PLAIN = {"model": 1, "ratio": 1, "updates": 1, "length": 1}  # what is noted where nobody decides
MOST_CHOICES, MOST_INPUTS = max(len(part.choices) for part in PARTS), max(part.inputs for part in PARTS)


class Kept(NamedTuple):
    """What a run's controller saw, did and got, in the order of its decisions."""

    signs: np.ndarray  # [T, 5]: progress, model loss, value loss, shift, last return
    states: np.ndarray  # [T, inputs] of the last part
    actions: np.ndarray  # [T, choices of all parts]
    log_probs: np.ndarray  # [T, choices] of the last part
    returns: np.ndarray  # [epochs] after each whole epoch


@dataclasses.dataclass(frozen=True)
class Controlled:
    """The trigger. Without any part nothing is decided: a plain run whose signs are noted."""

    path: str
    schedule: Schedule  # of k, where nobody decides on it
    epoch_steps: int
    steps: int  # environment steps of the whole training, after the warm-up
    longest: int  # k is at most this
    model_every: int  # environment steps between trainings where nobody decides
    trains_first: ClassVar[bool] = True  # the first decision is told the model's loss

    @property
    def every(self) -> float:
        """Environment steps between two decisions; no whole number where an epoch is no multiple of `DECISIONS`."""
        return self.epoch_steps / DECISIONS

    @property
    def epochs(self) -> int:
        """Whole epochs of the training."""
        return self.steps // self.epoch_steps

    def init(self) -> Own:
        """The controller's own numbers, the settings at the start, and room for what is kept."""
        rows, start = math.ceil(self.steps / self.every), Settings()
        own: Own = {
            "parts": np.asarray(-1, np.int64), "epsilon": np.zeros(()), "scales": np.ones(len(Scales._fields)),
            "params": tuple(auto.blank(part) for part in PARTS), "ratio": np.asarray(start.ratio),
            "updates": np.asarray(start.updates, np.int64), "length": np.asarray(start.length, np.int64),
            "shift": np.zeros(()), "last_return": np.zeros(()), "decided": np.zeros((), np.int64),
            "signs": np.zeros((rows, len(Signs._fields))), "states": np.zeros((rows, MOST_INPUTS), np.float32),
            "actions": np.zeros((rows, len(DIMS)), np.int64), "log_probs": np.zeros((rows, MOST_CHOICES), np.float32),
            "returns": np.zeros(self.epochs), "evaluated": np.zeros((), np.int64),
        }  # fmt: skip
        if not Path(self.path).exists():  # a run that goes on has what it needs in its checkpoint
            return own
        found = auto.load(self.path)
        params = tuple(found.params) + own["params"][len(found.params) :]
        return own | {
            "parts": np.asarray(len(found.params), np.int64), "epsilon": np.asarray(found.epsilon),
            "scales": np.array(found.scales), "params": params,
        }  # fmt: skip

    def settings(self, own: Own, since: int) -> Settings:
        """What was decided; what nobody decides is as at the start, and k as the schedule says."""
        decided = int(own["parts"]) >= len(PARTS)
        length = int(own["length"]) if decided else self.schedule(max(since, 0) // self.epoch_steps).length
        return Settings(float(own["ratio"]), int(own["updates"]), length)

    def look(self, own: Own, look: Look) -> tuple[Own, Due]:
        """Decide, where an eighth of an epoch has passed."""
        if int(own["parts"]) < 0:
            raise CheckpointError(f"there is no controller file {self.path}.")
        if not crossed(look.since, look.decision, self.every):
            return own, Due(False, 0)
        own = dict(own)
        begins, parts = crossed(look.since, look.decision, self.epoch_steps), int(own["parts"])
        if begins:
            own["shift"] = np.asarray(look.shift())
        signs = Signs(look.since / self.steps, *look.losses(), float(own["shift"]), float(own["last_return"]))
        before, scales, number = self.settings(own, look.since), Scales(*own["scales"]), int(own["decided"])
        actions: dict[str, int] = {}
        seen, log_prob = np.zeros(0, np.float32), np.zeros(0, np.float32)
        for part, params in zip(PARTS[:parts], own["params"]):
            seen = auto.state(part, signs, before, scales, self.longest)
            draw = rng.stream(look.clock.seed, f"controller/{part.name}", number)
            done, log_prob = auto.decide(part, params, seen, draw, float(own["epsilon"]) if part is PARTS[parts - 1] else 0.0)
            actions |= done
        after = auto.changed(before, actions, self.longest, begins)
        own |= {
            "ratio": np.asarray(after.ratio), "updates": np.asarray(after.updates, np.int64),
            "length": np.asarray(after.length, np.int64), "decided": np.asarray(number + 1, np.int64),
        }  # fmt: skip
        train = actions["model"] == 0 if parts else crossed(look.since, look.decision, self.model_every)
        note = PLAIN | actions | {"model": int(not train)}
        if number < len(own["signs"]):
            self._keep(own, number, signs=signs, states=seen, actions=[note[name] for name in DIMS], log_probs=log_prob)
        return own, Due(train, int(look.branches * self.every))

    @staticmethod
    def _keep(own: Own, number: int, **rows: Any) -> None:
        """Write a row of each column, in a copy: what was there before may still be asked for."""
        for name, row in rows.items():
            own[name] = own[name].copy()
            own[name][number, : len(row)] = row

    def heed(self, own: Own, score: float, since: int, decision: int) -> Own:
        """Take note of an evaluation; that at an epoch's end is what the epoch has led to."""
        own = dict(own) | {"last_return": np.asarray(score)}
        epoch = since // self.epoch_steps
        if since > 0 and crossed(since, decision, self.epoch_steps) and epoch <= self.epochs:
            own["returns"] = own["returns"].copy()
            own["returns"][epoch - 1] = score
            own["evaluated"] = np.asarray(epoch, np.int64)
        return own


def kept(own: Mapping[str, Any]) -> Kept:
    """What a run has kept, of as many decisions and epochs as there were."""
    count, parts = min(int(own["decided"]), len(own["signs"])), int(own["parts"])
    part = PARTS[max(parts - 1, 0)]
    return Kept(
        own["signs"][:count], own["states"][:count, : part.inputs], own["actions"][:count],
        own["log_probs"][:count, : len(part.choices)], own["returns"][: int(own["evaluated"])],
    )  # fmt: skip


def rows(found: Kept, parts: int, baseline: tuple[float, ...], scales: Scales) -> auto.Rows:
    """What the last of `parts` parts learns from: its decisions, and the sum of the rewards from each on."""
    part = PARTS[parts - 1]
    columns = [DIMS.index(name) for name, _ in part.choices]
    reward = auto.rewards(found.actions[:, DIMS.index("model")], found.returns, baseline, scales.reward, DECISIONS)
    return auto.Rows(found.states, found.actions[:, columns], found.log_probs, auto.to_go(reward).astype(np.float32))
