"""AutoMBPO's controller against numbers worked out by hand and a plain NumPy form of its PPO step."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeline import npz, rng
from beeline.dynamics import controller as auto
from beeline.errors import CheckpointError

SCALES = auto.Scales(0.01, 100.0, 10.0, 3000.0)
FIRST, POLICY, ROLLOUT = auto.PARTS


# --- state ------------------------------------------------------------------------------------------------------------


def test_a_state_is_scaled_sign_by_sign() -> None:
    signs = auto.Signs(0.25, 0.002, 30.0, 4.0, 1200.0)
    settings = auto.Settings(0.06, 14, 6)
    base = [0.25, 0.2, 0.3, 0.4, 0.4, 0.06]
    assert auto.state(FIRST, signs, settings, SCALES, 24) == pytest.approx(base)
    assert auto.state(POLICY, signs, settings, SCALES, 24) == pytest.approx([*base, 0.7])
    assert auto.state(ROLLOUT, signs, settings, SCALES, 24) == pytest.approx([*base, 0.25])
    assert [part.inputs for part in auto.PARTS] == [6, 7, 7]


def test_a_state_is_clipped_after_everything_else() -> None:
    signs = auto.Signs(1.5, 5.0, 100.0, 1e9, -9000.0)
    assert auto.state(ROLLOUT, signs, auto.Settings(1.0, 20, 30), SCALES, 15).tolist() == [1, 1, 1, 1, -1, 1, 1]


def test_scales_are_those_of_the_release_for_three_robots_and_measured_for_others() -> None:
    assert auto.released("mbpo/hopper") == auto.Scales(0.01, 100.0, 10.0, 3000.0)
    assert auto.released("mbpo/ant") == auto.Scales(1.0, 20.0, 80.0, 3000.0)
    assert auto.released("mbpo/humanoid") == auto.Scales(1.0, 100.0, 10.0, 3000.0)
    assert auto.released("mbpo/walker2d") is None and auto.released("gym/hopper") is None
    # The 90th percentile of 0 … 10 is 9.
    found = auto.measured(np.arange(11.0), 2 * np.arange(11.0), 3 * np.arange(11.0), [-5.0, 80.0, 60.0])
    assert found == pytest.approx((13.5, 27.0, 40.5, 80.0))
    assert found.reward == pytest.approx(8.0)
    assert auto.Scales(1, 1, 1, 3000.0).reward == 300.0
    assert auto.measured([], [0.0], [], [-400.0, -150.0]) == (1.0, 1.0, 1.0, 400.0)


@pytest.mark.parametrize(
    ("actions", "begins", "expected"),
    [
        ({"ratio": 2}, False, (0.12, 10, 3)),
        ({"ratio": 0}, False, (0.1 / 1.2, 10, 3)),
        ({"ratio": 1, "updates": 2, "length": 2}, False, (0.1, 11, 3)),
        ({"ratio": 1, "updates": 0, "length": 2}, True, (0.1, 9, 4)),
        ({"length": 0}, True, (0.1, 10, 2)),
        ({"model": 1}, True, (0.1, 10, 3)),
    ],
)
def test_what_a_decision_changes(actions: dict[str, int], begins: bool, expected: tuple[float, int, int]) -> None:
    assert auto.changed(auto.Settings(0.1, 10, 3), actions, 15, begins) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=60))
def test_settings_stay_in_their_ranges(decisions: list[tuple[int, int, int, bool]]) -> None:
    settings = auto.Settings()
    for ratio, updates, length, begins in decisions:
        settings = auto.changed(settings, {"ratio": ratio, "updates": updates, "length": length}, 5, begins)
        assert 0 < settings.ratio <= 1 and 1 <= settings.updates <= 20 and 1 <= settings.length <= 5
    up = settings
    for _ in range(80):
        up = auto.changed(up, {"ratio": 2, "updates": 2, "length": 2}, 5, True)
    assert up == (1.0, 20, 5)


def test_the_policy_shift_clips_twice() -> None:
    # |1 - 3| = 2; |-100 - 100| = 200, at most 100; |100 - 100| = 0.
    assert auto.policy_shift([1.0, -1e6, 150.0], [3.0, 1e6, 400.0]) == pytest.approx(102.0 / 3.0)
    assert auto.policy_shift([], []) == 0.0


# --- rewards ----------------------------------------------------------------------------------------------------------


def test_rewards_and_what_is_still_to_come() -> None:
    found = auto.rewards([0, 1, 1, 0, 0, 1], [160.0, 40.0], [100.0, 100.0, 7.0], 30.0, 2)
    # ∓.05 for training or not; +2 and -2 at the ends of the first two epochs; the third is not whole.
    assert found == pytest.approx([-0.05, 2.05, 0.05, -2.05, -0.05, 0.05])
    assert auto.to_go(found) == pytest.approx([0.0, 0.05, -2.0, -2.05, 0.0, 0.05])


def test_chance_is_taken_back_in_five_stages() -> None:
    assert [auto.exploration(stage) for stage in range(7)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0])


# --- networks and decisions -------------------------------------------------------------------------------------------


def _plain_log_probs(params: Any, states: np.ndarray) -> list[np.ndarray]:
    """Linear-tanh-linear and a logarithm of a softmax for each choice, in float64."""
    found = []
    for hidden, last in params:
        w, b, v, c = (np.asarray(each, np.float64) for each in (hidden["w"], hidden["b"], last["w"], last["b"]))
        logits = np.tanh(states @ w + b) @ v + c
        found.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return found


def _rows(part: auto.Part, count: int, seed: int = 0) -> auto.Rows:
    draw = np.random.default_rng(seed)
    states = draw.uniform(-1, 1, (count, part.inputs)).astype(np.float32)
    actions = np.stack([draw.integers(0, size, count) for _, size in part.choices], axis=1)
    log_prob = np.log(draw.uniform(0.1, 0.9, actions.shape)).astype(np.float32)
    return auto.Rows(states, actions, log_prob, draw.normal(size=count).astype(np.float32))


def _perturbed(part: auto.Part, seed: int) -> Any:
    import jax

    draw = np.random.default_rng(seed)
    live = auto.init(part, seed).live
    return jax.tree.map(lambda leaf: np.asarray(leaf) + 0.3 * draw.normal(size=leaf.shape).astype(np.float32), live)


@pytest.mark.parametrize("part", auto.PARTS, ids=lambda part: part.name)
def test_log_probabilities_are_those_of_a_plain_network(part: auto.Part) -> None:
    params, states = _perturbed(part, 3), np.random.default_rng(4).uniform(-1, 1, (9, part.inputs)).astype(np.float32)
    found, plain = auto.log_probs(params, states), _plain_log_probs(params, states)
    assert [each.shape for each in found] == [(9, size) for _, size in part.choices]
    for ours, theirs in zip(found, plain):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_decisions_follow_the_policy_and_tell_its_probability() -> None:
    params, seen = _perturbed(FIRST, 5), np.full(6, 0.2, np.float32)
    plain = [each[0] for each in _plain_log_probs(params, seen[None])]
    taken = [auto.decide(FIRST, params, seen, rng.stream(0, "test", number)) for number in range(2000)]
    for column, (name, size) in enumerate(FIRST.choices):
        shares = np.bincount([actions[name] for actions, _ in taken], minlength=size) / len(taken)
        np.testing.assert_allclose(shares, np.exp(plain[column]), atol=0.04)
    for actions, log_prob in taken[:50]:
        assert log_prob == pytest.approx([plain[0][actions["model"]], plain[1][actions["ratio"]]], abs=2e-5)


def test_with_chance_all_choices_are_uniform_and_the_policys_probability_is_kept() -> None:
    params, seen = _perturbed(FIRST, 6), np.full(6, -0.4, np.float32)
    plain = [each[0] for each in _plain_log_probs(params, seen[None])]
    taken = [auto.decide(FIRST, params, seen, rng.stream(1, "test", number), epsilon=1.0) for number in range(2000)]
    for name, size in FIRST.choices:
        shares = np.bincount([actions[name] for actions, _ in taken], minlength=size) / len(taken)
        np.testing.assert_allclose(shares, np.full(size, 1 / size), atol=0.04)
    actions, log_prob = taken[0]
    assert log_prob == pytest.approx([plain[0][actions["model"]], plain[1][actions["ratio"]]], abs=2e-5)
    assert taken[7][0] == auto.decide(FIRST, params, seen, rng.stream(1, "test", 7), epsilon=1.0)[0]


# --- PPO --------------------------------------------------------------------------------------------------------------


def _plain_loss(params: Any, rows: auto.Rows) -> float:
    total = np.zeros(len(rows.advantage))
    for column, each in enumerate(_plain_log_probs(params, rows.state)):
        ratio = np.exp(each[np.arange(len(each)), rows.action[:, column]] - rows.log_prob[:, column])
        total += np.minimum(ratio * rows.advantage, np.clip(ratio, 0.8, 1.2) * rows.advantage)
    return float(-total.mean())


def _plain_gradients(params: Any, rows: auto.Rows) -> list[list[dict[str, np.ndarray]]]:
    """The gradient by hand: zero for a row whose ratio is clipped, -ρA/N (1{a} - π) at the logits of the others."""
    found, count = [], len(rows.advantage)
    plain = _plain_log_probs(params, rows.state)
    for column, ((hidden, last), each) in enumerate(zip(params, plain)):
        w, b, v = (np.asarray(leaf, np.float64) for leaf in (hidden["w"], hidden["b"], last["w"]))
        action, advantage = rows.action[:, column], rows.advantage.astype(np.float64)
        ratio = np.exp(each[np.arange(count), action] - rows.log_prob[:, column])
        alive = ~(((ratio > 1.2) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0)))
        weight = np.where(alive, -ratio * advantage / count, 0.0)
        logits = weight[:, None] * (np.eye(each.shape[1])[action] - np.exp(each))
        middle = np.tanh(rows.state @ w + b)
        before = logits @ v.T * (1 - middle**2)
        found.append([
            {"w": rows.state.T @ before, "b": before.sum(axis=0)}, {"w": middle.T @ logits, "b": logits.sum(axis=0)},
        ])  # fmt: skip
    return found


@pytest.mark.parametrize("part", auto.PARTS, ids=lambda part: part.name)
def test_the_loss_clips_each_choice_by_itself(part: auto.Part) -> None:
    params, rows = _perturbed(part, 7), _rows(part, 40)
    assert float(auto.loss(params, rows)) == pytest.approx(_plain_loss(params, rows), abs=1e-5)


def test_a_hand_computed_loss() -> None:
    # Zero weights: every action of ratio has 1/3, of model 1/2. Old probabilities .25 and 1/3: ratios 2 and 1.
    params = auto.blank(FIRST)
    rows = auto.Rows(
        np.zeros((2, 6), np.float32), np.array([[0, 1], [1, 2]]),
        np.log(np.array([[0.25, 1 / 3], [0.25, 1 / 3]], np.float32)), np.array([1.0, -3.0], np.float32),
    )  # fmt: skip
    # A = 1: min(2, 1.2) + 1 = 2.2. A = -3: min(-6, -3.6) - 3 = -9. The mean is -3.4.
    assert float(auto.loss(params, rows)) == pytest.approx(3.4, abs=1e-6)


@pytest.mark.parametrize("part", auto.PARTS[:2], ids=lambda part: part.name)
def test_steps_of_a_stage_are_those_of_plain_ppo(part: auto.Part) -> None:
    import jax
    import jax.numpy as jnp

    rows, params = _rows(part, 100, 8), _perturbed(part, 9)
    live = jax.tree.map(jnp.asarray, params)
    slot = auto.init(part, 9)._replace(live=live)
    found = auto.improved(slot, rows, 5, seed=2, stage=3)

    draw = rng.stream(2, "controller/batch", 3)
    plain = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    leaves, structure = jax.tree.flatten(plain)
    first, second = [np.zeros_like(leaf) for leaf in leaves], [np.zeros_like(leaf) for leaf in leaves]
    for step in range(1, 6):
        index = draw.choice(100, 64, replace=False)
        assert len(set(index)) == 64
        batch = auto.Rows(*(column[index] for column in rows))
        gradients = jax.tree.leaves(_plain_gradients(jax.tree.unflatten(structure, leaves), batch))
        for place, gradient in enumerate(gradients):
            first[place] = 0.9 * first[place] + 0.1 * gradient
            second[place] = 0.999 * second[place] + 0.001 * gradient**2
            unbiased = first[place] / (1 - 0.9**step), second[place] / (1 - 0.999**step)
            leaves[place] = leaves[place] - 3e-4 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    moved = [np.abs(new - np.asarray(old)).max() for new, old in zip(jax.tree.leaves(found.live), jax.tree.leaves(params))]
    assert min(moved) > 1e-4
    for ours, theirs in zip(jax.tree.leaves(found.live), leaves):
        np.testing.assert_allclose(ours, theirs, atol=3e-5)


def test_a_stage_makes_what_paid_more_likely() -> None:
    part, draw = POLICY, np.random.default_rng(0)
    slot = auto.init(part, 0)
    for stage in range(4):
        states = draw.uniform(-1, 1, (200, part.inputs)).astype(np.float32)
        taken = [auto.decide(part, slot.live, seen, rng.stream(stage, "t", n)) for n, seen in enumerate(states)]
        action = np.array([[actions["updates"]] for actions, _ in taken])
        paid = np.where(action[:, 0] == (states[:, 0] > 0) * 2, 1.0, -1.0).astype(np.float32)
        slot = auto.improved(slot, auto.Rows(states, action, np.stack([each for _, each in taken]), paid), 120, 0, stage)
    states = draw.uniform(-1, 1, (300, part.inputs)).astype(np.float32)
    found = np.asarray(auto.log_probs(slot.live, states)[0]).argmax(axis=1)
    clear = np.abs(states[:, 0]) > 0.2
    assert (found == (states[:, 0] > 0) * 2)[clear].mean() > 0.9


def test_of_many_decisions_the_last_are_learnt_from() -> None:
    together = auto.joined([_rows(POLICY, 3000, 1), _rows(POLICY, 2500, 2)])
    assert len(together.advantage) == 5000
    np.testing.assert_array_equal(together.state[-2500:], _rows(POLICY, 2500, 2).state)
    np.testing.assert_array_equal(together.state[:2500], _rows(POLICY, 3000, 1).state[500:])


# --- files ------------------------------------------------------------------------------------------------------------


def _controller(parts: int = 2) -> auto.Controller:
    params = tuple(_perturbed(part, number) for number, part in enumerate(auto.PARTS[:parts]))
    return auto.Controller("mbpo/hopper", SCALES, 1000, 15, (1.0, 2.5), params, 0.4)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_controller_is_what_was_saved(tmp_path: Path, parts: int) -> None:
    import jax

    path = _controller(parts).save(tmp_path / "controller.npz")
    found, saved = auto.load(path), _controller(parts)
    assert dataclasses.replace(found, params=()) == dataclasses.replace(saved, params=())
    assert len(found.params) == parts and found.parts == auto.PARTS[:parts]
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), found.params, saved.params))
    assert [each.name for each in tmp_path.iterdir()] == ["controller.npz"]


def test_a_controller_is_for_one_task(tmp_path: Path) -> None:
    controller = auto.load(_controller().save(tmp_path / "controller.npz"))
    controller.fits("mbpo/hopper")
    with pytest.raises(CheckpointError, match=r"was trained on mbpo/hopper, not on mbpo/ant.*autombpo train mbpo/ant"):
        controller.fits("mbpo/ant")


def test_every_flipped_byte_is_seen(tmp_path: Path) -> None:
    path = _controller(1).save(tmp_path / "controller.npz")
    data, draw = path.read_bytes(), np.random.default_rng(0)
    for place in draw.integers(0, len(data), 60):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        path.write_bytes(bytes(damaged))
        try:
            found = auto.load(path)
        except CheckpointError as error:
            assert str(path) in str(error)
        else:  # a byte of the container that nobody reads
            assert found.task == "mbpo/hopper"
            assert npz.sha256({"a": np.asarray(found.params[0][0][0]["w"])}) == npz.sha256(
                {"a": np.asarray(_controller(1).params[0][0][0]["w"])}
            )


def test_files_that_are_no_controllers(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no controller file"):
        auto.load(tmp_path / "none.npz")
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(3))
    with pytest.raises(CheckpointError, match=r"not an intact controller file \(it has no description\)"):
        auto.load(other)
    other.write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="not an intact controller file"):
        auto.load(other)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("parts", 4, "parts = 4"),
        ("parts", 1, "belongs to no part"),
        ("parts", 3, "no array"),
        ("task", 3, "task = 3"),
        ("epoch", 0, "epoch = 0"),
        ("scales", {"model_loss": 0.0, "value_loss": 1, "shift": 1, "performance": 1}, "0.0 is no number"),
        ("scales", {"model_loss": 1.0}, "not complete"),
        ("baseline", [1.0, "x"], "'x' is no number"),
        ("epsilon", -1, "-1 is no number"),
    ],
)
def test_a_sealed_description_that_makes_no_sense_is_refused(tmp_path: Path, name: str, value: Any, says: str) -> None:
    from beeline.dynamics import saved

    path = _controller().save(tmp_path / "controller.npz")
    arrays, about = saved.read(path, auto.KIND)
    saved.write(path, auto.KIND, arrays, about | {name: value})
    with pytest.raises(CheckpointError, match="cannot be used") as caught:
        auto.load(path)
    assert says in str(caught.value)


def test_a_file_of_another_kind_or_with_bad_numbers_is_refused(tmp_path: Path) -> None:
    from beeline.dynamics import saved

    path = saved.write(tmp_path / "a.npz", "model", {"a": np.zeros(2)}, {})
    with pytest.raises(CheckpointError, match="it is no controller file"):
        auto.load(path)
    saved.write(path, "controller", {"a": np.array([0.0, math.nan])}, {})
    with pytest.raises(CheckpointError, match="array 'a' has NaN"):
        auto.load(path)
