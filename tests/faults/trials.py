"""Trials: seeded, independent faults by name, and the place in which they are tried.

A kind of fault is a module with `cases(seed)`, an endless or finite stream of `Case`s whose names say all that decides them, so
that one can be tried again by its name. What trains, is read or is written is asked of the package: a new algorithm is tried by
being registered, and `test_trials.py` fails where a file or a sink has no trial.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outcome import Outcome, Trial
from whole_runs import SMALL, Zygote, imagining

import beeline
from beeline import agents
from beeline.options import TrainConfig

WALK = "toys:Walk-v0"
OTHERS = {"learn_after": 20, "rollout": 24, "epochs": 2}  # small values of options that only some algorithms have


@dataclasses.dataclass(frozen=True)
class Case:
    """One trial: its name, its kind, and the act, which is given the place."""

    kind: str
    name: str
    act: Callable[[Place], Trial]


def options(algo: str, **changes: Any) -> dict[str, Any]:
    """Options of a run that takes a second, as far as the algorithm has them, and its plainest preset."""
    known = {*agents.get(algo).config.names(), *TrainConfig.names(), "preset"}
    chosen = {"preset": "light"} | SMALL | OTHERS | imagining(algo) | changes
    return {name: value for name, value in chosen.items() if name in known}


class Stop(beeline.Callback):
    """Ends a training after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, event: beeline.StepEvent) -> bool:
        return event.step < self.step


class Place:
    """A folder for trials, the runs that nobody disturbed, and processes; `close` ends them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers = itertools.count()
        self._made: dict[tuple[Any, ...], Path] = {}
        self._kept: dict[tuple[Any, ...], Any] = {}
        beeline.envs.trust.allow(WALK)

    @functools.cached_property
    def zygote(self) -> Zygote:
        """Runs `beeline` commands in processes."""
        return Zygote(self.folder("processes"))

    def folder(self, name: str = "trial") -> Path:
        """An empty folder."""
        path = self.root / f"{next(self._numbers)}-{name}"
        path.mkdir(parents=True)
        return path

    def made(self, key: tuple[Any, ...], make: Callable[[Path], object]) -> Path:
        """Something that several trials need and none changes, made once."""
        if key not in self._made:
            path = self.folder("made") / "run"
            make(path)
            self._made[key] = path
        return self._made[key]

    def kept(self, key: tuple[Any, ...], find: Callable[[], Any]) -> Any:
        """A value that several trials need, found once."""
        if key not in self._kept:
            self._kept[key] = find()
        return self._kept[key]

    def whole(self, algo: str = "sac", **changes: Any) -> Path:
        """A run that nobody disturbed, made in this process."""
        return self.made(
            ("whole", algo, *sorted(changes.items())),
            lambda path: beeline.train(algo, WALK, out=path, **options(algo, **changes)),
        )

    def stopped(self, algo: str = "sac", **changes: Any) -> Path:
        """The same run, stopped after 70 steps."""
        return self.made(
            ("stopped", algo, *sorted(changes.items())),
            lambda path: beeline.train(algo, WALK, out=path, callbacks=[Stop(70)], **options(algo, **changes)),
        )

    @contextlib.contextmanager
    def copy(self, source: Path, name: str = "run") -> Iterator[Path]:
        """A copy of a folder, for one trial."""
        folder = self.folder()
        try:
            yield Path(shutil.copytree(source, folder / name, symlinks=True))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the processes."""
        if "zygote" not in self.__dict__:
            return
        for process in self.zygote.started:
            if process.alive():
                process.signal(signal.SIGKILL)
                process.wait()
        self.zygote.process.send_signal(signal.SIGTERM)
        self.zygote.process.wait()


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """What Python's warnings say."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]


def differing(left: Path, right: Path) -> str:
    """How two runs differ; empty where they are the same to the byte."""
    from whole_runs import same_run

    try:
        same_run(left, right)
    except AssertionError as error:
        return " ".join(str(error).split())[:300] or "they differ"
    return ""


def as_traceback(text: str) -> str:
    """The last line of a traceback in what a process said; empty where there is none."""
    return text.strip().splitlines()[-1] if "Traceback (most recent call last)" in text else ""


def held(name: str, **more: Any) -> Trial:
    """A trial that changed nothing."""
    return Trial(name, Outcome.HELD, **more)


def is_root() -> bool:
    """Whether disks can be mounted here."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
