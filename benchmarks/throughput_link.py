"""Both ends of the line between benchmark and workers: JSON lines, and a training run that moves only when asked.

Standard library only, because the workers of the peers have an environment of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
PATIENCE = 900.0  # seconds without an answer after which a worker is given up
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Worker:
    """A subprocess that was started once and is told over its standard input what to measure."""

    def __init__(
        self, python: str | Path, script: str, spec: Mapping[str, Any], log: Path, env: Mapping[str, str] | None = None,
        benchmarks: Path = HERE,
    ) -> None:  # fmt: skip
        self.name = " ".join(str(value) for value in spec.values())
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(python), str(benchmarks / script), json.dumps(dict(spec))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | dict(env or {}),
            )
        self._buffer = b""

    def send(self, **request: Any) -> None:
        """Ask without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next answer; a worker that ended or fell silent is an error with the end of its log."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            if not data:
                what = "ended" if ready else f"did not answer within {PATIENCE:.0f} s"
                end = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the worker {self.name} {what}:\n{end}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Ask and wait for the answer."""
        self.send(**request)
        return self.read()

    def close(self) -> None:
        """End it: at the end of its input, or by force if it does not listen."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Parent:
    """The worker's end. Whatever else is printed in the worker goes to its log, not between the answers."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def answer(self, content: dict[str, Any]) -> None:
        """Write one line."""
        print(json.dumps(content), file=self._out, flush=True)

    def serve(self, answers: Mapping[str, Answer], until: str | None = None) -> dict[str, Any] | None:
        """Answer requests until one for `until` comes, which is returned, or until the input ends: None."""
        for line in iter(sys.stdin.readline, ""):
            request = json.loads(line)
            if request["do"] == until:
                return request
            self.answer(answers[request["do"]](request))
        return None


class Pacer:
    """Lets a training run go on for as long as the parent asks, and tells how many steps a second it made.

    The run calls `tick` after every step. `finish` waits for work that is still under way, so that every segment has
    as many updates as steps.
    """

    def __init__(self, parent: Parent, finish: Callable[[], None], answers: Mapping[str, Answer]) -> None:
        self._parent, self._finish, self._answers = parent, finish, answers
        self._began = self._until = 0.0
        self._first = 0

    def ready(self, step: int, about: dict[str, Any]) -> bool:
        """Say that the warm-up is over and wait for the first segment; False: end the run."""
        self._finish()
        self._parent.answer(about)
        return self._wait(step)

    def tick(self, step: int) -> bool:
        """One step was made; False: end the run."""
        if time.perf_counter() < self._until:
            return True
        self._finish()
        elapsed = time.perf_counter() - self._began
        self._parent.answer({"per_s": (step - self._first) / elapsed, "steps": step - self._first})
        return self._wait(step)

    def _wait(self, step: int) -> bool:
        request = self._parent.serve(self._answers, until="train")
        if request is None:
            return False
        self._first, self._began = step, time.perf_counter()
        self._until = self._began + request["seconds"]
        return True


def rate(seconds: float, work: Callable[[], int]) -> float:
    """How often a second `work` does what it counts, over at least this time."""
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or not count:
        count += work()
    return count / elapsed
