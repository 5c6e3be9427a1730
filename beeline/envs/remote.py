"""Environments in processes of their own, for simulators that are slow: all are asked before any is waited for.

A worker makes one adapted environment and answers one request after the other over a socket pair. Requests and answers are
numbers as bytes, and JSON for what has no fixed shape. It is a new Python, never a fork (JAX has threads), in a session of its
own, so that Ctrl-C reaches the learner alone, which decides. It ends when the learner does, even by SIGKILL: its standard input
is a pipe that nobody writes to and that closes then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from beeline.envs import boundary, ids, registry, trust
from beeline.envs.spec import EnvSpec
from beeline.errors import BeelineError, ConfigError, EnvError, NonFiniteError, UnnamedModuleError, notes

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter

MAKE, RESET, STEP, CLOSE, DONE, FAILED = b"m", b"r", b"s", b"c", b"d", b"f"
HEADER = struct.Struct("<cQ")  # what a message is, and how many bytes follow
STEPPED = struct.Struct("<d??")  # reward, terminated, truncated
GRACE = 2.0  # seconds for a worker in the middle of a step, when the learner has gone or does not wait for it any more
CLOSING = 10.0  # seconds for an environment to close
KINDS = {kind.__name__: kind for kind in (EnvError, NonFiniteError, UnnamedModuleError, ConfigError)}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# The learner's own path, before anything that is looked up on it; -P keeps the working folder out until then.
WORKER = "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from beeline.envs.remote import work; work(int(sys.argv[1]))"


class Channel:
    """Whole messages over a socket. What has come of one is kept, so that an interrupted wait can be taken up again."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self._held = end, bytearray()

    def send(self, kind: bytes, *parts: bytes) -> None:
        """Send a message; OSError where nobody is there to receive it."""
        self.end.sendall(b"".join((HEADER.pack(kind, sum(map(len, parts))), *parts)))

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for the next message; EOFError or OSError where none will come."""
        self._wait_for(HEADER.size)
        kind, size = HEADER.unpack_from(self._held)
        self._wait_for(HEADER.size + size)
        body = bytes(self._held[HEADER.size : HEADER.size + size])
        del self._held[: HEADER.size + size]
        return kind, body

    def _wait_for(self, size: int) -> None:
        while len(self._held) < size:
            more = self.end.recv(1 << 16)
            if not more:
                raise EOFError
            self._held += more


# --- the learner's side -------------------------------------------------------------------------------------------------


def make(env: Any, count: int, *, repeat: int = 1, limit: int | None = None) -> list[RemoteEnv]:
    """Make an environment `count` times, each in a process of its own; all of them start at once."""
    asked = recipe(env) | {"repeat": repeat, "limit": limit}
    made: list[RemoteEnv] = []
    try:
        for _ in range(count):
            made.append(RemoteEnv(asked))
        for each in made:
            each.finish_start()
    except BaseException:
        for each in made:
            each.close()
        raise
    return made


def recipe(env: Any) -> dict[str, str]:
    """What another process needs to make the same: an id, or the module and the name of a factory."""
    if isinstance(env, str):
        trust.require(ids.module_of(env), env)  # the worker is given the permission, and asks nobody
        return {"id": str(env)}
    module, name = getattr(env, "__module__", None) or "", getattr(env, "__qualname__", None) or ""
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        found = None
    if found is not env or module == "__main__":
        what = f"{module}.{name}" if module and name else type(env).__name__
        raise EnvError(
            f"env_processes cannot take {what} into another process: that process has to find it by its name. Give the id of a "
            "task (package.module:EnvId for your own), or a function or class at the top of a module that can be imported; "
            "neither an instance, a lambda, a function with arguments bound, nor what only the script itself defines."
        )
    return {"module": module, "name": name}


class RemoteEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """An adapted environment in a process of its own; `begin_step` asks and `finish_step` waits, `step` does both.

    After its process has ended by itself, which is an EnvError, the next `reset` starts another one.
    """

    facts: EnvSpec

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = dict(asked)
        self._name = self._asked.get("id") or f"{self._asked['module']}:{self._asked['name']}"
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", WORKER, str(number), path],
                stdin=subprocess.PIPE, pass_fds=[number], start_new_session=True, env=ONE_THREAD | os.environ,
            )  # fmt: skip
        self._channel = Channel(ours)
        self._lost = self._pending = False
        self._end = weakref.finalize(self, end, self.process, self._channel, CLOSING)
        self._ask(MAKE, json.dumps(self._asked).encode())

    def finish_start(self) -> None:
        """Wait until the environment is made, and take its facts."""
        said = json.loads(self._answer())
        kind = said.pop("dtype")
        bounds = {name: np.array(said[name], kind) for name in ("action_low", "action_high")}
        self.facts = EnvSpec(**(said | bounds))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.facts.action_dim,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.facts.obs_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode, in a new process where the last one has ended."""
        if self._lost:
            self._start()
            self.finish_start()
        self._ask(RESET, json.dumps({"seed": seed, "options": options}).encode())
        return self._observed(self._answer(), 0)

    def begin_step(self, action: np.ndarray) -> None:
        """Let the environment begin a step; whatever is wrong is told by `finish_step`."""
        kind = np.float32 if action.dtype == np.float32 else np.float64
        self._ask(STEP, np.dtype(kind).char.encode(), action.astype(kind, copy=False).tobytes())

    def finish_step(self) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Wait for what the step gave."""
        answer = self._answer()
        reward, terminated, truncated = STEPPED.unpack_from(answer)
        obs, info = self._observed(answer, STEPPED.size)
        return obs, reward, terminated, truncated, info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one decision."""
        self.begin_step(action)
        return self.finish_step()

    def close(self) -> None:
        """Close the environment and end its process."""
        if self._end.detach():
            end(self.process, self._channel, GRACE if self._pending else CLOSING)

    def _observed(self, answer: bytes, start: int) -> tuple[np.ndarray, dict[str, Any]]:
        size = self.facts.obs_dim
        obs = np.frombuffer(answer, np.float32, size, start).copy()
        return obs, json.loads(answer[start + obs.nbytes :])

    def _ask(self, kind: bytes, *parts: bytes) -> None:
        if self._pending:  # an interrupted wait: that answer is nobody's any more
            with contextlib.suppress(EnvError):
                self._answer()
        self._pending = True
        with contextlib.suppress(OSError):  # told where the answer is waited for
            self._channel.send(kind, *parts)

    def _answer(self) -> bytes:
        try:
            kind, body = self._channel.receive()
        except (EOFError, OSError):
            raise self._gone() from None
        self._pending = False
        if kind == FAILED:
            raise _error(body)
        return body

    def _gone(self) -> EnvError:
        """The process has ended by itself: which, and how."""
        self._lost, self._pending = True, False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        self.close()
        code = self.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit status {code}"
        memory = ". If nobody did that, the system may have run out of memory" if code == -signal.SIGKILL else ""
        return EnvError(f"environment {self._name!r}: its process {self.process.pid} {how}{memory}.")


def end(process: subprocess.Popen[bytes], channel: Channel, seconds: float) -> None:
    """Let a worker close its environment and end; one that does not in time is killed with whatever it has started."""
    with contextlib.suppress(OSError):
        channel.send(CLOSE)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        channel.end.close()
        assert process.stdin is not None
        process.stdin.close()


class _Remote(Exception):
    """The traceback of another process, as text: the cause of the error that it became here."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


def _error(body: bytes) -> BeelineError:
    """The error that a worker tells of, with the lines of the user's code in its notes."""
    said = json.loads(body)
    error = KINDS.get(said["kind"], EnvError)(said["message"])
    for note in said["notes"]:
        error.add_note(note)
    if said["notes"]:
        error.__cause__ = _Remote(said["trace"])
    return error


# --- the worker's side --------------------------------------------------------------------------------------------------


def work(number: int) -> None:
    """Answer what comes through this file descriptor until the learner closes it or ends."""
    for each in (signal.SIGINT, signal.SIGTERM):  # a handler, since ignoring would be inherited by what a simulator starts
        signal.signal(each, lambda number, frame: None)
    os.set_inheritable(number, False)
    _end_with_the_learner()
    channel = Channel(socket.socket(fileno=number))
    env: Adapter | None = None
    with contextlib.suppress(EOFError, OSError):
        while (request := channel.receive())[0] != CLOSE:
            try:
                if request[0] == MAKE:
                    env = _made(json.loads(request[1]))
                assert env is not None
                answer = _answered(env, *request)
            except Exception as error:
                channel.send(FAILED, _told(error))
            else:
                channel.send(DONE, *answer)
    if env is not None:
        env.close()


def _end_with_the_learner() -> None:
    """Watch the pipe that is the standard input. After it closes there is a little time to close the environment."""
    life = os.dup(0)
    with open(os.devnull) as nothing:  # noqa: PTH123 (it is no path of a user)
        os.dup2(nothing.fileno(), 0)  # what an environment reads

    def watch() -> None:
        os.read(life, 1)
        time.sleep(GRACE)
        os.killpg(0, signal.SIGKILL)  # this session's own, with whatever a simulator has started

    threading.Thread(target=watch, daemon=True, name="life").start()


def _made(asked: dict[str, Any]) -> Adapter:
    how = {"repeat": asked["repeat"], "limit": asked["limit"]}
    if "id" not in asked:
        with boundary.calling(f"the module {asked['module']!r} cannot be imported"):
            module = importlib.import_module(asked["module"])
        return registry.make(functools.reduce(getattr, asked["name"].split("."), module), **how)  # type: ignore[arg-type]
    trust.inherit([ids.module_of(asked["id"])])
    return registry.make(asked["id"], **how)


def _answered(env: Adapter, kind: bytes, body: bytes) -> tuple[bytes, ...]:
    if kind == MAKE:
        facts = {field.name: getattr(env.facts, field.name) for field in dataclasses.fields(env.facts)}
        facts |= {"terminated": None, "reward": None}  # functions stay where they are
        bounds = {name: facts[name].tolist() for name in ("action_low", "action_high")}
        return (json.dumps(facts | bounds | {"dtype": env.facts.action_low.dtype.str}).encode(),)
    if kind == RESET:
        obs, info = env.reset(**json.loads(body))
        return obs.tobytes(), _plain(info)
    obs, reward, terminated, truncated, info = env.step(np.frombuffer(body, body[:1].decode(), offset=1))
    return STEPPED.pack(reward, terminated, truncated), obs.tobytes(), _plain(info)


def _plain(info: dict[str, Any]) -> bytes:
    """What a step tells beside, as JSON: arrays become lists, what JSON has no form for becomes text."""
    if not info:
        return b"{}"
    try:
        return json.dumps(info, default=_value, skipkeys=True).encode()
    except (ValueError, RecursionError):  # it holds itself
        return json.dumps({key: _value(value) for key, value in info.items()}, default=str, skipkeys=True).encode()


def _value(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    return value if isinstance(value, bool | int | float | str) else boundary.shown(value)


def _told(error: Exception) -> bytes:
    """An error as JSON; one that is not ours is told as such."""
    if not isinstance(error, BeelineError):
        cause, error = error, boundary.failed("the environment failed in its process", error)
        error.__cause__ = cause
    trace = "".join(traceback.format_exception(error))
    said = {"kind": type(error).__name__, "message": str(error), "notes": notes(error), "trace": trace}
    return json.dumps(said).encode()
