"""Recording an episode as an mp4, without a screen."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.envs import rendering
from beeline.envs.boundary import during
from beeline.errors import EnvError, Interrupted
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


def record_episode(
    env: Adapter, act: Act, path: str | Path, seed: int, fps: float | None = None, stop: Callable[[], bool] = lambda: False
) -> EpisodeResult:
    """Play one episode with `act(obs) -> action` and write what it looked like to `path` (mp4).

    One frame per decision; without `fps` the video runs as fast as the environment's own clock. `stop` is asked at every
    decision; a film that is given up, for this or another reason, leaves no file.
    """
    import imageio.v2 as imageio

    path = Path(path)
    env_id, repeat = env.facts.id, env.facts.repeat
    rate = fps or max(1.0, env.metadata["render_fps"] / repeat)
    with during("in a filmed episode"):
        obs, _ = env.reset(seed=seed)
        first = frame_of(env)
        total, decisions, success, done = 0.0, 0, None, False
        with explained(path), _whole(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            writer: Any
            with imageio.get_writer(path, format="FFMPEG", fps=rate, codec="libx264", macro_block_size=1) as writer:
                writer.append_data(first)
                while not done:
                    if stop():
                        raise Interrupted
                    obs, reward, terminated, truncated, info = env.step(act(obs))
                    writer.append_data(frame_of(env))
                    total, decisions, done = total + reward, decisions + 1, terminated or truncated
                    success = bool(success) or info["success"] if "success" in info else success
    steps = min(decisions * repeat, env.facts.limit)  # the last decision may have been cut short by the limit
    if not path.stat().st_size:
        raise EnvError(f"environment {env_id!r}: the video {path} is empty.")
    return EpisodeResult(total, steps, success, path)


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """A film that ends before its episode does is no film of it."""
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


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
