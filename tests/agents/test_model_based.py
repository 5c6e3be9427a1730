"""MBPO's order, exact resume around model trainings, λ = 0, what is refused, and what is told."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import Walk
from whole_runs import Killed, flags, same_run, small, table

import beeline
from beeline.agents import make_config
from beeline.agents.mbpo import robot
from beeline.agents.model_based import powers
from beeline.bench import plan as bench_plan
from beeline.cli import main
from beeline.dynamics import training
from beeline.errors import ConfigError
from beeline.loop import Callback, StepEvent
from beeline.memory import Replay
from beeline.run.checkpoint import CheckpointStore
from beeline.run.plan import Plan

WALK = "toys:Walk-v0"
ROOT = Path(__file__).parents[2]


def options(algo: str, **changes: Any) -> dict[str, Any]:
    return small(algo, **({"steps": 130, "checkpoint_every": 1_000, "log_every": 5, "eval_every": 60} | changes))


def learned(algo: str, steps: int = 70, **changes: Any) -> Any:
    model = beeline.model(algo)(WALK, verbose=0, **options(algo, eval_episodes=0, **changes))
    model.learn(steps)
    return model.trainer


# --- order --------------------------------------------------------------------------------------------------------------


def test_training_rollouts_and_updates_come_where_mbpo_has_them() -> None:
    """Warm-up of 20: model and rollouts before steps 20, 45, 70 with rows up to there; updates from step 20 on."""
    model = beeline.MBPO(WALK, verbose=0, **options("mbpo", eval_episodes=0))
    trainer, seen = model.trainer, []
    plain = trainer.agent.prepare

    def prepare(state: Any, memories: Any, clock: Any, stop: Any) -> Any:
        state, told = plain(state, memories, clock, stop)
        if "model/trainings" in told:
            seen.append((clock.step, told["model/rows"], told["rollout/length"], told["rollout/rows"], told["rollout/memory"]))
        return state, told

    trainer.agent.prepare = prepare
    try:
        model.learn(80)
    finally:
        del trainer.agent.prepare
    assert [each[:3] for each in seen] == [(20, 20.0, 1.0), (45, 45.0, 1.0), (70, 70.0, 2.0)]  # epochs of 40: k = 1 + e
    assert [each[3] for each in seen[:2]] == [75.0, 75.0]  # 3 branches for each of 25 steps
    assert 75 < seen[2][3] <= 150
    assert seen[0][4] == 75.0 and seen[1][4] == 120.0  # of one epoch: 3 x 40 x k rows
    assert trainer.progress.updates == 2 * 60
    assert int(trainer.state.model.trainings) == 3 and int(trainer.state.host["rollouts"]) == 3


def test_the_first_training_has_a_budget_of_its_own() -> None:
    model = beeline.MBPO(WALK, verbose=0, **options("mbpo", eval_episodes=0, model_patience=1_000))
    trainer, seen = model.trainer, []
    plain = trainer.agent.prepare

    def prepare(*asked: Any) -> Any:
        state, told = plain(*asked)
        seen.extend([told["model/batches"]] if told else [])
        return state, told

    trainer.agent.prepare = prepare
    try:
        model.learn(71)
    finally:
        del trainer.agent.prepare
    assert seen == [20.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("changes", "length", "branches", "window"),
    [
        ({}, 1, 3, 3 * 40),
        ({}, 3, 3, 3 * 3 * 40),
        ({"branches": 10}, 3, 4, 3 * 4 * 40),  # 500 rows hold four of three steps over forty
        ({"branches": 10, "retain_epochs": 4}, 3, 1, 3 * 40 * 4),
        ({"retain_epochs": 2}, 2, 3, 2 * 3 * 40 * 2),
        ({"epoch_steps": 2}, 1, 3, 8),  # of a batch at least
    ],
)
def test_how_much_is_imagined_and_held_by_hand(changes: dict[str, int], length: int, branches: int, window: int) -> None:
    agent = beeline.MBPO(WALK, verbose=0, **options("mbpo", eval_episodes=0, **changes)).trainer.agent
    assert (agent.branches(length), agent.window(length)) == (branches, window)


def test_asked_again_at_the_same_step_nothing_is_trained_twice() -> None:
    trainer = learned("mbpo", 45)
    prepared = trainer.agent.prepare(trainer.state, trainer.memories, trainer.clock, lambda: False)
    assert prepared is not None and int(prepared[0].model.trainings) == 2
    rows = trainer.memories["model"].rows(0)
    again = trainer.agent.prepare(prepared[0], trainer.memories, trainer.clock, lambda: False)
    assert again is not None and again[0] is prepared[0] and trainer.memories["model"].rows(0) == rows


def test_a_model_made_anew_is_trained_before_anything_is_imagined_with_it() -> None:
    """CMLO rolls out before every decision, and its next training may be far."""
    trainer = learned("cmlo", 48)
    agent, clock = trainer.agent, trainer.clock
    asked = lambda state: agent.prepare(state, trainer.memories, clock, lambda: False)  # noqa: E731
    assert "model/trainings" not in asked(trainer.state)[1]
    trained = int(trainer.state.model.trainings)
    state, told = asked(agent.renew(trainer.state, ["model"], clock))
    assert told["model/trainings"] == trained + 1 and np.isfinite(state.model.error).all()


def test_batches_are_mixed_and_v_sees_real_rows_alone() -> None:
    trainer = learned("mb-bac")
    data = trainer.agent.draw(trainer.state, trainer.memories, trainer.clock)
    real = {each.tobytes() for each in trainer.memories["replay"].whole().obs}
    from_replay = np.array([[each.tobytes() in real for each in row] for row in data.train.obs])
    starts = {each.tobytes() for each in trainer.memories["model"].export(0, *_all(trainer))["next_obs"]}
    assert from_replay[:, :2].all()  # int(.3 · 8) real ones come first
    imagined = np.array([[each.tobytes() in starts for each in row] for row in data.train.next_obs])
    assert not imagined[:, :2].any() and imagined[:, 2:].all()
    assert data.fit is not None and all(each.tobytes() in real for each in data.fit.obs.reshape(-1, 2))
    assert all(each.tobytes() not in starts for each in data.fit.next_obs.reshape(-1, 2))


def _all(trainer: Any) -> tuple[int, int]:
    ring = trainer.memories["model"]
    return ring.oldest(0), ring.rows(0)


def test_updates_in_powers_of_two_are_the_updates_of_one_call() -> None:
    trainer = learned("mbpo", critic_updates_per_step=7, policy_updates_per_step=7.0)
    agent = trainer.agent
    data = agent.draw(trainer.state, trainer.memories, trainer.clock)
    parts = powers(data)
    assert [part.updates for part in parts] == [4, 2, 1] and [part.first - data.first for part in parts] == [0, 4, 6]
    np.testing.assert_array_equal(np.concatenate([part.train.obs for part in parts]), data.train.obs)
    copy = lambda: jax.tree.map(lambda x: np.array(x) if isinstance(x, np.ndarray) else jax.numpy.array(x), trainer.state)  # noqa: E731
    whole, _ = agent.update(copy(), data)
    inner = copy().inner
    for part in parts:
        inner, _ = agent.inner.update(inner, part)
    for a, b in zip(jax.tree.leaves(whole.inner), jax.tree.leaves(inner)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_fixed_schedule_changes_the_number_of_updates() -> None:
    trainer = learned("mbpo", 75, schedule="autombpo")
    assert trainer.progress.updates == 10 * 40 + 14 * 15  # epochs of 40 from step 20 on
    assert trainer.metrics["rollout/updates"] == 14.0


def test_errors_are_of_what_every_lane_holds() -> None:
    """A lane whose environment has failed, or whose episodes are short, holds fewer transitions than the others."""
    agent, state = (trainer := learned("cmlo", 40, num_envs=2)).agent, trainer.state
    replay = Replay(100, 2, 2, 2)
    for lane, count in enumerate((7, 3)):
        replay.start(lane, [0.0, 0.0])
        for number in range(count):
            replay.add(lane, [0.0, 0.0], 0.0, [number + 1.0, 0.0], False, False)
    assert replay.fewest == 3 and replay.recent(3).obs.shape[:2] == (2, 3)
    assert [len(agent.errors(state.model, replay, trainer.clock, count)) for count in (1, 3, 5)] == [2, 6, 6]


def test_acting_without_noise_once_the_random_steps_are_over() -> None:
    trainer = learned("cmlo", 40)
    agent, policy = trainer.agent, trainer.agent.policy(trainer.state)
    obs, first = np.ones((1, 2), np.float32), np.zeros(1, bool)

    def action(step: int, mode: str) -> np.ndarray:
        return np.asarray(agent.act(policy, agent.begin(1), obs, first, trainer.clock._replace(step=step), mode)[0])

    assert agent.config.act_greedy
    np.testing.assert_array_equal(action(40, "collect"), action(40, "greedy"))
    assert not np.array_equal(action(10, "collect"), action(40, "collect"))


# --- resume -------------------------------------------------------------------------------------------------------------


class Kill(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, event: StepEvent) -> None:
        if event.step >= self.step:
            raise Killed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that nobody disturbed."""
    found = {}
    for algo in ("mb-bac", "cmlo"):
        found[algo] = tmp_path_factory.mktemp("whole") / algo
        beeline.train(algo, WALK, out=found[algo], **options(algo, checkpoint_every=5))
    return found


# Model and rollouts come before steps 20, 45, 70, 95, 120; CMLO's at its events. A checkpoint lies at every fifth step.
@pytest.mark.parametrize(("algo", "steps"), [("mb-bac", (44, 45, 46, 83)), ("cmlo", (36, 57, 75, 99))])
def test_killed_just_before_at_and_after_a_training(algo: str, steps: tuple[int, ...], whole: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(Killed):
        beeline.train(algo, WALK, out=path, callbacks=[Kill(steps[0])], **options(algo, checkpoint_every=5))
    for step in steps[1:]:
        with pytest.raises(Killed):
            beeline.resume(path, callbacks=[Kill(step)])
    beeline.resume(path)
    same_run(whole[algo], path)
    trained = [row[table(path)[0].index("model/trainings")] for row in table(path)[1:]]
    assert float(trained[-1]) >= 4


@pytest.mark.parametrize("where", ["training", "rollout"])
def test_killed_inside(where: str, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death in the middle of the second training, or of its rollout."""
    path, count = tmp_path / "run", 0
    from beeline.dynamics.rollout import Rollout

    target, name = (training._Progress, "judge") if where == "training" else (Rollout, "order")
    plain = getattr(target, name)

    def dies(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == (22 if where == "training" else 2):
            raise Killed
        return plain(*args)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(target, name, dies if where == "training" else staticmethod(dies))
        beeline.train("mb-bac", WALK, out=path, **options("mb-bac", checkpoint_every=5))
    beeline.resume(path)
    same_run(whole["mb-bac"], path)


def test_stopped_inside_a_training_the_run_does_it_again(whole: Any, tmp_path: Path) -> None:
    """The stop comes while the second training is under way; what it had done is forgotten."""
    epochs: list[str] = []
    model = beeline.model("mb-bac")(WALK, verbose=0, **options("mb-bac", checkpoint_every=5))
    trainer = model.trainer
    trainer.on_work = epochs.append
    trainer.stop_requested = lambda: len(epochs) > 24
    assert not trainer.run(130)
    assert len(epochs) == 25 and trainer.progress.step == 45 and int(trainer.state.model.trainings) == 1
    saved = model.save(tmp_path / "saved")
    again = beeline.load(saved, env=WALK)
    again.learn(130 - again.trainer.progress.step)
    reference = beeline.model("mb-bac")(WALK, verbose=0, **options("mb-bac", checkpoint_every=5))
    reference.learn(130)
    for a, b in zip(jax.tree.leaves(again.trainer.state), jax.tree.leaves(reference.trainer.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_older_checkpoint_imagines_again_and_says_so(whole: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(whole["mb-bac"], path)
    steps = sorted((path / "checkpoints").glob("step-*"))
    shutil.rmtree(steps[-1])
    for file in (path / "replay").iterdir():  # as when the newest has other rows
        with np.load(file) as columns:
            imagined = "next_obs" in columns
        if imagined:
            file.unlink()
    said: list[str] = []
    store = CheckpointStore(path)
    checkpoint = store.load(said.append)
    assert len(said) == 1 and re.search(r"imagined rows of the checkpoint of step 125 .* differ from one never stopped", said[0])
    memories = checkpoint.memories()
    assert len(memories["model"]) == 0 and len(memories["replay"]) == 125
    beeline.resume(path)
    assert table(path)[-1][0] == "130"
    assert len(CheckpointStore(path).load(pytest.fail).memories()["model"]) > 100


def test_the_newest_checkpoint_alone_has_the_imagined_rows(whole: Any) -> None:
    """What lies on the disk is what the ring holds, not three times that."""
    memories = CheckpointStore(whole["mb-bac"]).load(pytest.fail).memories()
    ring = memories["model"]
    held = 0
    for file in (whole["mb-bac"] / "replay").iterdir():
        with np.load(file) as columns:
            held += len(columns["flags"]) if "next_obs" in columns else 0
    assert len(ring) <= held < 2 * ring.capacity


# --- what is said -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_elites": 9}, "model_elites = 9 is more than model_members = 7"),
        ({"model_decay": (1e-5, 1e-4)}, "model_decay has 2 numbers, and the model 5 layers"),
        ({"rollout_schedule": (20, 10, 1, 5)}, "four numbers a,b,c,d with a < b"),
        ({"rollout_schedule": (1, 2, 0, 5)}, "1 <= c <= d"),
        ({"imagined_rows": 300}, "imagined_rows = 300 is out of range; allowed: >= 1000"),
        ({"n_step": 3}, "stand alone"),
        ({"normalize_obs": True}, "scaler of its own"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make_config("mbpo", "gym/any", "paper", changes)


def test_cmlo_refuses_what_it_decides_itself() -> None:
    with pytest.raises(ConfigError, match="cmlo decides"):
        make_config("cmlo", "gym/any", None, {"model_every": 100})
    with pytest.raises(ConfigError, match="event_least = 200 is more than event_most = 100"):
        make_config("cmlo", "gym/any", None, {"event_least": 200, "event_most": 100})


def test_a_task_that_does_not_say_where_it_ends_is_refused(tmp_path: Path) -> None:
    class Silent(Walk):
        beeline_terminated = None

    with pytest.raises(ConfigError, match=r"mbpo needs to know where episodes .* end.*mbpo/….*beeline_terminated"):
        beeline.MBPO(Silent, verbose=0, **options("mbpo")).learn(30)
    assert beeline.SAC(Silent, verbose=0, **small("sac", eval_episodes=0)).learn(30)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"random_steps": 3, "learn_after": 3}, "3 transitions are too few to train a model"),
        ({"model_lr": 1e6}, "the model has diverged"),
    ],
)
def test_a_model_that_cannot_be_trained_stops_the_run_with_a_checkpoint(
    changes: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    words_of = flags(small("mbpo", **changes))
    assert main(["train", "mbpo", WALK, "--out", str(path), *words_of]) == 2
    said = capsys.readouterr().err
    assert words in said and "at step" in said and f"a checkpoint of it in {path}" in said and "Traceback" not in said
    assert '"failed"' in (path / "status.json").read_text()
    step = int(sorted((path / "checkpoints").glob("step-*"))[-1].name[5:])
    assert step == (3 if "random_steps" in changes else 20)


def test_a_stop_is_answered_within_two_seconds_inside_a_training() -> None:
    """With a model large enough that an epoch takes long."""
    own = options("mbpo", eval_episodes=0) | {
        "model_hidden": (64, 64), "model_batches": 1_000_000, "model_first_batches": 1_000_000, "model_patience": 1_000_000,
        "random_steps": 60, "learn_after": 60,
    }  # fmt: skip
    model = beeline.MBPO(WALK, verbose=0, **own)
    trainer, epochs, since = model.trainer, [], []
    trainer.on_work = epochs.append

    def stop() -> bool:
        if len(epochs) > 30 and not since:
            since.append(time.perf_counter())
        return bool(since)

    trainer.stop_requested = stop
    assert not trainer.run(100)
    assert time.perf_counter() - since[0] < 2.0
    assert trainer.progress.step == 60 and int(trainer.state.model.trainings) == 0 and not len(trainer.memories["model"])


def test_work_is_shown_while_it_goes_on(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from beeline import display

    monkeypatch.setattr(display, "PATIENCE", 0.0)
    assert main(["train", "mbpo", WALK, "--out", str(tmp_path / "run"), *flags(small("mbpo", steps=50))]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step") and ": " in line]
    assert any(re.search(r"step +20: model epoch 3, error [\d.]+", line) for line in lines)
    assert any(re.search(r"step +45: rollout of 1, \d+ rows", line) for line in lines)


def test_robots_are_known_by_their_task() -> None:
    assert [robot(each) for each in ("mbpo/hopper", "gym/Hopper-v5", "gym/InvertedPendulum-v5?limit=5", "dmc/walker-run")] == [
        "hopper", "hopper", "invertedpendulum", "walker",
    ]  # fmt: skip


def test_presets_hold_the_sources_tables() -> None:
    hopper = make_config("mbpo", "mbpo/hopper", "paper", {})
    assert (hopper.rollout_schedule, hopper.critic_updates_per_step, hopper.target_entropy) == ((20, 150, 1, 15), 20, -1.0)
    assert (hopper.model_members, hopper.model_elites, hopper.model_hidden, hopper.hidden) == (7, 5, (200,) * 4, (256, 256))
    humanoid = make_config("mbpo", "mbpo/humanoid", "paper", {})
    assert (humanoid.model_every, humanoid.model_hidden, humanoid.retain_epochs) == (1_000, (400,) * 4, 5)
    pair = [make_config(algo, "mbpo/ant", "mbrl", {}).to_dict() for algo in ("mbpo", "mb-bac")]
    assert {name for name in pair[0] if pair[0][name] != pair[1][name]} == {"lam"}
    assert (list(pair[0]["hidden"]), pair[0]["alpha"], pair[0]["tune_alpha"]) == ([1024, 1024], 0.2, False)
    walker = [make_config(*each, {}) for each in (("mb-bac", "mbpo/walker2d", "mbrl"), ("cmlo", "mbpo/walker2d", "paper"))]
    assert [tuple(each.hidden) for each in walker] == [(512, 512), (1024, 1024)]  # the paper's table, mbrl-lib's
    assert walker[1].event_threshold == 3.0 and walker[1].model_patience == 10
    hoppers = [make_config(*each, {}) for each in (("mb-bac", "mbpo/hopper", "mbrl"), ("cmlo", "mbpo/hopper", "paper"))]
    assert [tuple(each.rollout_schedule) for each in hoppers] == [(20, 100, 1, 15), (20, 150, 1, 15)]
    assert make_config("mbpo", "mbpo/humanoid", "mbrl", {}).retain_epochs == 5
    cheetah = make_config("mbpo", "gym/HalfCheetah-v5", "mbrl", {})
    assert (cheetah.tune_alpha, cheetah.target_entropy, cheetah.target_interval) == (True, -1.0, 1)
    assert (cheetah.critic_updates_per_step, cheetah.critic_lr, tuple(cheetah.hidden)) == (10, 3e-4, (512, 512))
    pole = make_config("mbpo", "gym/InvertedPendulum-v5", "mbrl", {})
    assert (pole.tune_alpha, pole.target_entropy, pole.epoch_steps, tuple(pole.hidden)) == (True, -1.0, 250, (256, 256))


def test_the_matrices_plan_what_the_page_says() -> None:
    runs = [
        run
        for name in ("model_based", "model_based_cmlo")
        for run in bench_plan.expand(bench_plan.merge(bench_plan.read_file(ROOT / "benchmarks" / f"{name}.toml"), {}))
    ]
    assert sorted((run.algo, run.seed, run.steps) for run in runs) == [
        ("cmlo", 0, 40_000),
        *((algo, seed, 55_000) for algo in ("mb-bac", "mbpo", "sac") for seed in (0, 1)),
    ]
    made = {run.algo: Plan.make(run.algo, run.task, run.preset, dict(run.options)).agent for run in runs}
    each = [(own.critic_updates_per_step, own.policy_updates_per_step, own.random_steps) for own in made.values()]
    assert set(each) == {(20, 4.0, 5_000)} and {own.target_entropy for own in made.values()} == {-1.0}
