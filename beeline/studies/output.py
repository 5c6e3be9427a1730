"""Tables and figures of the studies: written whole or not at all, and to the same bytes every time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beeline.files import explained, write_atomic

# Okabe and Ito's palette, told apart with any colour vision.
COLOURS = {"exploit": "#0072B2", "explore": "#D55E00", "bee": "#009E73"}
WRONG = "#D7191C"


def make_folder(out: Path) -> None:
    """Create the folder and its parents."""
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)


def save_json(out: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write `name.json`."""
    write_atomic(out / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())


def save_csv(out: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `name.csv` with the keys of the first row as its header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(out / f"{name}.csv", text.getvalue().encode())


def save_figure(out: Path, name: str, figure: Any, dpi: int = 160) -> None:
    """Write `name.png` and `name.svg`, without the date and random names that would change their bytes."""
    import matplotlib

    for kind in ("png", "svg"):
        data = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(data, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
        write_atomic(out / f"{name}.{kind}", data.getvalue())


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as an aligned table."""
    cells = [list(rows[0])] + [[str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells)
