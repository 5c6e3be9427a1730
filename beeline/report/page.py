"""The report as one HTML file: data, style and script inside, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from beeline.files import read_regular
from beeline.report.model import Data, in_order, line_names
from beeline.report.runs import Run
from beeline.run.reading import Video, guard, legible

SCRIPTS = ("dom.js", "chart.js", "sections.js", "app.js")
SMALL_VIDEO = 2_000_000
ALL_VIDEOS = 16_000_000


def _asset(name: str) -> str:
    return (resources.files("beeline.report") / "assets" / name).read_text(encoding="utf-8")


def embed_json(value: Any) -> str:
    """JSON that cannot end the script element around it, whatever names the data holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def render(data: Data) -> str:
    """Put data, style and script into the page."""
    page = _asset("page.html").replace("/*css*/", _asset("report.css"))
    head, _, rest = page.partition("/*data*/")
    middle, _, tail = rest.partition("/*js*/")
    return "".join([head, embed_json(data), middle, "\n".join(map(_asset, SCRIPTS)), tail])


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{max(1, round(size / 1e3))} kB"


def newest_videos(data: Data, runs: Sequence[Run]) -> list[tuple[Run, Video, Data]]:
    """The newest video of the first run that has one, for every line and task."""
    names = [line["name"] for line in data["lines"]]
    ordered = in_order(runs)
    line_of = line_names(ordered)
    found: dict[tuple[int, str], tuple[Run, Video, Data]] = {}
    for run in ordered:
        line = names.index(line_of[run.path])
        if run.videos and (line, run.task) not in found:
            video = run.videos[-1]
            entry = {"line": line, "task": run.task, "seed": run.seed, "name": legible(video.path.name)}
            entry["size"] = _size(video.size)
            found[line, run.task] = (run, video, entry)
    return list(found.values())


def attach_videos(data: Data, runs: Sequence[Run], folder: Path) -> None:
    """Embed small videos, link large ones relative to the report's folder; one that has vanished is a warning."""
    room = ALL_VIDEOS
    for run, video, entry in newest_videos(data, runs):
        if video.size > min(SMALL_VIDEO, room):
            relative = Path(os.path.relpath(video.path, folder.resolve())).as_posix()
            data["videos"].append(entry | {"embedded": False, "src": quote(os.fsencode(relative))})
            continue
        said: list[str] = []
        with guard(run.path, said.append):
            content = read_regular(video.path, SMALL_VIDEO)
            room -= len(content)
            source = "data:video/mp4;base64," + base64.b64encode(content).decode()
            data["videos"].append(entry | {"embedded": True, "src": source})
        data["warnings"] += [f"{legible(run.path.name)}: {text}" for text in said]
