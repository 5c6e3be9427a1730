"""What an update of the preset `best` costs beside its products, and how soon the first one comes.

    python benchmarks/small_updates.py [--quick] [--rounds N] [--json PATH]

All on one thread and in processor time, for BAC on dmc/walker-run with λ = 0 and λ = .5:

  updates   an update / the same products by OpenBLAS one by one: NumPy's matmul into arrays that are there, with the shapes and
            layouts that the mathematics has. Both in one process and in turn; the median of the pairwise ratios.
  steps     a whole environment step in training / (four updates alone + env.step alone), in turn within the training process
  start     seconds from process start to the first update, with an empty compilation cache and with the one just filled;
            these are wall times, and need a quiet machine

`products` lists the products of an update; tests/test_small_updates.py holds it against `flops.update_flops`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from throughput_link import Worker
from throughput_table import Check, checks_text

ALGO, TASK, PRESET = "bac", "dmc/walker-run", "best"
LAMBDAS = (0.0, 0.5)
OBS, ACT, LIMIT = 24, 6, 1_000  # of the task
ONE_THREAD = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

UPDATE = "lam {lam:g}: an update {update_ms:.2f} ms, its products {products_ms:.2f} ms, ratio {ratio:.2f}"
STEP = "lam {lam:g}: a step {step_ms:.2f} ms, its updates {updates_ms:.2f} ms, env.step {env_ms:.2f} ms, ratio {ratio:.2f}"


class Product(NamedTuple):
    """[m, k] times [k, n]; which of the two lies transposed in memory; in which share of the updates it is due."""

    m: int
    k: int
    n: int
    layout: str = "NN"
    share: float = 1.0

    @property
    def flops(self) -> float:
        """Operations per update."""
        return 2.0 * self.m * self.k * self.n * self.share

    def ready(self, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both factors and where the product goes."""

        def factor(rows: int, columns: int, layout: str) -> np.ndarray:
            if layout == "T":
                return draw.standard_normal((columns, rows), np.float32).T
            return draw.standard_normal((rows, columns), np.float32)

        left, right = factor(self.m, self.k, self.layout[0]), factor(self.k, self.n, self.layout[1])
        return left, right, np.empty((self.m, self.n), np.float32)


def forward(widths: Sequence[int], rows: int, share: float = 1.0) -> list[Product]:
    """x W of every layer."""
    return [Product(rows, one, other, share=share) for one, other in pairwise(widths)]


def weights(widths: Sequence[int], rows: int, share: float = 1.0) -> list[Product]:
    """xᵀ dz of every layer, and dz Wᵀ of all but the first."""
    layers = list(pairwise(widths))
    found = [Product(one, rows, other, "TN", share) for one, other in layers]
    return found + [Product(rows, other, one, "NT", share) for one, other in layers[1:]]


def inputs(widths: Sequence[int], rows: int, asked: int, share: float = 1.0) -> list[Product]:
    """dz Wᵀ of every layer, in the first only for the columns that are asked for."""
    layers = [(asked, widths[1]), *pairwise(widths[1:])]
    return [Product(rows, other, one, "NT", share) for one, other in layers]


def products(config: Any, obs_dim: int = OBS, act_dim: int = ACT, critics: int = 1) -> list[Product]:
    """Of one update of SAC or BAC with the body `ln` or `mlp`, in the order in which they are due."""
    rows, share = config.batch_size, 1.0 / config.policy_interval
    policy = (obs_dim, *(config.policy_hidden or config.hidden), 2 * act_dim)
    critic, value = (obs_dim + act_dim, *config.hidden, 1), (obs_dim, *config.hidden, 1)
    found = forward(policy, rows) + critics * (forward(critic, rows) + forward(critic, rows) + weights(critic, rows))
    if config.bee:
        found += critics * forward(critic, rows) + forward(value, rows) + forward(value, rows) + weights(value, rows)
    found += forward(policy, rows, share) + weights(policy, rows, share)
    return found + critics * (forward(critic, rows, share) + inputs(critic, rows, act_dim, share))


def multiply(prepared: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """All of these products, one by one."""
    for left, right, out in prepared:
        np.matmul(left, right, out=out)


def in_turn(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    """Processor seconds of both, medians over rounds in which the order changes, and the median of the pairwise ratios."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 2):
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            (one, other)[which]()
            if number >= 2:  # the first two are there to warm up
                times[which].append(time.process_time() - began)
    first, second = np.array(times[0]), np.array(times[1])
    return float(np.median(first)), float(np.median(second)), float(np.median(first / second))


def agent_of(lam: float, **options: Any) -> Any:
    """The agent that a training of the preset would have."""
    from beeline import agents
    from beeline.agents.base import Spaces, Task

    config = agents.make_config(ALGO, TASK, PRESET, {"lam": lam, **options})
    return agents.get(ALGO).build(config, Task(Spaces(OBS, (-1.0,) * ACT, (1.0,) * ACT), limit=LIMIT, ends=False))


def updates(lam: float, rounds: int, count: int = 32, **options: Any) -> dict[str, float]:
    """An update beside its products, both in milliseconds."""
    import jax

    from beeline.memory import Batch, Data

    agent = agent_of(lam, **options)
    config, draw = agent.config, np.random.default_rng(0)
    calls, rows = config.critic_updates_per_step, config.batch_size

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal((calls, rows, *shape), np.float32)

    batch = Batch(normal(OBS), np.tanh(normal(ACT)), normal(), np.full((calls, rows), 0.99, np.float32), normal(OBS))
    held = [agent.init(0)]

    def update() -> None:
        for first in range(0, count, calls):
            held[0], _ = agent.update(held[0], Data(batch, first))
        jax.block_until_ready(held[0])

    listed = products(config)
    every, delayed = ([each.ready(draw) for each in listed if (each.share < 1.0) == late] for late in (False, True))

    def blas() -> None:
        for number in range(1, count + 1):
            multiply(every)
            if number % config.policy_interval == 0:
                multiply(delayed)

    update()
    took, theirs, ratio = in_turn(update, blas, rounds)
    return {
        "lam": lam, "update_ms": 1e3 * took / count, "products_ms": 1e3 * theirs / count, "ratio": ratio,
        "gflop": 1e-9 * sum(each.flops for each in listed),
    }  # fmt: skip


def steps(lam: float, rounds: int, block: int, **options: Any) -> dict[str, float]:
    """A whole step of training beside the updates and env.step that it holds, in milliseconds."""
    import jax
    from throughput_ours import Parts

    from beeline import api
    from beeline.loop import Callback, StepEvent

    whole: list[float] = []
    alone: list[tuple[float, float]] = []

    class Interleaved(Callback):
        parts: Parts | None = None
        began, first = 0.0, 0

        def on_step(self, event: StepEvent) -> bool | None:
            trainer = event.trainer
            if self.parts is None:
                if trainer.progress.updates < 25:
                    return None
                self.parts = Parts(trainer, TASK)
            elif event.step < self.first + block:
                return None
            else:
                jax.block_until_ready(trainer.state)
                whole.append((time.process_time() - self.began) / block)
            took, calls = [], block * trainer.agent.config.critic_updates_per_step
            for work, count in ((self.parts.updates, calls), (self.parts.steps, block)):
                began = time.process_time()
                work(count)
                took.append((time.process_time() - began) / block)
            alone.append((took[0], took[1]))
            self.began, self.first = time.process_time(), event.step
            return len(whole) < rounds

    own = {"steps": 2**30, "eval_episodes": 0, "replay_capacity": 100_000, "lam": lam, "verbose": 0, "out": None} | options
    api.train(ALGO, TASK, preset=PRESET, callbacks=[Interleaved()], **own)
    ratio = np.median([each / sum(before) for each, before in zip(whole, alone)])
    update, env = np.median(alone, axis=0)
    names = ("step_ms", "updates_ms", "env_ms")
    found = dict(zip(names, (1e3 * float(each) for each in (np.median(whole), update, env))))
    return {"lam": lam, **found, "ratio": float(ratio)}


def start(folder: Path) -> dict[str, float]:
    """Seconds to the first update: cold, then with the cache that this has left."""
    cache, found = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}, {}
    for name in ("cold", "warm"):
        spec = {"mode": "first", "algo": ALGO, "task": TASK, "preset": PRESET, "folder": str(folder / name)}
        began = time.perf_counter()
        with Worker(sys.executable, "throughput_ours.py", spec, folder / f"{name}.log", cache) as worker:
            worker.read()
            found[name] = time.perf_counter() - began
    return found


def checks(found: dict[str, Any]) -> list[Check]:
    """What was measured beside what it must be."""
    made = [Check(f"an update / its products, lam {each['lam']:g}", each["ratio"], "<=", 2.0, 1.8) for each in found["updates"]]
    parts = "a step / (its updates + env.step)"
    made += [Check(f"{parts}, lam {each['lam']:g}", each["ratio"], "<=", 1.15) for each in found["steps"]]
    bounds = {"cold": 10.0, "warm": 4.0}
    return made + [
        Check(f"first update, {name} cache", seconds, "<=", bounds[name], unit="s") for name, seconds in found["start"].items()
    ]


def main() -> None:
    """Measure, print, write; the exit code says whether everything holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few rounds, and no start with a cold cache")
    parser.add_argument("--rounds", type=int, help="rounds of every ratio [40; with --quick 5]")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything here")
    given = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):  # XLA and BLAS read them when they start
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)

    from beeline import runtime

    rounds = given.rounds or (5 if given.quick else 40)
    print(f"{runtime.processor()}, load {os.getloadavg()[0]:.1f}, {rounds} rounds, one thread", flush=True)
    runtime.configure(1, None)
    found: dict[str, Any] = {"cpu": runtime.processor(), "load": os.getloadavg(), "versions": runtime.versions()}
    found |= {"updates": [], "steps": [], "start": {}}
    for lam in LAMBDAS:
        found["updates"].append(row := updates(lam, rounds))
        print(UPDATE.format(**row), flush=True)
    for lam in LAMBDAS:
        found["steps"].append(row := steps(lam, rounds, 20 if given.quick else 50))
        print(STEP.format(**row), flush=True)
    if not given.quick:
        with tempfile.TemporaryDirectory(prefix="small-updates-") as folder:
            found["start"] = start(Path(folder))
    made = checks(found)
    print(f"\n{checks_text(made)}")
    if given.json:
        given.json.write_text(json.dumps(found | {"checks": [check.to_json() for check in made]}, indent=1) + "\n")
    raise SystemExit(any(check.holds is False for check in made))


if __name__ == "__main__":
    main()
