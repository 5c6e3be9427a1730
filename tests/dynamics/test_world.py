"""A trained model as an object, as a file and under measurement, against models whose answers are known by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from whole_runs import small

import beeline
from beeline import dynamics
from beeline.cli import main
from beeline.dynamics import quality, saved
from beeline.dynamics.ensemble import GaussianEnsemble
from beeline.dynamics.world import KIND, World, load, moments, predict, rollout
from beeline.errors import CheckpointError, ConfigError
from beeline.networks import Draw
from beeline.run.modelled import model_run

D, M = 2, 1


def _world(changes: list[list[float]], sigma: float, elites: list[int] | None = None, gain: float = 0.0) -> World:
    """Members that predict a constant [Δs, r] each, plus `gain` times the action in the first dimension, with one deviation."""
    members = len(changes)
    model = GaussianEnsemble(D, M, members, len(elites or changes), hidden=(4,), activation="relu", decay=(0.0,))
    state = model.init(Draw(0, "init/model"))
    hidden, last = ({name: np.zeros_like(np.asarray(leaf)) for name, leaf in each.items()} for each in state.slot.live["layers"])
    hidden["w"][:, D, 0], hidden["w"][:, D, 1] = 1.0, -1.0  # relu(a) and relu(-a)
    last["w"][:, 0, 0], last["w"][:, 1, 0] = gain, -gain
    last["b"][:, 0, : D + 1] = changes
    last["b"][:, 0, D + 1 :] = 2.0 * math.log(sigma)
    wide = np.full(D + 1, 60.0, np.float32)
    live = {"layers": (hidden, last), "max": wide, "min": -wide}
    chosen = np.array(elites if elites is not None else range(members), np.int32)
    state = state._replace(slot=state.slot._replace(live=live), elites=chosen, error=np.zeros(members, np.float32))
    return World(model, state, "gym/A-v1", (-2.0,), (4.0,))


# --- asking -----------------------------------------------------------------------------------------------------------


def test_a_prediction_is_the_mixture_of_the_elites() -> None:
    world = _world([[1.0, 0.0, 5.0], [9.0, 9.0, 9.0], [3.0, 0.0, 7.0]], 0.5, elites=[0, 2])
    found = predict(world, [[10.0, 20.0], [0.0, 0.0]], [[1.0], [1.0]])
    np.testing.assert_allclose(found.next_obs, [[12.0, 20.0], [2.0, 0.0]], atol=1e-5)
    np.testing.assert_allclose(found.reward, [6.0, 6.0], atol=1e-5)
    # σ² = .25 + the variance between two means that are 2 apart (1), or equal (0).
    np.testing.assert_allclose(found.next_obs_std, np.sqrt([[1.25, 0.25]] * 2), atol=1e-5)
    np.testing.assert_allclose(found.reward_std, np.sqrt([1.25, 1.25]), atol=1e-5)
    one = predict(world, [10.0, 20.0], [1.0])
    assert one.next_obs.shape == (2,) and one.reward.shape == ()
    np.testing.assert_array_equal(one.next_obs, found.next_obs[0])


def test_actions_are_in_the_environments_own_units() -> None:
    world = _world([[0.0, 0.0, 0.0]], 0.1, gain=1.0)
    # [-2, 4] is [-1, 1]: its middle is 1.
    found = predict(world, np.zeros((3, 2)), [[-2.0], [1.0], [2.5]])
    np.testing.assert_allclose(found.next_obs[:, 0], [-1.0, 0.0, 0.5], atol=1e-6)


def test_many_rows_are_asked_in_pieces_that_change_nothing() -> None:
    world, draw = _world([[0.5, 0.0, 0.0]], 0.1, gain=1.0), np.random.default_rng(0)
    obs, action = draw.normal(size=(2500, 2)).astype(np.float32), draw.uniform(-1, 1, (2500, 1)).astype(np.float32)
    mean, deviation = moments(world.model, world.elites, obs, action)
    assert mean.shape == deviation.shape == (2500, 3)
    np.testing.assert_allclose(mean[:, 0], 0.5 + action[:, 0], atol=1e-5)


def test_a_rollout_of_the_mean_is_the_closed_form() -> None:
    world = _world([[0.5, 1.0, 3.0], [1.5, 1.0, 5.0]], 0.5)
    found = rollout(world, [0.0, 10.0], np.ones((4, 1)), sample=False)
    np.testing.assert_allclose(found.obs, [[k, 10.0 + k] for k in range(5)], atol=1e-5)
    np.testing.assert_allclose(found.reward, [4.0] * 4, atol=1e-5)


def test_every_step_of_a_sampled_rollout_is_drawn_by_one_elite() -> None:
    world = _world([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], 1e-6)
    found = rollout(world, np.zeros((300, 2)), np.ones((300, 3, 1)), seed=4)
    change = np.diff(found.obs, axis=1)
    np.testing.assert_allclose(np.abs(change), 1.0, atol=1e-4)
    np.testing.assert_allclose(change[..., 0], found.reward, atol=1e-4)  # one member for all dimensions of a row
    assert abs(float(change.mean())) < 0.1
    assert {tuple(np.sign(row)) for row in change[:, :, 0]} == {(a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)}
    again = rollout(world, np.zeros((300, 2)), np.ones((300, 3, 1)), seed=4)
    np.testing.assert_array_equal(found.obs, again.obs)
    assert not np.array_equal(found.obs, rollout(world, np.zeros((300, 2)), np.ones((300, 3, 1)), seed=5).obs)


def test_noise_has_the_deviation_that_is_predicted() -> None:
    found = rollout(_world([[0.0, 0.0, 0.0]], 0.7), np.zeros((20_000, 2)), np.ones((20_000, 1, 1)))
    np.testing.assert_allclose(found.obs[:, 1].std(axis=0), 0.7, rtol=0.03)


@pytest.mark.parametrize(
    ("obs", "action"), [(np.zeros((2, 3)), np.zeros((2, 1))), (np.zeros((2, 2)), np.zeros((3, 1))), (np.zeros(2), np.zeros(2))]
)
def test_what_does_not_fit_is_refused(obs: Any, action: Any) -> None:
    with pytest.raises(ConfigError, match=r"takes observations \[n, 2\] and actions \[n, 1\]"):
        predict(_world([[0.0, 0.0, 0.0]], 1.0), obs, action)


@pytest.mark.parametrize("shape", [(1,), (0, 1), (2, 3, 1)])
def test_a_rollout_needs_actions_for_every_step(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="a rollout takes actions"):
        rollout(_world([[0.0, 0.0, 0.0]], 1.0), np.zeros(2), np.zeros(shape))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_saved_model_says_the_same(tmp_path: Path) -> None:
    world = dataclasses.replace(_world([[1.0, 0.0, 5.0], [2.0, 1.0, 7.0]], 0.5, elites=[1]), about={"algo": "sac", "rows": 7})
    path = world.save(tmp_path / "model.npz")
    found = dynamics.load(path)
    assert (found.task, found.action_low, found.action_high) == ("gym/A-v1", (-2.0,), (4.0,))
    assert (found.model, found.about) == (world.model, {"algo": "sac", "rows": 7})
    ours, theirs = (dynamics.predict(each, np.ones((5, 2)), np.ones((5, 1))) for each in (found, world))
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(AttributeError, match="no attribute 'training_wheels'"):
        dynamics.training_wheels  # noqa: B018


def test_a_damaged_model_file_is_named(tmp_path: Path) -> None:
    path = _world([[1.0, 0.0, 5.0]], 0.5).save(tmp_path / "model.npz")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=r"model\.npz is not an intact model file"):
        load(path)
    with pytest.raises(CheckpointError, match="there is no model file"):
        load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"hidden": [1 << 30]}}, "sizes"),
        ({"model": {"hidden": [4000, 4000]}}, "there are fewer"),
        ({"model": {"members": 0}}, "sizes"),
        ({"model": {"elites": 5}}, "elites = 5"),
        ({"model": {"activation": "exec"}}, "activation = 'exec'"),
        ({"model": {"obs_dim": 2.5}}, "sizes"),
        ({"model": {"obs_dim": 3}}, "array"),
        ({"model": {"wheels": 3}}, "wheels"),
        ({"model": {"decay": [[1]]}}, "decay = ([1],)"),
        ({"model": {"decay": [0.1, 0.1, 0.1, 0.1]}}, "4 decays"),
        ({"model": {"rate": [[1]]}}, "rate = ([1],)"),
        ({"model": {"rate": 10**400}}, "rate = 1000"),
        ({"model": {"bounds": {}}}, "bounds = {}"),
        ({"model": {"reward_unit": [[1]]}}, "reward_unit = ([1],)"),
        ({"action_low": [5.0]}, "action bounds"),
        ({"action_low": [-2.0, -2.0]}, "action bounds"),
        ({"task": 5}, "of what it is a model"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = _world([[1.0, 0.0, 5.0]], 0.5).save(tmp_path / "model.npz")
    arrays, about = saved.read(path, KIND)
    for name, value in change.items():
        about[name] = {**about[name], **value} if isinstance(value, dict) else value
    saved.write(path, KIND, arrays, about)
    with pytest.raises(CheckpointError, match="cannot be used") as caught:
        load(path)
    assert says in str(caught.value)


def test_elites_are_members(tmp_path: Path) -> None:
    path = _world([[1.0, 0.0, 5.0], [1.0, 0.0, 5.0]], 0.5).save(tmp_path / "model.npz")
    arrays, about = saved.read(path, KIND)
    saved.write(path, KIND, {**arrays, ".elites": np.array([0, 2], np.int32)}, about)
    with pytest.raises(CheckpointError, match="elites are not members"):
        load(path)


# --- what is kept apart -----------------------------------------------------------------------------------------------


def test_paths_lie_between_final_observations() -> None:
    flags = np.array([1, 1, 3, 0, 0, 1, 5, 0, 1, 0], np.uint8)
    assert quality.paths(flags) == [range(0, 3), range(5, 7), range(8, 9)]
    assert quality.paths(np.zeros(3, np.uint8)) == []


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.floats(0.05, 0.6), st.integers(0, 5))
def test_what_is_kept_apart_is_whole_and_nothing_is_lost(lengths: list[int], share: float, seed: int) -> None:
    ends = np.cumsum([length + 1 for length in lengths])
    found = [range(int(end - length - 1), int(end - 1)) for end, length in zip(ends, lengths)]
    fitted, judged = quality.kept_apart(found, share, seed)
    rows = sorted(row for each in [*fitted, *judged] for row in each)
    assert rows == sorted(row for each in found for row in each)
    longest, total = max(sum(lengths) // 10, 1), sum(lengths)
    assert max(map(len, [*fitted, *judged])) <= longest
    assert all(any(set(each) <= set(path) for path in found) for each in judged)
    assert fitted
    if total > longest:
        assert sum(map(len, judged)) < share * total + longest


# --- measures ---------------------------------------------------------------------------------------------------------


def _columns(draw: np.random.Generator, drift: list[float], sigma: float, paths: int = 40, length: int = 50) -> dict[str, Any]:
    """Paths whose every step adds the drift and noise; rewards are noise about 5; actions do nothing."""
    obs, flags = [], []
    for _ in range(paths):
        steps = np.array(drift) + sigma * draw.normal(size=(length, D))
        obs.append(np.concatenate([np.zeros((1, D)), np.cumsum(steps, axis=0)]))
        flags += [1] * length + [0]
    rows = len(flags)
    return {
        "obs": np.concatenate(obs).astype(np.float32), "action": np.zeros((rows, M), np.float32),
        "reward": (5.0 + sigma * draw.normal(size=rows)).astype(np.float32), "flags": np.array(flags, np.uint8),
    }  # fmt: skip


def test_intervals_of_the_right_width_hold_as_often_as_they_say() -> None:
    columns = _columns(np.random.default_rng(0), [0.2, -0.1], 0.3)
    judged = quality.paths(columns["flags"])
    right = quality.measured(_world([[0.2, -0.1, 5.0]], 0.3), columns, judged, 5)
    for level, share in right.coverage.items():
        assert share == pytest.approx(float(level), abs=0.02)
    # ½ + log(.3 √(2π)) nats, and a model that knows the mean alone explains nothing of what is left.
    assert right.nll == pytest.approx(0.5 + math.log(0.3 * math.sqrt(2 * math.pi)), abs=0.02)
    assert right.r2 == pytest.approx([0.0, 0.0, 0.0], abs=0.01) and right.error == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert right.poor and set(right.poor) == {0, 1, 2} and right.rows == 2000
    sure = quality.measured(_world([[0.2, -0.1, 5.0]], 0.15), columns, judged, 5)
    assert sure.coverage["0.9"] == pytest.approx(0.589, abs=0.02)  # P(|z| < 1.645/2)
    assert sure.nll > right.nll


def test_intervals_are_those_of_each_elite() -> None:
    """One elite is right and sure, the other right and ten times too careful: half of the rows count for each."""
    columns = _columns(np.random.default_rng(4), [0.2, -0.1], 0.3)
    world = _world([[0.2, -0.1, 5.0]] * 2, 0.3)
    last = world.state.slot.live["layers"][1]
    last["b"][1, 0, D + 1 :] += 2.0 * math.log(10.0)
    found = quality.measured(world, columns, quality.paths(columns["flags"]), 5)
    assert found.coverage["0.5"] == pytest.approx((0.5 + 1.0) / 2, abs=0.02)
    # Of the mixture, σ² = .3² (1 + 100)/2.
    sigma = 0.3 * math.sqrt(50.5)
    assert found.nll == pytest.approx(0.5 * (0.09 / sigma**2) + math.log(sigma * math.sqrt(2 * math.pi)), abs=0.02)


def test_a_wrong_mean_is_a_negative_r2() -> None:
    columns = _columns(np.random.default_rng(1), [0.0, 0.0], 0.5)
    found = quality.measured(_world([[0.5, 0.0, 5.0]], 0.5), columns, quality.paths(columns["flags"]), 3)
    # The error's mean square is σ² + .5² = 2 σ²: R² = -1; the others have 0.
    assert found.r2 == pytest.approx([-1.0, 0.0, 0.0], abs=0.05)
    assert found.poor[0] == 0 and found.mean_r2 == pytest.approx(-0.5, abs=0.05)
    assert [quality.name_of(each, D) for each in (0, 2)] == ["obs[0]", "reward"]


def test_the_error_along_a_path_grows_as_it_must() -> None:
    """Nothing is random here: the world drifts by .2 a step, the model says .3, so after k steps it is off by .1 k."""
    columns = _columns(np.random.default_rng(2), [0.2, 0.0], 0.0)
    found = quality.measured(_world([[0.3, 0.0, 5.0]], 1e-6), columns, quality.paths(columns["flags"]), 8)
    spread = columns["obs"][:, 0].std()
    assert found.steps == pytest.approx([0.1 * k / spread for k in range(1, 9)], rel=1e-3)
    assert found.steps_by == [pytest.approx(0.8 / spread, rel=1e-3), None]  # the second dimension never changes
    assert found.starts == 40 * (50 - 8 + 1) and found.coverage_by[1] is None


def test_paths_that_are_too_short_have_no_error_along_them() -> None:
    columns = _columns(np.random.default_rng(3), [0.2, 0.0], 0.1, length=4)
    found = quality.measured(_world([[0.2, 0.0, 5.0]], 0.1), columns, quality.paths(columns["flags"]), 5)
    assert found.steps == [] and found.starts == 0


# --- the command ------------------------------------------------------------------------------------------------------

TINY = {"members": 2, "elites": 1, "hidden": (16,), "batches": 30, "horizon": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two environments side by side."""
    path = tmp_path_factory.mktemp("run") / "run"
    beeline.train("td3", "toys:Walk-v0", out=path, verbose=0, **small("td3", steps=200, num_envs=2))
    return path


def test_a_model_of_a_run_is_trained_judged_and_saved(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result, folder = model_run(run, **TINY)
    assert folder == run / "model" and sorted(each.name for each in folder.iterdir()) == ["model.json", "model.npz", "model.png"]
    assert all(path.read_bytes() == data for path, data in before.items())
    assert json.loads((folder / "model.json").read_text()) == result
    assert (folder / "model.png").read_bytes().startswith(b"\x89PNG")
    assert (result["algo"], result["env"], result["step"], result["batches"]) == ("td3", "toys:Walk-v0", 200, 30)
    assert result["rows"] + result["rows_judged"] == 200 and result["rows_judged"] >= 20
    world = load(folder / "model.npz")
    assert world.task == "toys:Walk-v0" and world.action_low == (-2.0, 0.0)
    assert predict(world, np.zeros(2), np.zeros(2)).next_obs.shape == (2,)


def test_the_same_seed_makes_the_same_model(run: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        model_run(run, out=tmp_path / name, seed=seed, **TINY)
    a, b, c = ((tmp_path / name / "model.npz").read_bytes() for name in "abc")
    assert a == b != c


def test_the_command_prints_a_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--members", "2", "--elites", "2", "--hidden", "16", "--batches", "20", "--horizon", "4"]
    assert main(["model", str(run), "--out", str(tmp_path), *words]) == 0
    out = capsys.readouterr().out
    for said in ("toys:Walk-v0, met by td3, seed 0, to step 200", "90% intervals hold", "error after 4 steps / σ", str(tmp_path)):
        assert said in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--elites", "9"], "elites = 9 of members = 7 is out of range"),
        (["--holdout", "1.5"], "holdout"),
        (["--batches", "0"], "batches"),
    ],
)
def test_options_have_ranges(words: list[str], says: str, run: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["model", str(run), *words]) == 2
    assert says in capsys.readouterr().err


def test_one_folder_is_not_for_several_runs(run: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["model", str(run), str(run), "--out", "x"]) == 2
    assert "--out is one folder, and there are 2 runs" in capsys.readouterr().err


def test_a_run_that_has_hardly_begun_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from beeline.run import modelled

    monkeypatch.setattr(modelled.prior, "rows_of", lambda ring: {
        "obs": np.zeros((2, 2), np.float32), "action": np.zeros((2, 2), np.float32), "reward": np.zeros(2, np.float32),
        "flags": np.array([1, 0], np.uint8),
    })  # fmt: skip
    with pytest.raises(CheckpointError, match="has 1 transitions: too few to train a model"):
        model_run(run, **TINY)


# --- it learns --------------------------------------------------------------------------------------------------------


@pytest.mark.learns
def test_a_model_of_a_pendulum_knows_where_it_swings(tmp_path: Path) -> None:
    """The small sister: two thousand random steps, a minute network."""
    options = small("sac", steps=2_001, random_steps=2_000, learn_after=2_000, eval_episodes=0, checkpoint_every=3_000)
    beeline.train("sac", "gym/Pendulum-v1", out=tmp_path / "run", verbose=0, **options)
    result, _ = model_run(tmp_path / "run", members=3, elites=2, hidden=(64, 64), batches=1_500)
    assert result["mean_r2"] > 0.98 and result["r2"][-1] > 0.9 and not result["poor"]
    assert result["steps"][0] < 0.05 and result["steps"][9] < 0.15
    assert 0.75 < result["coverage"]["0.9"] <= 1.0


@pytest.mark.learns
@pytest.mark.long
@pytest.mark.slow
def test_a_model_of_a_hopper_is_calibrated_and_follows_it(tmp_path: Path) -> None:
    """Five thousand random steps and as many of a policy that learns; the model has four layers of 200."""
    options = {"preset": "light", "steps": 10_000, "random_steps": 5_000, "learn_after": 4_000, "eval_episodes": 0}
    beeline.train("sac", "mbpo/hopper", out=tmp_path / "run", verbose=0, tensorboard=False, **options)
    result, _ = model_run(tmp_path / "run", batches=2_400)
    assert result["r2"][-1] >= 0.99 and result["mean_r2"] >= 0.85
    assert 0.85 <= result["coverage"]["0.9"] <= 0.95 and 0.45 <= result["coverage"]["0.5"] <= 0.65
    assert result["nll"] <= -2.2
    assert result["steps"][0] <= 0.1 and result["steps"][4] <= 0.3 and result["steps"][9] <= 0.5
