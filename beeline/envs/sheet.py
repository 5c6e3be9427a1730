"""The contact sheet: one frame of every paper task in one picture, made by `python -m beeline.envs FILE [SUITE]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from beeline.envs.paper import PAPER_TASKS, PaperTask
from beeline.errors import BeelineError

COLUMNS = 8
SIDE = 200
LABEL = 30
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
        side = min(frame.size)
        x, y = (frame.width - side) // 2, (frame.height - side) // 2
        small = frame.crop((x, y, x + side, y + side)).resize((SIDE - 4, SIDE - 4), Image.Resampling.LANCZOS)
        sheet.paste(small, (left + 2, top + 2))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)
    return troubles


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
