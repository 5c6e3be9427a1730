"""What the terms of the D'Kitty's reward come to for four simple ways to act, on dkitty/walk-medium.

    python benchmarks/dkitty_rewards.py [--episodes N] [--json FILE]

With `--json benchmarks/records/dkitty-rewards.json`, `python docs/generate_tables.py` makes the table of docs/dkitty.md of it.
The trot is the hand-made one of the tests, towards the target: it walks on flat ground and falls on this.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from dkitty_trot import trot

from beeline import envs
from beeline.envs.dkitty import robot
from beeline.envs.dkitty.observation import layout

TASK = "dkitty/walk-medium"
PLACES = layout("walk")
Act = Callable[[int, np.ndarray, np.random.Generator], np.ndarray]


def towards_the_target(step: int, obs: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The trot, steered by the angle between where the robot and where the target is."""
    x, y = obs[PLACES["target_error"]]
    return trot(step, float(obs[PLACES["root_euler"]][2] - math.atan2(-x, y)))


WAYS: dict[str, Act] = {
    "random actions": lambda step, obs, draw: draw.uniform(-1.0, 1.0, 12),
    "standing straight": lambda step, obs, draw: robot.action_for(np.zeros(12)),
    "standing crouched": lambda step, obs, draw: robot.action_for(robot.CROUCH),
    "hand-made trot": towards_the_target,
}


def measure(name: str, act: Act, episodes: int) -> dict[str, Any]:
    """Means over episodes: the return, its deviation, length, falls, and the sum of every term."""
    env, draw = envs.make(TASK), np.random.default_rng(0)
    rows = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        terms: dict[str, float] = {}
        step, over = 0, False
        while not over:
            obs, _, fallen, truncated, info = env.step(act(step, obs, draw))
            terms = {key: terms.get(key, 0.0) + value for key, value in info["reward_terms"].items()}
            step, over = step + 1, fallen or truncated
        rows.append({"steps": step, "fallen": float(fallen), **terms})
    mean = {key: round(float(np.mean([row[key] for row in rows])), 2) for key in rows[0]}
    returns = [sum(value for key, value in row.items() if key not in ("steps", "fallen")) for row in rows]
    return {"who": name, "return": round(float(np.mean(returns)), 2), "return_std": round(float(np.std(returns)), 2), **mean}


def main() -> None:
    """Measure, print and, where asked, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20, help="of each way to act [20]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    given = parser.parse_args()
    rows = [measure(name, act, given.episodes) for name, act in WAYS.items()]
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    if given.json:
        given.json.write_text(json.dumps({"task": TASK, "episodes": given.episodes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
