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

from beeline.report.model import Data
from beeline.report.runs import Run

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


def newest_videos(data: Data, runs: Sequence[Run]) -> list[tuple[Path, Data]]:
    """The newest video of the first run that has one, for every line and task."""
    # The model sorts runs; find each of its rows again by the folder.
    rows = {(row["name"], row["task"], row["seed"]): row for row in data["runs"]}
    found: dict[tuple[int, str], tuple[Path, Data]] = {}
    for run in sorted(runs, key=lambda run: (run.task, run.algo, run.seed, str(run.path))):
        row = rows[run.path.name, run.task, run.seed]
        files = run.videos()
        if files and (row["line"], run.task) not in found:
            size = files[-1].stat().st_size
            entry = {"line": row["line"], "task": run.task, "seed": run.seed, "name": files[-1].name, "size": _size(size)}
            found[row["line"], run.task] = (files[-1], entry)
    return list(found.values())


def attach_videos(data: Data, runs: Sequence[Run], folder: Path) -> None:
    """Embed small videos, link large ones relative to the report's folder."""
    room = ALL_VIDEOS
    for path, entry in newest_videos(data, runs):
        size = path.stat().st_size
        if size <= min(SMALL_VIDEO, room):
            room -= size
            entry |= {"embedded": True, "src": "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()}
        else:
            relative = os.path.relpath(path, folder.resolve())
            entry |= {"embedded": False, "src": quote(Path(relative).as_posix())}
        data["videos"].append(entry)
