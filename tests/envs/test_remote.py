"""Environments in processes of their own: the same numbers, the same errors, and nobody left behind."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from whole_runs import Zygote, arrays, flags, no_longer_than, same_run, small

import beeline as library
from beeline.collect import Collector
from beeline.envs import registry, remote, trust
from beeline.errors import EnvError, NonFiniteError, UnnamedModuleError, notes
from beeline.loop import Callback, StepEvent
from beeline.memory import Replay
from beeline.run.folder import RunFolder

WALK = "toys:Walk-v0?success=true"


def two(**changes: Any) -> dict[str, Any]:
    return small("sac", num_envs=2, **changes)


@pytest.fixture(autouse=True)
def _named() -> Iterator[None]:
    trust.allow(WALK)
    with no_longer_than(120):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process, which those in several are held against."""
    path = tmp_path_factory.mktemp("remote") / "whole"
    library.train("sac", WALK, out=path, verbose=0, **two())
    return path


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def workers(pid: int) -> list[int]:
    """The processes in which a command's environments run."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            words = (each / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [int(each.name)] if parent == pid and b"beeline.envs.remote" in words else []
    return found


def wait_until_gone(pids: list[int]) -> None:
    while not all(map(gone, pids)):  # the test as a whole has a limit
        time.sleep(0.01)


def switch(path: Path, on: bool) -> None:
    folder = RunFolder.open(path)
    plan = folder.plan()
    folder.rewrite(dataclasses.replace(plan, train=dataclasses.replace(plan.train, env_processes=on)))


# --- one environment ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [WALK, "toys:Goal-v0", "toys:Walk-v0?noise=0.3&repeat=2", toys.Goal])
def test_what_comes_out_is_what_comes_out_in_one_process(env: Any) -> None:
    trust.allow(env)
    here, (there,) = registry.make(env, limit=15), remote.make(env, 1, limit=15)
    try:
        for name, value in dataclasses.asdict(here.facts).items():
            other = getattr(there.facts, name)
            if name in ("terminated", "reward"):  # functions stay in the process they are of
                assert other is None
                continue
            assert np.array_equal(value, other) and getattr(value, "dtype", None) == getattr(other, "dtype", None), name
        assert registry.spec_of(there) is there.facts
        draw = np.random.default_rng(0)
        for episode in range(2):
            ours, theirs = here.reset(seed=episode), there.reset(seed=episode)
            for _ in range(20):
                assert theirs[0].dtype == np.float32 and ours[0].tobytes() == theirs[0].tobytes()
                assert ours[1:] == theirs[1:] and list(map(type, ours[1:])) == list(map(type, theirs[1:]))
                if len(ours) == 5 and (ours[2] or ours[3]):
                    break
                action = draw.uniform(-1.5, 1.5, here.facts.action_dim).astype(np.float32 if episode else np.float64)
                ours, theirs = here.step(action), there.step(action)
    finally:
        there.close()
    assert there.process.returncode == 0


def test_info_becomes_json_and_never_an_error() -> None:
    itself: dict[str, Any] = {"success": True, "array": np.arange(3), "number": np.float32(0.5), "odd": object()}
    told = remote.json.loads(remote._plain(itself))
    assert told == {"success": True, "array": [0, 1, 2], "number": 0.5, "odd": "a object"}
    itself["again"] = itself
    assert remote.json.loads(remote._plain(itself))["success"] is True


@pytest.mark.parametrize(("fault", "kind"), [("raise", EnvError), ("nan obs", NonFiniteError), ("four values", EnvError)])
def test_errors_are_the_same_sentences_with_the_users_lines(fault: str, kind: type[EnvError]) -> None:
    env = registry.with_arguments("toys:Walk-v0", {"fault": fault, "at": 2})
    here, (there,) = registry.make(env), remote.make(env, 1)
    told = []
    for each in (here, there):
        each.reset(seed=0)
        each.step(np.zeros(2, np.float32))
        with pytest.raises(kind) as caught:
            each.step(np.zeros(2, np.float32))
        told.append((type(caught.value), str(caught.value), notes(caught.value)))
    assert there.reset(seed=1)[0].tobytes() == here.reset(seed=1)[0].tobytes()  # it lives on
    there.close()
    assert told[0] == told[1]
    if fault == "raise":
        assert "the motor is hot" in told[0][1] and "toys.py" in told[0][1] and told[0][2]
        assert "in step" in str(caught.value.__cause__)


def test_what_cannot_be_made_is_told_as_in_one_process() -> None:
    with pytest.raises(EnvError, match="Wolk-v0"):
        remote.make("toys:Wolk-v0", 1)


def test_an_answer_that_nobody_took_is_not_taken_for_another() -> None:
    here, (there,) = registry.make(WALK), remote.make(WALK, 1)
    there.reset(seed=0)
    there.begin_step(np.zeros(2, np.float32))
    assert there.reset(seed=3)[0].tobytes() == here.reset(seed=3)[0].tobytes()
    there.close()


def test_a_killed_process_is_named_and_the_next_reset_starts_another() -> None:
    (there,) = remote.make(WALK, 1)
    first = there.reset(seed=0)[0]
    pid = there.process.pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EnvError, match=f"process {pid} was ended by SIGKILL"):
        there.step(np.zeros(2, np.float32))
    assert there.reset(seed=0)[0].tobytes() == first.tobytes() and there.process.pid != pid
    there.close()


def test_one_that_hangs_is_killed_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GRACE", 0.1)
    (there,) = remote.make(registry.with_arguments("toys:Walk-v0", {"fault": "hang", "at": 1}), 1)
    there.reset(seed=0)
    there.begin_step(np.zeros(2, np.float32))
    there.close()
    assert there.process.returncode == -signal.SIGKILL


def test_it_ends_with_what_holds_it() -> None:
    (there,) = remote.make(WALK, 1)
    process = there.process
    del there
    assert process.returncode == 0


@pytest.mark.parametrize("env", [lambda: toys.Walk(), toys.Walk(), functools.partial(toys.Walk, success=True)])
def test_what_another_process_cannot_find_is_refused(env: Any) -> None:
    with pytest.raises(EnvError, match="has to find it by its name"):
        remote.make(env, 1)


def test_the_permission_is_this_process_own() -> None:
    with pytest.raises(UnnamedModuleError):
        remote.make(trust.Recorded("somebody.elses:Task-v0"), 1)


def test_all_lanes_are_asked_before_the_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    made = remote.make(WALK, 2)

    def noted(name: str) -> None:
        plain = getattr(remote.RemoteEnv, name)

        def call(self: remote.RemoteEnv, *args: Any) -> Any:
            calls.append((name, made.index(self)))
            return plain(self, *args)

        monkeypatch.setattr(remote.RemoteEnv, name, call)

    noted("begin_step")
    noted("finish_step")
    collector = Collector(made, Replay(100, 2, 2, 2), seed=0)
    collector.begin()
    collector.step(np.zeros((2, 2), np.float32))
    for each in made:
        each.close()
    assert calls == [("begin_step", 0), ("begin_step", 1), ("finish_step", 0), ("finish_step", 1)]


# --- whole runs -----------------------------------------------------------------------------------------------------------


def test_a_run_has_the_same_bytes_through_python(whole: Path, tmp_path: Path) -> None:
    library.train("sac", WALK, out=tmp_path / "run", verbose=0, **two(env_processes=True))
    same_run(whole, tmp_path / "run")


def test_a_run_has_the_same_bytes_through_the_command(whole: Path, tmp_path: Path, beeline: Zygote) -> None:
    beeline.run("train", "sac", WALK, *flags(two(env_processes=True)), "--out", tmp_path / "run")
    same_run(whole, tmp_path / "run")


@pytest.mark.parametrize("first", [False, True])
def test_a_run_goes_on_with_it_switched_on_or_off(whole: Path, tmp_path: Path, first: bool) -> None:
    run, told = tmp_path / "run", []
    library.train("sac", WALK, out=run, verbose=0, **two(steps=50, env_processes=first))
    switch(run, not first)
    library.resume(run, steps=120, verbose=0, report=told.append)
    assert told == []
    same_run(whole, run)


def test_an_exception_stops_both_alike(tmp_path: Path) -> None:
    said = []
    for on in (False, True):
        run = tmp_path / str(on)
        with pytest.raises(EnvError, match="in lane 0") as caught:
            fault = {"fault": "raise", "at": 25}
            library.train("sac", "toys:Walk-v0", env_kwargs=fault, out=run, verbose=0, **two(env_processes=on, eval_episodes=0))
        said.append([each.replace(str(run), "RUN") for each in (str(caught.value), *notes(caught.value))])
        assert "the motor is hot" in (run / "error.txt").read_text()
    assert said[0] == said[1]
    assert arrays(tmp_path / "False") == arrays(tmp_path / "True")


class Kill(Callback):
    """Ends the process of one lane in the middle of the run."""

    pids: list[int]

    def on_step(self, event: StepEvent) -> None:
        self.pids = [env.process.pid for env in event.trainer.collector.envs]  # type: ignore[attr-defined]
        if event.step == 50:
            os.kill(self.pids[1], signal.SIGKILL)


def test_a_killed_process_stops_the_run_with_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    run, told, kill = tmp_path / "run", [], Kill()
    with pytest.raises(EnvError, match=r"at step 52 of the run: in lane 1: .* was ended by SIGKILL.* A checkpoint is written"):
        library.train("sac", WALK, out=run, verbose=0, callbacks=[kill], **two(env_processes=True))
    wait_until_gone(kill.pids)
    shutil.copytree(run, tmp_path / "other")
    switch(tmp_path / "other", False)
    for each in (run, tmp_path / "other"):
        library.resume(each, verbose=0, report=told.append)
    assert told == []  # every open episode was played again, that of the lane that was reset as well
    same_run(run, tmp_path / "other")


@pytest.mark.parametrize("hangs", [False, True])
def test_no_process_outlives_the_learner(tmp_path: Path, beeline: Zygote, hangs: bool) -> None:
    words = flags(two(env_processes=True, steps=10_000_000, eval_episodes=0, checkpoint_every=10_000_000))
    more = {"TOY_HANG": "0:500"} if hangs else {}
    process = beeline.start("train", "sac", WALK, *words, "--out", tmp_path / "run", env=more)
    process.until(lambda: "hanging" in process.out if hangs else (tmp_path / "run" / "metrics.csv").exists())
    pids = workers(process.pid)
    assert len(pids) == 2
    process.signal(signal.SIGKILL)
    process.wait()
    wait_until_gone(pids)


def test_ctrl_c_is_the_learners_and_leaves_a_run_to_go_on_with(tmp_path: Path, beeline: Zygote) -> None:
    run, words = tmp_path / "run", flags(two(env_processes=True, steps=1_000_000, checkpoint_every=1_000_000))
    process = beeline.start("train", "sac", WALK, *words, "--out", run)
    process.until(lambda: (run / "metrics.csv").exists() and len((run / "metrics.csv").read_text().splitlines()) > 3)
    pids = workers(process.pid)
    for each in (*pids, process.pid):
        os.kill(each, signal.SIGINT)
    assert process.wait() == 130
    wait_until_gone(pids)
    assert "ended by" not in process.err
    assert '"stopped"' in (run / "status.json").read_text()
