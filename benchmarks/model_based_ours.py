"""A worker of the model-based benchmark: the parts of MBPO on Hopper as Beeline does them, each from a state that goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from model_based_sizes import Sizes
from throughput_link import Answer, Parent, rate

PACKAGES = ("jax", "jaxlib", "optax", "numpy")


class Ours:
    """Model, policy and critics at these sizes, and data of the right shapes."""

    def __init__(self, sizes: Sizes) -> None:
        import jax

        from beeline import agents, memory
        from beeline.agents.base import Spaces, Task
        from beeline.dynamics import training
        from beeline.dynamics.ensemble import GaussianEnsemble
        from beeline.dynamics.rollout import Rollout
        from beeline.networks import Draw

        self.sizes, self._jax, self._training, self._data = sizes, jax, training, memory.Data
        draw = np.random.default_rng(0)
        m, d = sizes.action_dim, sizes.obs_dim
        self.obs, self.action = draw.normal(size=(sizes.rows, d)).astype(np.float32), draw.uniform(-1, 1, (sizes.rows, m))
        self.action = self.action.astype(np.float32)
        targets = draw.normal(size=(sizes.rows, d + 1)).astype(np.float32)
        self.model = GaussianEnsemble(d, m, sizes.members, sizes.elites, (sizes.hidden,) * 4)
        self.state = self.model.init(Draw(0, "init/model"))
        inputs = np.concatenate([self.obs, self.action], axis=1)
        self._fit = training._padded(inputs, targets, np.arange(sizes.rows))
        self._slot = jax.tree.map(jax.numpy.array, self.state.slot)
        indices = draw.integers(0, sizes.rows, (sizes.members, training.PIECE * sizes.batch), dtype=np.int32)
        self._piece = next(training.pieces(indices, sizes.batch))
        config = agents.make_config("sac", "gym/any", "light", {
            "hidden": (sizes.policy,) * 2, "batch_size": sizes.batch, "critic_updates_per_step": sizes.updates,
            "policy_updates_per_step": float(sizes.updates),
        })  # fmt: skip
        self.agent = agents.get("sac").build(config, Task(Spaces(d, (-1.0,) * m, (1.0,) * m)))
        self._sac, self._done = self.agent.init(0), 0
        shape = (sizes.updates, sizes.batch)
        rows = draw.integers(0, sizes.rows, shape)
        self._batch = memory.Batch(
            self.obs[rows], self.action[rows], draw.normal(size=shape).astype(np.float32), np.full(shape, 0.99, np.float32),
            self.obs[rows],
        )  # fmt: skip
        self._rollout = Rollout(self.model, self.agent.sample, lambda obs, action, next_obs: next_obs[..., 0] > 1e9)
        self._rolled = 0

    def model_batches(self) -> int:
        """A piece of batches of the model's training."""
        piece, count = self._piece, self._training.PIECE
        self._slot = self._jax.block_until_ready(
            self._training.fitted(self.model, self._slot, *self._fit, piece.rows, piece.counts, 0, count)
        )
        return count

    def rollout(self) -> int:
        """One step of all branches."""
        starts = np.resize(self.obs, (self.sizes.branches, self.sizes.obs_dim))
        acting = self.agent.acting(self._sac)
        found = self._rollout(self.state, acting, starts, 1, seed=0, counter=self._rolled)
        assert found is not None
        self._rolled += 1
        return len(found.reward)

    def updates(self) -> int:
        """The updates of a step."""
        self._sac, _ = self.agent.update(self._sac, self._data(self._batch, self._done))
        self._done += self.sizes.updates
        self._jax.block_until_ready(self._sac.critic.live)
        return self.sizes.updates


class Saving:
    """A run of MBPO on Hopper whose memories are full, with a folder that it is saved to.

    Between two checkpoints everything that is imagined is new, so each of them writes all of it.
    """

    def __init__(self, sizes: Sizes, folder: Path, length: int) -> None:
        from throughput_ours import fill

        from beeline.run.build import attach, build
        from beeline.run.folder import RunFolder
        from beeline.run.plan import Plan

        task, wide = "mbpo/hopper", (sizes.policy,) * 2
        self.length, branches = length, sizes.branches // sizes.every or 1
        self.plan = Plan.make("mbpo", task, "paper", {
            "hidden": wide, "batch_size": sizes.batch, "model_members": sizes.members, "model_elites": sizes.elites,
            "model_hidden": (sizes.hidden,) * 4, "branches": branches, "rollout_schedule": (0, 1, 1, length),
        })  # fmt: skip
        self.trainer = build(self.plan, task)
        self.trainer.begin()
        fill(self.trainer.replay, sizes.rows)
        self.rows = self.trainer.agent.window(length)
        attach(self.trainer, self.plan, RunFolder.create(folder, self.plan).path)

    def save(self) -> float:
        """Seconds of one checkpoint, after as many steps as lie between two."""
        import time

        from throughput_ours import fill

        every, made, task = self.plan.train.checkpoint_every, self.trainer, self.trainer.agent.task
        draw = np.random.default_rng(made.progress.step)
        obs, after = draw.standard_normal((2, self.rows, task.spaces.obs_dim), np.float32)
        action = draw.uniform(-1, 1, (self.rows, task.spaces.action_dim)).astype(np.float32)
        ended, reward = np.zeros(self.rows, bool), draw.standard_normal(self.rows, np.float32)
        made.memories["model"].push(obs, action, reward, after, ended, window=self.rows)
        fill(made.replay, every)
        made.progress.step += every
        made.progress.decisions += every
        began = time.perf_counter()
        made.save()
        return time.perf_counter() - began

    def measured(self, saves: int) -> dict[str, Any]:
        """The seconds of some checkpoints after a first one, and what they are of."""
        ring = self.trainer.memories["model"]
        seconds = [self.save() for _ in range(saves + 1)][1:]
        held = ring.export(0, ring.oldest(0), ring.rows(0))
        size = sum(column.nbytes for column in held.values()) / 1e6
        told = {"seconds": seconds, "length": self.length, "rows": len(ring), "megabytes": size}
        return told | {"every": self.plan.train.checkpoint_every}


def main() -> None:
    """Answer until the input ends."""
    parent, spec = Parent(), json.loads(sys.argv[1])
    sizes = Sizes(**spec["sizes"])

    def checkpoint(request: dict[str, Any]) -> dict[str, Any]:
        folder = Path(spec["folder"]) / f"run-{request['length']}"
        return Saving(sizes, folder, request["length"]).measured(request["saves"])

    serve(parent, Ours(sizes), PACKAGES, {"checkpoint": checkpoint})


def serve(parent: Parent, parts: Any, packages: tuple[str, ...], more: Mapping[str, Answer] = MappingProxyType({})) -> None:
    """Warm every part up, say so, and measure what is asked for: how often a second, or the learner's work of some steps."""
    works = {"model": parts.model_batches, "rollout": parts.rollout, "sac": parts.updates}
    for work in works.values():
        work()
    parent.answer({"versions": {name: metadata.version(name) for name in packages}})

    def whole(request: dict[str, Any]) -> dict[str, Any]:
        import time

        began = time.perf_counter()
        for name, wanted in parts.sizes.work(request["steps"]).items():
            done = 0
            while done < wanted:
                done += works[name]()
        return {"seconds": time.perf_counter() - began}

    answers = {name: (lambda request, work=work: {"per_s": rate(request["seconds"], work)}) for name, work in works.items()}
    parent.serve({**answers, "whole": whole, **more})


if __name__ == "__main__":
    main()
