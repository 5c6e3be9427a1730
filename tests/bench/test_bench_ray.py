"""A matrix on a Ray cluster: a node, a worker or the command dies, and the runs come out as if nothing had happened."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matrices import TASKS, uninterrupted, words, workers_of
from whole_runs import Process, Zygote, same_run

from beeline import runtime
from beeline.bench import claim as bench_claim
from beeline.bench import matrix as bench
from beeline.bench import plan as bench_plan
from beeline.bench import ray as bench_ray
from beeline.bench import watch as bench_watch
from beeline.bench.execute import Ended
from beeline.bench.plan import BenchRun
from beeline.bench.worker import failure_path, log_path
from beeline.cli import main
from beeline.errors import BeelineError, ConfigError, MissingExtraError

HERE = Path(__file__).parents[1]

# --- the crew, with an executor that does as it is told ---------------------------------------------------------------

RUN = BenchRun("sac", "sac", "gym/A-v1", 0, 1_000, "light", {"threads": 1})


class Scripted:
    """Executes one run at a time: each time it is submitted, the next scene is played in its folder."""

    size = 1
    trouble: BeelineError | None = None

    def __init__(self, out: Path, scenes: list[Any]) -> None:
        self.folder, self.scenes, self.submitted = out / RUN.folder, scenes, 0
        self.now: list[BenchRun] = []

    def free(self) -> bool:
        return not self.now

    def busy(self) -> bool:
        return bool(self.now)

    def submit(self, run: BenchRun) -> None:
        self.submitted += 1
        self.now.append(run)

    def running(self) -> list[BenchRun]:
        return self.now

    def poll(self) -> list[Ended]:
        kind, value = self.scenes[min(self.submitted, len(self.scenes)) - 1]
        run = self.now.pop()
        (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text("{}")
        if kind == "lost":
            (self.folder / "checkpoints" / f"step-{value:012d}").mkdir(exist_ok=True)
            return [Ended(run, "the worker on b died", lost=True)]
        if kind == "failed":
            failure_path(self.folder).write_text(json.dumps({"reason": value}))
            return [Ended(run, "its node died as well", lost=True)]
        if kind == "code":
            return [Ended(run, "the process ended with code 3")]
        (self.folder / "status.json").write_text('{"state": "finished", "step": 1000}')
        return [Ended(run)]

    def stop(self) -> None:
        raise AssertionError("nobody stopped it")

    def close(self) -> None:
        pass


LOST = [
    ([("lost", 0), ("lost", 0), ("done", 0)], 3, "finished", ""),
    ([("lost", 5)], bench.PATIENCE, "failed", "5 workers died without a new checkpoint, at last: the worker on b died"),
    ([("lost", step) for step in range(0, 90, 5)] + [("done", 0)], 19, "finished", ""),
    ([("failed", "NaN at step 3")], 1, "failed", "NaN at step 3"),
    ([("lost", 0), ("code", 3)], 2, "failed", "the process ended with code 3"),
]


@pytest.mark.parametrize(("scenes", "submitted", "state", "reason"), LOST)
def test_a_lost_run_goes_on_and_a_failed_one_does_not(
    scenes: list[Any], submitted: int, state: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "PAUSE", 0.0)
    executor = Scripted(tmp_path, scenes)
    crew = bench.Crew(tmp_path, [RUN], executor, retry_failed=False)
    crew.work()
    [view] = crew.views.values()
    assert (executor.submitted, view.state, view.reason) == (submitted, state, reason)


class Troubled(Scripted):
    """Takes two runs, then finds that none can go on."""

    told = 0

    def free(self) -> bool:
        return len(self.now) < 2

    def poll(self) -> list[Ended]:
        self.trouble = ConfigError("a node does not see the folder")
        ended = [Ended(run, "stopped") for run in self.now] if self.told else []
        self.now = [] if self.told else self.now
        return ended

    def stop(self) -> None:
        self.told += 1


def test_trouble_of_the_executor_stops_what_runs_and_begins_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PAUSE", 0.0)
    executor, runs = Troubled(tmp_path, []), [dataclasses.replace(RUN, seed=seed) for seed in range(3)]
    crew = bench.Crew(tmp_path, runs, executor, retry_failed=False)
    crew.work()
    assert (executor.told, executor.submitted, crew.queue) == (1, 2, runs[2:])
    assert {view.state for view in crew.views.values()} == {"waiting"}


CODES = [
    (1, False, "the process ended with code 1; see"),
    (-9, True, "its process on b was ended by SIGKILL"),
    (-11, True, "its process on b was ended by SIGSEGV"),
    (143, True, "its process on b was ended by SIGTERM"),  # with a checkpoint, before its machine went down
    (75, False, "its folder is still locked by a worker that was lost"),
    (76, False, "the claim of gym-A-v1/sac/seed0 was taken away: another command has"),
]


@pytest.mark.parametrize(("code", "lost", "reason"), CODES)
def test_how_a_process_ended_says_whether_the_run_may_go_on(code: int, lost: bool, reason: str, tmp_path: Path) -> None:
    executor = object.__new__(bench_ray.RayTasks)
    executor.out, executor.trouble = tmp_path, None
    ended = executor._ended(bench_ray._Task(RUN, "token", 0.0, host="b"), code)
    assert ended.lost == lost and ended.reason.startswith(reason)
    assert (executor.trouble is not None) == (code == 76)


# --- what is wrong before anything runs -------------------------------------------------------------------------------


def test_a_missing_extra_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*words(tmp_path / "matrix", "sac", "gym/Pendulum-v1"), "--ray", "local"]) == 2
    assert "[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "matrix").exists()
    with pytest.raises(MissingExtraError):
        bench_ray.import_ray()


def test_an_address_where_no_cluster_is_is_said_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(ConfigError, match=f"there is no Ray cluster at {address} .*refused.*ray start --head"):
            bench.run(tmp_path / "matrix", [RUN], ray=address)
        assert time.monotonic() - begun < 10
        other.listen()
        monkeypatch.setattr(bench_ray, "JOIN", 3.0)
        with pytest.raises(ConfigError, match=f"no Ray cluster answered at {address} within 3 s"):
            bench.run(tmp_path / "matrix", [RUN], ray=address)
        assert time.monotonic() - begun < 30
    assert not (tmp_path / "matrix").exists()


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "head:", ":6379"])
def test_what_is_no_address_is_said(address: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match="is neither HOST:PORT"):
        bench.run(tmp_path / "matrix", [RUN], ray=address)


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ray, "SEE", 0.0)
    bench_claim.give(tmp_path / "node", "ours")
    assert bench_ray.probe(str(tmp_path), "ours", 0) == ""
    assert list(tmp_path.iterdir()) == [bench_claim.claim_path(tmp_path / "node")]
    for folder, token in ((tmp_path / "elsewhere", "ours"), (tmp_path, "of another machine's folder of this name")):
        assert f"does not see the folder {folder} that the command sees" in bench_ray.probe(str(folder), token, 0)
    assert list(bench_ray.execute("node", str(tmp_path / "elsewhere"), "a/b/seed0", 1, "", "t", {}, "/")) == [
        ("unseen", socket.gethostname())
    ]


# --- real clusters ----------------------------------------------------------------------------------------------------

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def status(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "status.json").read_text())


def nodes_of(folder: Path) -> list[str]:
    """The Ray nodes that a run has been on, in order."""
    return re.findall(r"Ray node (\w+)", log_path(folder).read_text()) if log_path(folder).exists() else []


def rows(folder: Path) -> int:
    path = folder / "metrics.csv"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def descendants(pid: int) -> list[int]:
    """A process and all that it and its children have started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def listening(pids: list[int]) -> set[str]:
    """The addresses at which processes accept connections, as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(path.readlink()).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {words[1].partition(":")[0] for words in lines if words[3] == "0A" and words[9] in inodes}


@pytest.mark.slow
def test_local_ray_shows_failures_outlives_a_worker_and_stops_with_checkpoints(beeline: Zygote, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "matrix"
    threads = runtime.cores()  # so that there is room for one run at a time
    command = words(out, "sac", "gym/Nope-v1,toys:Walk-v0", seeds=2, steps=10**6, checkpoint_every=60, threads=threads)
    nope, first = (out / task / "sac" / "seed0" for task in ("gym-Nope-v1", "toys-Walk-v0"))
    second = first.with_name("seed1")
    process = beeline.start(*command, "--ray", "local")
    process.until(lambda: rows(first) > 6)
    process.until(lambda: "gym-Nope-v1/sac/seed0: failed" in process.out)
    assert "unknown environment 'gym/Nope-v1'" in json.loads(failure_path(nope).read_text())["reason"]
    found = listening(descendants(process.pid))
    assert found and found <= LOOPBACK, "the cluster on this machine can be reached from others"
    started = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(process.pid))
    assert b"raylet" in started and b"dashboard.py" not in started

    [worker] = workers_of(out)
    os.kill(worker, signal.SIGKILL)
    process.until(lambda: "was ended by SIGKILL; it goes on from its checkpoint" in process.out)
    process.until(lambda: bench_claim.claim_path(first).exists() and rows(second) > 6)  # submitted, but there is no room
    assert len(nodes_of(nope)) == 1, "a run that failed was tried again"
    process.signal(signal.SIGINT)
    assert process.wait() == 130, process.err
    assert (status(second)["state"], status(second)["reason"]) == ("stopped", "SIGTERM")
    assert sorted((second / "checkpoints").iterdir())[-1].name.endswith(str(status(second)["step"]))
    assert len(nodes_of(first)) == 1, "a run was begun after the command was told to stop"
    assert workers_of(out) == [] and list(out.rglob("*.claim.json")) == []
    assert f"Go on with: beeline bench --out {out} --ray local" in process.err


def until(process: Process, condition: Callable[[], bool]) -> None:
    process.until(condition, seconds=300)  # four Ray nodes and their workers may share two cores with other tests


class Cluster:
    """Several nodes of one CPU on this machine; see ray_cluster."""

    def __init__(self, nodes: int) -> None:
        words = [sys.executable, str(HERE / "ray_cluster.py"), str(nodes)]
        env = os.environ | {"PYTHONPATH": str(HERE.parent)}
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.address: str = self._answer()["address"]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def kill(self, node: str) -> None:
        assert self.process.stdin
        print(node, file=self.process.stdin, flush=True)
        assert self._answer() == {"killed": node}

    def close(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    found = Cluster(3)
    yield found
    found.close()


@pytest.mark.slow
def test_a_matrix_that_loses_a_node_and_its_command_equals_one_that_did_not(
    cluster: Cluster, beeline: Zygote, tmp_path: Path
) -> None:
    changes = {"steps": 480, "log_every": 12, "eval_every": 220, "checkpoint_every": 36}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    runs = uninterrupted(whole, **changes)
    command = [*words(broken, "bac,sac", ",".join(TASKS), seeds=2, **changes), "--ray", cluster.address]

    process = beeline.start(*command)
    hurt: list[Any] = [None]  # who was hurt already, and who can be now

    def some_run_is_in_its_middle() -> bool:
        hurt[1:] = [run for run in runs if 6 < rows(broken / run.folder) < 14 and run != hurt[0]]
        return len(hurt) > 1

    until(process, some_run_is_in_its_middle)
    bound = [tuple(os.sched_getaffinity(pid)) for pid in workers_of(broken)]
    assert 1 <= len(set(bound) & {(core,) for core in os.sched_getaffinity(0)}) == sum(len(cores) == 1 for cores in bound)
    orphan = hurt[0] = hurt[1]
    [worker] = [pid for pid in workers_of(broken) if orphan.folder in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(worker, signal.SIGKILL)
    until(process, lambda: f"{orphan.folder}: waiting" in process.out)

    until(process, some_run_is_in_its_middle)
    victim, place = hurt[1], broken / hurt[1].folder
    node = nodes_of(place)[-1]
    cluster.kill(node)
    assert status(place)["state"] == "running", "the node was killed too late"
    line = rf"{victim.folder}: waiting at step \d+.* died .*from its checkpoint"
    until(process, lambda: bool(re.search(line, process.out)))
    until(process, lambda: len(nodes_of(place)) == 2)
    assert nodes_of(place)[0] == node != nodes_of(place)[1]
    before = rows(place)
    assert before > 6, "the run began from the beginning"

    until(process, lambda: rows(place) > before)
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = [run.folder for run in runs if bench_watch.look(broken, run).state == "finished"]
    process = beeline.start("bench", "--out", broken, "--ray", cluster.address)
    assert process.wait() == 0, process.err + process.out
    assert "8 of 8 runs are finished." in process.out
    assert bench_plan.recorded(broken) == runs
    for run in runs:
        same_run(whole / run.folder, broken / run.folder)
        if run.folder in finished:
            assert f"{run.folder}: running" not in process.out, "a finished run was repeated"
    assert len(nodes_of(broken / orphan.folder)) > 1 < len(nodes_of(place))
    assert workers_of(broken) == [] and list(broken.rglob("*.claim.json")) == []
