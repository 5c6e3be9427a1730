"""What is given to a run or a robot, and what a search writes: prior data, exported policies, studies, reference scores.

Here are the folders that hold them, and who reads them; `mutations.py` damages them and `crafted.py` makes them up.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import searches
from outcome import Outcome, Shown, Trial, of_call
from trials import WALK, Place, Stop, heard, options

import beeline
from beeline.agents.base import Spaces
from beeline.bench import outcome as bench_outcome
from beeline.bench import space
from beeline.bench import tune as bench_tune
from beeline.cli.commands import main
from beeline.deploy import OnnxPolicy
from beeline.envs import trust
from beeline.run import prior

sys.path.append(str(Path(__file__).parents[1] / "deploy"))
from policies import small_policy

SPACES = Spaces(2, (-2.0, 0.0), (3.0, 1.0))  # those of Walk
LOADED = 65  # the step from which load_prior waits for a reset

# --- prior data -------------------------------------------------------------------------------------------------------


def episodes(lengths: tuple[int, ...] = (25, 10, 15)) -> dict[str, np.ndarray]:
    """Whole episodes of Walk, all of which are cut."""
    chance, steps, ends = np.random.default_rng(0), sum(lengths), np.cumsum(lengths) - 1
    truncations = np.zeros(steps, bool)
    truncations[ends] = True
    return {
        "observations": chance.normal(size=(steps + len(lengths), 2)),
        "actions": chance.uniform([-2, 0], [3, 1], (steps, 2)),
        "rewards": chance.normal(size=steps),
        "terminations": np.zeros(steps, bool),
        "truncations": truncations,
    }


def data(place: Place) -> Path:
    """An .npz of episodes, as a user has it."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **episodes())  # type: ignore[arg-type]

    return place.made(("data",), make)


def both(place: Place) -> dict[str, str]:
    """Options of a run that learns from prior data beside its replay, and loads them."""
    return {"prior": str(data(place)), "load_prior": f"{data(place)}@{LOADED}"}


def prior_run(place: Place) -> Path:
    """A run with copies of prior data, stopped."""
    return place.made(
        ("prior_run",),
        lambda path: beeline.train("sac", WALK, out=path, callbacks=[Stop(70)], **options("sac", **both(place))),
    )


def as_prior(place: Place, path: Path, name: str) -> Trial:
    """A run folder that is given to `--prior`."""

    def read(folder: Path) -> Shown:
        with heard() as said:
            found = prior.read("prior", folder, SPACES)
        return Shown(found.sha256, said)

    import mutations

    return of_call(name, lambda: read(path), place.kept(("as prior",), lambda: read(mutations.run_folder(place)).content))


def given_to(place: Place, option: str, path: Path, name: str) -> Trial:
    """Data that are given to `--prior` or `--load-prior`: what a model would learn from."""

    def read(file: Path) -> Shown:
        value = str(file) if option == "prior" else f"{file}@0"
        model = beeline.SAC(WALK, **options("sac", **{option: value}))
        return Shown(model.trainer.data[option].sha256)

    return of_call(name, lambda: read(path), place.kept(("given", option), lambda: read(data(place)).content))


# --- exported policies ------------------------------------------------------------------------------------------------


def exported(place: Place) -> Path:
    """A folder with an exported policy of the D'Kitty."""
    return place.made(("exported",), lambda path: (path.mkdir(), small_policy(path / "policy.onnx")))


def decide(place: Place, path: Path, name: str) -> Trial:
    """The policy as a controller has it: what it decides at some observations, and how often."""

    def read(file: Path) -> Shown:
        policy = OnnxPolicy(file)
        obs = np.random.default_rng(0).normal(size=(3, 52)).astype(np.float32)
        acts = [policy(each).tobytes() for each in obs]
        return Shown((policy.kind, policy.rate, policy.repeat, policy.command_range.tobytes(), acts))

    return of_call(name, lambda: read(path), place.kept(("decide",), lambda: read(exported(place) / "policy.onnx").content))


def deploy(place: Place, path: Path, name: str) -> Trial:
    """`beeline deploy` on the simulated robot: what the command says."""

    def read(file: Path) -> Shown:
        shown, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
            code = main(["deploy", str(file), "--seconds", "0.2"])
        return Shown(shown.getvalue(), said.getvalue().splitlines() if code == 2 else ())

    sound = place.kept(("deploy",), lambda: read(exported(place) / "policy.onnx").content)
    walked: list[Shown] = []

    def act() -> Shown:
        walked.append(read(path))
        return walked[0]

    trial = of_call(name, act, sound)
    if walked and str(walked[0].content).startswith("error: "):  # the controller's last resort: it should have been foreseen
        return Trial(name, Outcome.RAW, walked[0].content)
    return trial


# --- learned models and controllers -----------------------------------------------------------------------------------


def learned(place: Place) -> Path:
    """A folder with a model of a world, a controller, and what a training of one writes; all of them tiny."""

    def make(path: Path) -> None:
        import jax

        from beeline.bench import autombpo
        from beeline.dynamics import controller as auto
        from beeline.dynamics.ensemble import GaussianEnsemble
        from beeline.dynamics.world import World
        from beeline.networks import Draw

        path.mkdir()
        model = GaussianEnsemble(2, 2, 2, 1, (4,), decay=(0.0,))
        state = model.init(Draw(0, "init/model"))._replace(error=np.zeros(2, np.float32))
        World(model, state, WALK, SPACES.action_low, SPACES.action_high).save(path / "model.npz")
        slot = auto.init(auto.PARTS[0], 0)
        params = jax.tree.map(np.asarray, slot.live)
        auto.Controller(WALK, auto.Scales(1.0, 1.0, 1.0, 1.0), 40, 3, (1.0,), (params,)).save(path / "controller.npz")
        autombpo.record(path, autombpo.AutoPlan.make(WALK, "light", autombpo.AutoConfig(), {}))
        autombpo.Learner(auto.Scales(1.0, 1.0, 1.0, 1.0), (1.0,), slot=slot).save(path / "learner.npz")

    return place.made(("learned",), make)


def read_learned(place: Place, path: Path, name: str) -> Trial:
    """What the reader of such a file makes of it; `path` is the file, or the folder of the training's plan."""
    import jax

    from beeline import dynamics
    from beeline.bench import autombpo
    from beeline.dynamics import controller as auto

    def numbers(tree: Any) -> list[bytes]:
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]

    def read(file: Path) -> Shown:
        if file.is_dir():
            return Shown(autombpo.recorded(file).to_json())
        if file.name == "model.npz":
            found = dynamics.predict(dynamics.load(file), np.ones((3, 2)), np.zeros((3, 2)))
            return Shown([each.tobytes() for each in found])
        if file.name == "learner.npz":
            learner = autombpo.load(file)
            return Shown((learner.scales, learner.baseline, learner.score, numbers((learner.slot, learner.best, learner.done))))
        known = auto.load(file)
        return Shown((known.task, known.scales, known.epoch, known.longest, known.baseline, known.epsilon, numbers(known.params)))

    key = "plan" if path.is_dir() else path.name
    sound = learned(place) if path.is_dir() else learned(place) / path.name
    return of_call(name, lambda: read(path), place.kept(("learned", key), lambda: read(sound).content))


# --- what the user has named ------------------------------------------------------------------------------------------

NAMED = ("toys", "whole_runs")


def state(place: Place) -> Path:
    """The user's own folder, with the list of the modules that they named."""

    def make(path: Path) -> None:
        with _as_user(path):
            trust.allow(*(f"{module}:X-v0" for module in NAMED))

    return place.made(("state",), make)


@contextlib.contextmanager
def _as_user(folder: Path) -> Iterator[None]:
    """A process in which nothing was named yet, of a user with this folder."""
    with (
        mock.patch.dict(os.environ, {"BEELINE_STATE_HOME": str(folder)}),
        mock.patch.multiple(trust, _named=set(), _inherited=False),
    ):
        yield


def remember(place: Place, path: Path, name: str) -> Trial:
    """Which modules may be imported, before and after one more was named; nobody named `json`."""

    def passing() -> list[str]:
        found = []
        for module in (*NAMED, "json"):
            try:
                trust.require(module, f"{module}:X-v0")
                found.append(module)
            except beeline.BeelineError as error:
                said.append(str(error))
        return found

    said: list[str] = []
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown):
        with _as_user(path):
            before = passing()
            refused = said[:-1]  # the last is of `json`
            trust.allow("numpy:X-v0")
        with _as_user(path):
            after = [*passing(), *(["numpy"] if trust.Module("numpy", trust.INSTALLED) in trust.remembered() else [])]
    content, told = [before, after], [*refused, *shown.getvalue().splitlines()]
    return of_call(name, lambda: Shown(content, told), [list(NAMED), [*NAMED, "numpy"]])


# --- searches ---------------------------------------------------------------------------------------------------------


def search(place: Place) -> Path:
    """A search that has ended and of which one more trial is wanted."""

    def make(path: Path) -> None:
        path.mkdir()
        plan = space.TunePlan.make(
            "bac", "gym/A-v1", {"lam": "0..1"}, preset="light", steps=20_000, seeds=[0], trials=3, metric="return", startup=2,
            prune=False, seed=0,
        )  # fmt: skip
        space.record(path, plan)
        _searched(path)
        known = bench_tune.known_plan(path, {"trials": 4})
        assert known is not None
        space.record(path, known)

    return place.made(("search",), make)


def _searched(path: Path) -> list[Any]:
    """Go on with a search to its end; its trials, and the best as a file to train with."""
    plan = space.recorded(path)
    if plan is None:
        raise beeline.BeelineError("there is no search")
    with (
        mock.patch.multiple(bench_tune, PAUSE=0.0, REFRESH=-1.0),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        study, _ = searches.search(path, plan)
    found = bench_outcome.ranked(study, plan)
    best = bench_outcome.best_text(plan, found[0], len(found))
    return [best, *((each.number, each.state.name, each.params, each.value) for each in found)]


def go_on_with_search(place: Place, path: Path, name: str) -> Trial:
    """A search as `beeline tune --out` goes on with it."""

    def sound() -> Any:
        with place.copy(search(place), "search") as folder:
            return _searched(folder)

    return of_call(name, lambda: Shown(_searched(path)), place.kept(("searched",), sound))
