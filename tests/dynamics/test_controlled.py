"""AutoMBPO within a run: when it decides, what it keeps, that it resumes exactly, and how it is trained over runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from whole_runs import small

import beeline
from beeline import files
from beeline.bench import autombpo
from beeline.bench.plan import BenchRun
from beeline.bench.worker import run_one
from beeline.cli import main
from beeline.dynamics import controlled
from beeline.dynamics import controller as auto
from beeline.dynamics.controlled import Controlled
from beeline.dynamics.triggers import Linear, Look
from beeline.errors import BeelineError, CheckpointError, ConfigError, RunFolderError
from beeline.memory import Clock
from beeline.run.checkpoint import CheckpointStore

WALK = "toys:Walk-v0"
SCALES = auto.Scales(2.0, 4.0, 8.0, 16.0)
FAR = 50.0  # of a bias: nothing else is chosen


def _always(**wanted: int) -> auto.Controller:
    """A controller that decides the same whatever it sees."""
    params = []
    parts = auto.PARTS[: 3 if "length" in wanted else 2 if "updates" in wanted else 1]
    for part in parts:
        nets = jax.tree.map(np.array, auto.blank(part))
        for (_, last), (name, _) in zip(nets, part.choices):
            last["b"][wanted[name]] = FAR
        params.append(nets)
    return auto.Controller(WALK, SCALES, 40, 3, (), tuple(params))


def _plain() -> auto.Controller:
    return auto.Controller(WALK, SCALES, 40, 3, (), ())


def _trigger(path: Path, steps: int = 120) -> Controlled:
    return Controlled(str(path), Linear(0.9, 3, (0, 2, 1, 3)), 40, steps, 3, 20)


def _play(trigger: Controlled, steps: int, scores: dict[int, float] | None = None) -> tuple[Any, list[tuple[int, bool]]]:
    """Ask before every step, tell of evaluations after it; its state, and when something was due."""
    own, due = trigger.init(), []
    for since in range(steps):
        look = Look(
            Clock(7, since), since, 1, 1, 2, {}, lambda count: np.zeros(0), lambda: (1.0, 3.0), lambda at=since: 0.5 + at / 10
        )  # fmt: skip
        own, found = trigger.look(own, look)
        if found.branches:
            due.append((since, found.train))
        if since + 1 in (scores or {}):
            own = trigger.heed(own, scores[since + 1], since + 1, 1)  # type: ignore[index]
    return own, due


# --- the trigger ------------------------------------------------------------------------------------------------------


def test_it_decides_eight_times_an_epoch_and_keeps_what_it_saw(tmp_path: Path) -> None:
    path = _always(model=1, ratio=2, updates=0, length=2).save(tmp_path / "c.npz")
    own, due = _play(_trigger(path), 120, {40: -3.0, 60: 99.0, 80: 5.0, 120: 7.0})
    assert [since for since, _ in due] == list(range(0, 120, 5)) and not any(train for _, train in due)
    found = controlled.kept(own)
    assert len(found.signs) == 24 and found.returns.tolist() == [-3.0, 5.0, 7.0]
    # progress, the two losses, the shift as it was when the epoch began, the last return
    assert found.signs[0] == pytest.approx([0.0, 1.0, 3.0, 0.5, 0.0])
    assert found.signs[7] == pytest.approx([35 / 120, 1.0, 3.0, 0.5, 0.0])
    assert found.signs[9] == pytest.approx([45 / 120, 1.0, 3.0, 4.5, -3.0])
    assert found.signs[12] == pytest.approx([60 / 120, 1.0, 3.0, 4.5, 99.0])
    # The third network's own view: scaled, the ratio before the decision (.05 · 1.2^9), and k / 3.
    assert found.states[9] == pytest.approx([0.375, 0.5, 0.75, 4.5 / 8, -3 / 16, 0.05 * 1.2**9, 1.0])
    assert found.states[8][-1] == pytest.approx(2 / 3)  # before it was raised at this epoch's beginning
    assert found.actions.tolist() == [[1, 2, 0, 2]] * 24
    assert found.log_probs == pytest.approx(np.zeros((24, 1)), abs=1e-6)


def test_epochs_that_are_no_multiple_of_eight_steps_have_eight_decisions_too(tmp_path: Path) -> None:
    """Of 50 steps: an eighth is 6.25, and a decision comes with the step that reaches a multiple of it."""
    path = _always(model=1, ratio=1, updates=1, length=2).save(tmp_path / "c.npz")
    trigger = Controlled(str(path), Linear(0.9, 3, (0, 2, 1, 3)), 50, 150, 3, 20)
    own, due = _play(trigger, 150, {50: -3.0, 100: 5.0})
    assert [since for since, _ in due[:9]] == [0, 7, 13, 19, 25, 32, 38, 44, 50] and len(due) == 24
    found = controlled.kept(own)
    assert len(found.signs) == len(own["signs"]) == 24 and found.returns.tolist() == [-3.0, 5.0]
    # An epoch's beginning is seen: the shift is measured there, and k grows there.
    assert found.signs[[7, 8, 15, 16], 3] == pytest.approx([0.5, 5.5, 5.5, 10.5])
    assert [trigger.settings(_play(trigger, steps)[0], steps).length for steps in (50, 51)] == [2, 3]
    look = Look(Clock(7, 0), 0, 1, 1, 2, {}, lambda count: np.zeros(0))
    assert trigger.look(trigger.init(), look)[1].branches == 12  # of two a step, for 6.25 steps
    # Several steps in a decision: none is left out.
    own, asked = trigger.init(), []
    for since in range(0, 150, 6):
        own, found_due = trigger.look(own, look._replace(since=since, decision=6))
        asked += [since] if found_due.branches else []
    assert len(asked) == 24 and {0, 54, 102} <= set(asked)


def test_settings_follow_the_decisions_and_k_only_where_an_epoch_begins(tmp_path: Path) -> None:
    trigger = _trigger(_always(model=0, ratio=2, updates=2, length=2).save(tmp_path / "c.npz"))
    assert trigger.settings(trigger.init(), 0) == (0.05, 10, 1)
    for steps, k in ((5, 2), (40, 2), (41, 3), (120, 3)):
        own, due = _play(trigger, steps)
        decisions = -(-steps // 5)
        assert trigger.settings(own, steps) == (pytest.approx(min(0.05 * 1.2**decisions, 1.0)), min(10 + decisions, 20), k)
        assert all(train for _, train in due)


def test_what_no_network_decides_is_scheduled(tmp_path: Path) -> None:
    one = _trigger(_always(model=1, ratio=0).save(tmp_path / "c.npz"))
    own, _ = _play(one, 81)
    assert one.settings(own, 80) == (pytest.approx(0.05 / 1.2**17), 10, 3)  # k of the second epoch of Linear
    plain = _trigger(_plain().save(tmp_path / "p.npz"))
    own, due = _play(plain, 80, {40: 1.0})
    assert plain.settings(own, 41) == (0.05, 10, 2)
    assert [since for since, train in due if train] == [0, 20, 40, 60] and len(due) == 16
    found = controlled.kept(own)
    assert found.actions[:, 0].tolist() == [0, 1, 1, 1] * 4 and (found.actions[:, 1:] == 1).all() and len(found.signs) == 16


def test_more_decisions_than_were_planned_are_made_and_not_kept(tmp_path: Path) -> None:
    trigger = _trigger(_always(model=1, ratio=1).save(tmp_path / "c.npz"), steps=40)
    own, due = _play(trigger, 60, {40: 1.0, 80: 2.0})
    assert len(due) == 12 and len(controlled.kept(own).signs) == 8 and controlled.kept(own).returns.tolist() == [1.0]


def test_without_its_file_a_state_that_was_kept_goes_on_and_a_new_one_does_not(tmp_path: Path) -> None:
    path = _always(model=1, ratio=2).save(tmp_path / "c.npz")
    trigger = _trigger(path)
    own, _ = _play(trigger, 50)
    path.unlink()
    look = Look(Clock(7, 50), 50, 1, 1, 2, {}, lambda count: np.zeros(0))
    assert trigger.settings(trigger.look(own, look)[0], 50).ratio == pytest.approx(0.05 * 1.2**11)
    with pytest.raises(CheckpointError, match=r"there is no controller file .*c\.npz"):
        trigger.look(trigger.init(), look)


def test_a_state_that_was_given_is_not_changed(tmp_path: Path) -> None:
    trigger = _trigger(_always(model=1, ratio=2).save(tmp_path / "c.npz"))
    own = trigger.init()
    before = jax.tree.map(np.copy, own)
    look = Look(Clock(7, 0), 0, 1, 1, 2, {}, lambda count: np.zeros(0))
    trigger.heed(trigger.look(own, look)[0], 3.0, 40, 1)
    assert jax.tree.all(jax.tree.map(np.array_equal, own, before))


def test_what_is_learnt_from_is_the_sum_of_the_rewards_to_come() -> None:
    found = controlled.Kept(
        np.zeros((16, 5)), np.ones((16, 7), np.float32), np.array([[0, 2, 1, 1]] * 8 + [[1, 0, 2, 1]] * 8),
        np.full((16, 1), -0.5, np.float32), np.array([20.0, 8.0]),
    )  # fmt: skip
    rows = controlled.rows(found, 2, (4.0, 16.0), auto.Scales(1, 1, 1, 40.0))
    # R = 4: +4 at the eighth decision, -2 at the last; ∓.05 for each of the first and second eight.
    assert rows.action.tolist() == [[1]] * 8 + [[2]] * 8
    assert rows.advantage[0] == pytest.approx(4 - 2) and rows.advantage[7] == pytest.approx(-0.05 + 4 - 2 + 0.4)
    assert rows.advantage[8] == pytest.approx(0.4 - 2) and rows.advantage[15] == pytest.approx(-1.95)
    assert controlled.rows(found, 1, (4.0, 16.0), SCALES).action.tolist() == [[0, 2]] * 8 + [[1, 0]] * 8


# --- the agent --------------------------------------------------------------------------------------------------------

RUN: dict[str, Any] = {"random_steps": 40, "learn_after": 40, "steps": 160, "eval_every": 40, "log_every": 10}


def _run(out: Path, path: Path, **changes: Any) -> Any:
    return beeline.train("mbpo", WALK, out=out, verbose=0, **(small("mbpo", **RUN) | {"controller": str(path)} | changes))


def _rows(out: Path) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if not n.startswith("time/")} for row in beeline.open(out).rows]


class _Stop(beeline.Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, event: Any) -> bool:
        return event.step < self.at


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A controller that skips and raises all, and a run under it."""
    folder = tmp_path_factory.mktemp("walked")
    path = _always(model=1, ratio=2, updates=2, length=2).save(folder / "c.npz")
    _run(folder / "run", path)
    return path, folder / "run"


def test_the_loaded_controller_decides(walked: tuple[Path, Path]) -> None:
    rows = [row for row in _rows(walked[1]) if row["rollout/updates"] is not None]
    assert rows[-1]["model/trainings"] == 1  # the one before the first decision
    assert rows[-1]["rollout/updates"] == 20 and rows[-1]["rollout/length"] == 3
    assert rows[-1]["rollout/real"] == 8  # all of the batch: .05 · 1.2^24 is above 1
    arrays = CheckpointStore(walked[1]).load(print).arrays
    own = {name: arrays[f"agent.host['trigger']['{name}']"] for name in ("signs", "decided", "returns", "evaluated")}
    assert int(own["decided"]) == 24 and int(own["evaluated"]) == 3
    evaluated = {row["step"]: row["eval/return"] for row in rows if row["eval/return"] is not None}
    assert own["returns"].tolist() == pytest.approx([evaluated[step] for step in (80, 120, 160)])
    assert (own["signs"][:24, 1] > 0).all() and (own["signs"][:24, 2] > 0).all()
    assert len(set(own["signs"][:8, 3])) == 1 and own["signs"][8, 3] > 0


@pytest.mark.parametrize("stop", [61, 81])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(stop: int, walked: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(walked[0].read_bytes())
    _run(tmp_path / "run", path, callbacks=[_Stop(stop)])
    path.unlink()  # what was begun needs it no more
    beeline.resume(tmp_path / "run", env=WALK, verbose=0)
    assert _rows(tmp_path / "run") == _rows(walked[1])
    ours, theirs = (CheckpointStore(each).load(print).arrays for each in (tmp_path / "run", walked[1]))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs if not name.startswith("metrics['time"))


def test_log_probabilities_are_stored_with_every_action(walked: tuple[Path, Path]) -> None:
    """At random steps the policy is the initial one; a tanh-Gaussian's density by hand."""
    model = beeline.MBPO(WALK, **small("mbpo", **RUN), controller=str(walked[0]), verbose=0)
    replay = CheckpointStore(walked[1]).load(print).restore_replay()
    batch = replay.whole()
    columns = replay.export(0, replay.oldest(0), replay.rows(0))
    stored = columns["log_prob"][(columns["flags"] & 1) != 0][:20]
    agent, state = model.trainer.agent, model.trainer.state
    mean, log_std = (np.asarray(each, np.float64) for each in agent.inner.actor.output(state.inner.actor.live, batch.obs[:20]))
    action = batch.action[:20].astype(np.float64)
    action -= 1e-3 * np.sign(action)  # moved inwards, as at ±1 there is no density
    u = np.arctanh(action)
    each = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi) - np.log(1 - action**2)
    np.testing.assert_allclose(stored, each.sum(axis=1), atol=1e-4)


def test_the_value_loss_is_half_the_critics_loss_for_each_of_them(walked: tuple[Path, Path]) -> None:
    model = beeline.MBPO(WALK, **small("mbpo", **RUN), controller=str(walked[0]), verbose=0)
    agent, state = model.trainer.agent, model.trainer.state
    memories = {"replay": CheckpointStore(walked[1]).load(print).restore_replay(), "model": []}
    found = agent.value_loss(state, memories, Clock(0, 60, decisions=60))
    drawn = memories["replay"].sample(0, 60, 1, 256, gamma=agent.inner.gamma, stream="controller/replay")
    one = jax.tree.map(lambda each: each[0], drawn._replace(extras=None))

    @jax.jit
    def update(state: Any, batch: Any) -> Any:
        noise = agent.inner.draw_noise(jax.random.wrap_key_data(state.key), state.updates, batch, None)
        return agent.inner.one_update(state, batch, None, noise, policy=False, target=False)[1]

    metrics = update(state.inner, agent.inner.scaled(state.inner.host, one))
    assert found == pytest.approx(float(metrics["loss/critic"]) / 4, rel=1e-4) and found > 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schedule": "autombpo"}, "set the same things"),
        ({"schedule_steps": 40}, "within the warm-up"),
        ({"epoch_steps": 80}, "was trained with epochs of 40 steps, not of 80: give epoch_steps = 40"),
        ({"num_envs": 6}, "epoch_steps = 40 is too short for a controller.*>= 48, 8 decisions of 6 environment steps"),
    ],
)
def test_options_that_do_not_fit(changes: dict[str, Any], says: str, walked: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises((ConfigError, CheckpointError), match=says):
        _run(tmp_path / "run", walked[0], **changes)
    assert not (tmp_path / "run").exists()


def test_a_controller_of_another_task_or_none_at_all_is_refused(tmp_path: Path) -> None:
    path = dataclasses.replace(_always(model=1, ratio=1), task="mbpo/ant").save(tmp_path / "c.npz")
    with pytest.raises(CheckpointError, match="was trained on mbpo/ant, not on toys:Walk-v0"):
        _run(tmp_path / "run", path)
    with pytest.raises(CheckpointError, match="there is no controller file"):
        _run(tmp_path / "run", tmp_path / "none.npz")
    with pytest.raises(ConfigError, match="cmlo decides when the model is trained"):
        beeline.train("cmlo", WALK, out=tmp_path / "run", controller=str(path))
    with pytest.raises(ConfigError, match="schedule_steps = 9000 is for a controller"):
        beeline.train("mbpo", WALK, out=tmp_path / "run", schedule_steps=9_000)
    assert not (tmp_path / "run").exists()


def test_a_policy_of_a_controlled_run_needs_no_controller(walked: tuple[Path, Path]) -> None:
    assert beeline.open(walked[1]).policy().predict(np.zeros(2))[0].shape == (2,)


# --- training over runs -----------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    name: value
    for name, value in small("mbpo", random_steps=40, learn_after=40).items()
    if name not in ("steps", "eval_every", "preset", "checkpoint_every")
}


def _plan(**changes: int) -> autombpo.AutoPlan:
    config = autombpo.AutoConfig.make({"stages": 2, "runs": 2, "epochs": 2, "parts": 1} | changes)
    return autombpo.AutoPlan.make(WALK, "light", config, OPTIONS)


@pytest.fixture
def imagined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, int]]:
    """Runs that are not made: what they would have kept is drawn by their seed and their controller."""
    asked: list[tuple[str, float, int]] = []

    def gathered(path: Path, epochs: int) -> controlled.Kept:
        stage = path.parents[2]
        known, seed = auto.load(stage / "controller.npz"), int(path.name.removeprefix("seed"))
        asked.append((stage.name, known.epsilon, len(known.params)))
        draw, part = np.random.default_rng(seed), auto.PARTS[max(len(known.params) - 1, 0)]
        taken = np.stack([draw.integers(0, size, 8 * epochs) for size in (2, 3, 3, 3)], axis=1)
        states = draw.uniform(-1, 1, (8 * epochs, part.inputs)).astype(np.float32)
        log_probs = np.log(draw.uniform(0.2, 0.6, (8 * epochs, len(part.choices)))).astype(np.float32)
        return controlled.Kept(draw.uniform(0, 1, (8 * epochs, 5)), states, taken, log_probs, draw.normal(100, 10, epochs))

    monkeypatch.setattr(autombpo, "gathered", gathered)
    return asked


def test_stages_follow_each_other_and_networks_stand_on_those_before(imagined: list[Any], tmp_path: Path) -> None:
    made: list[BenchRun] = []
    runner: autombpo.Runner = lambda folder, runs, workers: made.extend(runs) or 0  # type: ignore[func-returns-value]  # noqa: E731
    said: list[str] = []
    assert autombpo.train(tmp_path / "out", _plan(parts=3), runner=runner, say=said.append) == 0
    expected = [("stage-00", 0.0, 0)]
    expected += [(f"stage-{1 + 2 * part + stage:02d}", (1.0, 0.8)[stage], part + 1) for part in range(3) for stage in range(2)]
    assert imagined[::2] == expected
    assert len({run.seed for run in made}) == len(made) == 14
    assert {run.steps for run in made} == {40 + 2 * 40} and {run.options["eval_every"] for run in made} == {40}
    final = auto.load(tmp_path / "out" / "controller.npz")
    assert len(final.params) == 3 and final.epsilon == 0.0 and len(final.baseline) == 2 and final.epoch == 40
    stages = [auto.load(tmp_path / "out" / f"stage-{number:02d}" / "controller.npz") for number in range(7)]
    same = jax.tree.map(np.array_equal, final.params[0], stages[4].params[0])
    assert jax.tree.all(same) and jax.tree.all(jax.tree.map(np.array_equal, stages[3].params[0], stages[6].params[0]))
    assert not jax.tree.all(jax.tree.map(np.array_equal, stages[1].params[0], stages[2].params[0]))  # PPO moved it
    assert len(said) == 8 and said[0].startswith("stage 0 of 6: return ")


def test_the_best_network_is_the_one_that_led_to_the_highest_return(tmp_path: Path) -> None:
    plan = _plan(stages=3)
    first = autombpo.Learner().after(plan, 0, [_kept([50.0, 150.0]), _kept([150.0, 250.0])])
    assert first.baseline == (100.0, 200.0) and first.scales is not None and first.scales.performance == 200.0
    learners = [first]
    for number, score in ((1, 10.0), (2, 30.0), (3, 20.0)):
        learners.append(learners[-1].after(plan, number, [_kept([score, score])]))
    assert learners[1].score == 10.0 and learners[2].score == 30.0 and learners[1].slot is not None
    assert jax.tree.all(jax.tree.map(np.array_equal, learners[3].done[0], learners[1].slot.live))  # of the second stage's runs
    assert learners[3].slot is None and learners[3].controller(plan, None).params == learners[3].done


def _kept(returns: list[float]) -> controlled.Kept:
    draw = np.random.default_rng(0)
    actions = np.stack([draw.integers(0, size, 16) for size in (2, 3, 3, 3)], axis=1)
    states = draw.uniform(-1, 1, (16, 6)).astype(np.float32)
    return controlled.Kept(draw.uniform(0, 1, (16, 5)), states, actions, np.full((16, 2), -1.0, np.float32), np.array(returns))


@pytest.mark.parametrize("die_at", range(1, 4))
def test_a_training_that_was_killed_ends_with_the_same_controller(die_at: int, imagined: list[Any], tmp_path: Path) -> None:
    runner: autombpo.Runner = lambda folder, runs, workers: 0  # noqa: E731
    autombpo.train(tmp_path / "whole", _plan(), runner=runner, say=lambda text: None)
    calls = 0

    def dying(folder: Path, runs: Sequence[BenchRun], workers: int | None) -> int:
        nonlocal calls
        calls += 1
        if calls == die_at:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        autombpo.train(tmp_path / "cut", _plan(), runner=dying, say=lambda text: None)
    calls = 10
    assert autombpo.train(tmp_path / "cut", autombpo.recorded(tmp_path / "cut"), runner=dying, say=lambda text: None) == 0
    assert calls == 10 + 4 - die_at  # stages that were done are not done again
    for name in ("controller.npz", "stage-02/controller.npz", "stage-02/learner.npz"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_stage_whose_runs_fail_ends_the_command_with_their_code(tmp_path: Path) -> None:
    assert autombpo.train(tmp_path, _plan(), runner=lambda folder, runs, workers: 143) == 143
    assert not (tmp_path / "stage-00" / "learner.npz").exists()


@pytest.mark.slow
def test_a_controller_is_trained_on_real_runs_and_then_used(tmp_path: Path) -> None:
    """The small sister: one stage of one run each, of two epochs."""
    from beeline.envs import trust

    trust.allow(WALK)

    def in_turn(folder: Path, runs: Sequence[BenchRun], workers: int | None) -> int:
        return max(run_one(folder / run.folder, run) for run in runs)

    plan = _plan(stages=1, runs=1)
    assert autombpo.train(tmp_path / "out", plan, runner=in_turn, say=lambda text: None) == 0
    made = auto.load(tmp_path / "out" / "controller.npz")
    rows = beeline.open(tmp_path / "out" / "stage-00" / plan.runs(tmp_path, 0)[0].folder).rows
    returns = {row["step"]: row["eval/return"] for row in rows}
    assert made.baseline == pytest.approx((returns[80], returns[120])) and made.task == WALK
    _run(tmp_path / "used", tmp_path / "out" / "controller.npz", steps=80)
    assert _rows(tmp_path / "used")[-1]["model/trainings"] >= 1


@pytest.mark.learns
@pytest.mark.long
@pytest.mark.slow
def test_a_controller_of_the_inverted_pendulum_is_trained_and_then_used(tmp_path: Path) -> None:
    """Two stages of three runs of eight epochs; a run under the result balances to the end."""
    config = autombpo.AutoConfig.make({"stages": 2, "runs": 3, "epochs": 8})
    plan = autombpo.AutoPlan.make("gym/InvertedPendulum-v5", "light", config, {"eval_episodes": 3, "tensorboard": False})
    assert autombpo.train(tmp_path / "out", plan) == 0
    run = beeline.train(
        "mbpo", "gym/InvertedPendulum-v5", preset="light", steps=5_000, eval_every=250, eval_episodes=3, verbose=0,
        out=tmp_path / "run", controller=str(tmp_path / "out" / "controller.npz"), tensorboard=False,
    )  # fmt: skip
    assert max(row["eval/return"] for row in run.rows if row["eval/return"] is not None) == 1_000


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_hands_its_options_on_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(autombpo, "train", lambda out, plan, workers: found.append((out, plan, workers)) or 0)
    words = ["--stages", "3", "--runs", "4", "--epochs", "5", "--parts", "2", "--out", str(tmp_path), "--model-members", "9"]
    assert main(["autombpo", "train", "mbpo/hopper", *words, "--workers", "2", "--preset", "paper"]) == 0
    [(out, plan, workers)] = found
    assert (out, workers, plan.task, plan.preset) == (tmp_path, 2, "mbpo/hopper", "paper")
    assert plan.config.to_dict() == {"stages": 3, "runs": 4, "epochs": 5, "parts": 2, "seed": 0}
    assert plan.method.model_members == 9
    autombpo.record(tmp_path, plan)
    assert main(["autombpo", "train", "--out", str(tmp_path)]) == 0
    assert found[1][1] == plan


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mbpo/hopper", "--stages", "0"], "stages"),
        (["mbpo/hopper", "--epoch-steps", "900"], "epoch_steps = 900 is out of range; allowed: what the warm-up (5000 steps)"),
        ([], "nothing to train"),
        (["--out", "nowhere"], "holds no training of a controller"),
        (["--out", "nowhere", "--runs", "3"], "runs belongs to a new training"),
        (["mbpo/hopper", "--controller", "c.npz"], "unknown option --controller"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["autombpo", "train", *words]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_for_one_training(tmp_path: Path) -> None:
    autombpo.record(tmp_path, _plan())
    autombpo.record(tmp_path, _plan())
    with pytest.raises(RunFolderError, match=r"holds another training \(runs differ\)"):
        autombpo.record(tmp_path, _plan(runs=5))
    path = tmp_path / autombpo.PLAN
    path.write_text(path.read_text().replace('"runs": 2', '"runs": 3'))
    with pytest.raises(RunFolderError, match="is not as it was written"):
        autombpo.recorded(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"task": {}}, "must be text"),
        ({"task": -3}, "must be text"),
        ({"preset": [1]}, "must be text"),
        ({"options": "x"}, "options a table"),
        ({"options": []}, "options a table"),
        ({"runs": 10**400}, "runs = 1000"),
    ],
)
def test_a_sealed_plan_that_makes_no_sense_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    autombpo.record(tmp_path, _plan())
    path = tmp_path / autombpo.PLAN
    path.write_bytes(files.sealed(files.load_json(path) | change))
    with pytest.raises(BeelineError) as caught:
        autombpo.recorded(tmp_path)
    assert says in str(caught.value)


def test_the_command_of_the_page_has_a_plan() -> None:
    """Epochs of 250 steps, the shortest of the presets'."""
    plan = autombpo.AutoPlan.make("gym/InvertedPendulum-v5", None, autombpo.AutoConfig(epochs=16), {})
    assert plan.method.epoch_steps == 250 and plan.runs(Path(), 0)[0].steps == 500 + 16 * 250


def test_options_that_the_training_sets_are_refused() -> None:
    with pytest.raises(ConfigError, match="eval_every is set by the training"):
        autombpo.AutoPlan.make(WALK, "light", autombpo.AutoConfig(), OPTIONS | {"eval_every": 5})


def test_a_run_without_all_its_evaluations_is_named(walked: tuple[Path, Path]) -> None:
    assert len(autombpo.gathered(walked[1], 3).returns) == 3
    with pytest.raises(CheckpointError, match="has 3 evaluations at the ends of its 4 epochs"):
        autombpo.gathered(walked[1], 4)
