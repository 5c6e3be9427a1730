"""`beeline paper terrains`: policies in ONNX under the controller, the same episodes for each, and never JAX."""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
from dkitty_trot import trot
from policies import small_policy

from beeline.cli.commands import main
from beeline.envs import registry
from beeline.envs.dkitty import robot, tasks, terrain
from beeline.errors import ConfigError
from beeline.studies import terrains

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


class Trot:
    """The hand-made trot as a policy; an observation without a last action begins an episode."""

    kind, repeat, command_range, meta = "walk", 1, robot.COMMAND_RANGE, {"algo": "by hand"}

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.step = self.step + 1 if obs[36:48].any() else 0
        return trot(self.step, float(obs[5])).astype(np.float32)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps on every terrain."""
    for name, own in list(terrain.TERRAINS.items()):
        variant = tasks.VARIANTS[f"walk-{name}"]
        brief = dataclasses.replace(variant, terrain=dataclasses.replace(own, steps=12))
        monkeypatch.setitem(tasks.VARIANTS, f"walk-{name}", brief)


def test_an_episode_is_that_of_the_environment() -> None:
    row, trotting = terrains.walk(Trot(), "smooth-road", 4), Trot()
    env = registry.make("dkitty/walk-smooth-road")
    obs, _ = env.reset(seed=4)
    ended = False
    while not ended:
        obs, _, terminated, truncated, info = env.step(trotting(obs))
        ended = terminated or truncated
    assert row["walked"] == round(info["distance_walked"], 4) and row["walked"] > 0.5
    assert row["ended"] == "time" and row["seconds"] == 20.0 and row["target"] == 3.0


def test_tables_and_figure(short: None, tmp_path: Path) -> None:
    small_policy(tmp_path / "p.onnx")
    summary = terrains.run(tmp_path / "out", {"trot": Trot(), "small": tmp_path / "p.onnx"}, episodes=2)
    assert [(row["policy"], row["terrain"]) for row in summary] == [(p, t) for p in ("trot", "small") for t in terrain.TERRAINS]
    rows = list(csv.DictReader((tmp_path / "out" / "terrains.csv").open()))
    assert len(rows) == 16 and {row["seed"] for row in rows} == {"1", "2"}
    for line in summary:
        own = [float(r["walked"]) for r in rows if (r["policy"], r["terrain"]) == (line["policy"], line["terrain"])]
        assert line["walked"] == round(sum(own) / 2, 3) and line["walked_std"] == round(abs(own[0] - own[1]) / 2**0.5, 3)
    whole = json.loads((tmp_path / "out" / "terrains.json").read_text())
    assert whole["policies"]["small"]["env"] == "dkitty/walk-medium" and whole["summary"] == summary
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"terrains.json", "terrains.csv", "terrains-summary.csv", "terrains.png", "terrains.svg"}


def test_summaries_by_hand() -> None:
    base = {"policy": "p", "terrain": "grassland", "target": 1.0}
    rows = [
        {**base, "walked": 0.8, "success": True, "ended": "time"},
        {**base, "walked": 0.2, "success": False, "ended": "fallen"},
    ]
    (line,) = terrains.summarise(rows)
    assert (line["walked"], line["success"], line["fallen"], line["episodes"]) == (0.5, 0.5, 0.5, 2)
    assert line["walked_std"] == round(0.6 / 2**0.5, 3)
    assert terrains.summarise(rows[:1])[0]["walked_std"] is None


def test_it_never_imports_jax(tmp_path: Path) -> None:
    small_policy(tmp_path / "p.onnx")
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "gymnasium"):
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Refuse())
import dataclasses
from beeline.envs.dkitty import tasks
for name, variant in tasks.VARIANTS.items():
    if variant.terrain:
        tasks.VARIANTS[name] = dataclasses.replace(variant, terrain=dataclasses.replace(variant.terrain, steps=2))
from beeline.cli.commands import main
sys.exit(main(["paper", "terrains", "--policy", "small={tmp_path / "p.onnx"}", "--episodes", "1", "--out", "{tmp_path / "out"}"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "uphill-stone-road" in done.stdout and (tmp_path / "out" / "terrains.png").exists()


def test_what_does_not_fit(tmp_path: Path, capsys: Any) -> None:
    wrong = ((["p.onnx"], "is not NAME=FILE"), (["a=x", "a=y"], "two policies are called 'a'"), ([], "name the policies"))
    for given, words in wrong:
        with pytest.raises(ConfigError, match=words):
            terrains.parse(given)
    assert main(["paper", "terrains", "--out", str(tmp_path / "out")]) == 2
    assert main(["paper", "terrains", "--policy", "a=x", "--episodes", "0", "--out", str(tmp_path / "out")]) == 2
    assert main(["paper", "random-walk", "--policy", "a=x"]) == 2
    assert "--policy is no option of random-walk; it is one of terrains" in capsys.readouterr().err
    small_policy(tmp_path / "s.onnx", "dkitty/stand-fixed")
    with pytest.raises(ConfigError, match="'s' was trained to stand"):
        terrains.run(tmp_path / "out", {"s": tmp_path / "s.onnx"})
    assert not (tmp_path / "out").exists()
