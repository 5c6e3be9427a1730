"""DAC (Han and Sung 2021): SAC whose entropy is that of the policy's actions together with the buffer's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beeline.agents import sac
from beeline.agents.sac import SACConfig
from beeline.config import option

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


@dataclass(frozen=True)
class DACConfig(SACConfig):
    """Diversity actor-critic: entropy of the policy's actions together with the buffer's."""

    explore: str = option("sample-aware", "exploration term of the target", choices=("sample-aware",))
    tune_alpha: bool = option(False, "tune the temperature towards the target entropy, or keep it fixed")
    entropy_units: str = option("unit", "count log π in the env's own action units or in [-1, 1]", choices=("env", "unit"))
    v_entropy: bool = option(False, "entropy term in V's regression, as the release has it and the paper's text does not")


def build(config: DACConfig, task: Task) -> OffPolicy:
    """The agent: SAC's, with `Diverse` in place of `Soft`."""
    return sac.build(config, task)


# --- presets ----------------------------------------------------------------------------------------------------------

# c_r = 1/β of the authors' file; those of Humanoid and Swimmer are SAC's of 2018, as the file has none.
SCALES = {"HumanoidStandup": 1.0, "Humanoid": 20.0, "Swimmer": 25.0}


def light(env_id: str) -> dict[str, Any]:
    """Two layers of 256, batch 256, rewards times 5, and a short warm-up."""
    return {"random_steps": 1_000, "reward_scale": 5.0}


def paper(env_id: str) -> dict[str, Any]:
    """The constants of the authors' code on every task; rewards times 5 unless the task has another factor."""
    task = env_id.partition("/")[2]
    scale = next((scale for name, scale in SCALES.items() if task.startswith(name)), 5.0)
    long = task.startswith(("HalfCheetah", "Ant"))
    return {"reward_scale": scale, "random_steps": 10_000 if long else 1_000, "learn_after": 1_000}


def best(env_id: str) -> dict[str, Any]:
    """SAC's small LayerNorm networks and four updates per decision, with its tuned temperature."""
    return sac.best(env_id) | {"tune_alpha": True}


PRESETS = {"light": light, "paper": paper, "best": best}
