"""What the tests of whole runs share: one thread, one compilation cache, compiled agents kept, and real processes."""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # so that toys:Walk-v0 can be imported
# Before JAX is imported: bytes depend on the thread count, and compiling is what the tests would spend their time on.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"beeline-tests-xla-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("WANDB_SILENT", "true")
_STATE = tempfile.TemporaryDirectory(prefix="beeline-tests-state-")
os.environ["BEELINE_STATE_HOME"] = _STATE.name  # the modules that tests name are not named by the user

SMALL: dict[str, Any] = {
    "hidden": (8, 8), "batch_size": 8, "random_steps": 20, "steps": 120, "eval_every": 50, "eval_episodes": 1, "log_every": 20,
    "checkpoint_every": 30, "replay_capacity": 10_000, "tensorboard": False,
}  # fmt: skip


IMAGINING: dict[str, Any] = {  # of algorithms with a learned model
    "critic_updates_per_step": 2, "policy_updates_per_step": 2.0, "model_members": 3, "model_elites": 2, "model_hidden": (8,),
    "model_decay": (1e-5,), "model_batch_size": 16, "model_every": 25, "model_batches": 10, "model_first_batches": 20,
    "branches": 3, "epoch_steps": 40, "imagined_rows": 500, "rollout_schedule": (0, 2, 1, 3), "real_ratio": 0.3,
    "event_every": 10, "event_threshold": 0.3, "event_first": 15, "event_least": 20, "event_most": 40,
    "model_epochs": 3, "lookahead": 3, "population": 6, "elites": 2, "iterations": 2, "particles": 1,
    "stage_steps": 40, "rounds": 2, "model_steps": 3, "policy_updates": 2, "virtual_steps": 24, "virtual_envs": 2,
    "reset_pool": 5, "policy_hidden": (6,), "epochs": 2,
}  # fmt: skip


def imagining(algo: str) -> dict[str, Any]:
    """Small values of the options that only an algorithm with a learned model has; empty for the others."""
    from beeline.agents import get

    entry = get(algo)
    known = entry.config.names() if entry.group == "model-based" else ()
    return {name: value for name, value in IMAGINING.items() if name in known}


def small(algo: str = "bac", **changes: Any) -> dict[str, Any]:
    """Options of a run that takes a second; the second warm-up of TD3 and its relatives included.

    The preset is `light` where there is one, whose update is the plainest; what is tried with another names it.
    """
    from beeline.agents import get

    preset = {"preset": "light"} if "light" in get(algo).presets else {}
    return preset | SMALL | ({"learn_after": 20} if waits(algo) else {}) | imagining(algo) | changes


def waits(algo: str) -> bool:
    """Whether an algorithm does not learn while it acts at random."""
    from beeline.agents import get

    return getattr(get(algo).config(), "learn_after", 0) > 0


def flags(options: dict[str, Any]) -> list[str]:
    """Options as words of the command line."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return words


class Hung(BaseException):
    """Something has not come to an end; no guard for errors catches it."""


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """End what is in the block by `Hung` if it waits for something that never comes, such as the other end of a pipe."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Hung(f"still waiting after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def table(path: Path) -> list[tuple[str, ...]]:
    """The metrics table as text, without the wall-clock columns."""
    lines = [line.split(",") for line in (path / "metrics.csv").read_text().splitlines()]
    kept = [i for i, name in enumerate(lines[0]) if not name.startswith("time/")]
    return [tuple(line[i] for i in kept) for line in lines]


def arrays(path: Path) -> dict[str, bytes]:
    """Everything in the newest checkpoint: every array, the counters, and what the ring holds."""
    from beeline.run.checkpoint import CheckpointStore

    def refuse(message: str) -> None:
        raise AssertionError(message)

    checkpoint = CheckpointStore(path).load(refuse)
    found = {name: str(array.dtype).encode() + array.tobytes() for name, array in checkpoint.arrays.items()}
    assert len(found) > 10
    ring = checkpoint.restore_replay()
    for lane in range(ring.lanes):
        found |= {f"lane {lane} {k}": v.tobytes() for k, v in ring.export(lane, ring.oldest(lane), ring.rows(lane)).items()}
        if ring.is_open(lane):
            found[f"lane {lane} open"] = ring.open_observation(lane).tobytes()
    meta = {key: checkpoint.meta[key] for key in ("progress", "collector", "identity")}
    return found | {"meta": json.dumps(meta, sort_keys=True).encode()}


def same_run(left: Path, right: Path) -> None:
    """The promise: the same table and the same final checkpoint, bit for bit."""
    assert table(left) == table(right)
    ours, theirs = arrays(left), arrays(right)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    for name in ("policy.npz", "policy-best.npz"):
        assert (left / name).exists() == (right / name).exists()
        if (left / name).exists():
            assert (left / name).read_bytes() == (right / name).read_bytes()


class Killed(BaseException):
    """What no run catches."""


def killed_and_resumed(path: Path, *steps: int, **options: Any) -> None:
    """A BAC run that ends without a word at the first of these steps, goes on, ends at the second, and so on."""
    import beeline
    from beeline.loop import Callback, StepEvent

    class Kill(Callback):
        def __init__(self, step: int) -> None:
            self.step = step

        def on_step(self, event: StepEvent) -> None:
            if event.step >= self.step:
                raise Killed

    with pytest.raises(Killed):
        beeline.train("bac", "toys:Walk-v0", out=path, callbacks=[Kill(steps[0])], **options)
    for step in steps[1:]:
        with pytest.raises(Killed):
            beeline.resume(path, callbacks=[Kill(step)])
    beeline.resume(path)


@contextmanager
def compiled_agents_kept() -> Iterator[None]:
    """An agent holds no state but its compiled functions, so tests with equal configs share one.

    Sixteen are kept: one takes about 1,100 memory mappings, and Linux ends a process that asks for more than 65,530.
    """
    from beeline.agents import Entry

    plain = Entry.build

    @functools.lru_cache(maxsize=16)
    def kept(key: tuple[Any, ...], entry: Entry, config: Any, task: Any) -> Any:
        gc.collect()  # those that left the cache: an agent refers to itself through its compiled methods
        return plain(entry, config, task)

    def build(self: Entry, config: Any, task: Any) -> Any:
        functions = (getattr(task, name, None) for name in ("terminated", "reward"))  # tasks are equal whatever these are
        return kept(tuple(getattr(each, "__func__", each) for each in functions), self, config, task)

    Entry.build = build  # type: ignore[method-assign]
    try:
        yield
    finally:
        Entry.build = plain  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _keep_compiled_agents() -> Iterator[None]:
    with compiled_agents_kept():
        yield


class Process:
    """A `beeline` command in a process of its own."""

    def __init__(self, zygote: Zygote, pid: int, out: Path, err: Path) -> None:
        self.zygote, self.pid, self._out, self._err = zygote, pid, out, err
        self.code: int | None = None

    def wait(self) -> int:
        """The exit code; minus the signal's number where one ended it."""
        if self.code is None:
            self.code = self.zygote.ask({"wait": self.pid})["code"]
        return self.code

    def alive(self) -> bool:
        if self.code is None:
            self.code = self.zygote.ask({"poll": self.pid})["code"]
        return self.code is None

    def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait for something to become true while the process lives."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.alive(), f"ended early with {self.code}: {self.err}"
            assert time.monotonic() < end, "nothing happened"
            time.sleep(0.002)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    @property
    def out(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    @property
    def err(self) -> str:
        return self._err.read_text()


class Zygote:
    """A process that has imported everything and forks a child per command: a fresh process without the imports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.started: list[Process] = []
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *words: Any, env: dict[str, str] | None = None, fault: dict[str, Any] | None = None) -> Process:
        self.count += 1
        out, err = (self.folder / f"{self.count}.{kind}" for kind in ("out", "err"))
        argv = [str(word) for word in words]
        question = {"argv": argv, "env": env or {}, "fault": fault, "out": str(out), "err": str(err)}
        self.started.append(Process(self, self.ask(question)["pid"], out, err))
        return self.started[-1]

    def run(self, *words: Any, **more: Any) -> Process:
        """Run a command to its end, which must be a good one."""
        process = self.start(*words, **more)
        assert process.wait() == 0, process.err
        return process


@pytest.fixture(scope="session")
def beeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Runs `beeline` commands in real processes."""
    zygote = Zygote(tmp_path_factory.mktemp("processes"))
    yield zygote
    for process in zygote.started:  # what a failed test left behind
        if process.alive():
            process.signal(signal.SIGKILL)
            process.wait()
    zygote.process.send_signal(signal.SIGTERM)
    zygote.process.wait()
