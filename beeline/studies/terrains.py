"""`beeline paper terrains`: how far exported policies walk on the four terrains, and how often they arrive.

The policies run in ONNX under the controller of `beeline.deploy`, on the simulated robot: nothing here imports JAX. An episode's
seed draws robot and ground, so that every policy meets the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beeline.deploy import Controller, OnnxPolicy, Outcome
from beeline.deploy.simulated import SimulatedRobot, variant_of
from beeline.envs.dkitty.robot import CONTROL_STEP
from beeline.envs.dkitty.terrain import TERRAINS
from beeline.errors import ConfigError
from beeline.studies import output

NAME = "terrains"
EPISODES = 10
SEED = 1  # of the first episode

Row = dict[str, Any]


def parse(given: Sequence[str]) -> dict[str, Path]:
    """Policies by their names, from `NAME=FILE`."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--policy {text!r} is not NAME=FILE, such as medium=medium.onnx.")
        if name in found:
            raise ConfigError(f"two policies are called {name!r}.")
        found[name] = Path(path)
    if not found:
        raise ConfigError("name the policies to try: --policy medium=medium.onnx --policy hard=hard.onnx (see beeline export).")
    return found


def episode(policy: Any, task: str, seed: int) -> Outcome:
    """One episode of a task, such as walk-medium, from its start to its end."""
    variant = variant_of(task)
    robot = SimulatedRobot(variant, seed)
    return Controller(policy, robot, robot.clock, robot.goal).run(variant.steps)


def walk(policy: Any, terrain: str, seed: int) -> Row:
    """One episode on a terrain."""
    outcome = episode(policy, f"walk-{terrain}", seed)
    return {
        "terrain": terrain,
        "seed": seed,
        "target": TERRAINS[terrain].target,
        "walked": round(outcome.walked, 4),
        "success": outcome.success,
        "seconds": round(outcome.ticks * CONTROL_STEP, 1),
        "ended": outcome.kind,
    }


def summarise(rows: Sequence[Row]) -> list[Row]:
    """One row per policy and terrain: distance walked with its sample deviation, and shares of success and falls."""
    found = []
    for policy, terrain in dict.fromkeys((row["policy"], row["terrain"]) for row in rows):
        own = [row for row in rows if (row["policy"], row["terrain"]) == (policy, terrain)]
        walked = [row["walked"] for row in own]
        found.append(
            {
                "policy": policy,
                "terrain": terrain,
                "target": own[0]["target"],
                "episodes": len(own),
                "walked": round(float(np.mean(walked)), 3),
                "walked_std": round(float(np.std(walked, ddof=1)), 3) if len(own) > 1 else None,
                "success": round(float(np.mean([row["success"] for row in own])), 3),
                "fallen": round(float(np.mean([row["ended"] == "fallen" for row in own])), 3),
            }
        )
    return found


def run(out: Path, policies: Mapping[str, Any], *, episodes: int = EPISODES) -> list[Row]:
    """Write terrains.{json,csv}, terrains-summary.csv and terrains.{png,svg}; the summary."""
    from beeline.studies import terrains_figure

    if episodes < 1:
        raise ConfigError(f"episodes = {episodes} is out of range; allowed: >= 1.")
    read = {name: OnnxPolicy(policy) if isinstance(policy, str | Path) else policy for name, policy in policies.items()}
    for name, policy in read.items():
        if policy.kind != "walk":
            raise ConfigError(f"the policy {name!r} was trained to {policy.kind}, not to walk.")
    rows: list[Row] = []
    for name, policy in read.items():
        for terrain in TERRAINS:
            rows += [{"policy": name, **walk(policy, terrain, SEED + number)} for number in range(episodes)]
    summary = summarise(rows)
    output.make_folder(out)
    about = {name: {key: value for key, value in policy.meta.items() if key != "config"} for name, policy in read.items()}
    output.save_json(out, NAME, {"policies": about, "episodes": episodes, "summary": summary, "rows": rows})
    output.save_csv(out, NAME, rows)
    output.save_csv(out, f"{NAME}-summary", summary)
    output.save_figure(out, NAME, terrains_figure.draw(rows, summary))
    return summary
