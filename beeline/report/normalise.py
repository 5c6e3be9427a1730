"""What a task's score is and how it becomes comparable with the scores of other tasks; stated in every report."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from beeline.report.references import Reference

SUCCESS_SUITES = {"metaworld", "adroit", "shadowhand", "maniskill", "myosuite", "panda", "dkitty"}

# Returns that published agents reach at a million steps: SAC of tianshou's MuJoCo benchmark (v3, ten seeds) for
# HalfCheetah to InvertedDoublePendulum; RL Zoo's SAC with a tuned discount for Swimmer; SLM-Lab's SAC (v5) for
# HumanoidStandup; the most an episode can give for InvertedPendulum. docs/statistics.md repeats this table.
GYM_REFERENCE = {
    "HalfCheetah": 12139.0,
    "Hopper": 3542.0,
    "Walker2d": 5007.0,
    "Ant": 5850.0,
    "Humanoid": 5489.0,
    "InvertedDoublePendulum": 9360.0,
    "InvertedPendulum": 1000.0,
    "Swimmer": 346.0,
    "HumanoidStandup": 137357.0,
}


@dataclasses.dataclass(frozen=True)
class Normalisation:
    """Which metric scores a task, the scale it is divided by (None: left raw, out of aggregates), and why."""

    metric: str
    scale: float | None
    statement: str
    zero: float = 0.0  # the score that becomes 0: a random policy's, where it is known

    def apply(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores on the common scale."""
        return (scores - self.zero) / (self.scale or 1.0)


def parts(task: str) -> tuple[str, str, dict[str, str]]:
    """Suite, bare task name and options of an id such as `dmc/walker-run?repeat=2`; never fails on foreign ids."""
    head, _, query = task.partition("?")
    suite, slash, name = head.partition("/")
    options = dict(item.partition("=")[::2] for item in query.split("&") if item)
    return (suite, name, options) if slash else ("gym" if ":" in head else "", head, options)


def whole(text: str) -> int | None:
    """The number that the value of an id's option stands for; None where it is none."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def bare_name(name: str) -> tuple[str, str]:
    """A name without its version, and the version: `Hopper-v5` is (`Hopper`, `5`)."""
    found = re.fullmatch(r"(.+?)[-_]?v(\d+)", name)
    return (found[1], found[2]) if found else (name, "")


def normalisation(task: str, reference: Reference | None = None) -> Normalisation:
    """How a task is scored: by the user's own reference, where there is one that says enough, else by its suite."""
    rule = _of_suite(task)
    if reference is None:
        return rule
    expert = reference.expert if reference.expert is not None else rule.scale if rule.metric == "return" else None
    if expert is None:
        missing = f"a random policy has {reference.random:g}; give an expert's score: beeline reference TASK --expert SCORE"
        return dataclasses.replace(rule, statement=f"{rule.statement}; {missing}")
    zero = reference.random or 0.0
    if expert <= zero:
        return dataclasses.replace(rule, statement=f"{rule.statement}; the random policy's {zero:g} is not below {expert:g}")
    if reference.random is None:
        return Normalisation("return", expert, f"{task}: return / {expert:g}, an expert's score")
    text = f"{task}: (return − {zero:g}) / ({expert:g} − {zero:g}), 0 for a random policy and 1 for an expert"
    return Normalisation("return", expert - zero, text, zero)


def _of_suite(task: str) -> Normalisation:
    """How the suite of `task` is scored; DMControl by return / 1000, success where the suite has it, else a table."""
    suite, name, options = parts(task)
    if suite == "dmc":
        most = float(whole(options.get("limit", "")) or 1000)
        return Normalisation("return", most, f"DMControl: return / {most:g}, the most an episode can give")
    if suite in SUCCESS_SUITES:
        return Normalisation("success", 1.0, f"{suite}: rate of success")
    base = bare_name(name)[0]
    if suite == "mbpo":
        base = next((known for known in ("Hopper", "Walker2d", "Ant", "Humanoid") if base.startswith(known)), base)
    scale = GYM_REFERENCE.get(base) if suite in ("gym", "mbpo") else None
    if scale is not None:
        return Normalisation("return", scale, f"{base}: return / {scale:g}, a published SAC score")
    return Normalisation("return", None, f"{suite}/{name}: raw return, not in aggregates (no reference score)")
