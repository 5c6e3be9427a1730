"""ManiSkill 3 with state observations, one environment on the CPU."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from beeline.envs.gym import spelled
from beeline.envs.spec import Built
from beeline.envs.tables import MANISKILL
from beeline.errors import EnvError

INSTALL = (
    "Rendering ManiSkill needs a Vulkan device. Without a GPU, install Mesa 25 or newer: mesa-vulkan-drivers, on "
    "Debian 12 from bookworm-backports (its own Mesa 22 fails)."
)


def build(task: str, render: bool) -> Built:
    """Make `PickCube` and the like; a task whose assets would have to be downloaded is an error, never a prompt."""
    vulkan = ensure_materials()
    if render and not vulkan:
        raise EnvError(f"environment 'maniskill/{task}' cannot be rendered. {INSTALL}")
    import mani_skill.envs  # noqa: F401 (importing it registers the tasks)
    from mani_skill.utils.logging_utils import logger
    from mani_skill.utils.registration import REGISTERED_ENVS

    known = {re.sub(r"-v\d$", "", gym_id): gym_id for gym_id in REGISTERED_ENVS}
    name = spelled("maniskill", task, [*MANISKILL, *known], lambda text: re.sub(r"-v\d$", "", text))
    spec = REGISTERED_ENVS[known[name]]
    logger.setLevel("ERROR")  # it warns about its own tasks' missing start poses
    with no_prompts(name, spec.asset_download_ids):
        env = ManiSkill(spec, render)
    return Built(env, name, spec.max_episode_steps, success=True)


class Material:
    """Stands in for a colour where nothing can draw it; the physics never looks."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.__dict__.update(kwargs)


def ensure_materials() -> bool:
    """Return whether a Vulkan device draws; if none does, let ManiSkill describe colours that nobody will see.

    The scene builders make a RenderMaterial for every shape, which without a device raises even when nothing renders.
    """
    import sapien

    if sapien.render.RenderMaterial is Material:
        return False
    try:
        sapien.render.RenderMaterial()
    except RuntimeError:
        sapien.render.RenderMaterial = sapien.pysapien.render.RenderMaterial = Material
        return False
    return True


@contextlib.contextmanager
def no_prompts(name: str, asset_ids: list[str]) -> Iterator[None]:
    """Turn the question whether to download something into an error that says how to."""
    from mani_skill.utils import assets, download_asset

    def refuse(question: str) -> bool:
        wanted = " ".join(asset_ids) or "<asset>"
        raise EnvError(
            f"environment 'maniskill/{name}' needs files that are not here. Download them once, where there is a "
            f"network: {Path(sys.executable).name} -m mani_skill.utils.download_asset {wanted} ({question})"
        )

    ask, download_asset.prompt_yes_no = download_asset.prompt_yes_no, refuse
    try:
        for asset in asset_ids:
            group = asset in assets.DATA_GROUPS
            sources = assets.expand_data_group_into_individual_data_source_ids(asset) if group else [asset]
            missing = [source for source in sources if not assets.is_data_source_downloaded(source)]
            if missing:
                refuse(f"missing: {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}")
        yield
    finally:
        download_asset.prompt_yes_no = ask


class ManiSkill(gymnasium.Env[np.ndarray, np.ndarray]):
    """One ManiSkill environment without its batch axis and its tensors."""

    def __init__(self, spec: Any, render: bool) -> None:
        self.scene_env: Any = spec.cls(
            **spec.default_kwargs,
            num_envs=1,
            obs_mode="state",
            sim_backend="physx_cpu",
            render_backend="cpu" if render else "none",
            render_mode="rgb_array" if render else None,
        )
        space = self.scene_env.single_observation_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        self.action_space = self.scene_env.single_action_space
        self.render_mode = "rgb_array" if render else None
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": self.scene_env.control_freq}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode in a scene without memory."""
        super().reset(seed=seed)
        # PhysX keeps contacts and orderings of the last episode, and the next one then differs in its last bits. Only a
        # new scene has no memory; taking the bodies out and putting them back helps most tasks, but not all.
        obs, _ = self.scene_env.reset(seed=seed, options={**(options or {}), "reconfigure": True})
        return obs[0].numpy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Advance one control step; success does not end the episode, so that staying there is learned as well."""
        obs, reward, _, truncated, info = self.scene_env.step(action)
        return obs[0].numpy(), reward.item(), False, bool(truncated), {"success": bool(info["success"])}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Return the frame of the task's camera for people."""
        return self.scene_env.render()[0].cpu().numpy()

    def close(self) -> None:
        """Free the scene."""
        self.scene_env.close()
