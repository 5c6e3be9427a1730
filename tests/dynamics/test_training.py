"""Model training: bootstrap sets, short batches, early stopping by both rules, snapshots, elites, giving up, divergence."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from beeline.dynamics import training as module
from beeline.dynamics.ensemble import GaussianEnsemble
from beeline.dynamics.training import Training, _Progress, errors, pieces
from beeline.errors import ModelError
from beeline.memory import Batch
from beeline.networks import Draw

MODEL = GaussianEnsemble(2, 1, members=3, elites=2, hidden=(8,), decay=(1e-4,), rate=3e-3)


def rows(count: int, seed: int = 0) -> Batch:
    """A linear world with a little noise."""
    draw = np.random.default_rng(seed)
    obs, action = draw.normal(size=(count, 2)).astype(np.float32), draw.uniform(-1, 1, (count, 1)).astype(np.float32)
    following = obs + 0.3 * obs[:, ::-1] + 0.5 * action + 0.05 * draw.normal(size=(count, 2)).astype(np.float32)
    return Batch(obs, action, obs[:, 0] - action[:, 0], np.ones(count, np.float32), following.astype(np.float32))


def trained(training: Training, data: Batch, model: GaussianEnsemble = MODEL, **more):
    return training(model, model.init(Draw(0, "init/model")), data, seed=0, counter=0, **more)


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))


# --- index sets ---------------------------------------------------------------------------------------------------------


def test_every_member_has_its_own_rows_drawn_with_replacement_in_another_order_every_epoch():
    epochs = Training(batch_size=100).epochs_of(7, 20_000, seed=0, counter=3)
    first, second = next(epochs), next(epochs)
    assert first.shape == (7, 20_000)
    for member in range(7):
        assert len(np.unique(first[member])) / 20_000 == pytest.approx(1 - np.exp(-1), abs=0.01)
        assert (np.sort(first[member]) == np.sort(second[member])).all()
        assert (first[member] != second[member]).mean() > 0.9
    assert (np.sort(first[0]) != np.sort(first[1])).mean() > 0.9
    assert not np.array_equal(first, next(Training(batch_size=100).epochs_of(7, 20_000, seed=0, counter=4)))
    np.testing.assert_array_equal(first, next(Training(batch_size=100).epochs_of(7, 20_000, seed=0, counter=3)))


def test_a_budget_of_batches_cuts_the_last_epoch():
    epochs = list(Training(batch_size=10, batches=7).epochs_of(2, 25, seed=0, counter=0))  # 3 batches an epoch
    assert [each.shape[1] for each in epochs] == [25, 25, 10]
    assert len(list(Training(batch_size=10, epochs=4).epochs_of(2, 25, seed=0, counter=0))) == 4


def test_pieces_hold_every_row_once_in_order():
    order = np.arange(2 * 777, dtype=np.int32).reshape(2, 777)
    for size in (4, 10, 777):
        found = [piece.rows[i, :, : piece.counts[i]] for piece in pieces(order, size) for i in range(piece.filled)]
        np.testing.assert_array_equal(np.concatenate(found, axis=1), order)
        assert all(each.shape[1] == size for each in found[:-1])


def test_a_fifth_is_held_out_and_never_fitted_on_up_to_a_bound():
    fit, judge = Training().split(1_000, 0, 0)
    assert len(judge) == 200 and sorted([*fit, *judge]) == list(range(1_000))
    assert len(Training().split(40_000, 0, 0)[1]) == 5_000
    assert not np.array_equal(judge, Training().split(1_000, 0, 1)[1])
    fit, judge = Training(holdout=0.0, holdout_most=30, rule="fixed", epochs=1).split(50, 0, 0)
    assert len(fit) == 50 and len(judge) == 30


# --- early stopping -----------------------------------------------------------------------------------------------------


def scripted(rule: str, errors: list[list[float]], before: list[float] | None = None, patience: int = 5):
    """Run the rule over errors per epoch; weights of epoch n are n everywhere. (epochs, kept weights, kept errors)."""
    model = dataclasses.replace(MODEL, members=len(errors[0]))
    progress = _Progress(Training(rule=rule, patience=patience, epochs=99), model, model.init(Draw(0, "x")).slot)
    if before is not None:
        progress.best = np.array(before, np.float32)
    for epoch, error in enumerate(errors, start=1):
        live = jax.tree.map(lambda leaf, n=epoch: jnp.full_like(leaf, n), progress.slot.live)
        progress.slot = progress.slot._replace(live=live)
        if progress.judge(epoch, np.array(error, np.float32)):
            break
    slot, best = progress.kept()
    return epoch, np.asarray(slot.live["layers"][0]["w"])[:, 0, 0].tolist(), float(slot.live["max"][0]), best.tolist()


def test_the_original_rule_on_scripted_errors():
    assert scripted("original", [[1.0, 1.0]] * 20)[0] == 7
    # Member 0 improves at 1 and 3, member 1 at 1 and 2; .0099 of a step is not enough.
    epochs, weights, bound, best = scripted("original", [[1.0, 1.0], [0.991, 0.5], [0.9, 0.6], *[[0.895, 0.499]] * 20])
    assert (epochs, weights) == (9, [3.0, 2.0])
    assert best == pytest.approx([0.9, 0.5])
    assert bound == 9.0  # the bounds stay as they are at the end


def test_mbrl_libs_rule_on_scripted_errors():
    epochs, weights, bound, best = scripted("mbrl", [[1.0, 1.0]] * 20, before=[1.0, 1.0])
    assert (epochs, weights) == (5, [5.0, 5.0])  # nothing improved: the last weights stay
    # All go back to epoch 3, the last in which anyone improved; the errors are the smallest of every member.
    errors = [[1.0, 0.5], [0.8, 0.6], [0.9, 0.4], *[[0.899, 0.399]] * 20]
    epochs, weights, bound, best = scripted("mbrl", errors, before=[1.0, 1.0])
    assert (epochs, weights, bound) == (8, [3.0, 3.0], 3.0)
    assert best == pytest.approx([0.8, 0.4])


def test_under_mbrl_libs_rule_a_training_begins_with_the_error_of_before():
    """A model that does not move: the original's first epoch betters infinity, mbrl-lib's betters nothing."""
    still, data = dataclasses.replace(MODEL, rate=1e-12), rows(300)
    state, found = trained(Training(batch_size=64, rule="mbrl"), data, model=still)
    assert found.epoch == 5 and list(state.elites) == list(np.argsort(found.error)[:2])
    assert trained(Training(batch_size=64), data, model=still)[1].epoch == 7


def test_patience_is_counted_anew_after_every_improvement():
    errors = [[1.0], *[[1.0]] * 5, [0.5], *[[0.5]] * 20]
    assert scripted("original", errors)[0] == 13
    assert scripted("original", [[1.0]] * 20, patience=2)[0] == 4


def test_fixed_keeps_the_last_weights():
    epochs, weights, _, best = scripted("fixed", [[1.0], [0.1], [0.7]])
    assert (epochs, weights) == (3, [3.0]) and best == pytest.approx([0.7])
    with pytest.raises(ValueError, match="never end"):
        Training(rule="fixed")


# --- training -----------------------------------------------------------------------------------------------------------


def test_a_training_learns_and_its_elites_have_the_least_error():
    data = rows(600)
    told = []
    state, found = trained(Training(batch_size=64), data, tell=told.append)
    assert found.error.max() < 0.05 < told[0].error.min()
    assert found.epoch == told[-1].epoch == len(told) and found.batches == told[-1].batches == len(told) * 8
    assert list(state.elites) == list(np.argsort(found.error)[:2])
    assert int(state.trainings) == 1
    fit, judge = Training(batch_size=64).split(600, 0, 0)
    inputs = np.concatenate([data.obs, data.action], axis=1)
    np.testing.assert_allclose(state.mean, inputs[fit].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.deviation, inputs[fit].std(0), rtol=1e-5)
    copies = [np.broadcast_to(each[judge], (3, len(judge), each.shape[1])) for each in (data.obs, data.action)]
    mean, _ = MODEL.predict(state, *map(jnp.asarray, copies))
    target = np.concatenate([data.next_obs - data.obs, data.reward[:, None]], axis=1)[judge]
    np.testing.assert_allclose(np.square(np.asarray(mean) - target).mean((1, 2)), found.error, rtol=1e-4)


def test_the_result_depends_neither_on_the_size_of_pieces_nor_on_the_padding(monkeypatch):
    data = rows(300)
    training = Training(batch_size=32, epochs=3)
    state, _ = trained(training, data)
    monkeypatch.setattr(module, "PIECE", 3)
    assert same(trained(training, data)[0].slot, state.slot)
    monkeypatch.setattr(module, "BETWEEN", 0.0)  # one batch in a call
    assert same(trained(training, data)[0].slot, state.slot)
    padded = module._padded
    monkeypatch.setattr(module, "_padded", lambda inputs, targets, chosen, least=0: padded(inputs, targets, chosen, 4096))
    assert same(trained(training, data)[0].slot, state.slot)


def test_an_epoch_is_a_plain_pass_over_the_rows():
    """One epoch of three batches, the last of them short, against single steps."""
    data, training = rows(100), Training(batch_size=32, epochs=1, rule="fixed")
    state, _ = trained(training, data)
    fit, _ = training.split(100, 0, 0)
    order = next(training.epochs_of(3, 80, 0, 0))
    inputs = np.concatenate([data.obs, data.action], axis=1)[fit]
    inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).astype(np.float32)
    target = np.concatenate([data.next_obs - data.obs, data.reward[:, None]], axis=1)[fit]
    slot = MODEL.init(Draw(0, "init/model")).slot
    for batch in (order[:, :32], order[:, 32:64], order[:, 64:]):
        weight = np.full(batch.shape[1], 1 / batch.shape[1], np.float32)
        slot = MODEL.step(slot, jnp.asarray(inputs[batch]), jnp.asarray(target[batch]), weight)
    for a, b in zip(jax.tree.leaves(slot.live), jax.tree.leaves(state.slot.live)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_errors_are_of_the_rows_that_count():
    state = MODEL.init(Draw(0, "x"))
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(1024, 3)).astype(np.float32), draw.normal(size=(1024, 3)).astype(np.float32)
    for count in (1, 512, 700):
        mean, _ = MODEL.forward(state.slot.live, jnp.broadcast_to(x[:count], (3, count, 3)))
        plain = np.square(np.asarray(mean) - y[:count]).mean((1, 2))
        np.testing.assert_allclose(errors(MODEL, state.slot.live, x, y, count), plain, rtol=1e-5)


def test_a_second_training_goes_on_from_the_weights_and_moments_of_the_first():
    data, training = rows(300), Training(batch_size=32, epochs=2)
    state, _ = trained(training, data)
    kept = jax.tree.map(np.array, state)
    again, _ = training(MODEL, state, data, seed=0, counter=1)
    assert same(state, kept)  # nothing of what was given is consumed
    assert int(again.slot.opt[0].count) == 2 * int(state.slot.opt[0].count)
    assert int(again.trainings) == 2 and again.error.min() < state.error.min()


def test_rewards_in_units_of_their_deviation():
    data = rows(300)
    data = data._replace(reward=1_000.0 * data.reward)
    model = dataclasses.replace(MODEL, reward_unit=True)
    state, found = trained(Training(batch_size=32), data, model=model)
    assert found.error.max() < 0.1
    assert float(state.unit[-1]) == pytest.approx(float(np.std(data.reward)), rel=0.1)
    mean, _ = model.predict(state, *(jnp.broadcast_to(each, (3, *each.shape)) for each in (data.obs, data.action)))
    assert np.corrcoef(np.asarray(mean)[0, :, -1], data.reward)[0, 1] > 0.95
    assert np.std(np.asarray(mean)[0, :, -1]) > 500


def test_a_training_is_given_up_when_it_is_told_so():
    asked = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 3

    state = MODEL.init(Draw(0, "x"))
    kept = jax.tree.map(np.array, state)
    assert Training(batch_size=32)(MODEL, state, rows(300), seed=0, counter=0, stop=stop) is None
    assert len(asked) == 4 and same(state, kept)


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (MODEL, rows(300)._replace(reward=np.full(300, np.nan, np.float32)), "not finite"),
        (dataclasses.replace(MODEL, rate=30.0), rows(300), "diverged"),
    ],
)
def test_a_model_that_diverges_is_an_error(model, data, words):
    with pytest.raises(ModelError, match=words):
        trained(Training(batch_size=32), data, model=model)


def test_too_few_rows_are_an_error():
    with pytest.raises(ModelError, match="3 transitions are too few"):
        trained(Training(), rows(3))
