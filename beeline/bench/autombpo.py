"""`beeline autombpo`: train a controller of MBPO over whole runs, stage after stage, and go on with that however it ended.

    stage 0           N plain runs: their returns are the baseline, their signs the scales
    stage 1 … S       N runs under the first network (model and ratio), then 30 N steps of PPO on what they decided
    S + 1 … 2 S       the same for the second (G), on top of the best first one; then the third (k)

A stage is a matrix of runs (`beeline bench` shows it); what it has led to is written last, in one rename. So a training that was
killed goes on with the runs that are not finished, and ends with the same controller.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline import agents, files, trees
from beeline.bench import matrix
from beeline.bench.plan import BenchRun
from beeline.config import Config, named, option
from beeline.errors import CheckpointError, ConfigError, RunFolderError

if TYPE_CHECKING:
    from beeline.dynamics.controlled import Kept
    from beeline.dynamics.controller import Controller, Scales
    from beeline.networks import Slot

PLAN, RESULT, AFTER, FILE, KIND = "autombpo.json", "controller.npz", "learner.npz", "controller.npz", "stage"
STEPS = 30  # of PPO, for each run of a stage
OURS = ("controller", "schedule", "schedule_steps", "steps", "seed", "eval_every")  # what the training sets
Runner = Callable[[Path, Sequence[BenchRun], int | None], int]


@dataclasses.dataclass(frozen=True)
class AutoConfig(Config):
    """How much a controller is trained."""

    stages: int = option(10, "stages of each network: runs under it, then its training", low=1, high=1_000)
    runs: int = option(10, "runs of a stage", low=1, high=1_000)
    epochs: int = option(50, "epochs of a run", low=1, high=100_000)
    parts: int = option(1, "networks: 1 decides on model and ratio, 2 on the updates per step too, 3 on k too", low=1, high=3)
    seed: int = option(0, "seed of the networks; runs have seeds of their own", low=0, high=2**31 - 1)


@dataclasses.dataclass(frozen=True)
class AutoPlan:
    """What decides the numbers of a training, in plain values."""

    task: str
    preset: str
    config: AutoConfig
    options: Mapping[str, Any]  # of the runs

    @classmethod
    def make(cls, task: str, preset: str | None, config: AutoConfig, options: Mapping[str, Any]) -> AutoPlan:
        """The plan; options that the training sets itself are refused."""
        for name in OURS:
            if name in options:
                raise ConfigError(f"{name} is set by the training of a controller: leave it out.")
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        plan = cls(task, preset or next(iter(agents.get("mbpo").presets)), config, plain)
        method = plan.method
        warm_up = method.warm_up[1]
        if warm_up % method.epoch_steps:
            raise ConfigError(
                f"epoch_steps = {method.epoch_steps} is out of range; allowed: what the warm-up ({warm_up} steps) is a multiple "
                "of, because the evaluations of a training are at the ends of its epochs."
            )
        return plan

    @property
    def method(self) -> Any:
        """The config of a plain run."""
        names = agents.get("mbpo").config.names()
        own = {name: value for name, value in self.options.items() if name in names}
        return agents.make_config("mbpo", self.task, self.preset, own)

    def stage(self, number: int) -> tuple[int, int]:
        """Which network a stage (from 1) trains, and its stage of that network."""
        return divmod(number - 1, self.config.stages)

    @property
    def stages(self) -> int:
        """How many there are, stage 0 included."""
        return 1 + self.config.parts * self.config.stages

    def runs(self, folder: Path, number: int) -> list[BenchRun]:
        """The runs of a stage; every run of the training has a seed of its own."""
        method, count = self.method, self.config.runs
        steps = method.warm_up[1] + self.config.epochs * method.epoch_steps
        ours = {"controller": str((folder / FILE).absolute()), "eval_every": method.epoch_steps}
        options = {"checkpoint_every": steps, "keep_checkpoints": 1, **self.options, **ours}
        first = self.config.seed + number * count
        return [BenchRun("mbpo", "mbpo", self.task, first + run, steps, self.preset, options) for run in range(count)]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        options = {name: named(value) for name, value in self.options.items()}
        return {"task": self.task, "preset": self.preset, **self.config.to_dict(), "options": options}


def record(out: Path, plan: AutoPlan) -> None:
    """Write the plan down, or hold it against the one that is there."""
    wanted = json.loads(json.dumps(plan.to_json()))
    path = out / PLAN
    if path.exists():
        found = {name: value for name, value in files.load_json(path).items() if name != files.SEAL}
        if found != wanted:
            differs = [name for name in wanted if found.get(name) != wanted[name]]
            raise RunFolderError(f"{out} holds another training ({', '.join(differs)} differ). Choose another folder with --out.")
        return
    files.make_folder(out)
    files.write_atomic(path, files.sealed(wanted))


def recorded(out: Path) -> AutoPlan:
    """The plan of a training that goes on."""
    path = out / PLAN
    if not path.exists():
        raise RunFolderError(f"{out} holds no training of a controller: name its task, as in beeline autombpo train mbpo/hopper.")
    found = files.load_json(path)
    if not files.is_as_written(found):
        raise RunFolderError(f"{path} is not as it was written (its SHA-256 differs).")
    try:
        config = AutoConfig.make({name: found[name] for name in AutoConfig.names()})
        task, preset, options = found["task"], found["preset"], found["options"]
        if not (isinstance(task, str) and isinstance(preset, str) and isinstance(options, dict)):
            raise TypeError("task and preset must be text, options a table")
        return AutoPlan.make(task, preset, config, options)
    except (KeyError, TypeError) as error:
        raise RunFolderError(f"{path} is not complete ({error!r}).") from None


# --- learning ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Learner:
    """What a training has come to after a stage."""

    scales: Scales | None = None
    baseline: tuple[float, ...] = ()
    done: tuple[Any, ...] = ()  # the networks that are trained
    slot: Slot | None = None  # the one that is being trained
    best: Any = None  # its weights that led to the highest mean return
    score: float | None = None

    def controller(self, plan: AutoPlan, number: int | None) -> Controller:
        """The controller of a stage's runs; without a number, that of the end."""
        from beeline.dynamics.controller import Controller, Scales, exploration

        method = plan.method
        plain, explores = number == 0, number is not None and number > 0
        params = () if plain else (*self.done, self.slot.live) if explores and self.slot else self.done
        epsilon = exploration(plan.stage(number)[1]) if explores and number else 0.0
        scales = self.scales or Scales(1.0, 1.0, 1.0, 1.0)
        return Controller(plan.task, scales, method.epoch_steps, method.rollout_schedule[3], self.baseline, params, epsilon)

    def after(self, plan: AutoPlan, number: int, found: Sequence[Kept]) -> Learner:
        """What the runs of a stage have taught."""
        import numpy as np

        from beeline.dynamics import controlled
        from beeline.dynamics import controller as auto

        seed, returns = plan.config.seed, np.stack([each.returns for each in found])
        if number == 0:
            baseline = tuple(map(float, returns.mean(axis=0)))
            signs = np.concatenate([each.signs for each in found])
            model, value, shift = signs.T.tolist()[1:4]
            scales = auto.released(plan.task) or auto.measured(model, value, shift, baseline)
            return Learner(scales, baseline, slot=auto.init(auto.PARTS[0], seed))
        assert self.slot is not None and self.scales is not None
        part, stage = plan.stage(number)
        mean = float(returns.mean())
        best, score = (self.slot.live, mean) if self.score is None or mean > self.score else (self.best, self.score)
        if stage + 1 < plan.config.stages:
            rows = auto.joined([controlled.rows(each, part + 1, self.baseline, self.scales) for each in found])
            slot = auto.improved(self.slot, rows, STEPS * plan.config.runs, seed, number)
            return dataclasses.replace(self, slot=slot, best=best, score=score)
        following = auto.init(auto.PARTS[part + 1], seed) if part + 1 < plan.config.parts else None
        return Learner(self.scales, self.baseline, (*self.done, best), following)

    def save(self, path: Path) -> None:
        """Write it, in one rename."""
        from beeline.dynamics import saved

        arrays = trees.to_arrays(self.slot, "slot") | trees.to_arrays(self.best, "best") | trees.to_arrays(self.done, "done")
        assert self.scales is not None
        about = {"scales": list(self.scales), "baseline": list(self.baseline), "done": len(self.done), "score": self.score}
        saved.write(path, KIND, arrays, about)


def load(path: Path) -> Learner:
    """What a training had come to."""
    from beeline.dynamics import controller as auto
    from beeline.dynamics import saved

    arrays, about = saved.read(path, KIND)
    try:
        count = about["done"]
        names = {name.partition("[")[0].partition(".")[0] for name in arrays}
        part = auto.PARTS[min(count, len(auto.PARTS) - 1)]
        slot = trees.from_arrays(auto.init(part, 0), arrays, "slot") if "slot" in names else None
        best = trees.from_arrays(auto.blank(part), arrays, "best") if "best" in names else None
        done = trees.from_arrays(tuple(auto.blank(part) for part in auto.PARTS[:count]), arrays, "done")
        return Learner(auto.Scales(*about["scales"]), tuple(about["baseline"]), done, slot, best, about["score"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be used: its description is not complete ({error!r}).") from None


def gathered(path: Path, epochs: int) -> Kept:
    """What the controller of a finished run saw, did and got."""
    from beeline.dynamics.controlled import Kept, kept
    from beeline.run.checkpoint import CheckpointStore

    arrays = CheckpointStore(path).load(lambda message: None, with_replay=False).arrays
    own = {name: arrays[f"agent.host['trigger']['{name}']"] for name in (*Kept._fields, "decided", "parts", "evaluated")}
    found = kept(own)
    if len(found.returns) < epochs:
        raise CheckpointError(f"{path} has {len(found.returns)} evaluations at the ends of its {epochs} epochs.")
    return found


# --- the command ------------------------------------------------------------------------------------------------------


def in_processes(folder: Path, runs: Sequence[BenchRun], workers: int | None) -> int:
    """The runs of a stage as a matrix."""
    return matrix.run(folder, runs, workers=workers)


def train(
    out: Path, plan: AutoPlan, *, workers: int | None = None, runner: Runner = in_processes, say: Callable[[str], None] = print
) -> int:
    """Train a controller, or go on with it; the exit code. The result is OUT/controller.npz."""
    record(out, plan)
    learner = Learner()
    for number in range(plan.stages):
        folder = out / f"stage-{number:02d}"
        if (folder / AFTER).exists():
            learner = load(folder / AFTER)
            continue
        files.make_folder(folder)
        controller = learner.controller(plan, number)
        controller.save(folder / FILE)
        runs = plan.runs(folder, number)
        if code := runner(folder, runs, workers):
            return code
        found = [gathered(folder / run.folder, plan.config.epochs) for run in runs]
        learner = learner.after(plan, number, found)
        learner.save(folder / AFTER)
        mean, last = (sum(values) / len(found) for values in zip(*((each.returns.mean(), each.returns[-1]) for each in found)))
        told = f"return {mean:,.1f} over all epochs, {last:,.1f} after the last; ε {controller.epsilon:g}"
        say(f"stage {number} of {plan.stages - 1}: {told}")
    learner.controller(plan, None).save(out / RESULT)
    say(f"controller: {out / RESULT}")
    return 0
