"""A worker of the throughput benchmark that trains with stable-baselines3 or SBX; it runs in the peers' environment.

Their own training loop, with their defaults but for the size of the networks, the batch and one update per step.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

from throughput_link import Pacer, Parent

WARM = 25  # updates before the first segment
PACKAGES = ("stable-baselines3", "sbx-rl", "torch", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")


def make(subject: str, algo: str, hidden: int, batch: int, threads: int) -> Any:
    """The model, one update per step on Walker2d-v5."""
    import gymnasium

    if subject == "sb3":
        import stable_baselines3 as library
        import torch

        torch.set_num_threads(threads)
    else:
        import sbx as library
    return getattr(library, algo.upper())(
        "MlpPolicy",
        gymnasium.make("Walker2d-v5"),
        batch_size=batch,
        train_freq=1,
        gradient_steps=1,
        learning_starts=100,
        policy_kwargs={"net_arch": [hidden, hidden]},
        seed=0,
        device="cpu",
        verbose=0,
    )


def main() -> None:
    """Train in segments until the input ends."""
    parent = Parent()
    spec = json.loads(sys.argv[1])
    model = make(spec["subject"], spec["algo"], spec["hidden"], spec["batch"], spec["threads"])
    from stable_baselines3.common.callbacks import BaseCallback

    def finish() -> None:
        if spec["subject"] == "sbx":
            import jax

            jax.block_until_ready((model.policy.qf_state, model.policy.actor_state))

    pacer = Pacer(parent, finish, {})

    class Paced(BaseCallback):
        begun = False

        def _on_step(self) -> bool:
            if self.begun:
                return pacer.tick(self.num_timesteps)
            if self.num_timesteps < model.learning_starts + WARM:
                return True
            self.begun = True
            versions = {name: metadata.version(name) for name in PACKAGES}
            return pacer.ready(self.num_timesteps, {"versions": versions})

    model.learn(total_timesteps=2**31, callback=Paced())


if __name__ == "__main__":
    main()
