"""Presets: `paper` holds the paper's tables for each suite, `light` is sized for a laptop.

A preset is a set of options that an algorithm starts from; options given by the user come after it. Numbers of steps are
absolute, never a share of the budget, so that a run can be extended.
"""

from __future__ import annotations

from typing import Any

from beeline.errors import UnknownNameError

PRESETS = ("light", "paper")

# For a laptop: two layers of 256, batch 256, and a short warm-up.
LIGHT: dict[str, dict[str, Any]] = {
    "sac": {"random_steps": 1_000},
    "bac": {"random_steps": 1_000},
    "td3": {"random_steps": 1_000, "learn_after": 1_000},
    "bee-td3": {"random_steps": 1_000, "learn_after": 1_000},
}

# The paper's tables "Hyperparameter settings for BAC / SAC / TD3". MuJoCo stands for every suite that has no column of
# its own. The warm-up is that of each source: 10k random steps with updates (SAC, BAC), 25k without (TD3).
_BAC = {"hidden": (512, 512), "batch_size": 512}
_RATE = {"dmc": 1e-4, "dmc-dog": 3e-4}
PAPER: dict[str, dict[str, dict[str, Any]]] = {
    "bac": {"gym": _BAC},
    "sac": {
        "gym": {"alpha_beta1": 0.5},
        "dmc": {"alpha_beta1": 0.5, "hidden": (1024, 1024), "batch_size": 512, "target_interval": 2},
        "dmc-dog": {"alpha_beta1": 0.5, "hidden": (1024, 1024), "batch_size": 2048, "target_interval": 2},
        "metaworld": {"alpha_beta1": 0.5, "batch_size": 500},
    },
    "td3": {
        "gym": {"hidden": (400, 300), "batch_size": 100},
        "dmc": {"hidden": (512, 512)},
        "dmc-dog": {"hidden": (512, 512), "batch_size": 512},
        "metaworld": {"hidden": (512, 512)},
    },
}
PAPER["bee-td3"] = PAPER["td3"]


def suite_column(env_id: str) -> str:
    """Which column of the paper's tables a task belongs to."""
    suite, _, task = env_id.partition("/")
    if suite == "dmc":
        return "dmc-dog" if task.startswith("dog") else "dmc"
    return suite if suite == "metaworld" else "gym"


def preset_options(algo: str, env_id: str, preset: str) -> dict[str, Any]:
    """The options of a preset for an algorithm on a task."""
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS, f"Known: {', '.join(PRESETS)}.")
    if preset == "light":
        return dict(LIGHT[algo])
    column = suite_column(env_id)
    options = dict(PAPER[algo].get(column, PAPER[algo]["gym"]))
    rate = _RATE.get(column)
    if rate is not None and algo != "bac":
        options |= {"actor_lr": rate, "critic_lr": rate}
        options |= {"alpha_lr": rate} if algo == "sac" else {"value_lr": rate} if algo == "bee-td3" else {}
    return options
