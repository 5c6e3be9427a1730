"""Kills at random moments: whatever ended a run, and how often, it ends as the one that nobody disturbed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import given
from matrices import lines_in, workers_of
from outcome import Outcome, Trial, patient
from trials import WALK, Case, Place, as_traceback, differing, options
from whole_runs import Process, flags

import beeline
from beeline import agents
from beeline.bench import outcome as bench_outcome
from beeline.bench import plan as bench_plan
from beeline.diagnostics.probe import Judged

KIND = "kills"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGER = {"steps": 300, "eval_every": 90, "log_every": 7, "checkpoint_every": 40}
# Where a model of the world is trained, so long and so often that a signal half a second after a row often meets it at that.
TRAINING = {
    "model_every": 15, "model_batches": 300, "model_first_batches": 300, "model_epochs": 30, "event_most": 20, "model_steps": 100,
}  # fmt: skip
VARIANTS: tuple[dict[str, Any], ...] = (
    {}, {"num_envs": 3}, {"n_step": 3}, {"normalize_obs": True}, {"replay_capacity": 90}, {"repeat": 2}, {"diagnose": 100},
    {"seed": 7, "tensorboard": True},
)  # fmt: skip
# Chains of their own beside the variants, with an algorithm that learns from data of others; DATA is where these are.
DATA = "DATA"
TOGETHER: dict[str, dict[str, Any]] = {
    "--renew": {"renew": "policy,critic@100;policy@210"},
    "--prior-share": {"prior": DATA, "prior_share": 0.25},
    "--load-prior": {"load_prior": f"{DATA}@130", "num_envs": 2},
    "all three": {"renew": "policy@90", "prior": DATA, "load_prior": f"{DATA}@0", "n_step": 2},
}
BUDGET, MOST = 100, 3  # signals of `make faults`; at most that many to a chain
PATIENCE = 240.0  # seconds that one process of a chain may take
AWAKE = {"RAY_worker_niceness": "0"}  # not 15, which beside other work is no time at all


def cases(seed: int) -> Iterator[Case]:
    """Chains of every algorithm in turn, each with other options, and between them the chains of TOGETHER and matrices, here
    and on Ray. The more algorithms there are, the fewer signals each chain gets: `budget` of them meet every algorithm and
    every command, so that the duration stays as it is for as long as it can."""
    ray = importlib.util.find_spec("ray") is not None
    algos = list(agents.ALGORITHMS)
    able = [algo for algo, entry in agents.ALGORITHMS.items() if not entry.config().refuses_prior]
    strikes = signals_each(len(algos))
    for number in itertools.count():
        turn = itertools.islice(itertools.cycle(able), number * len(TOGETHER) % len(able), None)
        others = [_chain(algo, number, seed, strikes, what) for what, algo in zip(TOGETHER, turn)]
        others += [_matrix("local", number, seed)] if number % 2 == 0 else []
        others += [_matrix("ray", number, seed)] if number % 6 == 0 and ray else []
        first = (number + seed) % len(algos)  # another algorithm begins in every round and with every seed
        chains = [_chain(algo, number, seed, strikes) for algo in algos[first:] + algos[:first]]
        yield from spread(chains, others)


def budget(algorithms: int) -> int:
    """Signals in all: BUDGET, or as many as a chain of every algorithm needs beside the others where there are very many."""
    return max(BUDGET, 4 * algorithms // 3 + 8)


def signals_each(algorithms: int) -> int:
    """Signals of a chain, so that three quarters of all are enough for a chain of every algorithm."""
    return max(1, min(MOST, 3 * budget(algorithms) // 4 // algorithms))


def spread(many: list[Case], few: list[Case]) -> Iterator[Case]:
    """All of them, the few at even distances among the many."""
    for place, case in enumerate(many):
        yield case
        yield from few[place * len(few) // len(many) : (place + 1) * len(few) // len(many)]


def _chain(algo: str, number: int, seed: int, strikes: int, what: str = "") -> Case:
    name = f"{algo} {what} {number} of seed {seed}".replace("  ", " ")
    return Case(KIND, name, lambda place: chain(place, name, algo, what, strikes))


def _matrix(where: str, number: int, seed: int) -> Case:
    name = f"bench {where} {number} of seed {seed}"
    return Case(KIND, name, lambda place: matrix(place, name, where == "ray"))


def rows(path: Path) -> int:
    """Lines of the metrics table of a live run."""
    try:
        return (path / "metrics.csv").read_bytes().count(b"\n")
    except OSError:
        return 0


def struck(process: Process, path: Path, row: int, delay: float, number: int) -> bool:
    """Send a signal a moment after a row was written; whether it met the process."""
    end = time.monotonic() + patient(PATIENCE)
    while process.alive() and rows(path) < row and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(delay)
    if not process.alive():
        return False
    process.signal(number)
    return True


def ended(process: Process) -> bool:
    """Wait for a process; whether it came to an end."""
    end = time.monotonic() + patient(PATIENCE)
    while process.alive():
        if time.monotonic() > end:
            process.signal(signal.SIGKILL)
            process.wait()
            return False
        time.sleep(0.005)
    return True


def chain(place: Place, name: str, algo: str, what: str = "", strikes: int = MOST) -> Trial:
    """Train, and resume until the end, with some signals on the way; moved and copied in between."""
    chance = random.Random(name)
    variant = chance.choice(VARIANTS)
    if what:
        data = str(given.data(place)) if DATA in str(TOGETHER[what]) else ""
        variant = {key: value.replace(DATA, data) if isinstance(value, str) else value for key, value in TOGETHER[what].items()}
    if "diagnose" in variant and not place.kept(("judged", algo), lambda: judged(algo)):
        variant = {}
    models = agents.get(algo).group == "model-based"
    words = ["train", algo, WALK, *flags(options(algo, **(LONGER | (TRAINING if models else {}) | _having(algo, variant))))]
    whole = place.made(("killed", *words), lambda path: place.zygote.run(*words, "--out", path))
    folder = place.folder()
    run, kills, total = folder / "run", 0, rows(whole)
    process = place.zygote.start(*words, "--out", run)
    for _ in range(strikes):
        number = chance.choice(SIGNALS)
        hit = struck(process, run, rows(run) + chance.randrange(total // 2), chance.uniform(0, 0.5 if models else 0.03), number)
        if not ended(process):
            return Trial(name, Outcome.HANG, f"no end {PATIENCE:g} s after {signal.Signals(number).name}", kills)
        if trace := as_traceback(process.err):
            return Trial(name, Outcome.RAW, trace, kills)
        kills += hit
        if hit and process.code not in (0, -number, 128 + number):
            return Trial(name, Outcome.RAW, f"exit code {process.code} after {signal.Signals(number).name}: {process.err}", kills)
        if not (run / "config.json").exists():  # it had not begun
            shutil.rmtree(run, ignore_errors=True)
            process = place.zygote.start(*words, "--out", run)
            continue
        if chance.random() < 0.3:
            run = run.rename(folder / f"moved{kills}") if chance.random() < 0.5 else _copied(run, folder / f"copy{kills}")
        process = place.zygote.start("resume", run)
    if not ended(process):
        return Trial(name, Outcome.HANG, f"no end {PATIENCE:g} s after it was resumed", kills)
    if process.code:
        return Trial(name, Outcome.RAW, f"resume ended with {process.code}: {process.err.strip()[-300:]}", kills)
    difference = differing(whole, run) or _left_behind(run)
    shutil.rmtree(folder, ignore_errors=True)
    return Trial(name, Outcome.SILENT if difference else Outcome.HELD, difference, kills)


def _copied(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to))


def _left_behind(run: Path) -> str:
    found = [path.name for path in run.rglob("*") if ".tmp" in path.name]
    return f"left behind: {', '.join(found)}" if found else ""


def judged(algo: str) -> bool:
    """Whether an algorithm has a Q that a diagnosis can read."""
    return isinstance(beeline.model(algo)(WALK, verbose=0, **options(algo)).trainer.agent, Judged)


def _having(algo: str, variant: dict[str, Any]) -> dict[str, Any]:
    """A variant, as far as the algorithm has such options."""
    known = options(algo, **variant)
    return {key: value for key, value in variant.items() if key in known}


def matrix(place: Place, name: str, ray: bool) -> Trial:
    """A matrix of two algorithms, killed as a whole or one worker of it, and begun again until it is finished."""
    chance = random.Random(name)
    algos = sorted(chance.sample(sorted(agents.ALGORITHMS), 2))
    words = ["bench", str(place.made(("plan", *algos), lambda path: path.write_text(_plan(algos))))]
    whole = place.made(("killed", *words), lambda path: place.zygote.run(*words, "--out", path))
    out, kills = place.folder() / "matrix", 0
    total = lines_in(whole)
    for _ in range(2):
        process = place.zygote.start(*words, "--out", out, *(["--ray", "local"] if ray else []), env=AWAKE)
        number, victim = chance.choice(SIGNALS), chance.choice(("parent", "worker"))
        kills += _strike(process, out, chance.randrange(total), number, victim)
        if not ended(process):
            return Trial(name, Outcome.HANG, f"no end {PATIENCE:g} s after {signal.Signals(number).name} to a {victim}", kills)
        if trace := as_traceback(process.err):
            return Trial(name, Outcome.RAW, trace, kills)
    for again in range(3):
        where = ["--ray", "local"] if ray and not again else []
        process = place.zygote.start(*words, "--out", out, "--retry-failed", *where, env=AWAKE)
        if not ended(process):
            return Trial(name, Outcome.HANG, f"no end {PATIENCE:g} s after it was begun again", kills)
        if not process.code:
            break
    if process.code:
        return Trial(name, Outcome.RAW, f"it does not go on: {process.err.strip()[-300:]}{process.out.strip()[-300:]}", kills)
    runs = [path.parent.relative_to(whole) for path in whole.glob("*/*/*/config.json")]
    difference = "; ".join(found for run in runs if (found := differing(whole / run, out / run)))
    return Trial(name, Outcome.SILENT if difference else Outcome.HELD, difference, kills)


def _plan(algos: list[str]) -> str:
    """The file of a matrix in which every algorithm has its own small options."""
    lines = [f'tasks = ["{WALK}"]', "seeds = 1", f"steps = {LONGER['steps']}"]
    for algo in algos:
        lines += [f"[variant.{algo}]", f'algo = "{algo}"']
        for key, value in options(algo, **LONGER).items():
            lines += [f"{key} = {bench_outcome.toml(value)}"] if key not in bench_plan.OF_THE_MATRIX else []
    return "\n".join(lines) + "\n"


def _strike(process: Process, out: Path, lines: int, number: int, victim: str) -> bool:
    end = time.monotonic() + patient(PATIENCE)
    while process.alive() and lines_in(out) < lines and time.monotonic() < end:
        time.sleep(0.01)
    found = workers_of(out) if victim == "worker" else [process.pid]
    if not process.alive() or not found:
        return False
    try:
        os.kill(found[0], number)
    except ProcessLookupError:
        return False
    return True
