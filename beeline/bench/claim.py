"""Which process may write a run, where the machines of a matrix share nothing but its folder.

A run folder's lock ends with its process, but between machines that is the file server's word: for a machine that was cut
off it may come minutes late or too early, and a process that was frozen never hears it. So a run that is started on a
cluster has a claim, a small file beside its folder, given and taken away by the one `beeline bench` of the matrix. The
writer reads it every second and before every file operation, and ends at once when the claim is not its own any more.
Whoever takes a claim away waits for `GRACE` seconds before another process may write. What is left to a frozen process is
the one operation that it had begun, and checkpoints have checksums.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from beeline import files
from beeline.errors import UnreadableError

CHECK = 1.0  # seconds between two looks of a writer at its claim
GRACE = 5.0  # seconds after which a writer without a claim has ended: several looks, and a file server's delay
CLAIM_LOST = 76  # exit code of a writer whose claim was taken away


def claim_path(folder: Path) -> Path:
    """Where the claim of a run is: beside its folder, which may not be there yet."""
    return folder.with_name(f"{folder.name}.claim.json")


def give(folder: Path, token: str, *, stop: bool = False) -> None:
    """Let the process that knows `token` write the run; with `stop`, tell it to write a checkpoint and end."""
    files.make_folder(folder.parent)
    files.write_atomic(claim_path(folder), json.dumps({"token": token, "stop": stop}).encode())


def take_away(folder: Path) -> bool:
    """Let nobody write the run; whether there was a claim."""
    try:
        claim_path(folder).unlink()
    except FileNotFoundError:
        return False
    files.sync_folder(folder.parent)
    return True


def settle(folders: Iterable[Path]) -> None:
    """Take away what an earlier matrix left behind, which was killed, and wait until its writers have ended."""
    left = [folder for folder in folders if take_away(folder)]
    if left:
        print(f"waiting {GRACE:g} s for {len(left)} workers of an earlier start to end", flush=True)
        time.sleep(GRACE)


def read(folder: Path) -> dict[str, Any]:
    """The claim of a run; empty where there is none."""
    for _ in range(20):
        try:
            return files.load_json(claim_path(folder))
        except FileNotFoundError:
            return {}
        except UnreadableError:
            time.sleep(CHECK / 20)  # a file server that is busy replacing it
    return {}


def appears(folder: Path, token: str, seconds: float) -> bool:
    """Whether this machine sees the claim, at last: it may have remembered for a while that there was none."""
    end = time.monotonic() + seconds
    while read(folder).get("token") != token:
        if time.monotonic() >= end:
            return False
        time.sleep(CHECK / 4)
    return True


def keep(folder: Path, token: str) -> None:
    """Make this process a writer by its claim: it ends without it, and stops as by SIGTERM when it is told to."""

    def look() -> dict[str, Any]:
        found = read(folder)
        if found.get("token") != token:
            print("this run was given to another worker; this one ends", file=sys.stderr, flush=True)
            os._exit(CLAIM_LOST)
        return found

    def watch() -> None:
        while not look().get("stop"):
            time.sleep(CHECK)
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # the last checkpoint takes a while, too
            time.sleep(CHECK)
            look()

    before = files.fault

    def fence(operation: str, path: Path) -> None:
        look()  # a process that was frozen wakes up here as often as in the thread
        before(operation, path)

    files.fault = fence
    threading.Thread(target=watch, daemon=True).start()
