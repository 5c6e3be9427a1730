"""beeline.report.statistics against numbers by hand, against rliable's (data/golden.json), and as properties."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeline.errors import ConfigError
from beeline.report import statistics

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())
CASES = pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])


def test_by_hand():
    scores = np.array([[0.0, 1.0], [0.2, 2.0], [0.4, 3.0], [0.6, 4.0]])
    # sorted: 0 .2 .4 .6 1 2 3 4; two are cut at either end; the middle is .4 .6 1 2
    assert statistics.iqm(scores) == pytest.approx(1.0)
    assert statistics.mean(scores) == pytest.approx((0.3 + 2.5) / 2)
    assert statistics.median(scores) == pytest.approx((0.3 + 2.5) / 2)
    # min(x, 1): 0 .2 .4 .6 1 1 1 1 -> mean 0.65
    assert statistics.optimality_gap(scores) == pytest.approx(0.35)
    assert statistics.performance_profile(scores, [0.0, 0.5, 4.0]).tolist() == [7 / 8, 5 / 8, 0.0]


def test_improvement_by_hand_counts_ties_as_half():
    x, y = np.array([[1.0], [2.0]]), np.array([[1.0], [0.0], [2.0]])
    # 1 beats 0, ties 1, loses to 2; 2 beats 1 and 0, ties 2: (1 + .5 + 0 + 1 + 1 + .5) / 6
    assert statistics.probability_of_improvement(x, y) == pytest.approx(4 / 6)
    assert statistics.probability_of_improvement(x, x) == 0.5


@CASES
def test_points_equal_rliable(case):
    for side in "xy":
        found = [statistics.STATISTICS[name](statistics.strata(np.array(case[side]))) for name in case["names"]]
        np.testing.assert_allclose(found, case["points"][side], rtol=0, atol=1e-12)
    found = statistics.probability_of_improvement(np.array(case["x"]), np.array(case["y"]))
    assert found == pytest.approx(case["improvement"], abs=1e-12)
    profile = statistics.performance_profile(np.array(case["x"]), case["thresholds"])
    np.testing.assert_allclose(profile, case["profile"], rtol=0, atol=1e-12)


def quantile_error(samples: np.ndarray, q: float) -> float:
    """Six standard errors of the difference of two independent estimates of a quantile, plus one step of a lattice."""
    spread = np.sqrt(q * (1 - q) / samples.size) * np.sqrt(2) * 6
    low, high = np.quantile(samples, [max(q - spread, 0), min(q + spread, 1)])
    return float(high - low) + 1e-12


@CASES
def test_interval_ends_agree_within_monte_carlo_error(case):
    for side in "xy":
        columns = statistics.strata(np.array(case[side]))
        generator = np.random.default_rng(5)
        draws = list(statistics._resamples(columns, 20_000, generator))
        found = statistics.estimates(np.array(case[side]), reps=GOLDEN["reps"], seed=1)
        for index, name in enumerate(case["names"]):
            samples = np.concatenate([statistics.STATISTICS[name](draw) for draw in draws])
            low, high = case["ends"][side][0][index], case["ends"][side][1][index]
            assert abs(found[name].low - low) <= quantile_error(samples, 0.025), name
            assert abs(found[name].high - high) <= quantile_error(samples, 0.975), name
            assert found[name].high - found[name].low > 0.2 * (high - low)


@CASES
def test_improvement_interval_and_profile_band_agree(case):
    found = statistics.improvement_interval(np.array(case["x"]), np.array(case["y"]), reps=10_000)
    np.testing.assert_allclose([found.low, found.high], case["improvement_ends"], rtol=0, atol=0.03)
    low, high = statistics.profile_band(np.array(case["x"]), case["thresholds"])
    lattice = 1.0 / np.array(case["x"]).size
    np.testing.assert_allclose([low, high], case["band"], rtol=0, atol=1.01 * lattice)


def test_efficiency_curve_agrees_with_rliable():
    golden = GOLDEN["curve"]
    curves = np.array(golden["curves"])
    value, low, high = statistics.efficiency_curve(list(np.moveaxis(curves, 1, 0)), reps=5000)
    np.testing.assert_allclose(value, golden["points"], rtol=0, atol=1e-12)
    np.testing.assert_allclose([low, high], golden["ends"], rtol=0, atol=0.01)


def test_bootstrap_is_stratified():
    # Two tasks without spread inside: drawing runs within each task can change nothing.
    scores = np.array([[0.1, 0.9]] * 4)
    for estimate in statistics.estimates(scores, reps=200).values():
        assert estimate.low == pytest.approx(estimate.value)
        assert estimate.high == pytest.approx(estimate.value)


def test_tasks_are_resampled_independently():
    # If both tasks shared one index, the two columns would cancel and the mean would never move.
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    estimate = statistics.estimates(scores, reps=2000)["mean"]
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_one_seed_gets_no_interval_and_few_seeds_a_warning():
    estimate = statistics.estimates(np.array([[0.3, 0.6]]))["iqm"]
    assert (estimate.low, estimate.high) == (None, None)
    assert "no interval" in str(estimate)
    assert statistics.profile_band(np.array([[0.3, 0.6]]), [0.5]) is None
    assert statistics.improvement_interval(np.array([[0.3]]), np.array([[0.2], [0.5]])).low is None
    assert statistics.efficiency_curve([np.array([[0.1, 0.2]])])[1] is None
    assert "One seed" in statistics.seeds_note(1)
    assert "fewer than 5" in statistics.seeds_note(4)
    assert statistics.seeds_note(5) == ""


def test_chunks_change_nothing_but_memory(monkeypatch):
    scores = np.random.default_rng(0).uniform(size=(5, 2))
    whole = statistics.estimates(scores, reps=4000, seed=1)["iqm"]
    monkeypatch.setattr(statistics, "CHUNK", 500)
    parts = statistics.estimates(scores, reps=4000, seed=1)["iqm"]
    assert parts.low == pytest.approx(whole.low, abs=0.02)
    assert parts.high == pytest.approx(whole.high, abs=0.02)


def test_unequal_numbers_of_runs():
    columns = [[0.0, 1.0], [0.5, 0.5, 0.5]]
    assert statistics.mean(columns) == pytest.approx(0.5)
    assert statistics.estimates(columns, reps=500)["mean"].seeds == 2


def test_bad_scores_are_refused():
    with pytest.raises(ConfigError, match="NaN"):
        statistics.iqm(np.array([[0.1], [np.nan]]))
    with pytest.raises(ConfigError, match="axes"):
        statistics.iqm(np.zeros(3))
    with pytest.raises(ConfigError, match="at least one run"):
        statistics.iqm([[], [1.0]])
    with pytest.raises(ConfigError, match="same tasks"):
        statistics.probability_of_improvement(np.zeros((2, 1)), np.zeros((2, 2)))
    with pytest.raises(ConfigError, match="level"):
        statistics.estimates(np.zeros((2, 1)), level=95)


def test_resolvable_difference_by_hand():
    # n = m = 3, both with variance 1: (t.975,4 + t.8,4) sqrt(2/3) = (2.776445 + 0.940965) * 0.816497
    assert statistics.resolvable_difference([0.0, 1.0, 2.0], [5.0, 6.0, 7.0]) == pytest.approx(3.035259, abs=1e-5)
    assert statistics.resolvable_difference([0.0], [1.0, 2.0]) == np.inf


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.floats(-2, 2), min_size=n, max_size=n), min_size=1, max_size=5)
    )
)
def test_properties(columns):
    scores = np.array(columns).T
    shuffled = scores[::-1, ::-1]
    for name in statistics.STATISTICS:
        found = statistics.STATISTICS[name](statistics.strata(scores))
        assert found == pytest.approx(statistics.STATISTICS[name](statistics.strata(shuffled)), abs=1e-9)
    assert scores.min() - 1e-9 <= statistics.iqm(scores) <= scores.max() + 1e-9
    forth = statistics.probability_of_improvement(scores, shuffled)
    assert forth + statistics.probability_of_improvement(shuffled, scores) == pytest.approx(1.0)
    profile = statistics.performance_profile(scores, np.linspace(-3, 3, 7))
    assert (np.diff(profile) <= 0).all()
    assert (profile[0], profile[-1]) == (1.0, 0.0)
