"""Environments that misbehave: what is wrong is refused by a sentence, never stored, and the run goes on with a mended one."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import odd
from outcome import Outcome, Shown, Trial, of_call
from trials import WALK, Case, Place, heard, options
from whole_runs import arrays, table

import beeline

KIND = "worlds"
FAULTS = (*odd.STEPS, *odd.RESETS)
LANES = (1, 3)
MOMENTS = (1, 30)  # calls of step (or reset) of one instance: the first is made by an evaluation, the other by a lane


def cases(seed: int) -> Iterator[Case]:
    """Every fault at every moment with one lane and with three, and in lanes that are processes of their own."""
    for moment in MOMENTS:
        for lanes in LANES:
            for fault in FAULTS:
                yield _case(fault, moment, lanes, False)
    for fault in FAULTS:
        yield _case(fault, MOMENTS[1], 2, True)


def _case(fault: str, moment: int, lanes: int, processes: bool) -> Case:
    at = moment if fault in odd.STEPS else 1 + moment // 20
    name = f"{fault} at call {at}, {lanes} {'processes' if processes else 'lanes'}"
    return Case(KIND, name, lambda place: act(place, name, fault, at, lanes, moment == MOMENTS[0], processes))


def _sound() -> gymnasium.Env[Any, Any]:
    return gymnasium.make(WALK.partition(":")[2])


def act(place: Place, name: str, fault: str, at: int, lanes: int, evaluation: bool, processes: bool) -> Trial:
    """Train on it; what it ends with is a sentence, or the same as without the fault; then go on with a mended one."""
    whole = place.whole("sac", num_envs=lanes)
    path = place.folder() / "run"
    said = io.StringIO()

    def train() -> Shown:
        given = options("sac", num_envs=lanes, env_processes=processes)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), heard():
            beeline.train("sac", odd.make, eval_env=None if evaluation else _sound, out=path, **given)
        return Shown(table(path))

    with mock.patch.dict(os.environ, {odd.WHAT: fault, odd.WHEN: str(at)}):
        try:
            trial = of_call(name, train, table(whole), 60.0, quotes=True)
        except SystemExit as error:  # the user's code asks for the end of the program
            trial = Trial(name, Outcome.CLEAR, f"SystemExit {error.code}")
    if trial.outcome == Outcome.CLEAR:
        trial = _mended(name, path, trial)
    shutil.rmtree(path.parent, ignore_errors=True)
    return trial


def _mended(name: str, path: Path, before: Trial) -> Trial:
    """What was refused is nowhere in what was saved, and a mended environment goes on from there."""
    if not (path / "config.json").exists():
        return before  # it was refused before there was a run
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        mended = {"env": odd.make, "eval_env": _sound, "report": lambda text: None}
        goes_on = of_call(name, lambda: Shown(bool(beeline.resume(path, **mended))), True, 60.0)
    if goes_on.outcome != Outcome.HELD:
        return Trial(name, Outcome.LOST if goes_on.outcome == Outcome.CLEAR else goes_on.outcome, f"mended: {goes_on.detail}")
    stored = arrays(path)
    bad = [key for key, data in stored.items() if key.endswith((" obs", " reward", " action")) and not _finite(data)]
    return Trial(name, Outcome.SILENT, f"not finite in the replay: {bad}") if bad else before


def _finite(data: bytes) -> bool:
    return bool(np.isfinite(np.frombuffer(data, np.float32)).all())


