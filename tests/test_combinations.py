"""Every combination of backbone, exploit estimator and blend, given on the command line, trains a few hundred steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from whole_runs import flags, small

from beeline.agents.options import BLENDS, EXPLOITS
from beeline.cli import main
from beeline.run.record import read_metrics

BACKBONES = ("bac", "bee-td3")
EXPLORE = {"bac": "entropy", "bee-td3": "smoothing"}
STEPS = 300


def trained(out: Path, algo: str, *words: str) -> list[dict]:
    """The rows of a short training that have something learnt in them; every number in them is finite."""
    options = small(algo, steps=STEPS, eval_every=STEPS, checkpoint_every=STEPS, batch_size=16)
    assert main(["train", algo, "toys:Walk-v0", "--out", str(out), *flags(options), *words]) == 0
    rows = [row for row in read_metrics(out / "metrics.csv") if row["q/target"] is not None]
    assert rows[-1]["step"] == STEPS and rows[-1]["updates"] >= 250
    learnt = {name for row in rows for name in row if name.startswith(("loss/", "q/", "v/", "lambda")) and row[name] is not None}
    assert learnt >= {"loss/critic", "loss/actor", "loss/exploit", "q/mean", "q/target", "v/mean", "lambda"}
    assert all(np.isfinite(row[name]) for row in rows for name in learnt if row[name] is not None)
    return rows


@pytest.mark.parametrize("blend", BLENDS)
@pytest.mark.parametrize("exploit", EXPLOITS)
@pytest.mark.parametrize("algo", BACKBONES)
def test_trains(algo: str, exploit: str, blend: str, tmp_path: Path) -> None:
    rows = trained(tmp_path / "run", algo, "--exploit", exploit, "--blend", blend)
    for row in rows:
        y, targets, lam = row["q/target"], (row["q/exploit_target"], row["q/explore_target"]), row["lambda"]
        assert 0.0 <= lam <= 1.0
        tolerance = 1e-5 * (1.0 + max(map(abs, targets)))
        if blend == "fixed":  # means of a batch, so these are bounds of the element-wise operators and exact for the fixed one
            assert lam == 0.5 and y == pytest.approx(sum(targets) / 2, abs=tolerance)
        elif blend == "min":
            assert y <= min(targets) + tolerance
        elif blend == "max":
            assert y >= max(targets) - tolerance
    if blend.startswith("ada"):
        assert len({row["lambda"] for row in rows}) > 1  # it adapts
    assert len({row["q/mean"] for row in rows}) == len(rows)  # the critics moved


@pytest.mark.parametrize("algo", BACKBONES)
def test_trains_without_an_exploration_term_and_with_either_noise(algo: str, tmp_path: Path) -> None:
    runs = {
        (explore, noise): trained(tmp_path / f"{explore}-{noise}", algo, "--explore", explore, "--acting-noise", noise)
        for explore, noise in (("none", "white"), ("none", "pink"), (EXPLORE[algo], "white"))
    }
    losses = {name: [row["loss/critic"] for row in rows] for name, rows in runs.items()}
    assert losses["none", "white"] != losses["none", "pink"]
    assert losses["none", "white"] != losses[EXPLORE[algo], "white"]
    if algo == "bac":
        assert {row["alpha"] for row in runs["none", "white"]} == {0.0}
        assert all(row["alpha"] > 0.0 for row in runs["entropy", "white"])


@pytest.mark.parametrize("algo", ["sac", "bac"])
def test_trains_with_the_entropy_of_policy_and_buffer_together(algo: str, tmp_path: Path) -> None:
    options = small(algo, steps=STEPS, eval_every=STEPS, checkpoint_every=STEPS, batch_size=16)
    out = tmp_path / "run"
    assert main(["train", algo, "toys:Walk-v0", "--out", str(out), *flags(options), "--explore", "sample-aware"]) == 0
    rows = [row for row in read_metrics(out / "metrics.csv") if row["q/target"] is not None]
    assert all(0.5 < row["mixture/share"] < 0.99 and np.isfinite(row["mixture/entropy"]) for row in rows)
    assert len({row["loss/ratio"] for row in rows}) == len(rows)


@pytest.mark.parametrize("algo", BACKBONES)
@pytest.mark.parametrize(
    "words",
    [
        ("--value-head", "two_hot", "--normalize-reward"),
        ("--value-head", "hl_gauss", "--atoms", "51", "--support", "-10,10", "--double-q", "mean"),
        ("--network", "simba", "--weight-decay", "0.01", "--replay-decay", "1e-3", "--n-step", "3"),
    ],
    ids=["two-hot", "hl-gauss", "simba"],
)
def test_trains_with_what_a_wide_network_goes_with(algo: str, words: tuple[str, ...], tmp_path: Path) -> None:
    trained(tmp_path / "run", algo, *words)
