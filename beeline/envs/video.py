"""Recording an episode as an mp4 or as key frames, without a screen."""

from __future__ import annotations

import dataclasses
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.envs import rendering
from beeline.envs.boundary import during
from beeline.errors import EnvError, Interrupted, RunFolderError
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
    repeat = env.facts.repeat
    rate = fps or max(1.0, env.metadata["render_fps"] / repeat)
    with during("in a filmed episode"), explained(path):
        episode = _episode(env, act, seed, stop)
        next(episode)
        first = frame_of(env)
        total, decisions, success = 0.0, 0, None
        path.parent.mkdir(parents=True, exist_ok=True)
        # A reader sees the whole video or none. A folder of its own: an encoder that is slow to end must not leave a file.
        with tempfile.TemporaryDirectory(prefix=".film-", dir=path.parent) as folder:
            part = Path(folder) / path.name
            writer: Any
            with imageio.get_writer(part, format="FFMPEG", fps=rate, codec="libx264", macro_block_size=1) as writer:
                writer.append_data(first)
                for reward, info in episode:
                    writer.append_data(frame_of(env))
                    total, decisions = total + reward, decisions + 1
                    success = bool(success) or info["success"] if "success" in info else success
            if not _is_complete(part):  # the encoder only grumbles when it could not write
                raise RunFolderError(f"the video {path} could not be written whole. Is the disk full?")
            part.replace(path)
    steps = min(decisions * repeat, env.facts.limit)  # the last decision may have been cut short by the limit
    return EpisodeResult(total, steps, success, path)


def _is_complete(path: Path) -> bool:
    """Whether an mp4 has its index (the box `moov`), which the encoder writes at the very end."""
    kinds, size, place = set(), path.stat().st_size, 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            length, kind = struct.unpack(">I4s", file.read(8).ljust(8, b"\0"))
            if length == 1:  # a long box has its length behind its name
                (length,) = struct.unpack(">Q", file.read(8).ljust(8, b"\0"))
            if length < 8 or place + length > size:
                return False
            kinds.add(kind)
            place += length
    return b"moov" in kinds


@dataclasses.dataclass(frozen=True)
class KeyFrame:
    """A picture of an episode and the time on the environment's own clock."""

    seconds: float
    picture: np.ndarray


def key_frames(env: Adapter, player: Callable[[], Act], seed: int, count: int) -> tuple[list[KeyFrame], float]:
    """Frames evenly spaced in time over one episode, its start and its end among them, and the episode's return.

    The episode is played twice, each time by a new player, and the first time to learn how long it is: keeping every frame of
    a long one would take gigabytes. One with fewer decisions than frames gives as many frames as it has.
    """
    rewards = [reward for reward, _ in _episode(env, player(), seed)]
    wanted = set(np.linspace(0, len(rewards) - 1, count).round().astype(int).tolist())
    seconds = env.facts.repeat / env.metadata["render_fps"]
    again = enumerate(_episode(env, player(), seed))
    frames = [KeyFrame(decision * seconds, frame_of(env)) for decision, _ in again if decision in wanted]
    return frames, sum(rewards)


def _episode(
    env: Adapter, act: Act, seed: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Play one episode: reward and info of every decision as it is taken, and before them 0 and nothing at the start."""
    obs, _ = env.reset(seed=seed)
    yield 0.0, {}
    done = False
    while not done:
        if stop():
            raise Interrupted
        obs, reward, terminated, truncated, info = env.step(act(obs))
        done = terminated or truncated
        yield reward, info


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
