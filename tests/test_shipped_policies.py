"""The policies in examples/policies are what their labels say, and `make.py` there makes such policies."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import math
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "deploy"))
from policies import small_policy

from beeline.bench import plan as bench_plan
from beeline.deploy import OnnxPolicy
from beeline.envs.dkitty import tasks, terrain
from beeline.run import export as exporting
from beeline.run.policy import load_policy
from beeline.studies import terrains

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

POLICIES = Path(__file__).parents[1] / "examples" / "policies"
LABELS = json.loads((POLICIES / "labels.json").read_text())
TRIED = 5  # episodes


def tail(successes: int, episodes: int, share: float) -> float:
    """The probability of so few successes, or so many, where each episode succeeds with this probability."""
    each = [math.comb(episodes, k) * share**k * (1 - share) ** (episodes - k) for k in range(episodes + 1)]
    return min(sum(each[: successes + 1]), sum(each[successes:]))


def same_policy(folder: Path, name: str, label: dict[str, Any]) -> None:
    """The files are those that were labelled, and the two forms act alike."""
    for kind, digest in label["sha256"].items():
        assert hashlib.sha256((folder / f"{name}.{kind}").read_bytes()).hexdigest() == digest, kind
    ours, theirs = load_policy(folder / f"{name}.npz"), OnnxPolicy(folder / f"{name}.onnx")
    assert theirs.meta["env"] == ours.meta["env"] == f"dkitty/{name}" == label["env"] == label["task"]
    assert (ours.meta["algo"], ours.meta["step"]) == (theirs.meta["algo"], theirs.meta["step"]) == (label["algo"], label["step"])
    act = lambda obs: np.stack([theirs(each) for each in obs])  # noqa: E731
    assert exporting.difference(ours, act) <= exporting.TOLERANCE


def walks_so(folder: Path, name: str, label: dict[str, Any]) -> None:
    """It walks as well as its label says."""
    assert label["episodes"] >= 20
    policy = OnnxPolicy(folder / f"{name}.onnx")
    outcomes = [terrains.episode(policy, name, seed) for seed in range(5000, 5000 + TRIED)]
    share = min(max(label["success"], 0.02), 0.98)  # of a few episodes nobody knows that they never, or always, succeed
    assert tail(sum(outcome.success for outcome in outcomes), TRIED, share) > 1e-3
    walked = np.mean([outcome.walked for outcome in outcomes])
    assert abs(walked - label["walked"]) < 5 * max(label["walked_std"], 0.05) / math.sqrt(TRIED)


@pytest.mark.parametrize("name", sorted(LABELS))
def test_a_policy_does_what_its_label_says(name: str) -> None:
    same_policy(POLICIES, name, LABELS[name])
    walks_so(POLICIES, name, LABELS[name])


def test_every_file_is_labelled() -> None:
    wanted = {f"{name}.{kind}" for name in LABELS for kind in ("npz", "onnx")}
    assert {path.name for path in POLICIES.iterdir() if path.suffix in (".npz", ".onnx")} == wanted
    assert (POLICIES / "terrains").exists() == bool(LABELS)


def test_the_terrain_table_is_of_these_policies() -> None:
    if not LABELS:
        assert not (POLICIES / "terrains").exists()
        return
    table = json.loads((POLICIES / "terrains" / "terrains.json").read_text())
    assert {f"walk-{name}" for name in table["policies"]} == set(LABELS) and table["episodes"] >= 10
    for name, about in table["policies"].items():
        assert about["sha256"] == OnnxPolicy(POLICIES / f"walk-{name}.onnx").meta["sha256"]
    assert {row["terrain"] for row in table["summary"]} == set(terrain.TERRAINS)


# --- how they are made ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_policies", POLICIES / "make.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of walk-medium, of which the first is finished, with policies that stand and lean."""
    folder = tmp_path_factory.mktemp("matrix")
    runs = bench_plan.expand({"algos": "bac", "tasks": "dkitty/walk-medium", "seeds": 2, "steps": 3000})
    bench_plan.record(folder, runs)
    made = small_policy(folder / "unused.onnx")
    for run, state in zip(runs, ("finished", "running")):
        where = folder / run.folder
        where.mkdir(parents=True)
        (where / "status.json").write_text(json.dumps({"state": state, "step": 3000}))
        (where / "config.json").write_text("{}")
        (where / "metrics.csv").write_text("step\n3000\n")
        for name in ("policy", "policy-best"):
            made.policy["actor"][-1]["b"][:12] += 0.01
            made.save(where / f"{name}.npz")
    return folder


@pytest.fixture
def short(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps on every terrain and forty elsewhere, one episode to choose by."""
    monkeypatch.setitem(tasks.RULES, "walk", dataclasses.replace(tasks.RULES["walk"], steps=40))
    monkeypatch.setattr(script, "CHOOSING", 1)
    monkeypatch.setattr(terrains, "EPISODES", 1)
    for name, own in list(terrain.TERRAINS.items()):
        brief = dataclasses.replace(tasks.VARIANTS[f"walk-{name}"], terrain=dataclasses.replace(own, steps=2))
        monkeypatch.setitem(tasks.VARIANTS, f"walk-{name}", brief)


def test_what_is_made_holds_against_its_label(script: ModuleType, short: None, matrix: Path, tmp_path: Path) -> None:
    labels = script.make(matrix, tmp_path, episodes=20)
    assert labels == json.loads((tmp_path / "labels.json").read_text())
    label = labels["walk-medium"]
    assert set(labels) == {"walk-medium"}, "there is no run of walk-hard"
    assert label["from"].startswith("dkitty-walk-medium/bac/seed0/policy") and label["episodes"] == 20 and label["success"] <= 0.2
    same_policy(tmp_path, "walk-medium", label)
    walks_so(tmp_path, "walk-medium", label)
    for changed in ({"success": 0.95}, {"walked": 1.0, "walked_std": 0.1}):
        with pytest.raises(AssertionError):
            walks_so(tmp_path, "walk-medium", label | changed)
    for changed in ({"step": 1}, {"sha256": {"npz": "0"}}):
        with pytest.raises(AssertionError):
            same_policy(tmp_path, "walk-medium", label | changed)
    other = matrix / "dkitty-walk-medium" / "bac" / "seed1" / "policy.npz"
    shutil.copy(other, tmp_path / "walk-medium.npz")
    same = label["sha256"] | {"npz": hashlib.sha256(other.read_bytes()).hexdigest()}
    with pytest.raises(AssertionError):  # two forms of two policies
        same_policy(tmp_path, "walk-medium", label | {"sha256": same})
    table = json.loads((tmp_path / "terrains" / "terrains.json").read_text())
    assert set(table["policies"]) == {"medium"} and {row["terrain"] for row in table["rows"]} == set(terrain.TERRAINS)


def test_the_policy_that_arrives_most_often_is_taken(
    script: ModuleType, short: None, matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = terrains.episode(standing(), "walk-fixed", 0)
    quality = iter([(0, 0.9), (1, 0.2), (1, 0.3), (0, 1.0)])  # best and latest of either run

    def walked(onnx: Path, task: str, first: int, count: int) -> list[Any]:
        if first == script.LABEL:
            return [dataclasses.replace(outcome, success=number < 5, walked=0.1 * number) for number in range(count)]
        success, distance = next(quality)
        return [dataclasses.replace(outcome, success=bool(success), walked=distance)]

    monkeypatch.setattr(script, "walked", walked)
    labels = script.make(matrix, tmp_path, unfinished=True, episodes=20)
    assert labels["walk-medium"]["from"] == "dkitty-walk-medium/bac/seed1/policy-best.npz"
    assert (labels["walk-medium"]["success"], labels["walk-medium"]["walked"]) == (0.25, 0.95)


def standing() -> Any:
    """A policy that stands on straight legs."""

    class Stand:
        kind, repeat, command_range, meta = "walk", 40, tasks.robot.COMMAND_RANGE, {}

        def __call__(self, obs: np.ndarray) -> np.ndarray:
            return tasks.robot.action_for(np.zeros(12))

    return Stand()
