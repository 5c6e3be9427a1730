"""Damaged records, read by everything that shows runs: what is wrong is said, nothing is raw, nothing waits for ever.

The files of a real run are mutated by a fixed seed; each mutation is read by the report, the live page, the two tables, the
matrix and `beeline runs`, beside a run that is sound.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mutate
import pytest
from outcome import BAD, Outcome, Shown, Tally, of_call, of_process
from readers import RUNS, WALK, read_by_all, sound_content
from whole_runs import small

import beeline
from beeline import files
from beeline.errors import RunFolderError
from beeline.run import reading

FILES = ("config.json", "status.json", "metrics.csv")
EACH = 6  # mutations of one kind and file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix of two runs; the second is the one that is damaged."""
    out = tmp_path_factory.mktemp("matrix")
    first = out / RUNS[0].folder
    beeline.train("sac", WALK, out=first, **small("sac"))
    for name in ("checkpoints", "replay"):
        shutil.rmtree(first / name)
    second = Path(shutil.copytree(first, out / RUNS[1].folder))
    config = json.loads((second / "config.json").read_text())
    (second / "config.json").write_bytes(files.sealed(config | {"seed": 1}))
    status = json.loads((second / "status.json").read_text())
    (second / "status.json").write_bytes(files.sealed(status | {"config": reading.identity(config | {"seed": 1})}))
    for run in (first, second):
        (run / "videos").mkdir()
        (run / "videos" / "step-120.mp4").write_bytes(b"film")
    return out


# --- trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_no_mutation_of_a_record_is_raw_or_hangs(name: str, sound: Path) -> None:
    before = sound_content(sound)
    path, tally = sound / RUNS[1].folder / name, Tally()
    data = path.read_bytes()
    try:
        for kind in mutate.kinds(path):
            for number in range(EACH):
                path.write_bytes(kind(data, random.Random(f"{name} {kind.__name__} {number}")))
                read_by_all(tally, sound, f"{name} {kind.__name__} {number}", before)
    finally:
        path.write_bytes(data)
    print(f"{name}: {tally}")
    tally.require_none(BAD)
    assert tally.counts()[Outcome.CLEAR] > len(tally.trials) // 4  # the trials did reach what they are about


def test_swapped_files_are_not_raw_and_do_not_hang(sound: Path) -> None:
    before = sound_content(sound)
    run, tally = sound / RUNS[1].folder, Tally()
    kept = {name: (run / name).read_bytes() for name in FILES}
    for target in FILES:
        for source in (*FILES, "videos/step-120.mp4", "/bin/sh"):
            if source != target:
                (run / target).write_bytes(kept.get(source) or (run / source).read_bytes())
                read_by_all(tally, sound, f"{source} as {target}", before)
                (run / target).write_bytes(kept[target])
    print(tally)
    tally.require_none([Outcome.RAW, Outcome.HANG, Outcome.SILENT])


def _fifo(path: Path) -> None:
    os.mkfifo(path)


PLACED: dict[str, Callable[[Path], Any]] = {
    "a pipe": _fifo,
    "a folder": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a loop": lambda path: path.symlink_to(path),
    "a link out": lambda path: path.symlink_to("/etc/passwd"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "nothing": lambda path: None,
    "an empty file": lambda path: path.touch(),
    "a sparse file of a terabyte": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


@pytest.mark.parametrize("what", PLACED)
def test_what_is_no_file_is_said_and_not_waited_for(what: str, sound: Path) -> None:
    before = sound_content(sound)
    run, tally = sound / RUNS[1].folder, Tally()
    for name in (*FILES, "videos/step-120.mp4"):
        data = (run / name).read_bytes()
        (run / name).unlink()
        PLACED[what](run / name)
        read_by_all(tally, sound, f"{what} as {name}", before)
        (run / name).rmdir() if what == "a folder" else (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(data)
    print(f"{what}: {tally}")
    tally.require_none([Outcome.RAW, Outcome.HANG])


def test_outcomes_are_told_apart() -> None:
    def fail(error: BaseException) -> Shown:
        raise error

    def outcome(act: Callable[[], Shown], seconds: float = 5.0) -> Outcome:
        return of_call("x", act, 1, seconds).outcome

    assert outcome(lambda: Shown(1)) == Outcome.HELD
    assert outcome(lambda: Shown(2)) == Outcome.SILENT
    assert outcome(lambda: Shown(2, ["a: metrics.csv is damaged (line 2 has 3 cells)."])) == Outcome.CLEAR
    assert outcome(lambda: fail(RunFolderError("a is in use"))) == Outcome.CLEAR
    assert outcome(lambda: fail(KeyError("x"))) == Outcome.RAW
    assert outcome(lambda: Shown(2, ["a: it cannot be read (KeyError: 'step')."])) == Outcome.RAW
    assert outcome(lambda: Shown(time.sleep(60)), 0.05) == Outcome.HANG


def test_outcomes_of_processes_are_told_apart() -> None:
    def outcome(code: str, seconds: float = 60.0) -> Outcome:
        words = [sys.executable, "-c", f"import os, sys, time; {code}"]
        return of_process("x", words, lambda out: out == "1\n", seconds).outcome

    assert outcome("print(1)") == Outcome.HELD
    assert outcome("print(2)") == Outcome.SILENT
    assert outcome("sys.exit(print('beeline: a is in use', file=sys.stderr) or 2)") == Outcome.CLEAR
    assert outcome("print(1 / 0)") == Outcome.RAW
    assert outcome("os.abort()") == Outcome.RAW
    assert outcome("sys.exit(1)") == Outcome.RAW
    assert outcome("time.sleep(60)", 0.2) == Outcome.HANG
