"""Every option's range is kept, what cannot apply says why, and methods refuse data and tasks that they cannot use."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Walk
from whole_runs import flags, small

import beeline
from beeline.agents import OWN, get
from beeline.cli import main
from beeline.config import Rule
from beeline.errors import ConfigError, ModelError
from beeline.options import TrainConfig

# Numbers of which all that are finite make sense.
FREE = {"target_entropy", "target_entropy_per_action", "mixture_control", "support", "shifts"}
METHODS = sorted(OWN)


def tiny(algo: str, **changes: Any) -> dict[str, Any]:
    """Options of a short run, as far as the method has them: those that plan or learn in stages have no random steps."""
    has = {*get(algo).config.names(), *TrainConfig.names()}
    return {name: value for name, value in small(algo).items() if name in has or name == "preset"} | changes


def outside(rule: Rule) -> list[float]:
    """Numbers just outside of a range."""
    found = [] if rule.low is None else [rule.low - 1 if rule.low == int(rule.low) else rule.low - 1e-6]
    found += [] if rule.above is None else [rule.above]
    return [*found, *([] if rule.high is None else [rule.high + 1 if rule.high == int(rule.high) else rule.high + 1e-6])]


def numeric(kind: Any) -> bool:
    return any(word in str(kind) for word in ("int", "float"))


@pytest.mark.parametrize("algo", METHODS)
def test_every_number_has_a_range_that_is_kept(algo: str) -> None:
    config = get(algo).config
    for name, rule in config.rules().items():
        kind = config.kinds()[name]
        if not numeric(kind) or name in FREE:
            continue
        assert rule.bounded, f"{algo}: any {name} will do"
        many = "tuple" in str(kind)
        for number in (*outside(rule), math.inf, math.nan):
            value: Any = int(number) if "int" in str(kind) and math.isfinite(number) else number
            with pytest.raises(ConfigError, match=f"^{name} = ") as error:
                config.read(name, (value,) if many else value)
            assert "allowed" in str(error.value)
        for edge in (rule.low, rule.high):
            if edge is not None:
                config.read(name, (edge,) if many else edge)


@pytest.mark.parametrize("algo", METHODS)
def test_every_option_that_cannot_apply_says_why(algo: str) -> None:
    config = get(algo).config
    for name, reason in config.cannot().items():
        with pytest.raises(ConfigError) as error:
            config.make({name: 1})
        assert str(error.value) == f"the option {name!r} does not apply: {reason}."


@pytest.mark.parametrize("algo", [name for name in METHODS if get(name).config().needs_terminated])
def test_a_task_that_does_not_say_where_it_ends_is_refused_by_whoever_imagines(algo: str, tmp_path: Path) -> None:
    class Silent(Walk):
        beeline_terminated = None

    with pytest.raises(ConfigError, match=f"{algo} needs to know where episodes .* end.*beeline_terminated"):
        beeline.train(algo, Silent, out=tmp_path / "run", limit=20, verbose=0)
    assert not (tmp_path / "run").exists()


def test_those_are_the_methods_with_a_model() -> None:
    needing = {name for name in METHODS if get(name).config().needs_terminated}
    assert needing == {name for name in METHODS if OWN[name].group == "model-based"} and len(needing) == 5


@pytest.mark.parametrize(
    ("algo", "reason"),
    [
        ("grac", "its values are bounded by the rewards that it has met itself"),
        ("bee-grac", "its values are bounded by the rewards that it has met itself"),
        ("mbpo", "its batches are mixed of what it has met and what its model imagines"),
        ("mb-bac", "its batches are mixed of what it has met and what its model imagines"),
        ("cmlo", "its batches are mixed of what it has met and what its model imagines"),
        ("pets", "its model is of the run's own transitions"),
        ("slbo", "its model is of the run's own transitions"),
        ("trpo", "it does not learn from a replay"),
    ],
)
def test_data_of_others_is_refused_with_the_reason(algo: str, reason: str, tmp_path: Path) -> None:
    assert get(algo).config().refuses_prior == reason
    draw = np.random.default_rng(0)
    rows = {"obs": draw.normal(size=(30, 2)), "action": draw.uniform(-1, 1, (30, 1)), "reward": draw.normal(size=30)}
    np.savez(tmp_path / "data.npz", next_obs=rows["obs"], terminated=np.zeros(30, bool), **rows)
    with pytest.raises(ConfigError, match=reason):
        beeline.train(algo, Walk, out=tmp_path / "run", prior=str(tmp_path / "data.npz"), limit=20, verbose=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("algo", "least"), [("dac", 9), ("iql", 9), ("obac", 9), ("xql", 9), ("xtd3", 9), ("grac", 9), ("mbpo", 9), ("slbo", 5)]
)
def test_a_replay_that_is_too_small_to_learn_from_is_refused(algo: str, least: int, tmp_path: Path) -> None:
    options = tiny(algo, eval_episodes=0, replay_capacity=least - 1, **({"path_steps": 5} if algo == "slbo" else {}))
    config = get(algo).config
    assert config.make({name: value for name, value in options.items() if name in config.names()}).least_transitions[1] == least
    with pytest.raises(ConfigError, match=rf"replay_capacity = {least - 1}\b"):
        beeline.train(algo, Walk, out=tmp_path / "run", verbose=0, **options)


def test_a_stage_of_slbo_that_cannot_learn_is_an_error_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three transitions for paths of four steps; a rate at which the model's error is no number."""
    for changes, words in (
        ({"stage_steps": 3, "path_steps": 4}, "3 transitions are too few for paths of 4 steps"),
        ({"model_lr": 1e30, "model_steps": 50}, "the model has diverged: its error on the transitions is not finite."),
    ):
        out = tmp_path / words[:5]
        assert main(["train", "slbo", "toys:Walk-v0", "--out", str(out), *flags(tiny("slbo", **changes))]) == 2
        said = capsys.readouterr().err
        assert words in said and "a checkpoint of it in" in said and "Traceback" not in said
        assert list((out / "checkpoints").glob("step-*"))


def test_a_model_that_cannot_be_trained_is_a_model_error() -> None:
    """It is told from mistakes in options: a run under way was stopped by it."""
    assert issubclass(ModelError, beeline.BeelineError) and not issubclass(ModelError, ConfigError)
    model = beeline.model("pets")(Walk, verbose=0, **tiny("pets", eval_episodes=0, model_lr=1e6, model_epochs=200))
    with pytest.raises(ModelError, match=r"the model has diverged: after epoch \d+ of this training"):
        model.learn(200)
