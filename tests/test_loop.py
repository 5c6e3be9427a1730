"""The loop: what it stores, when it learns, what it counts, and that nothing but the seed decides."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from toys import LIMIT, Walk
from whole_runs import small

import beeline
from beeline import rng
from beeline.agents.ahead import Ahead
from beeline.collect import Collector
from beeline.envs import registry
from beeline.errors import EnvError
from beeline.loop import Trainer
from beeline.memory import TERMINATED, TRANSITION, TRUNCATED, Replay


def model(algo: str = "sac", env: Any = Walk, **changes: Any) -> Any:
    return getattr(beeline, {"sac": "SAC", "td3": "TD3", "bac": "BAC"}[algo])(env, **small(algo, **changes))


def logs(trainer: Trainer) -> list[list[tuple[Any, ...]]]:
    return [lane.env.log for lane in trainer.collector.envs]  # type: ignore[attr-defined]


@pytest.mark.parametrize("lanes", [1, 3])
def test_the_ring_holds_what_the_environments_did_and_nothing_else(lanes: int) -> None:
    trainer = model(num_envs=lanes, eval_episodes=0).learn(240).trainer
    ring, ends = trainer.replay, 0
    for lane, log in enumerate(logs(trainer)):
        rows = ring.export(lane, 0, ring.rows(lane))
        position = episode = 0
        for number, entry in enumerate(log):
            if entry[0] == "reset":
                assert entry[1] == rng.episode_seed(0, "train", lane, episode)
                episode += 1
                obs = entry[2]
                continue
            _, action, reward, next_obs, terminated, truncated = entry
            assert rows["obs"][position].tobytes() == obs.tobytes()
            # The environment saw the stored action in its own units, [-2, 3] and [0, 1].
            np.testing.assert_allclose(action, rows["action"][position] * [2.5, 0.5] + [0.5, 0.5], rtol=0, atol=1e-6)
            assert rows["reward"][position] == np.float32(reward)
            flags = TRANSITION | TERMINATED * terminated | TRUNCATED * truncated
            assert rows["flags"][position] == flags
            position, obs = position + 1, next_obs
            if terminated or truncated:
                assert log[number + 1][0] == "reset", "the lane is reset in the same step"
                assert rows["obs"][position].tobytes() == next_obs.tobytes() and rows["flags"][position] == 0
                position, ends = position + 1, ends + 1
        assert position == ring.rows(lane)
        assert ring.open_observation(lane).tobytes() == obs.tobytes() == trainer.collector.obs[lane].tobytes()
    assert ends > 5 and any(TERMINATED & f for f in ring.export(0, 0, ring.rows(0))["flags"])
    assert len(ring) == 240


def test_updates_keep_their_ratio_to_steps_with_many_environments() -> None:
    one, three = (model(num_envs=n, eval_episodes=0, critic_updates_per_step=2).learn(120).trainer for n in (1, 3))
    assert one.progress.step == three.progress.step == 120
    assert one.progress.decisions == 120 and three.progress.decisions == 40
    # The first batch is drawn once more than 8 transitions are there: after 9 decisions of one, after 3 of three.
    assert one.progress.updates == (120 - 9) * 2
    assert three.progress.updates == (40 - 3) * 3 * 2
    assert int(one.state.updates) == one.progress.updates and int(three.state.updates) == three.progress.updates


def test_nothing_is_learnt_before_learn_after_and_actions_are_random_before_random_steps() -> None:
    trainer = model("td3", random_steps=30, learn_after=50, exploration_noise=0.0, eval_episodes=0).learn(51).trainer
    assert trainer.progress.updates == 1
    actions = trainer.replay.export(0, 0, 30)["action"]
    stored = [action for action, flag in zip(actions, trainer.replay.export(0, 0, 30)["flags"]) if flag]
    expected = [rng.stream(0, "random actions", n).uniform(-1, 1, (1, 2)).astype(np.float32)[0] for n in range(len(stored))]
    np.testing.assert_array_equal(stored, expected)


def test_action_repeat_counts_environment_steps() -> None:
    trainer = model(repeat=4, eval_episodes=2, eval_every=40, log_every=40).learn(120).trainer
    assert trainer.progress.step == 120 and trainer.progress.decisions == 30
    assert len(trainer.replay) == 30
    done = [entry for entry in logs(trainer)[0] if entry[0] == "step"]
    assert 120 - 3 * trainer.collector.episodes <= len(done) <= 120  # an episode may end within a decision
    assert [row["step"] for row in trainer.recorder.rows] == [0, 40, 80, 120]
    assert all(row["eval/length"] <= LIMIT for row in trainer.recorder.rows)


def test_time_limits_bootstrap_and_terminals_do_not() -> None:
    trainer = model(eval_episodes=0).learn(240).trainer
    batch = trainer.replay.sample(0, 0, 1, 4000, gamma=0.9)
    flags = {row["obs"].tobytes(): flag for row, flag in _rows(trainer)}
    seen = set()
    for obs, discount in zip(batch.obs[0], batch.discount[0]):
        flag = flags[obs.tobytes()]
        seen.add(flag)
        assert discount == np.float32(0.0 if flag & TERMINATED else 0.9)
    assert {TRANSITION, TRANSITION | TERMINATED, TRANSITION | TRUNCATED} <= seen


def _rows(trainer: Trainer) -> list[tuple[dict[str, np.ndarray], int]]:
    rows = trainer.replay.export(0, 0, trainer.replay.rows(0))
    return [({"obs": obs}, int(flag)) for obs, flag in zip(rows["obs"], rows["flags"])]


def learnt_from(trainer: Trainer, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Run that many steps; for each update, how much the first environment had logged by then, and the batch."""
    seen: list[tuple[int, Any]] = []
    update = trainer.agent.update

    def spy(state: Any, batches: Any) -> Any:
        seen.append((len(logs(trainer)[0]), batches.train))
        return update(state, batches)

    monkeypatch.setattr(trainer.agent, "update", spy)
    trainer.run(steps)
    return seen


@pytest.mark.parametrize(("gamma", "n_step"), [(0.7, 1), (0.8, 3)])
def test_the_agent_learns_from_as_many_steps_and_under_the_discount_it_was_given(
    gamma: float, n_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = model(gamma=gamma, n_step=n_step, eval_episodes=0).trainer
    updates = learnt_from(trainer, 120, monkeypatch)
    log, seen = logs(trainer)[0], set()
    rows, obs = {}, np.zeros(2)
    for number, entry in enumerate(log):
        if entry[0] == "step":
            rows[obs.tobytes()] = number
        obs = entry[2] if entry[0] == "reset" else entry[3]
    for logged, batch in updates:
        for obs, reward, discount, next_obs in zip(batch.obs[0], batch.reward[0], batch.discount[0], batch.next_obs[0]):
            total, taken = 0.0, 0
            for entry in log[rows[obs.tobytes()] : logged][:n_step]:  # no further than there are steps, nor past an end
                _, _, gain, following, terminated, truncated = entry
                total, taken = total + gamma**taken * gain, taken + 1
                if terminated or truncated:
                    break
            assert reward == pytest.approx(total, rel=1e-5, abs=1e-6)
            assert discount == pytest.approx(0.0 if terminated else gamma**taken, rel=1e-6)
            assert next_obs.tobytes() == following.tobytes()
            seen.add((taken, terminated, truncated))
    assert len(updates) == 111
    assert seen >= {(n_step, False, False), (1, True, False), (1, False, True), (n_step, True, False)}


def test_rows_and_evaluations_come_when_they_are_due() -> None:
    trainer = model(num_envs=3, eval_every=50, log_every=20).learn(120).trainer
    rows = trainer.recorder.rows
    assert [row["step"] for row in rows] == [0, 21, 42, 51, 60, 81, 102, 120]
    assert [row["step"] for row in rows if "eval/return" in row] == [0, 51, 102]
    assert rows[-1]["episodes"] == trainer.collector.episodes > 0


def test_evaluations_have_seeds_of_their_own_and_do_not_touch_the_training() -> None:
    with_evaluation, without = model(eval_episodes=3), model(eval_episodes=0)
    for each in (with_evaluation, without):
        each.learn(120)
    log = with_evaluation.trainer.eval_env.env.log
    seeds = [entry[1] for entry in log if entry[0] == "reset"]
    assert seeds == [rng.episode_seed(0, "eval", 0, number) for number in range(9)]
    for left, right in zip(_leaves(with_evaluation), _leaves(without)):
        assert left.tobytes() == right.tobytes()


def _leaves(model: Any) -> list[np.ndarray]:
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.trainer.state)]


def test_the_seed_decides_everything() -> None:
    first, again, other = model(), model(), model(seed=1)
    for each in (first, again, other):
        each.learn(80)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(_leaves(first), _leaves(again)))
    assert any(a.tobytes() != b.tobytes() for a, b in zip(_leaves(first), _leaves(other)))


def test_training_episodes_are_summed_up() -> None:
    trainer = model(env=lambda: Walk(success=True), log_every=120, eval_every=120).learn(120).trainer
    episodes: list[tuple[float, int, bool]] = []
    total, length, success = 0.0, 0, False
    for entry in logs(trainer)[0]:
        if entry[0] == "reset":
            total, length = 0.0, 0
            continue
        total, length, success = total + entry[2], length + 1, abs(float(entry[3][0])) < 0.2
        if entry[4] or entry[5]:
            episodes.append((total, length, success))
    row = trainer.recorder.rows[-1]
    assert row["episodes"] == len(episodes) > 3
    assert row["train/return"] == pytest.approx(np.mean([e[0] for e in episodes]))
    assert row["train/length"] == np.mean([e[1] for e in episodes])
    assert row["train/success"] == np.mean([e[2] for e in episodes])
    assert 0 <= row["eval/success"] <= row["eval/success_any"] <= 1


def test_normalised_observations_count_each_once() -> None:
    trainer = model(normalize_obs=True, eval_episodes=0).learn(60).trainer
    seen = [entry[2] if entry[0] == "reset" else entry[3] for entry in logs(trainer)[0]]
    ends = [n for n, entry in enumerate(logs(trainer)[0]) if entry[0] == "step" and (entry[4] or entry[5])]
    acted_on = np.array([obs for n, obs in enumerate(seen) if n not in ends], np.float64)  # never the final ones
    statistics = trainer.state.host["statistics"]
    np.testing.assert_allclose(statistics["mean"], acted_on.mean(0), rtol=2e-3, atol=2e-3)


def test_a_transition_says_whether_an_episode_begins_with_it() -> None:
    collector = Collector([registry.make(Walk(fault="raise", at=3))], Replay(100, 2, 2), seed=0)
    collector.begin()
    still, firsts = np.zeros((1, 2), np.float32), []
    for number in range(1, 6):
        if number == 3:  # the episode is cut, and its end never told
            with pytest.raises(EnvError):
                collector.step(still)
        else:
            [step] = collector.step(still)
            firsts.append((step.first, step.terminated or step.truncated))
    assert firsts == [(True, False), (False, False), (True, False), (False, False)]


# --- compiling ahead --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algo", "options"), [("bac", {"normalize_obs": True}), ("td3", {}), ("sac", {"num_envs": 3})])
def test_the_first_update_finds_everything_compiled(algo: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(algo, eval_episodes=1, hidden=(7, 5), **options)  # an agent that no other test has used
    agent, ready = made.trainer.agent, []
    update = type(agent).update

    def asked(self: Any, state: Any, data: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            self._ahead.wait()
            ready.append((self._act._cache_size(), self._update._cache_size()))
        return update(self, state, data)

    monkeypatch.setattr(type(agent), "update", asked)
    made.learn(80)
    assert len(ready) > 10
    assert ready[0] == ready[-1] == (agent._act._cache_size(), agent._update._cache_size())
    assert ready[0][1] == (2 if algo in ("td3", "bac") else 1)  # phases of a delay of two


def test_compiling_ahead_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        return model("td3", normalize_obs=True, eval_episodes=1).learn(100)

    ahead = run()
    monkeypatch.setattr("beeline.agents.off_policy.OffPolicy.warm", lambda self, memories, clock: None)
    plain = run()
    assert [leaf.tobytes() for leaf in _leaves(ahead)] == [leaf.tobytes() for leaf in _leaves(plain)]


def test_nothing_is_compiled_for_a_run_that_is_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr("beeline.agents.off_policy.OffPolicy.warm", lambda self, memories, clock: begun.append(clock.step))
    trainer = model(eval_episodes=0).learn(60).trainer
    assert begun == [0]
    assert trainer.run(60) and begun == [0]


def test_work_ahead_is_done_once_and_waited_for_and_its_errors_are_not_told() -> None:
    ahead, gate, done = Ahead(), threading.Event(), []

    def work() -> None:
        gate.wait(30)
        ahead.wait()  # as the work itself calls what others wait in
        done.append(threading.current_thread())
        raise ValueError("told where it is needed")

    ahead.wait()  # nothing was begun
    ahead.start(work)
    ahead.start(work)
    assert not done
    gate.set()
    ahead.wait()
    assert len(done) == 1 and done[0] is not threading.main_thread() and not done[0].daemon
