"""Disks that are full or read-only, limits of files and memory, moved folders, second writers, links and odd names."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kills import ended, rows
from outcome import Outcome, Trial
from trials import WALK, Case, Place, as_traceback, differing, is_root, options
from whole_runs import Process, flags

KIND = "limits"
LONG = {"steps": 300, "eval_every": 90, "log_every": 7, "checkpoint_every": 40}
# What a run writes beside its record, by the option that asks for it: see `test_trials.py`, which holds it against the package.
SINKS = {"TensorBoard": {"tensorboard": True}, "WeightsAndBiases": {"wandb": True}, "Curve": {}, "none": {"eval_episodes": 0}}
NAMES = ("a b", "ü–日本", "lr$\\frac$", "-dash", "a\nb", "[bold]x[/x]", "x" * 200, "%s{0}", "'\"`", "..a")


def cases(seed: int) -> Iterator[Case]:
    """All that was thought of, and full disks at random moments for as long as they are wanted."""
    for name in NAMES:
        yield _case(f"folder called {name[:20]!r}", lambda place, label, name=name: named(place, label, name))
    for name, act in OTHERS.items():
        yield _case(name, act)
    for size in (2_000, 5_000, 20_000, 40_000):
        yield _case(f"files of {size} bytes at most", lambda place, label, size=size: small_files(place, label, size))
    if is_root():
        for sink in SINKS:
            yield _case(f"read-only disk, {sink}", lambda place, label, sink=sink: read_only(place, label, SINKS[sink]))
        for number in range(200):
            for sink in SINKS:
                name = f"full disk, {sink} {number} of seed {seed}"
                yield _case(name, lambda place, label, sink=sink: full(place, label, SINKS[sink]))
            yield _case(f"full disk, bench {number} of seed {seed}", full_bench)


def _case(name: str, act: Callable[..., Trial]) -> Case:
    return Case(KIND, name, lambda place: act(place, name))


def _words(**more: Any) -> list[str]:
    return ["train", "sac", WALK, *flags(options("sac", **(LONG | more)))]


def _whole(place: Place, **more: Any) -> Path:
    words = _words(**more)
    return place.made(("limits", *words), lambda path: place.zygote.run(*words, "--out", path))


def _judged(name: str, process: Process, *, good: bool) -> Trial | None:
    """What is wrong with the end of a process; None where it ended well, or (not `good`) with a sentence."""
    if not ended(process):
        return Trial(name, Outcome.HANG, process.err[-300:])
    if (trace := as_traceback(process.err)) or process.code is None or process.code < 0:
        return Trial(name, Outcome.RAW, trace or f"exit code {process.code}: {process.err[-300:]}")
    if good and process.code:
        return Trial(name, Outcome.LOST, f"exit code {process.code}: {process.err[-300:]}")
    if not good and process.code and "beeline: " not in process.err and process.code < 128:
        return Trial(name, Outcome.RAW, f"exit code {process.code} without a word: {process.err[-300:]}")
    return None


def _goes_on(place: Place, name: str, run: Path, whole: Path, detail: str, words: list[str]) -> Trial:
    """After the trouble is over the run goes on to the same end; or it had not begun, and begins."""
    if (run / "config.json").exists():
        process = place.zygote.start("resume", run)
    else:
        shutil.rmtree(run, ignore_errors=True)
        process = place.zygote.start(*words, "--out", run)
    if bad := _judged(name, process, good=True):
        return bad
    difference = differing(whole, run)
    return Trial(name, Outcome.SILENT if difference else Outcome.CLEAR if detail else Outcome.HELD, difference or detail)


# --- disks ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def disk(place: Place, size: int) -> Iterator[Path]:
    """A disk of its own."""
    path = place.folder("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "beeline-faults", str(path)], check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def fill(path: Path) -> Path:
    """Leave no space; the file that takes it."""
    with (path / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return path / "filler"


def full(place: Place, name: str, sink: dict[str, Any]) -> Trial:
    """A disk that is full from a random moment on, or too small from the beginning; then there is space again."""
    chance = random.Random(name)
    more = {key: value for key, value in sink.items() if key != "wandb"}
    words, whole = _words(**sink), _whole(place, **more)
    with disk(place, chance.choice((40, 120, 300, 3000))) as path:
        run = path / "run"
        process = place.zygote.start(*words, "--out", run)
        row = chance.randrange(rows(whole))
        end = time.monotonic() + 60
        while process.alive() and rows(run) < row and time.monotonic() < end:
            time.sleep(0.002)
        filler = fill(path)
        if chance.random() < 0.3 and process.alive():
            process.signal(chance.choice((signal.SIGTERM, signal.SIGINT)))
        if bad := _judged(name, process, good=False):
            return bad
        said = process.err.strip()[-200:] if process.code else ""
        if process.code and (run / "status.json").exists():
            with contextlib.suppress(ValueError):
                if json.loads((run / "status.json").read_text())["state"] == "running":
                    return Trial(name, Outcome.SILENT, "status.json says that it runs")
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=20000k", str(path)], check=True)
        return _goes_on(place, name, run, whole, said, words)


def full_bench(place: Place, name: str) -> Trial:
    """A matrix on a full disk ends with a sentence and goes on when there is space."""
    chance = random.Random(name)
    words = ["bench", "--algos", "sac", "--tasks", WALK, "--seeds", "2", *flags(options("sac", **LONG))]
    whole = place.made(("limits", *words), lambda path: place.zygote.run(*words, "--out", path))
    with disk(place, chance.choice((60, 200, 4000))) as path:
        process = place.zygote.start(*words, "--out", path / "m")
        end, lines = time.monotonic() + 60, chance.randrange(20)
        while process.alive() and sum(map(rows, (path / "m").glob("*/*/seed*"))) < lines and time.monotonic() < end:
            time.sleep(0.01)
        filler = fill(path)
        if not ended(process):
            return Trial(name, Outcome.HANG, process.err[-300:])
        if (trace := as_traceback(process.err)) or process.code is None or process.code < 0:
            return Trial(name, Outcome.RAW, trace or f"exit code {process.code}")
        if process.code and "no space" not in (process.err + process.out):
            return Trial(name, Outcome.RAW, f"the disk is not named: {(process.err + process.out)[-300:]}")
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=40000k", str(path)], check=True)
        process = place.zygote.start(*words, "--out", path / "m", "--retry-failed")
        if not ended(process) or process.code:
            return Trial(name, Outcome.LOST, f"it does not go on: {(process.err + process.out)[-400:]}")
        runs = [found.parent.relative_to(whole) for found in whole.glob("*/*/*/config.json")]
        difference = "; ".join(found for each in runs if (found := differing(whole / each, path / "m" / each)))
        return Trial(name, Outcome.SILENT if difference else Outcome.CLEAR, difference)


def read_only(place: Place, name: str, sink: dict[str, Any]) -> Trial:
    """A disk that becomes read-only: training ends with a sentence, a policy on it can be used, and a copy goes on."""
    more = {key: value for key, value in sink.items() if key != "wandb"}
    words, whole = _words(**sink), _whole(place, **more)
    with disk(place, 20_000) as path:
        run = path / "run"
        process = place.zygote.start(*words, "--out", run)
        process.until(lambda: rows(run) > 12 or not process.alive())
        os.sync()
        for _ in range(200):
            if not subprocess.run(["mount", "-o", "remount,ro", str(path)], capture_output=True).returncode:
                break
            time.sleep(0.005)
        if bad := _judged(name, process, good=False):
            return bad
        for command in (["eval", run, "--episodes", "1"], ["runs", path], ["resume", run]):
            again = place.zygote.start(*command)
            if bad := _judged(f"{name}: {command[0]}", again, good=command[0] != "resume"):
                return bad
        copy = Path(shutil.copytree(run, place.folder() / "copy"))
        return _goes_on(place, name, copy, whole, process.err.strip()[-200:], words)


# --- limits -----------------------------------------------------------------------------------------------------------


def small_files(place: Place, name: str, size: int) -> Trial:
    """A limit on the size of files (ulimit -f)."""
    words, whole = _words(), _whole(place)
    run = place.folder() / "run"
    process = place.zygote.start(*words, "--out", run)
    process.until(lambda: rows(run) > 5 or not process.alive())
    if process.alive():
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))
    if bad := _judged(name, process, good=False):
        return bad
    return _goes_on(place, name, run, whole, "" if not process.code else process.out[-200:] or "ended", words)


def beyond_memory(place: Place, name: str) -> Trial:
    """A replay that no machine has room for."""
    process = place.zygote.start(*_words(replay_capacity=10**12), "--out", place.folder() / "run")
    bad = _judged(name, process, good=False)
    return bad or Trial(name, Outcome.CLEAR if process.code else Outcome.SILENT, process.err[-200:])


def few_files(place: Place, name: str) -> Trial:
    """A limit on open files that is just reached."""
    words, whole = _words(), _whole(place)
    run = place.folder() / "run"
    process = place.zygote.start(*words, "--out", run)
    process.until(lambda: rows(run) > 5 or not process.alive())
    if process.alive():
        taken = max(int(each.name) for each in Path(f"/proc/{process.pid}/fd").iterdir())
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (taken + 1, taken + 1))
    if bad := _judged(name, process, good=False):
        return bad
    return _goes_on(place, name, run, whole, process.err[-200:], words)


# --- folders ----------------------------------------------------------------------------------------------------------


def named(place: Place, name: str, folder: str) -> Trial:
    """A folder with an odd name."""
    run = place.folder() / folder
    process = place.zygote.start(*_words(), f"--out={run}")
    if bad := _judged(name, process, good=True):
        return bad
    difference = differing(_whole(place), run)
    return Trial(name, Outcome.SILENT if difference else Outcome.HELD, difference)


def _begun(place: Place) -> tuple[Process, Path]:
    run = place.folder() / "run"
    process = place.zygote.start(*_words(), "--out", run)
    process.until(lambda: rows(run) > 8)
    return process, run


def moved(place: Place, name: str) -> Trial:
    """The folder is moved while it is written."""
    process, run = _begun(place)
    new = run.rename(run.with_name("moved"))
    return _judged(name, process, good=False) or _goes_on(place, name, new, _whole(place), process.err[-200:], _words())


def removed(place: Place, name: str) -> Trial:
    """The folder is removed while it is written."""
    process, run = _begun(place)
    shutil.rmtree(run, ignore_errors=True)
    return _judged(name, process, good=False) or Trial(name, Outcome.CLEAR if process.code else Outcome.HELD, process.err[-200:])


def second_writer(place: Place, name: str) -> Trial:
    """Two that want to write: the second is refused, the first does not notice."""
    process, run = _begun(place)
    process.signal(signal.SIGSTOP)  # so that it is at work for as long as the second takes
    second = place.zygote.start("resume", run)
    try:
        if (bad := _judged(name, second, good=False)) or not second.code:
            return bad or Trial(name, Outcome.SILENT, "the second was let in")
    finally:
        process.signal(signal.SIGCONT)
    if bad := _judged(name, process, good=True):
        return bad
    difference = differing(_whole(place), run)
    return Trial(name, Outcome.SILENT if difference else Outcome.CLEAR, difference or second.err[-200:])


def live_copy(place: Place, name: str) -> Trial:
    """A copy that was made while the run was written goes on to the same end."""
    process, run = _begun(place)
    copy = run.with_name("copy")
    subprocess.run(["cp", "-r", str(run), str(copy)], check=False, capture_output=True)
    if bad := _judged(name, process, good=True):
        return bad
    return _goes_on(place, name, copy, _whole(place), "", _words())


def hard_links(place: Place, name: str) -> Trial:
    """A hard-linked copy is its own."""
    run = place.folder() / "run"
    shutil.copytree(place.stopped("sac"), run)
    linked = Path(shutil.copytree(run, run.with_name("linked"), copy_function=os.link))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    process = place.zygote.start("resume", linked)
    if bad := _judged(name, process, good=True):
        return bad
    changed = [path.name for path, data in before.items() if not path.exists() or path.read_bytes() != data]
    difference = f"the original's {changed} changed" if changed else differing(place.whole("sac"), linked)
    return Trial(name, Outcome.LOST if changed else Outcome.SILENT if difference else Outcome.HELD, difference)


def taken(make: Callable[[Path], object]) -> Callable[[Place, str], Trial]:
    """Something is at `--out` already."""

    def act(place: Place, name: str) -> Trial:
        run = place.folder() / "run"
        make(run)
        process = place.zygote.start(*_words(), "--out", run)
        bad = _judged(name, process, good=False)
        return bad or Trial(name, Outcome.CLEAR if process.code else Outcome.HELD, process.err[-200:])

    return act


OTHERS: dict[str, Callable[[Place, str], Trial]] = {
    "replay beyond memory": beyond_memory, "few open files": few_files, "moved while running": moved,
    "removed while running": removed, "second writer": second_writer, "copied while running": live_copy,
    "hard-linked copy": hard_links, "a file at --out": taken(lambda path: path.write_text("x")),
    "a link to nothing at --out": taken(lambda path: path.symlink_to("nothing")),
    "a pipe at --out": taken(os.mkfifo), "a loop at --out": taken(lambda path: path.symlink_to(path)),
    "a folder with files at --out": taken(lambda path: (path.mkdir(), (path / "x").touch())),
    "a linked lock at --out": taken(lambda path: (path.mkdir(), (path / ".lock").symlink_to("/etc/passwd"))),
}  # fmt: skip
