"""One training of the benchmark of time to a score: until the score or the cap is reached, in the environment of its system.

    python benchmarks/time_to_score_run.py '{"system": "sb3-sac", "task": "dmc/finger-spin", ...}'

The clock is the processor time of this process since it was started, imports and compilation included, evaluations not. Every
system steps the same environments, those of Beeline, and is evaluated on the same episodes. What was seen is one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

EVALUATION_SEED = 10_000  # episodes that no training meets, the same for all systems
LONG = 10  # budgets after which a training would end by itself; the cap comes first
Act = Callable[[np.ndarray], np.ndarray]


class Judge:
    """Keeps the clock, evaluates at every hundredth of the budget, and says when it is over."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from beeline import envs

        self.spec, self.env = spec, envs.make(spec["task"])
        self.curve: list[tuple[int, float, float]] = []  # steps, seconds, mean return
        self._aside = 0.0
        self._next = self._every = max(1, spec["budget"] // 100)

    def clock(self) -> float:
        """Seconds of processor time so far, without evaluations."""
        return time.process_time() - self._aside

    def due(self, step: int) -> bool:
        """Whether it is time to look: at an evaluation, or at the clock once it has run out."""
        return step >= self._next or self.clock() >= self.spec["cap"]

    def goes_on(self, step: int, act: Act) -> bool:
        """Evaluate; False once the score or the cap is reached. Work under way must be finished before this is called."""
        began = time.process_time()
        seconds, self._next = began - self._aside, step - step % self._every + self._every
        score = float(np.mean([self._episode(act, EVALUATION_SEED + each) for each in range(self.spec["episodes"])]))
        self.curve.append((step, seconds, score))
        self._aside += time.process_time() - began
        return score < self.spec["threshold"] and seconds < self.spec["cap"]

    def _episode(self, act: Act, seed: int) -> float:
        obs, _ = self.env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = self.env.step(act(obs))
            total, over = total + float(reward), terminated or truncated
        return total


def beeline_run(judge: Judge, spec: dict[str, Any]) -> None:
    """Beeline's own training with its default preset."""
    import jax

    from beeline import api
    from beeline.evaluate import Player
    from beeline.loop import Callback, StepEvent

    class Judged(Callback):
        def on_step(self, event: StepEvent) -> bool | None:
            if not judge.due(event.step):
                return None
            trainer = event.trainer
            jax.block_until_ready(trainer.state)
            player = Player(trainer.agent, trainer.agent.policy(trainer.state))
            return None if judge.goes_on(event.step, player) else False

    options = {"threads": 1, "eval_episodes": 0, "steps": LONG * spec["budget"], "seed": spec["seed"]} | spec["options"]
    api.train(spec["algo"], spec["task"], verbose=0, out=spec["folder"], callbacks=[Judged()], **options)


def peer_run(judge: Judge, spec: dict[str, Any]) -> None:
    """A peer's own training, with its defaults and what the RL Zoo has for the task."""
    from stable_baselines3.common.callbacks import BaseCallback

    from beeline import envs

    library, _, algo = spec["system"].partition("-")
    if library == "sb3":
        import stable_baselines3 as package
        import torch

        torch.set_num_threads(1)
    else:
        import sbx as package
    cls = {"sac": "SAC", "crossq": "CrossQ"}[algo]
    model = getattr(package, cls)("MlpPolicy", envs.make(spec["task"]), seed=spec["seed"], device="cpu", **spec["options"])

    class Judged(BaseCallback):
        def _on_step(self) -> bool:
            if not judge.due(self.num_timesteps):
                return True
            if library == "sbx":
                import jax

                jax.block_until_ready((model.policy.qf_state, model.policy.actor_state))
            return judge.goes_on(self.num_timesteps, lambda obs: model.predict(obs, deterministic=True)[0])

    model.learn(total_timesteps=LONG * spec["budget"], callback=Judged())


def main() -> None:
    """Pin, train, and print what was seen."""
    spec = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {spec["core"]})
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to the log
    judge = Judge(spec)
    (beeline_run if spec["system"] == "beeline" else peer_run)(judge, spec)
    step, seconds, score = judge.curve[-1]
    reached = score >= spec["threshold"]
    names = ("jax", "numpy", "gymnasium", "mujoco", "dm-control", "stable-baselines3", "sbx-rl", "torch")
    installed = {each.name.lower(): each.version for each in metadata.distributions() if each.name}
    versions = {name: installed[name] for name in names if name in installed}
    seen = {"reached": reached, "seconds": seconds, "step": step, "score": score, "curve": judge.curve, "versions": versions}
    print(json.dumps(seen), file=out, flush=True)


if __name__ == "__main__":
    main()
