"""Seeded damage to every file that the package writes and reads again, met by everything that reads it."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import given
import mutate
import readers
from outcome import Outcome, Shown, Trial, of_call, worst
from trials import WALK, Case, Place, Stop, differing, options

import beeline
from beeline import trees
from beeline.bench import plan as bench_plan
from beeline.report import references

KIND = "mutations"
# What a note may say of a run that then ends otherwise: that it may.
WARNED = ("bytes may differ", "config.json says steps", "not deterministic")


# --- users: each is given a folder with the damage, and the same without ---------------------------------------------------


def resume(place: Place, path: Path, name: str) -> Trial:
    """Go on to the end: as if nothing had been, or with a sentence; and what is refused is left as it was."""
    whole = place.whole("sac", **(given.both(place) if path.name == "prior_run" else {}))
    before, said = _policies(path), []
    quiet = io.StringIO()

    def act() -> Shown:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            beeline.resume(path, steps=120, report=said.append)
        return Shown(differing(whole, path), said)

    trial = of_call(name, act, "")
    if trial.outcome == Outcome.CLEAR and said and not any(word in text for word in WARNED for text in said):
        done = json.loads((path / "status.json").read_text()).get("state") == "finished" if trial.detail == said[0] else False
        if done and (difference := differing(whole, path)):
            return Trial(name, Outcome.SILENT, f"{said[0]} But then: {difference}")
    if trial.outcome == Outcome.CLEAR and not said and (gone := [each for each in before if each not in _policies(path)]):
        return Trial(name, Outcome.LOST, f"{gone} after: {trial.detail}")
    return trial


def _policies(path: Path) -> list[str]:
    return [name for name in ("policy.npz", "policy-best.npz", "metrics.csv", "checkpoints") if (path / name).exists()]


def _arrays(policy: Any) -> str:
    return str({name: array.tobytes() for name, array in trees.to_arrays(policy.policy).items()})


def load(place: Place, path: Path, name: str) -> Trial:
    """The model of a folder, or the policy of a file."""

    def read(folder: Path) -> Shown:
        said: list[str] = []
        if folder.suffix == ".npz":
            return Shown(_arrays(beeline.load(folder)), said)
        model = beeline.load(folder, report=said.append)
        return Shown((_arrays(model.policy), str(model.metrics), model.step), said)

    sound = _sound(place, path)
    return of_call(name, lambda: read(path), place.kept(("load", sound), lambda: read(sound).content))


def evaluate(place: Place, path: Path, name: str) -> Trial:
    """The score of a policy file."""

    def read(file: Path) -> Shown:
        result, policy = beeline.evaluate_run(file, episodes=1)
        return Shown((str(result), policy.meta["algo"]))

    sound = _sound(place, path)
    return of_call(name, lambda: read(path), place.kept(("eval", sound), lambda: read(sound).content))


def _sound(place: Place, path: Path) -> Path:
    """The same without the damage: a copy has the name of what it is a copy of."""
    alone = path.suffix == ".npz"
    known = {kind.__name__: kind for kind in (run_folder, saved_model, given.prior_run)}
    subject = known[path.parent.name if alone else path.name](place)
    return subject / path.name if alone else subject


def shown(place: Place, path: Path, name: str) -> Trial:
    """All that shows runs."""
    out = records(place)
    return worst(name, readers.trials(out, name, _sound_content(place)))


def _sound_content(place: Place) -> dict[str, Shown]:
    return place.kept(("shown",), lambda: readers.sound_content(records(place)))


def go_on_with_matrix(place: Place, path: Path, name: str) -> Trial:
    """The plan of a matrix as `beeline bench --out` reads it."""
    sound = {"matrix": matrix, "sweep": sweep}[path.name](place)
    return of_call(name, lambda: Shown(bench_plan.recorded(path)), bench_plan.recorded(sound))


# --- subjects: the folders that are damaged --------------------------------------------------------------------------------


def run_folder(place: Place) -> Path:
    """A run that was stopped, with everything that a run folder can hold."""
    return place.made(("run_folder",), lambda path: _run_folder(place, path))


def _run_folder(place: Place, path: Path) -> None:
    beeline.train("sac", WALK, out=path, callbacks=[Stop(70)], **options("sac", tensorboard=True))
    (path / "videos").mkdir()
    (path / "videos" / "step-70.mp4").write_bytes(b"film")
    (path / "curve.png").write_bytes(b"\x89PNG picture")


def saved_model(place: Place) -> Path:
    """A model that was saved from Python."""
    return place.made(("saved_model",), lambda path: beeline.SAC(WALK, **options("sac")).learn(70).save(path))


def records(place: Place) -> Path:
    """Two finished runs as a matrix has them; the second is the one that is damaged."""

    def make(out: Path) -> None:
        for run in readers.RUNS:
            path = out / run.folder
            shutil.copytree(place.whole("sac", seed=run.seed), path)
            (path / "videos").mkdir()
            (path / "videos" / "step-120.mp4").write_bytes(b"film")
        references.store(out, {WALK: references.Reference(-50.0, 10.0)})

    return place.made(("records",), make)


def matrix(place: Place) -> Path:
    """The plan of a matrix."""
    plan = {"algos": "bac,sac", "tasks": [WALK], "seeds": 2, "steps": 20_000, "options": {"hidden": (8, 8), "batch_size": 8}}
    return place.made(("matrix",), lambda path: (path.mkdir(), bench_plan.record(path, bench_plan.expand(plan))))


def sweep(place: Place) -> Path:
    """The plan of a sweep."""
    plan = {"algos": "bac", "tasks": [WALK], "seeds": 1, "steps": 20_000, "options": {"lam": "0.3,0.5", "hidden": "8,8;16"}}
    return place.made(("sweep",), lambda path: (path.mkdir(), bench_plan.record(path, bench_plan.expand(plan))))


User = Callable[[Place, Path, str], Trial]
POLICY: tuple[User, ...] = (load, evaluate)


class FileKind(NamedTuple):
    """Files of one kind: where they are in a subject, and who reads them (`of` says from which folder on)."""

    subject: Callable[[Place], Path]
    pattern: str
    users: tuple[User, ...]
    of: str = "."


# A file that the package writes and that is not here makes `test_trials.py` fail.
FILE_KINDS: dict[str, FileKind] = {
    "config": FileKind(run_folder, "config.json", (resume, load)),
    "metrics": FileKind(run_folder, "metrics.csv", (resume, load)),
    "status": FileKind(run_folder, "status.json", (resume,)),
    "lock": FileKind(run_folder, ".lock", (resume,)),
    "manifest": FileKind(run_folder, "checkpoints/step-*/manifest.json", (resume, load, given.as_prior)),
    "state": FileKind(run_folder, "checkpoints/step-*/state*.npz", (resume, load, given.as_prior)),
    "copy of the metrics": FileKind(run_folder, "checkpoints/metrics.csv", (resume, load)),
    "segment": FileKind(run_folder, "replay/segment-*.npz", (resume, load, given.as_prior)),
    "policy": FileKind(run_folder, "policy*.npz", POLICY, "file"),
    "events": FileKind(run_folder, "tensorboard/events*", (resume,)),
    "curve": FileKind(run_folder, "curve.png", (resume,)),
    "video": FileKind(run_folder, "videos/*.mp4", (resume,)),
    "saved config": FileKind(saved_model, "config.json", (load,)),
    "saved manifest": FileKind(saved_model, "checkpoints/step-*/manifest.json", (load,)),
    "saved state": FileKind(saved_model, "checkpoints/step-*/state*.npz", (load,)),
    "saved segment": FileKind(saved_model, "replay/segment-*.npz", (load,)),
    "saved policy": FileKind(saved_model, "policy.npz", POLICY, "file"),
    "shown config": FileKind(records, "*/*/seed1/config.json", (shown,), "run"),
    "shown status": FileKind(records, "*/*/seed1/status.json", (shown,), "run"),
    "shown metrics": FileKind(records, "*/*/seed1/metrics.csv", (shown,), "run"),
    "references": FileKind(records, "references.json", (shown,), "run"),
    "matrix": FileKind(matrix, "matrix.json", (go_on_with_matrix,)),
    "sweep": FileKind(sweep, "matrix.json", (go_on_with_matrix,)),
    "prior": FileKind(given.prior_run, "prior.npz", (resume, load)),
    "loaded prior": FileKind(given.prior_run, "load-prior.npz", (resume, load)),
    "exported policy": FileKind(given.exported, "policy.onnx", (given.decide,), "file"),
    "model": FileKind(given.learned, "model.npz", (given.read_learned,), "file"),
    "controller": FileKind(given.learned, "controller.npz", (given.read_learned,), "file"),
    "learner": FileKind(given.learned, "learner.npz", (given.read_learned,), "file"),
    "training of a controller": FileKind(given.learned, "autombpo.json", (given.read_learned,)),
    "named modules": FileKind(given.state, "modules.json", (given.remember,)),
    "lock of the names": FileKind(given.state, ".lock", (given.remember,)),
    "search": FileKind(given.search, "tune.json", (given.go_on_with_search,)),
    "study": FileKind(given.search, "study.jsonl", (given.go_on_with_search,)),
    "matrix of a search": FileKind(given.search, "matrix.json", (given.go_on_with_search,)),
}


def cases(seed: int) -> Iterator[Case]:
    """Every kind of file in turn, every mutation that makes sense of it."""
    for number in itertools.count():
        for what in FILE_KINDS:
            yield _case(what, number, seed)


def _case(what: str, number: int, seed: int) -> Case:
    name = f"{what} {number} of seed {seed}"
    return Case(KIND, name, lambda place: act(place, name, what))


@contextlib.contextmanager
def _damaged(place: Place, kind: FileKind, subject: Path, path: Path) -> Iterator[Path]:
    """Where a file is damaged: in a copy, or, where paths are part of what is shown, in the folder itself."""
    if kind.of != "run":
        with place.copy(subject, kind.subject.__name__) as folder:
            yield folder
        return
    _sound_content(place)
    data = path.read_bytes()
    try:
        yield subject
    finally:
        path.write_bytes(data)


def _others(place: Place, kind: FileKind) -> list[Path]:
    """Files that may come into the place of one of a kind, whatever readers have left beside them. Another policy is none: it is
    read alone, and shown as what it is."""
    folders = dict.fromkeys((kind.subject, run_folder))
    kinds = [each for each in FILE_KINDS.values() if each.subject in folders and not (each.users == kind.users == POLICY)]
    return sorted({path for each in kinds for path in each.subject(place).glob(each.pattern)})


def act(place: Place, name: str, what: str) -> Trial:
    """Damage one file of a kind, and let everybody read it, each with a folder of its own."""
    kind, chance = FILE_KINDS[what], random.Random(name)
    subject = kind.subject(place)
    path = chance.choice(sorted(subject.glob(kind.pattern)))
    data = path.read_bytes()
    how = chance.choice([*mutate.kinds(path), None])
    if how is None:  # another file, of its own folder or of a run's, is in its place
        other = chance.choice([each for each in _others(place, kind) if each.read_bytes() not in (data, b"")])
        told, changed = f"{other.name} in its place", other.read_bytes()
    else:
        told, changed = how.__name__, how(data, chance) if data else data
    where = f"{path.relative_to(subject)}, {told}"
    found = []
    for user in kind.users:
        with _damaged(place, kind, subject, path) as folder:
            place_of = folder / path.relative_to(subject)
            place_of.write_bytes(changed)
            target = {".": folder, "file": place_of, "run": place_of.parent}[kind.of]
            found.append(user(place, target, f"{where} -> {user.__name__}"))
    return worst(name, found)
