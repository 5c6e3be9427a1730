"""A run of a cluster has one writer: who lost the claim ends, even if it was frozen meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beeline import files
from beeline.bench import claim as bench_claim
from beeline.bench import worker as bench_worker

WRITER = """
import sys, time
from pathlib import Path
from beeline import files
from beeline.bench import claim as bench_claim
folder = Path(sys.argv[1])
bench_claim.keep(folder, sys.argv[2])
while True:
    files.write_atomic(folder.parent / "written", f"{sys.argv[2]} {time.time()}".encode())
    time.sleep(0.01)
"""


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes all the time by the claim "first"."""
    bench_claim.give(tmp_path / "run", "first")
    words = [sys.executable, "-c", WRITER, str(tmp_path / "run"), "first"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: (tmp_path / "written").exists())
        yield process
        process.kill()


def test_a_writer_ends_when_its_claim_is_taken_away(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    before = (tmp_path / "written").read_text()
    until(lambda: (tmp_path / "written").read_text() != before)
    assert bench_claim.take_away(tmp_path / "run")
    assert writer.wait(bench_claim.GRACE) == bench_claim.CLAIM_LOST
    assert writer.stderr and "given to another worker" in writer.stderr.read()
    assert not bench_claim.take_away(tmp_path / "run")


def test_a_writer_that_was_frozen_writes_nothing_when_it_wakes_up(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    writer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
    bench_claim.give(tmp_path / "run", "second")
    (tmp_path / "written").write_text("by the second")
    # It may have been frozen between its look and the rename, after which there is this one operation.
    (tmp_path / ".written.tmp").unlink(missing_ok=True)
    writer.send_signal(signal.SIGCONT)
    writer.wait(bench_claim.GRACE)
    assert (tmp_path / "written").read_text() == "by the second"


def test_a_writer_is_told_to_stop_as_by_sigterm(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    bench_claim.give(tmp_path / "run", "first", stop=True)
    assert writer.wait(bench_claim.GRACE) == -signal.SIGTERM


def test_leftover_claims_are_taken_away_and_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(bench_claim.time, "sleep", waits.append)
    folders = [tmp_path / name for name in "abc"]
    bench_claim.settle(folders)
    assert waits == []
    bench_claim.give(folders[0], "x")
    bench_claim.give(folders[2], "y")
    bench_claim.settle(folders)
    assert waits == [bench_claim.GRACE]
    assert [bench_claim.read(folder) for folder in folders] == [{}, {}, {}]


def test_cores_are_given_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5}, raising=False)
    monkeypatch.setattr(bench_worker, "_held", [])
    assert bench_worker.free_cores(1, tmp_path) == {2}
    assert bench_worker.free_cores(3, tmp_path) == set()  # and none of the two that were free is kept
    assert bench_worker.free_cores(2, tmp_path) == {3, 5}
    assert bench_worker.free_cores(1, tmp_path) == set()
    for handle in bench_worker._held:
        handle.close()


def test_a_locked_run_is_waited_for(tmp_path: Path) -> None:
    assert bench_worker._last_writer_is_gone(tmp_path / "no folder yet", 0)
    assert bench_worker._last_writer_is_gone(tmp_path, 0)
    lock = files.take_lock(tmp_path / ".lock")
    assert lock is not None
    begun = time.monotonic()
    assert not bench_worker._last_writer_is_gone(tmp_path, 0.3)
    assert time.monotonic() - begun >= 0.3
    lock.close()
