"""Seeded damage to files: what disks, editors, half a copy and malice leave behind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]


def bit(data: bytes, chance: random.Random) -> bytes:
    """One bit is flipped."""
    found = bytearray(data)
    found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def overwrite(data: bytes, chance: random.Random) -> bytes:
    """Up to sixteen bytes are something else."""
    place = chance.randrange(len(data))
    return data[:place] + chance.randbytes(chance.randint(1, 16)) + data[place + 16 :]


def letter(data: bytes, chance: random.Random) -> bytes:
    """One byte is another that is usual in such files: what a check of the alphabet alone does not see."""
    place = chance.randrange(len(data))
    return data[:place] + chance.choice(b'0123456789eE+-.,:"[]{}\\ \n\r\tnaif_/').to_bytes() + data[place + 1 :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """The end is lost."""
    return data[: chance.randrange(len(data))]


def hole(data: bytes, chance: random.Random) -> bytes:
    """A piece is lost, or is zeros."""
    place = chance.randrange(len(data))
    size = chance.randint(1, 64)
    return data[:place] + b"\0" * chance.choice((0, len(data[place : place + size]))) + data[place + size :]


def doubled(data: bytes, chance: random.Random) -> bytes:
    """A piece is there twice."""
    place, size = chance.randrange(len(data)), chance.randint(1, 200)
    return data[:place] + data[place : place + size] * 2 + data[place + size :]


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"), -1e308, "", "600", "\ud800", "[/x]", "../../..",
    "a\0b", "²", "x" * 200_000, "</script>", "$\\frac$", [], {}, [[[]]], {"": None}, json.loads("[" * 300 + "]" * 300),
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value, as its owner and the key."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def json_value(data: bytes, chance: random.Random) -> bytes:
    """One value of a JSON file is another, of another type perhaps."""
    found = json.loads(data)
    owner, key = chance.choice(list(places(found)))
    owner[key] = chance.choice(ODD)
    return json.dumps(found).encode()


def json_key(data: bytes, chance: random.Random) -> bytes:
    """One name of a JSON file is gone, or another."""
    found = json.loads(data)
    owner, key = chance.choice([(owner, key) for owner, key in places(found) if isinstance(owner, dict)])
    value = owner.pop(key)
    if chance.random() < 0.5:
        owner[key[::-1]] = value
    return json.dumps(found).encode()


CELLS = (
    "", "nan", "inf", "-inf", "1e999", "-1.7e308", "1.7e308", "1" * 200_000, "0x10", "1_0", " 1", "١", "-1", "0.5", "\"", "1,1",
    "\r",
)  # fmt: skip


def cell(data: bytes, chance: random.Random) -> bytes:
    """One cell of a table is something else."""
    lines = data.decode().split("\n")
    place = chance.randrange(len(lines) - 1)
    cells = lines[place].split(",")
    cells[chance.randrange(len(cells))] = chance.choice(CELLS)
    return "\n".join([*lines[:place], ",".join(cells), *lines[place + 1 :]]).encode()


def lines_of_json(how: Mutation) -> Mutation:
    """The same in one line of a journal."""

    def change(data: bytes, chance: random.Random) -> bytes:
        lines = data.split(b"\n")
        place = chance.randrange(len(lines) - 1)
        return b"\n".join([*lines[:place], how(lines[place], chance), *lines[place + 1 :]])

    change.__name__ = f"{how.__name__} of a line"
    return change


def line(data: bytes, chance: random.Random) -> bytes:
    """One line is gone, or there twice."""
    lines = data.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return b"".join([*lines[:place], *lines[place : place + 1] * chance.choice((0, 2)), *lines[place + 1 :]])


ANY: tuple[Mutation, ...] = (bit, overwrite, letter, cut, hole, doubled)


def kinds(path: Path) -> tuple[Mutation, ...]:
    """The mutations that make sense of a file, by its name."""
    own = {
        ".json": (json_value, json_key), ".csv": (cell,),
        ".jsonl": (lines_of_json(json_value), lines_of_json(json_key), line),
    }  # fmt: skip
    return (*ANY, *own.get(path.suffix, ()))
