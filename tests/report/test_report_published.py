"""Published curves and normalisation."""

import numpy as np
import pytest

from beeline.errors import UnknownNameError
from beeline.report import published
from beeline.report.normalise import GYM_REFERENCE, bare_name, normalisation, parts


def test_known_values():
    curve = published.curves("dmc/walker-run", ["tdmpc2"], ["sac"])[0]
    values = dict(zip(curve.steps.tolist(), curve.mean))
    # Means of three seeds as the source's table has them.
    for step, expected in {100_000: 340, 200_000: 489, 300_000: 533, 500_000: 604, 1_000_000: 635}.items():
        assert values[step] == pytest.approx(expected, abs=0.6)
    assert (curve.seeds, curve.repeat, curve.metric) == (3, 2, "return")
    assert (curve.low <= curve.mean).all()
    assert (curve.mean <= curve.high).all()


@pytest.mark.parametrize(
    ("task", "source", "algo", "metric"),
    [
        ("dmc/ball_in_cup-catch", "tdmpc2", "tdmpc2", "return"),
        ("gym/Hopper-v5", "td3_fujimoto", "td3", "return"),
        ("gym/Humanoid-v4", "bee_figures", "bac", "return"),
        ("metaworld/hammer", "tdmpc2", "sac", "success"),
        ("metaworld/hammer-v3", "bee_figures", "bac", "success"),
        ("myosuite/myoHandReachFixed-v0", "tdmpc2", "sac", "success"),
        ("myosuite/myoHandReachRandom-v0", "simba", "sac", "success"),
        ("mbpo/Hopper", "bee_figures", "mb-bac", "return"),
        ("dmc/walker-run?repeat=2&noise=0.1", "bee_figures", "bac", "return"),
    ],
)
def test_our_ids_find_their_curves(task, source, algo, metric):
    found = published.curves(task, [source], [algo], metric=metric)
    assert len(found) == 1
    assert found[0].steps.size > 5
    assert np.isfinite(found[0].mean).all()
    assert (np.diff(found[0].steps) > 0).all()


def test_every_published_myosuite_name_is_one_of_ours():
    entries, _ = published._store()
    names = {entry["task"] for entry in entries if entry["suite"] == "myosuite"}
    assert names == {f"myoHand{task}{kind}" for task in published.MYO.values() for kind in ("Fixed", "Random")}


def test_all_rows_are_there():
    entries, arrays = published._store()
    assert len(entries) == 1283
    assert arrays["value"].size == arrays["step"].size == arrays["seed"].size == 263_965
    assert sum(entry["end"] - entry["offset"] for entry in entries) == 263_965
    assert {entry["source"] for entry in entries} == set(published.SOURCES)
    assert arrays["step"].min() >= 0


def test_notes_say_what_differs():
    def notes(task, source, algo, **more):
        return " | ".join(published.curves(task, [source], [algo], **more)[0].notes)

    assert "action repeat 1, these runs 2" in notes("dmc/walker-run", "bee_figures", "bac", repeat=2)
    assert "action repeat" not in notes("dmc/walker-run", "tdmpc2", "sac", repeat=2)
    assert "action repeat" not in notes("dmc/walker-run?repeat=2", "tdmpc2", "sac")
    assert "read off figures" in notes("dmc/walker-run", "bee_figures", "bac")
    assert "v1, these runs v5" in notes("gym/Hopper-v5", "td3_fujimoto", "td3", repeat=1)
    assert "not stated" in notes("gym/Hopper-v5", "flashsac", "ppo")
    assert "Meta-World v2" in notes("metaworld/hammer", "tdmpc2", "sac")
    assert "without noise=0.1" in notes("dmc/walker-run?noise=0.1", "tdmpc2", "sac")


def test_unknown_names_and_uncovered_tasks():
    assert published.curves("gym/Pendulum-v1") == []
    assert published.curves("nothing") == []
    with pytest.raises(UnknownNameError, match="tdmpc2"):
        published.curves("dmc/walker-run", ["tdmpc"])
    with pytest.raises(UnknownNameError, match="sac"):
        published.curves("dmc/walker-run", algos=["sacc"])


def test_choices():
    curves = published.curves("dmc/walker-run")
    names = {name: [c.name for c in curves if published.matches(c, published.choose([name]))] for name in
             ("tdmpc2", "sac", "bee_figures/bac")}
    assert names["tdmpc2"] == ["tdmpc2/dreamerv3", "tdmpc2/sac", "tdmpc2/tdmpc2"]
    assert len(names["sac"]) == 5
    assert all(name.endswith("/sac") for name in names["sac"])
    assert names["bee_figures/bac"] == ["bee_figures/bac"]
    assert not published.matches(curves[0], published.choose([]))
    for wrong in ("bee_figures/xx", "nope", "xx/sac"):
        with pytest.raises(UnknownNameError, match="published curve"):
            published.choose([wrong])


def test_normalisation_by_suite():
    assert normalisation("dmc/walker-run").scale == 1000.0
    assert normalisation("dmc/walker-run?limit=500&repeat=2").scale == 500.0
    assert (normalisation("metaworld/hammer").metric, normalisation("metaworld/hammer").scale) == ("success", 1.0)
    assert normalisation("gym/Hopper-v5").scale == GYM_REFERENCE["Hopper"]
    assert normalisation("mbpo/Humanoid-truncated").scale == GYM_REFERENCE["Humanoid"]
    assert normalisation("gym/HumanoidStandup-v5").scale == GYM_REFERENCE["HumanoidStandup"]
    assert normalisation("gym/Pendulum-v1").scale is None
    assert "not in aggregates" in normalisation("my.envs:Thing-v0").statement
    assert parts("dmc/walker-run?repeat=2&noise=0.1") == ("dmc", "walker-run", {"repeat": "2", "noise": "0.1"})
    assert (bare_name("Hopper-v5"), bare_name("hammer")) == (("Hopper", "5"), ("hammer", ""))
