"""Recording an episode as an mp4, without a screen."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.envs import rendering
from beeline.errors import EnvError
from beeline.files import explained

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter

Act = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class EpisodeResult:
    """What an episode came to; `steps` are environment steps, `success` is None where none is reported."""

    episode_return: float
    steps: int
    success: bool | None
    path: Path


def record_episode(env: Adapter, act: Act, path: str | Path, seed: int, fps: float | None = None) -> EpisodeResult:
    """Play one episode with `act(obs) -> action` and write what it looked like to `path` (mp4).

    One frame per decision; without `fps` the video runs as fast as the environment's own clock.
    """
    import imageio.v2 as imageio

    path = Path(path)
    env_id, repeat = env.facts.id, env.facts.repeat
    rate = fps or max(1.0, env.metadata["render_fps"] / repeat)
    obs, _ = env.reset(seed=seed)
    first = frame_of(env)
    total, decisions, success, done = 0.0, 0, None, False
    with explained(path), _beside(path) as aside:
        writer: Any
        with imageio.get_writer(aside, format="FFMPEG", fps=rate, codec="libx264", macro_block_size=1) as writer:
            writer.append_data(first)
            while not done:
                obs, reward, terminated, truncated, info = env.step(act(obs))
                writer.append_data(frame_of(env))
                total, decisions, done = total + reward, decisions + 1, terminated or truncated
                success = bool(success) or info["success"] if "success" in info else success
        if not aside.stat().st_size:
            raise EnvError(f"environment {env_id!r}: the video {path} is empty.")
        aside.replace(path)
    steps = decisions * repeat
    if env.facts.max_episode_steps is not None:
        steps = min(steps, env.facts.max_episode_steps)  # the last decision may have been cut short by the limit
    return EpisodeResult(total, steps, success, path)


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Where to write a file that shall then replace `path`: in a new folder, because an encoder writes through any link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".film-", dir=path.parent) as folder:
        yield Path(folder) / path.name


def frame_of(env: Adapter) -> np.ndarray:
    """Return a frame with even sides, as the codec wants it, or raise an error that says what to install."""
    if env.render_mode != "rgb_array":
        raise EnvError(
            f"environment {env.facts.id!r} was not made for rendering. Make it with render=True, or with "
            "render_mode='rgb_array' if the factory or instance is your own."
        )
    try:
        frame = np.asarray(env.render())
    except Exception as error:
        backend = rendering.choose_backend()
        advice = f". {backend.message}" if backend.name is None else ""
        raise EnvError(f"environment {env.facts.id!r} cannot be rendered: {error}{advice}") from error
    if frame.ndim != 3:
        raise EnvError(f"environment {env.facts.id!r} returned no frame but {type(frame).__name__} of {frame.shape}.")
    height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2
    return np.ascontiguousarray(frame[:height, :width, :3], np.uint8)
