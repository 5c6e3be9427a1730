"""The runs of a matrix as tasks of a Ray cluster whose nodes share the folder of the matrix.

A task supervises a worker process like those of a local matrix, so a run is the same run wherever it is executed. A node
or worker that dies loses what came after the run's last checkpoint: the run is submitted again, after its claim was taken
away from whoever may still be writing (see bench_claim). Ray itself never retries, because it knows nothing of claims.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from beeline import __version__, screen
from beeline.bench import claim as bench_claim
from beeline.bench.execute import Ended, signal_name, why
from beeline.bench.plan import BenchRun
from beeline.bench.worker import STILL_LOCKED, log_path, open_log
from beeline.errors import BeelineError, ConfigError, MissingExtraError, RunFolderError

CONNECT = 5.0  # seconds for a connection to an address
JOIN = 60.0  # seconds for a cluster to take a driver, and for its nodes to answer
SEE = 30.0  # seconds for a node to see a new file in the shared folder; NFS remembers that long that there was none
STORE = 80 * 2**20  # bytes of Ray's object store, of which the runs use nothing; Ray allows no less
SHARED = "The folder of the matrix must be one that every node sees at the same path, such as a network file system."


# --- the cluster ------------------------------------------------------------------------------------------------------


def import_ray() -> Any:
    """Ray, or an error that names the extra."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--ray", "ray", str(error)) from None
    return ray


@contextlib.contextmanager
def connected(address: str, cpus: int) -> Iterator[None]:
    """Be a driver of the cluster at `address`, or of one with so many CPUs on this machine, which ends with the block."""
    # The second is read when Ray is imported; without clusters it binds every port to the loopback address.
    local = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"} if address == "local" else {}
    with environment(local):
        ray = import_ray()
        where: dict[str, Any]
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if not local:
                _try_to_join(address)
                where = {"address": address}
            else:
                where = {"address": "local", "num_cpus": cpus, "include_dashboard": False, "object_store_memory": STORE}
            try:
                with no_dashboard():
                    ray.init(**where, **quiet)
            except Exception as error:  # Ray has no class for it
                raise ConfigError(f"Ray cannot be used at {address}: {_last_line(error)}") from error
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process and of those it starts, for a while."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def no_dashboard() -> Iterator[None]:
    """Start no dashboard process: even with `include_dashboard=False` there is one, and it asks cloud servers where it is."""
    import_ray()
    from ray._private import services

    start = services.start_api_server
    services.start_api_server = lambda *args, **more: ("", None)
    try:
        yield
    finally:
        services.start_api_server = start


def _try_to_join(address: str) -> None:
    """Join a cluster in a process that can be ended: Ray waits for ever where nothing, or something else, answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ConfigError(f"ray = {address!r} is neither HOST:PORT of a Ray cluster, such as 10.0.0.1:6379, nor local.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"there is no Ray cluster at {address} ({error}). Start one with: ray start --head") from None
    code = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    try:
        found = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, timeout=JOIN, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"no Ray cluster answered at {address} within {JOIN:g} s, though a connection was made.") from None
    if found.returncode:
        said = (found.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise ConfigError(
            f"cannot join the Ray cluster at {address}: {said}. This machine must be one of its nodes (ray start "
            f"--address={address}), with the same versions of Python and Ray."
        )


# --- on the nodes -----------------------------------------------------------------------------------------------------


def probe(out: str, token: str, seconds: float) -> str:
    """What keeps this node from working on the matrix in `out`; empty where nothing does."""
    if not bench_claim.appears(Path(out) / "node", token, seconds):
        return f"does not see the folder {out} that the command sees. {SHARED}"
    mark = Path(out) / f".{secrets.token_hex(8)}.tmp"
    try:
        mark.touch()
        mark.unlink()
    except OSError as error:
        return f"cannot write into {out} ({error.strerror})."
    return ""


def _probe(out: str, token: str, seconds: float) -> tuple[str, str]:
    return __version__, probe(out, token, seconds)


def execute(
    node: str, out: str, folder: str, threads: int, module: str, token: str, variables: Mapping[str, str], home: str
) -> Iterator[tuple[str, Any]]:
    """Work on one run as long as the claim lasts: ("begun", host), then ("ended", exit code); or ("unseen", host) alone."""
    host, place = socket.gethostname(), Path(out) / folder
    if not bench_claim.appears(place, token, SEE):
        yield "unseen", host
        return
    yield "begun", host
    words = [sys.executable, "-m", "beeline.bench.worker", out, folder, f"free:{threads}", module, token]
    with open_log(place) as log:
        log.write(f"on {host}, Ray node {node}\n".encode())
        log.flush()
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **variables},
            cwd=home if Path(home).is_dir() else None,
        )  # fmt: skip
        try:
            # Not wait(): an interrupt that Ray sends to the task would not end it.
            while process.poll() is None:
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    yield "ended", process.returncode


def _execute(*args: Any) -> Iterator[tuple[str, Any]]:
    yield from execute(import_ray().get_runtime_context().get_node_id(), *args)


# --- the driver -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Task:
    run: BenchRun
    token: str
    due: float  # not before: another writer may not have ended
    stream: Any = None  # what the task yields, once it is submitted
    host: str = ""  # where it has begun


class RayTasks:
    """One task per run; the caller is connected to a cluster."""

    def __init__(self, out: Path, threads: int, workers: int | None = None) -> None:
        self.ray = import_ray()
        self.remote = self.ray.remote(_execute)
        self.out, self.threads, self.workers = out.absolute(), threads, workers
        self.tasks: list[_Task] = []
        self.taken_away: dict[str, float] = {}
        self.trouble: BeelineError | None = None
        self.stopped = False
        self._size, self._counted = 0, float("-inf")
        # What decides a run's numbers besides its options goes with it; where caches are is each host's own affair.
        going = [name for name in os.environ if name.startswith(("JAX_", "XLA_")) and not name.endswith("_DIR")]
        self.variables = {name: os.environ[name] for name in ("PYTHONPATH", *going) if name in os.environ}
        self._check_nodes()

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _check_nodes(self) -> None:
        """Every node must see the folder and have this version of Beeline; better said now than when a run is there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        token, place = secrets.token_hex(8), self.out / "node"
        bench_claim.give(place, token)
        try:
            ask, asked = self.ray.remote(num_cpus=0, max_retries=0)(_probe), {}
            for node in self._nodes():
                there = ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
                asked[node["NodeID"]] = f"node {node['NodeManagerHostname']}", there.remote(str(self.out), token, SEE)
            for key, (name, answer) in asked.items():
                try:
                    version, reason = self.ray.get(answer, timeout=SEE + JOIN)
                except self.ray.exceptions.GetTimeoutError:
                    raise RunFolderError(f"{name} of the Ray cluster did not answer within {SEE + JOIN:g} s.") from None
                except self.ray.exceptions.RayError as error:
                    if key not in {node["NodeID"] for node in self._nodes()}:
                        continue  # it is gone, and with it the question
                    raise RunFolderError(f"{name} of the Ray cluster cannot run Beeline: {_last_line(error)}") from None
                if reason:
                    raise RunFolderError(f"{name} of the Ray cluster {reason}")
                if version != __version__:
                    raise RunFolderError(f"{name} of the Ray cluster has Beeline {version}, but this is {__version__}.")
        finally:
            bench_claim.take_away(place)
        largest = max((node["Resources"].get("CPU", 0) for node in self._nodes()), default=0)
        if largest < self.threads:
            screen.complain(f"note: runs have {self.threads} threads, but no node has more than {largest:g} CPUs yet")

    @property
    def size(self) -> int:
        """How many runs the CPUs of all nodes are enough for, now and then counted anew."""
        if time.monotonic() - self._counted > 10:
            rooms = (int(node["Resources"].get("CPU", 0) // self.threads) for node in self._nodes())
            self._size, self._counted = max(sum(rooms), 1), time.monotonic()
        return min(self._size, self.workers or self._size)

    def free(self) -> bool:
        """Always, unless the user gave a limit: Ray has a queue of its own."""
        return self.workers is None or len(self.tasks) < self.workers

    def busy(self) -> bool:
        """Whether a task has not ended."""
        return bool(self.tasks)

    def submit(self, run: BenchRun) -> None:
        """Take a run; one that was lost is begun again when its last writer has surely ended."""
        due = self.taken_away.pop(run.folder, float("-inf")) + bench_claim.GRACE
        self.tasks.append(_Task(run, secrets.token_hex(8), due))

    def _begin(self, task: _Task) -> None:
        run = task.run
        bench_claim.give(self.out / run.folder, task.token)
        task.stream = self.remote.options(
            num_cpus=run.threads, num_gpus=1 if run.options.get("device") == "gpu" else 0, max_retries=0,
            num_returns="streaming", scheduling_strategy="SPREAD", name=run.folder,
        ).remote(str(self.out), run.folder, run.threads, run.module, task.token, self.variables, str(Path.cwd()))  # fmt: skip

    def running(self) -> list[BenchRun]:
        """The runs whose tasks have begun."""
        return [task.run for task in self.tasks if task.host]

    def poll(self) -> list[Ended]:
        """Begin what is due, and take over what the tasks have said."""
        if not self.stopped:
            for task in self.tasks:
                if task.stream is None and time.monotonic() >= task.due:
                    self._begin(task)
        streams = {task.stream: task for task in self.tasks if task.stream is not None}
        if not streams:
            return []
        ready, _ = self.ray.wait(list(streams), num_returns=len(streams), timeout=0, fetch_local=False)
        return [ended for stream in ready if (ended := self._hear(streams[stream]))]

    def _hear(self, task: _Task) -> Ended | None:
        """What a task has to say; its end, if that is it."""
        errors = self.ray.exceptions
        try:
            kind, value = self.ray.get(next(task.stream))
        except errors.TaskCancelledError:
            return self._end(task, Ended(task.run, "the task was cancelled"))
        except errors.RayTaskError as error:  # the task itself raised: it would do so anywhere
            return self._end(task, Ended(task.run, f"{_last_line(error)}; see {log_path(self.out / task.run.folder)}"))
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError) as error:
            where = f"the worker on {task.host}" if task.host else "its worker"
            return self._end(task, Ended(task.run, f"{where} died ({type(error).__name__})", lost=True))
        except errors.RayError as error:
            return self._end(task, Ended(task.run, f"{type(error).__name__}: {_last_line(error)}"))
        if kind == "begun":
            task.host = value
            return None
        if kind == "unseen":
            self.trouble = RunFolderError(f"node {value} of the Ray cluster does not see {self.out}. {SHARED}")
            return self._end(task, Ended(task.run, str(self.trouble)))
        return self._end(task, self._ended(task, value))

    def _ended(self, task: _Task, code: int) -> Ended:
        log = log_path(self.out / task.run.folder)
        if code == bench_claim.CLAIM_LOST:
            self.trouble = RunFolderError(f"the claim of {task.run.folder} was taken away: another command has {self.out}.")
            return Ended(task.run, str(self.trouble))
        if code == STILL_LOCKED:
            return Ended(task.run, f"its folder is still locked by a worker that was lost; see {log}")
        if signal_name(code):
            return Ended(task.run, f"its process on {task.host} was ended by {signal_name(code)}", lost=True)
        return Ended(task.run, why(code, log))

    def _end(self, task: _Task, ended: Ended) -> Ended:
        self.tasks.remove(task)
        bench_claim.take_away(self.out / task.run.folder)
        if ended.lost:
            self.taken_away[task.run.folder] = time.monotonic()
        return ended

    def stop(self) -> None:
        """Tell tasks that have begun to stop through their claims; the others shall not begin."""
        self.stopped = True
        self.tasks = [task for task in self.tasks if task.stream is not None]
        for task in self.tasks:
            if task.host:
                bench_claim.give(self.out / task.run.folder, task.token, stop=True)
            else:
                self.ray.cancel(task.stream)

    def close(self) -> None:
        """Take every claim away: no writer lives longer than that."""
        for task in self.tasks:
            if task.stream is not None:
                with contextlib.suppress(self.ray.exceptions.RayError):
                    self.ray.cancel(task.stream, force=True)
                bench_claim.take_away(self.out / task.run.folder)
        self.tasks = []


def _last_line(error: Exception) -> str:
    """What of an error of Ray says the reason: its tracebacks end with it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
