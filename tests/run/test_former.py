"""A run folder of the version before (format 1) goes on, to the numbers of a run that this version trained alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from whole_runs import table

import beeline
from beeline.run.checkpoint import CheckpointStore

OLD = Path(__file__).parent / "data" / "format-1"
OPTIONS = {
    "hidden": (8, 8), "batch_size": 8, "random_steps": 20, "eval_every": 30, "eval_episodes": 1, "log_every": 20,
    "checkpoint_every": 30, "replay_capacity": 1000, "threads": 1, "tensorboard": False, "normalize_obs": True,
}  # fmt: skip


def test_a_folder_of_the_version_before_goes_on(tmp_path: Path) -> None:
    """Sixty steps were trained by the version before, sixty more by this one; rounding may differ between processors."""
    old = tmp_path / "old"
    shutil.copytree(OLD, old)
    notes: list[str] = []
    beeline.resume(old, steps=120, report=notes.append, verbose=0)
    assert any("did not store the options" in note for note in notes)
    new = beeline.train("bac", "gym/Pendulum-v1", preset="light", steps=120, out=tmp_path / "new", verbose=0, **OPTIONS).path
    left, right = table(old), table(new)
    assert [row[:3] for row in left] == [row[:3] for row in right]  # the same steps, episodes and updates
    ours, theirs = (CheckpointStore(path).load(notes.append) for path in (old, new))
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array, theirs.arrays[name], rtol=1e-3, atol=1e-4, err_msg=name)
    assert ours.meta["plan"]["beeline"] == beeline.__version__


def test_a_policy_file_of_the_version_before_is_read() -> None:
    policy = beeline.load(OLD / "policy.npz")
    action, _ = policy.predict(np.array([1.0, 0.0, 0.0]))
    assert action.shape == (1,) and np.isfinite(action).all() and policy.meta["step"] == 60
