"""What is done with a policy that was trained: evaluate it, film it, export it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline import files
from beeline.envs import registry, trust
from beeline.errors import CheckpointError, EnvError
from beeline.evaluate import Evaluation, evaluate, never
from beeline.run.build import recorded_task, spaces_of
from beeline.run.folder import RunFolder
from beeline.run.opened import Run
from beeline.run.policy import Policy, load_policy

if TYPE_CHECKING:
    from beeline.envs.adapter import Adapter
    from beeline.envs.video import KeyFrame


def evaluate_run(
    path: str | Path, *, episodes: int = 10, best: bool = False, seed: int = 1, env: Any = None, **objects: Any
) -> tuple[Evaluation, Policy]:
    """Evaluate the policy of a run folder (or a policy file) on fresh episodes; objects handed over in Python are given again."""
    trust.allow(env)
    policy = _policy_of(path, best, **objects)
    with _fitting_env(policy, env) as test_env:
        result = evaluate(policy.player(seed), test_env, seed=seed, episodes=episodes)
    return result, policy


def key_frames(
    path: str | Path, count: int, *, best: bool = False, seed: int = 1, env: Any = None, **objects: Any
) -> tuple[list[KeyFrame], float, Policy]:
    """Evenly spaced frames of one episode of a run's or file's greedy policy, the episode's return, and the policy."""
    from beeline.envs import rendering, video

    trust.allow(env)
    policy = _policy_of(path, best, **objects)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)  # as in `film`
        backend, message = rendering.choose_backend()
        if backend is None:
            raise EnvError(message)
        with _fitting_env(policy, env, render=True) as filmed:
            frames, total = video.key_frames(filmed, lambda: policy.player(seed), seed, count)
    return frames, total, policy


def export(
    path: str | Path, out: str | Path, *, best: bool = False, env: Any = None
) -> tuple[Path, Policy, float]:
    """Write the policy of a run folder (or a policy file) as ONNX; the file, the policy, and how far their actions differ."""
    from beeline.run import export as exporting

    trust.allow(env)
    policy = _policy_of(path, best)
    with _fitting_env(policy, env) as made:
        return Path(out), policy, exporting.export(policy, Path(out), made)


def _policy_of(path: str | Path, best: bool, **objects: Any) -> Policy:
    path = Path(path)
    return load_policy(path, **objects) if path.is_file() else Run(RunFolder.open(path).path).policy(best, **objects)


@contextlib.contextmanager
def _fitting_env(policy: Policy, env: Any, render: bool = False) -> Iterator[Adapter]:
    """The task of a policy, or another one with the same spaces, open for as long as it is needed."""
    task = env if env is not None else recorded_task(policy.meta["env"])
    limit = policy.meta.get("limit") if env is None else None
    made = registry.make(task, repeat=policy.meta.get("repeat") or 1, limit=limit, render=render)
    try:
        if spaces_of(made) != policy.agent.task.spaces:
            raise CheckpointError(f"this policy was trained on {policy.meta['env']!r} and does not fit {task!r}.")
        policy.agent = policy.on(made).agent
        yield made
    finally:
        made.close()


def film(
    act: Callable[[np.ndarray], np.ndarray], env: Any, repeat: int | None, path: Path, seed: int, limit: int | None = None,
    stop: Callable[[], bool] = never,
) -> str:  # fmt: skip
    """Film one episode; where no GL library is found, say which package brings one. Returns what happened."""
    from beeline.envs import rendering, video

    with warnings.catch_warnings():
        # JAX warns of every fork; here it is followed at once by exec (the GL probe, ffmpeg), which is safe.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        backend, message = rendering.choose_backend()
        if backend is None:
            print(message)
            return message
        files.own_folder(path.parent)
        filmed = registry.make(env, repeat=repeat or 1, limit=limit, render=True)
        try:
            video.record_episode(filmed, act, path, seed, stop=stop)
        finally:
            filmed.close()
    return str(path)
