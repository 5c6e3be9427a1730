"""Many frames in one picture: the contact sheet of tasks (`python -m beeline.envs FILE [SUITE]`) and the film strip of runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from beeline.envs.paper import PAPER_TASKS, PaperTask
from beeline.errors import BeelineError
from beeline.files import explained, write_atomic

if TYPE_CHECKING:
    from PIL.Image import Image

    from beeline.envs.video import KeyFrame

COLUMNS = 8
SIDE = 200
LABEL = 30
CAPTION = 20
STEPS = 10  # into the episode, so that things have settled


def contact_sheet(path: str | Path, tasks: Sequence[PaperTask] = PAPER_TASKS) -> list[str]:
    """Render one frame of every task into one PNG with labels; return what could not be rendered, and why."""
    from PIL import Image, ImageDraw, ImageFont

    lines = -(-len(tasks) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * SIDE, lines * (SIDE + LABEL)), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(13)
    troubles = []
    for place, task in enumerate(tasks):
        left, top = place % COLUMNS * SIDE, place // COLUMNS * (SIDE + LABEL)
        suite, _, name = task.id.partition("?")[0].partition("/")
        draw.text((left + 4, top + SIDE), f"{suite}\n{name}", fill="black", font=font, spacing=0)
        try:
            frame = Image.fromarray(one_frame(task.id))
        except BeelineError as error:
            troubles.append(f"{task.id}: {error}")
            draw.rectangle((left + 2, top + 2, left + SIDE - 2, top + SIDE - 2), fill="lightgrey")
            continue
        sheet.paste(tile(frame), (left + 2, top + 2))
    _write(sheet, Path(path))
    return troubles


def film_strip(path: str | Path, rows: Sequence[tuple[str, Sequence[KeyFrame]]]) -> None:
    """Write one PNG with a row of key frames for every (label, frames), and the time of each frame under it."""
    from PIL import Image, ImageDraw, ImageFont

    columns = max(len(frames) for _, frames in rows)
    height = SIDE + LABEL + CAPTION
    strip = Image.new("RGB", (columns * SIDE, len(rows) * height), "white")
    draw = ImageDraw.Draw(strip)
    large, small = ImageFont.load_default(16), ImageFont.load_default(13)
    for number, (label, frames) in enumerate(rows):
        top, digits = number * height, 1 if frames[-1].seconds >= 2 else 2
        draw.text((4, top + LABEL // 2), label, fill="black", font=large, anchor="lm")
        for column, frame in enumerate(frames):
            strip.paste(tile(Image.fromarray(frame.picture)), (column * SIDE + 2, top + LABEL + 2))
            below = (column * SIDE + SIDE // 2, top + LABEL + SIDE + CAPTION // 2)
            draw.text(below, f"{frame.seconds:.{digits}f} s", fill="black", font=small, anchor="mm")
    _write(strip, Path(path))


def tile(frame: Image) -> Image:
    """The middle square of a frame in the size that sheets and strips show it."""
    from PIL import Image

    side = min(frame.size)
    x, y = (frame.width - side) // 2, (frame.height - side) // 2
    return frame.crop((x, y, x + side, y + side)).resize((SIDE - 4, SIDE - 4), Image.Resampling.LANCZOS)


def _write(picture: Image, path: Path) -> None:
    """Save as PNG with a palette of its own, fitted to all of the frames: a third of the size."""
    from PIL import Image

    buffer = io.BytesIO()
    picture.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, buffer.getbuffer())


def tasks_of(suite: str) -> tuple[PaperTask, ...]:
    """All listed tasks of a suite."""
    from beeline.envs.registry import suite_of

    chosen = suite_of(suite, suite)
    return tuple(PaperTask(f"{suite}/{task}", chosen.title) for task in chosen.tasks)


def one_frame(env_id: str, seed: int = 0) -> np.ndarray:
    """Return a frame from a few steps into an episode of small random actions."""
    from beeline.envs.registry import make
    from beeline.envs.video import frame_of

    env = make(env_id, render=True)
    draw = np.random.default_rng(seed)
    env.reset(seed=seed)
    for _ in range(STEPS):
        *_, terminated, truncated, _ = env.step(draw.uniform(-0.2, 0.2, env.facts.action_dim))
        if terminated or truncated:
            env.reset(seed=seed)
            break
    frame = frame_of(env)
    env.close()
    return frame
