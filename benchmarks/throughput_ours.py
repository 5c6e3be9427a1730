"""A worker of the throughput benchmark that trains with Beeline, or takes the parts of a training step alone."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from throughput_link import Pacer, Parent, rate

if TYPE_CHECKING:
    from beeline.loop import Trainer
    from beeline.memory import Replay

TASK = "gym/Walker2d-v5"
WARM = 25  # updates before the first segment
BLOCK = 10  # updates between two looks at the clock
PACKAGES = ("jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco")


def config(spec: dict[str, Any]) -> dict[str, Any]:
    """The options of a run: a short warm-up, no evaluation, and all else as it is by default."""
    return {"steps": 2**30, "random_steps": 100, "learn_after": 0, "eval_episodes": 0} | spec.get("options", {})


# --- whole training, and its parts ------------------------------------------------------------------------------------


class Parts:
    """The update on a fixed batch and env.step, each alone, from the state of a training run that stands still."""

    def __init__(self, trainer: Trainer, task: str = TASK) -> None:
        import jax
        import jax.numpy as jnp

        from beeline import envs

        self._agent = trainer.agent
        # The training's own state would be consumed; what is NumPy lives on the host and stays there.
        self._state = jax.tree.map(lambda leaf: leaf if isinstance(leaf, np.ndarray) else jnp.array(leaf), trainer.state)
        data = trainer.agent.draw(trainer.state, trainer.memories, trainer.clock)
        assert data is not None
        self._batch = data.train
        self._done = 0
        self._env = envs.make(task)
        rows = trainer.replay.export(0, trainer.replay.oldest(0), trainer.replay.rows(0))
        self._actions = rows["action"][rows["flags"] != 0]
        self._at = 0
        self._env.reset(seed=0)

    def updates(self, count: int) -> int:
        """About so many updates, awaited; how many it were."""
        import jax

        from beeline.memory import Data

        calls, each = max(1, count // len(self._batch.reward)), len(self._batch.reward)
        for _ in range(calls):
            self._state, _ = self._agent.update(self._state, Data(self._batch, self._done))
            self._done += each
        jax.block_until_ready(self._state)
        return calls * each

    def steps(self, count: int) -> int:
        """Steps with the actions that the training took, resets included as they are there."""
        for _ in range(count):
            _, _, terminated, truncated, _ = self._env.step(self._actions[self._at % len(self._actions)])
            self._at += 1
            if terminated or truncated:
                self._env.reset(seed=self._at)
        return count

    def update(self, request: dict[str, Any]) -> dict[str, Any]:
        """Updates per second."""
        return {"per_s": rate(request["seconds"], lambda: self.updates(BLOCK))}

    def env(self, request: dict[str, Any]) -> dict[str, Any]:
        """Steps per second."""
        return {"per_s": rate(request["seconds"], lambda: self.steps(1))}


def train(parent: Parent, spec: dict[str, Any]) -> None:
    """A normal run in a run folder, in segments."""
    import jax

    from beeline import api, runtime
    from beeline.loop import Callback, StepEvent

    class Paced(Callback):
        pacer: Pacer | None = None

        def on_step(self, event: StepEvent) -> bool | None:
            if self.pacer is not None:
                return self.pacer.tick(event.step)
            trainer = event.trainer
            if trainer.progress.updates < WARM or event.step <= trainer.agent.config.random_steps + 10:
                return None
            parts = Parts(trainer)
            answers = {"update": parts.update, "env": parts.env}
            self.pacer = Pacer(parent, lambda: jax.block_until_ready(trainer.state), answers)
            found = runtime.versions()
            versions = {"beeline-rl": found.get("beeline-rl", "source"), **{name: found[name] for name in PACKAGES}}
            return self.pacer.ready(event.step, {"versions": versions, "threads": trainer.config.threads})

    api.train(spec["algo"], TASK, preset="light", verbose=0, out=spec["folder"], callbacks=[Paced()], **config(spec))


def first_update(parent: Parent, spec: dict[str, Any]) -> None:
    """Say when the first compiled update has returned."""
    import jax

    from beeline import api
    from beeline.loop import Callback, StepEvent

    class Told(Callback):
        def on_step(self, event: StepEvent) -> bool | None:
            if not event.trainer.progress.updates:
                return None
            jax.block_until_ready(event.trainer.state)
            parent.answer({})
            return False

    preset, task = spec.get("preset", "light"), spec.get("task", TASK)
    own = {"eval_episodes": 0, "steps": 2**30} if preset != "light" else config(spec) | {"random_steps": 1_000}
    api.train(spec["algo"], task, preset=preset, verbose=0, out=spec["folder"], callbacks=[Told()], **own)


# --- the ring, many updates, checkpoints ------------------------------------------------------------------------------


def fill(replay: Replay, rows: int, episode: int = 1_000) -> None:
    """Append rows of made-up episodes to the one lane of a ring, at the speed of a copy."""
    from beeline.memory import TRANSITION, TRUNCATED

    draw = np.random.default_rng(replay.rows(0))
    flags = np.full(rows, TRANSITION, np.uint8)
    flags[episode - 2 :: episode] |= TRUNCATED
    flags[episode - 1 :: episode] = 0
    columns = {
        "obs": draw.standard_normal((rows, replay.obs_dim), np.float32),
        "action": np.tanh(draw.standard_normal((rows, replay.action_dim), np.float32)),
        "reward": draw.standard_normal(rows, np.float32),
        "flags": flags,
    }
    start = replay.rows(0)
    replay.restore_rows(0, start, columns)
    replay.restore_lane(0, start + rows, start + rows // episode * episode, columns["obs"][0])


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def laboratory(parent: Parent, spec: dict[str, Any]) -> None:
    """Updates from rings of several sizes, several updates per call, and checkpoints with a full ring."""
    import jax

    from beeline.memory import Data, Replay
    from beeline.run.build import attach, build
    from beeline.run.folder import RunFolder
    from beeline.run.plan import Plan

    def trainer(**options: Any) -> tuple[Trainer, Plan]:
        plan = Plan.make(spec["algo"], TASK, "light", config(spec) | options)
        return build(plan, TASK), plan

    base, _ = trainer()
    rings: dict[int, tuple[Replay, float]] = {}
    agents: dict[int, list[Any]] = {}
    done = 0

    def ring(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal done
        rows = request["rows"]
        if rows not in rings:
            before = resident()
            replay = Replay(rows, base.agent.task.spaces.obs_dim, base.agent.task.spaces.action_dim)
            fill(replay, rows - 1)
            rings[rows] = replay, resident() - before
        replay, memory = rings[rows]
        size = base.agent.config.batch_size

        def work() -> int:
            nonlocal done
            for _ in range(BLOCK):  # drawn while the update before it runs, as the loop does
                base.state, _ = base.agent.update(base.state, Data(replay.sample(0, done, 1, size), done))
                done += 1
            jax.block_until_ready(base.state)
            return BLOCK

        return {"per_s": rate(request["seconds"], work), "megabytes": memory}

    def many(request: dict[str, Any]) -> dict[str, Any]:
        count = request["updates"]
        answer = {}
        if count not in agents:
            made, _ = trainer(critic_updates_per_step=count, policy_updates_per_step=count)
            fill(made.replay, 5_000)
            batch = made.replay.sample(0, 0, count, made.agent.config.batch_size)
            began, state, first = time.perf_counter(), made.state, 0
            for _ in range(2):  # both phases of a delay of two are compiled here
                state, _ = made.agent.update(state, Data(batch, first))
                first += count
            jax.block_until_ready(state)
            answer["compile_s"] = time.perf_counter() - began
            agents[count] = [made.agent, state, batch, first]
        held = agents[count]

        def work() -> int:
            for _ in range(max(1, BLOCK // count)):
                held[1], _ = held[0].update(held[1], Data(held[2], held[3]))
                held[3] += count
            jax.block_until_ready(held[1])
            return max(1, BLOCK // count) * count

        return answer | {"per_s": rate(request["seconds"], work)}

    def checkpoint(request: dict[str, Any]) -> dict[str, Any]:
        made, plan = trainer(replay_capacity=request["rows"])
        made.begin()
        fill(made.replay, request["rows"] - 1)
        folder = RunFolder.create(Path(spec["folder"]), plan)
        attach(made, plan, folder.path)
        seconds = []
        for _ in range(request["saves"] + 1):
            fill(made.replay, plan.train.checkpoint_every)
            made.progress.step += plan.train.checkpoint_every
            made.progress.decisions += plan.train.checkpoint_every
            began = time.perf_counter()
            made.save()
            seconds.append(time.perf_counter() - began)
        return {"first_s": seconds[0], "seconds": seconds[1:], "every": plan.train.checkpoint_every}

    parent.answer({})
    parent.serve({"ring": ring, "many": many, "checkpoint": checkpoint})


# --- the roof ---------------------------------------------------------------------------------------------------------


def roof(parent: Parent, spec: dict[str, Any]) -> None:
    """The rate of NumPy's single-precision matrix product, which is OpenBLAS in the wheels."""
    blas: Any = np.show_config(mode="dicts")
    found = blas["Build Dependencies"]["blas"]

    def product(request: dict[str, Any]) -> dict[str, Any]:
        n = request["n"]
        left, right = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
        out = np.empty_like(left)

        def work() -> int:
            for _ in range(20):
                np.matmul(left, right, out=out)
            return 20

        rate(0.05, work)
        return {"gflops": 2e-9 * n**3 * rate(request["seconds"], work)}

    parent.answer({"versions": {"blas": f"{found['name']} {found['version']}"}})
    parent.serve({"roof": product})


def main() -> None:
    """Do as the spec in the first argument says."""
    parent = Parent()
    spec = json.loads(sys.argv[1])
    if spec.get("cores"):
        os.sched_setaffinity(0, set(spec["cores"]))
    {"train": train, "first": first_update, "lab": laboratory, "roof": roof}[spec["mode"]](parent, spec)


if __name__ == "__main__":
    main()
