"""Tables on a screen, and the same rows where nobody looks: one line a row, words whole, nothing drawn around them.

On a terminal, sentences are cut between words and columns that matter less are left out; what stays is shown whole, names above
all. Through a pipe every row is one line with everything in it, columns aligned by spaces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

GAP = 2  # spaces between columns
COMFORTABLE, LEAST = 24, 12  # characters that prose is shortened to before columns go, and before it goes itself

_COMMAND = re.compile(r"(?<=: )(?:beeline|pip|ray) \S.*")  # it is printed for copying

_ILLEGIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def legible(text: object) -> str:
    """Text that every terminal, table and page takes: without control codes, halves of characters and changes of direction."""
    return _ILLEGIBLE.sub("\ufffd", str(text))


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: its heading, whether numbers stand in it, and what becomes of it where room is scarce.

    `goes` counts from the first that is left out, 0 never is; one that is `prose` is shortened to `comfort` characters before
    others are left out, and further before it is left out itself.
    """

    name: str
    right: bool = False
    goes: int = 0
    prose: bool = False
    comfort: int = COMFORTABLE


def shorten(text: str, width: int) -> str:
    """The text in `width` characters, cut between words; one that has no such place is left out."""
    if len(text) <= width:
        return text
    cut = text[: max(width - 1, 0)]
    if not text[len(cut) : len(cut) + 1].isspace():
        cut = cut.rpartition(" ")[0]
    return f"{cut.rstrip(' ,;:.')}…" if cut.strip() else "…"[:width]


def width(stream: TextIO | None = None) -> int | None:
    """How wide the terminal is that a stream (the output) is shown on; None where it is no terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    asked = os.terminal_size((80, 24))
    with contextlib.suppress(OSError, ValueError):  # what is asked first is the output's, which may be a pipe
        asked = os.get_terminal_size(stream.fileno())
    return shutil.get_terminal_size(asked).columns


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> dict[int, int]:
    """The columns that are shown, by place, and how wide each is; with no `room` all of them, whole."""
    sizes = {place: max([len(column.name), *(len(row[place]) for row in rows)]) for place, column in enumerate(columns)}
    if room is None:
        return sizes
    natural = dict(sizes)

    def over() -> int:
        return sum(sizes.values()) + GAP * (len(sizes) - 1) - (room or 0)

    def shorten_to(place: int, least: int) -> None:
        sizes[place] = min(sizes[place], max(least, len(columns[place].name), sizes[place] - over()))

    prose = [place for place in sizes if columns[place].prose]
    for place in prose:
        if over() > 0:
            shorten_to(place, columns[place].comfort)
    for place in sorted((place for place in sizes if columns[place].goes), key=lambda place: columns[place].goes):
        if over() > 0 and place in prose:
            shorten_to(place, LEAST)
        if over() > 0:
            del sizes[place]
    for place in sorted(set(natural) - set(sizes), key=lambda place: -columns[place].goes):
        if over() + natural[place] + GAP <= 0:  # where a wide one had to go after it, a narrow one has its room again
            sizes[place] = natural[place]
    sizes = dict(sorted(sizes.items()))
    for place in prose:  # what the last column that went has left over
        if place in sizes and over() < 0:
            sizes[place] = min(natural[place], sizes[place] - over())
    return sizes


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[str]:
    """Heading and rows, one line each."""
    sizes = fit(columns, rows, room)
    found = []
    for row in [[column.name for column in columns], *rows]:
        cells = []
        for place, size in sizes.items():
            text = shorten(row[place], size) if columns[place].prose else row[place]
            cells.append(text.rjust(size) if columns[place].right else text.ljust(size))
        found.append((" " * GAP).join(cells).rstrip())
    return found


def of(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> tuple[list[Column], list[list[str]]]:
    """The columns that have something in any row, and the cells of all rows in them."""
    there = [column for column in columns if any(row[column.name] not in (None, "") for row in rows)]
    return there, [[cell(row[column.name]) for column in there] for row in rows]


def cell(value: object) -> str:
    """A value as it stands in a table: one line, without what a terminal would take for a command."""
    if value is None:
        return "–"
    text = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(legible(text).split())


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]], below: Sequence[str] = ()) -> None:
    """Print a table for whoever looks; `below` has a sentence for each row, which stands under it."""
    heading, *others = lines(columns, rows, width())
    print(f"\033[1m{heading}\033[0m" if _coloured() else heading)
    for number, line in enumerate(others):
        print(line)
        if below:
            say(f"    {below[number]}")


def say(text: str) -> None:
    """Print sentences, on a terminal with every line broken between words."""
    print(broken(text, width()))


def complain(text: str) -> None:
    """Print sentences where errors and notes go, broken as those of `say` are."""
    print(broken(text, width(sys.stderr)), file=sys.stderr, flush=True)


def broken(text: str, room: int | None, indent: str = "") -> str:
    """Sentences with every line broken between words where there is no more room; what follows a line has its indentation.

    A command at the end of a line, which stands there for copying, stays in one piece.
    """
    found = []
    for line in text.split("\n"):
        own = indent + line[: len(line) - len(line.lstrip())]
        wrap = textwrap.TextWrapper(room or 0, subsequent_indent=own, break_long_words=False, break_on_hyphens=False)
        whole = _COMMAND.sub(lambda match: match[0].replace(" ", "\0"), line)
        found.append(line if room is None else wrap.fill(whole).replace("\0", " "))
    return "\n".join(found)


def show_json(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as JSON: a list of objects, one a line."""
    inside = ",\n".join(f" {json.dumps(row, ensure_ascii=False, default=str)}" for row in rows)
    print(f"[\n{inside}\n]" if rows else "[]")


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
