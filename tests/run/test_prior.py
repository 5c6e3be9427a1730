"""Data of others: what is read and refused, how they enter batches and replay, and that killed runs go on with their copy."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Walk
from whole_runs import Zygote, flags, killed_and_resumed, same_run, small

import beeline as api  # `beeline` is the fixture that runs the command
from beeline import npz
from beeline.agents.base import Spaces
from beeline.agents.options import MethodConfig, OffPolicyConfig
from beeline.collect import Transition
from beeline.errors import BeelineError, CheckpointError, ConfigError, MissingExtraError
from beeline.feeds import Uniform, WithPrior
from beeline.memory import TERMINATED, TRANSITION, TRUNCATED, Batch, Clock, Replay
from beeline.networks.rewards import divisor, init_scale, met
from beeline.run import prior
from beeline.run.checkpoint import CheckpointStore
from beeline.run.plan import Plan

SPACES = Spaces(2, (-2.0, 0.0), (3.0, 1.0))  # those of Walk
Arrays = dict[str, np.ndarray]


def episodes(lengths: tuple[int, ...] = (3, 2, 4), seed: int = 0) -> Arrays:
    """Whole episodes; every second one terminates, the others are cut."""
    chance, steps = np.random.default_rng(seed), sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminations, truncations = np.zeros(steps, bool), np.zeros(steps, bool)
    terminations[ends[::2]], truncations[ends[1::2]] = True, True
    return {
        "observations": chance.normal(size=(steps + len(lengths), 2)),
        "actions": chance.uniform([-2, 0], [3, 1], (steps, 2)),
        "rewards": chance.normal(size=steps),
        "terminations": terminations,
        "truncations": truncations,
    }


def transitions(count: int = 9) -> Arrays:
    whole, chance = episodes((count,)), np.random.default_rng(1)
    return whole | {"observations": whole["observations"][:count], "next_observations": chance.normal(size=(count, 2))}


def saved(path: Path, arrays: Arrays) -> Path:
    np.savez(path, **arrays)
    return path


# --- reading ----------------------------------------------------------------------------------------------------------


def test_whole_episodes_become_rows_with_a_final_observation_each(tmp_path: Path) -> None:
    arrays = episodes()
    found = prior.read("prior", saved(tmp_path / "data.npz", arrays), SPACES)
    rows = found.rows
    assert found.whole and len(found) == 9
    np.testing.assert_array_equal(rows["obs"], arrays["observations"].astype(np.float32))
    t, end, cut = TRANSITION, TRANSITION | TERMINATED, TRANSITION | TRUNCATED
    np.testing.assert_array_equal(rows["flags"], [t, t, end, 0, t, cut, 0, t, t, t, end, 0])
    place = [0, 1, 2, 4, 5, 7, 8, 9, 10]
    np.testing.assert_allclose(rows["action"][place] * [2.5, 0.5] + [0.5, 0.5], arrays["actions"], atol=1e-6)
    np.testing.assert_array_equal(rows["reward"][place], arrays["rewards"].astype(np.float32))
    assert not rows["action"][[3, 6, 11]].any() and not rows["reward"][[3, 6, 11]].any()
    assert {name: column.dtype for name, column in rows.items()} == {
        "obs": np.float32, "action": np.float32, "reward": np.float32, "flags": np.uint8,
    }  # fmt: skip


def test_single_transitions_become_paths_of_one_step(tmp_path: Path) -> None:
    arrays = transitions(3)
    found = prior.read("prior", saved(tmp_path / "data.npz", arrays), SPACES)
    assert not found.whole and len(found) == 3
    np.testing.assert_array_equal(found.rows["flags"], [1, 0, 1, 0, TRANSITION | TERMINATED, 0])
    np.testing.assert_array_equal(found.rows["obs"][::2], arrays["observations"].astype(np.float32))
    np.testing.assert_array_equal(found.rows["obs"][1::2], arrays["next_observations"].astype(np.float32))


def test_flags_may_be_whole_numbers_and_actions_a_rounding_off_their_bounds(tmp_path: Path) -> None:
    arrays = episodes()
    arrays["terminations"] = arrays["terminations"].astype(np.uint8)
    arrays["actions"][0] = [3 + 1e-5, -1e-6]
    found = prior.read("prior", saved(tmp_path / "data.npz", arrays), SPACES)
    assert found.rows["action"][0].tolist() == [1.0, -1.0]
    assert found.rows["flags"][2] == TRANSITION | TERMINATED


def _without(name: str) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        del arrays[name]

    return change


def _with(name: str, at: Any, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][at] = value

    return change


def _as(name: str, make: Callable[[np.ndarray], Any]) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = np.asarray(make(arrays[name]))

    return change


BAD: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "no observations": (_without("observations"), "it has no array observations"),
    "no actions": (_without("actions"), "it has no array actions"),
    "no rewards": (_without("rewards"), "it has no array rewards"),
    "no terminations": (_without("terminations"), "it has no array terminations"),
    "no truncations": (_without("truncations"), "it has no array truncations"),
    "nan observation": (_with("observations", (5, 1), np.nan), "observations[5, 1] is nan: 1 of its numbers are not finite"),
    "infinite reward": (_with("rewards", 2, np.inf), "rewards[2] is inf"),
    "nan action": (_with("actions", (0, 0), np.nan), "actions[0, 0] is nan"),
    "too large for single precision": (_with("rewards", 1, 1e300), "rewards[1] is 1e+300"),
    "action out of bounds": (_with("actions", (4, 1), 1.01), "actions[4, 1] is 1.01, out of the environment's bounds [0, 1]"),
    "wide observations": (_as("observations", lambda x: np.ones((12, 3))), "the shape [12, 3] where [12, 2] is needed"),
    "no final observations": (_as("observations", lambda x: x[:9]), "9 steps and the final observations of 3 episodes"),
    "narrow actions": (_as("actions", lambda x: x[:, :1]), "actions has the shape [9, 1] where [9, 2] is needed"),
    "flat actions": (_as("actions", lambda x: x[:, 0]), "actions has the shape [9] where [9, 2] is needed"),
    "deep rewards": (_as("rewards", lambda x: x[:, None]), "rewards has the shape [9, 1] where [9] is needed"),
    "few terminations": (_as("terminations", lambda x: x[1:]), "terminations has the shape [8] where [9] is needed"),
    "no end": (_with("terminations", -1, False), "its last episode does not end"),
    "empty": (lambda arrays: arrays.update({name: each[:0] for name, each in arrays.items()}), "it is empty"),
    "a number for actions": (_as("actions", lambda x: 1.0), "it is empty"),
    "text": (_as("rewards", lambda x: x.astype(str)), "is not an array of numbers"),
    "complex": (_as("rewards", lambda x: x + 1j), "is not an array of numbers"),
    "pickled": (_as("actions", lambda x: x.astype(object)), "is not an array of numbers"),
    "true and false for observations": (_as("observations", lambda x: x > 0), "observations is bool where numbers are needed"),
    "floats for flags": (_as("truncations", lambda x: x.astype(float)), "truncations is float64: only true and false"),
    "numbers for flags": (_as("truncations", lambda x: 2 * x.astype(int)), "truncations is int64: only true and false"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_are_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    change, says = BAD[case]
    arrays = episodes()
    change(arrays)
    path = saved(tmp_path / "data.npz", arrays)
    with pytest.raises(ConfigError) as caught:
        prior.read("load_prior", path, SPACES)
    assert says in str(caught.value) and str(caught.value).startswith(f"load_prior = {path}: ")


def test_bad_files_are_refused_with_the_reason(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "compressed.npz", **episodes())
    (tmp_path / "text.npz").write_text("observations")
    (tmp_path / "folder").mkdir()
    for name, says in {
        "compressed.npz": "is compressed", "text.npz": "not a readable .npz", "folder": "neither a run", "none": "nothing at",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            prior.read("prior", tmp_path / name, SPACES)
    arrays = transitions() | {"next_observations": np.zeros((8, 2))}
    with pytest.raises(ConfigError, match=r"next_observations has the shape \[8, 2\] where \[9, 2\]"):
        prior.read("prior", saved(tmp_path / "data.npz", arrays), SPACES)


def test_files_beyond_memory_and_names_beyond_all_lengths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "data.npz", episodes())
    with pytest.raises(ConfigError, match="there is nothing at this path"):
        prior.read("prior", tmp_path / ("x" * 300), SPACES)
    monkeypatch.setattr(prior.runtime, "free_memory", lambda: 1_000)
    with pytest.raises(ConfigError, match=r"data\.npz is too large: .* bytes where 500 are allowed"):
        prior.read("prior", path, SPACES)


def test_a_run_folder_gives_what_its_replay_holds(tmp_path: Path) -> None:
    api.train("sac", "toys:Walk-v0", out=tmp_path / "run", **small("sac", num_envs=2, replay_capacity=60))
    ring = CheckpointStore(tmp_path / "run").load(pytest.fail).restore_replay()
    found = prior.read("prior", tmp_path / "run", SPACES)
    assert found.whole and len(found) == len(ring) < 120, "the ring has forgotten some"
    memory = found.memory()
    for n_step in (1, 3):
        seen = [_set(each.sample(0, 0, 1, 3_000, n_step=n_step)) for each in (ring, memory)]
        assert seen[0] == seen[1] and len(seen[0]) == len(ring)
    with pytest.raises(ConfigError, match="has other sizes or bounds"):
        prior.read("prior", tmp_path / "run", Spaces(2, (-1.0, 0.0), (3.0, 1.0)))


def _set(batch: Batch) -> set[bytes]:
    columns = [batch.obs[0], batch.action[0], batch.reward[0][:, None], batch.discount[0][:, None], batch.next_obs[0]]
    return {row.tobytes() for row in np.concatenate(columns, axis=1)}


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari's, of what a data set should say of itself
@pytest.mark.parametrize("damage", ["", "no spaces", "no file"])
def test_a_minari_data_set_is_read_from_disk(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collector = minari.DataCollector(Walk())
    for episode in range(3):
        collector.reset(seed=episode)
        over, steps = False, 0
        while not over and steps < 12 + episode:  # the last one is not over when the next begins
            *_, terminated, truncated, _ = collector.step(collector.action_space.sample())
            over, steps = terminated or truncated, steps + 1
    made = collector.create_dataset("walk/random-v0", algorithm_name="random", author="a", author_email="a@b.org")
    log = [entry for entry in collector.unwrapped.log if entry[0] == "step"]
    folder = tmp_path / "walk" / "random-v0"
    if damage == "no spaces":
        path = folder / "data" / "metadata.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "action_space"}))
    if damage == "no file":
        (folder / "data" / "main_data.hdf5").write_bytes(b"nothing")
    if damage:
        with pytest.raises(ConfigError, match=r"does not say its spaces|Minari cannot read it"):
            prior.read("prior", folder, SPACES)
        return
    found = prior.read("prior", folder, SPACES)
    starts = found.rows["flags"] & TRANSITION == TRANSITION
    assert found.whole and len(found) == made.total_steps == len(log)
    np.testing.assert_allclose(found.rows["action"][starts] * [2.5, 0.5] + [0.5, 0.5], [e[1] for e in log], atol=1e-6)
    np.testing.assert_array_equal(found.rows["reward"][starts], np.float32([e[2] for e in log]))
    np.testing.assert_array_equal(found.rows["obs"][1:][starts[:-1]], [e[3] for e in log])


def test_without_minari_the_error_has_the_pip_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari.dataset.minari_storage", None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metadata.json").write_text(json.dumps({"observation_space": "{}", "action_space": "{}"}))
    with pytest.raises(MissingExtraError, match=r"pip install .*\[offline\]'"):
        prior.read("prior", tmp_path, SPACES)


# --- in batches -------------------------------------------------------------------------------------------------------


def test_the_first_rows_of_a_batch_are_of_the_prior_and_each_memory_has_a_stream_of_its_own() -> None:
    memories = {"replay": prior.make(episodes((5, 6), 1), SPACES).memory(), "prior": prior.make(episodes(), SPACES).memory()}
    uniform = Uniform(10, 0.9, n_step=2, next_action=True)
    clock = Clock(7, updates=4)
    data = WithPrior(uniform, 0.25)(memories, clock, 3)
    assert WithPrior(uniform, 0.25).size == 2  # round(2.5): to the even one
    assert data.first == 4 and data.train.obs.shape == (3, 10, 2)
    first = uniform.batch(memories["prior"], clock, 3, 2, "prior")
    rest = uniform.batch(memories["replay"], clock, 3, 8, "replay")
    for name in ("obs", "action", "reward", "discount", "next_obs"):
        np.testing.assert_array_equal(getattr(data.train, name)[:, :2], getattr(first, name))
        np.testing.assert_array_equal(getattr(data.train, name)[:, 2:], getattr(rest, name))
    assert data.train.extras is not None and first.extras is not None and rest.extras is not None
    for name in ("next_action", "next_action_valid"):
        np.testing.assert_array_equal(data.train.extras[name][:, :2], first.extras[name])
        np.testing.assert_array_equal(data.train.extras[name][:, 2:], rest.extras[name])
    alone = WithPrior(uniform, 1.0)(memories, clock, 1).train
    np.testing.assert_array_equal(alone.obs, uniform.batch(memories["prior"], clock, 1, 10, "prior").obs)
    with pytest.raises(ConfigError, match=r"prior_share = 0.05 of batch_size = 10 is less than one transition"):
        WithPrior(uniform, 0.05)


def test_returns_over_several_steps_and_next_actions_are_right_on_whole_episodes() -> None:
    arrays = episodes()
    memory = prior.make(arrays, SPACES).memory()
    batch = memory.sample(0, 0, 1, 500, gamma=0.5, n_step=3, with_next_action=True)
    number = {row.tobytes(): i for i, row in enumerate(memory.export(0, 0, 12)["obs"])}
    rewards, ends = {0: 0, 1: 1, 2: 2, 4: 3, 5: 4, 7: 5, 8: 6, 9: 7, 10: 8}, {0: 3, 4: 6, 7: 11}
    unit = (arrays["actions"] - [0.5, 0.5]) / [2.5, 0.5]
    seen = set()
    assert batch.extras is not None
    for i, obs in enumerate(batch.obs[0]):
        start = number[obs.tobytes()]
        final = min(end for end in ends.values() if end > start)
        stop = min(start + 3, final)
        expected = sum(0.5**k * arrays["rewards"][rewards[row]] for k, row in enumerate(range(start, stop)))
        assert batch.reward[0][i] == pytest.approx(expected, rel=1e-5)
        assert number[batch.next_obs[0][i].tobytes()] == stop
        terminated = stop == final and final != 6
        assert batch.discount[0][i] == (0.0 if terminated else 0.5 ** (stop - start))
        assert batch.extras["next_action_valid"][0][i] == (stop != final)
        if stop != final:
            np.testing.assert_allclose(batch.extras["next_action"][0][i], unit[rewards[stop]], atol=1e-6)
        seen.add(start)
    assert seen == set(rewards)


def spied(model: Any, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    agent, seen = model.trainer.agent, []
    update = agent.update

    def spy(state: Any, data: Any) -> Any:
        seen.append(data.train)
        return update(state, data)

    monkeypatch.setattr(agent, "update", spy)
    model.learn(steps)
    return seen


def test_a_model_learns_from_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "data.npz", episodes((40, 30)))
    model = api.SAC(Walk, **small("sac", prior=path, prior_share=0.25, eval_episodes=0, num_envs=2))
    batches = spied(model, 60, monkeypatch)
    theirs = {row.tobytes() for row in prior.make(episodes((40, 30)), SPACES).rows["obs"]}
    for batch in batches:
        assert batch.obs.shape == (2, 8, 2)
        assert all((row.tobytes() in theirs) == (i < 2) for each in batch.obs for i, row in enumerate(each))
    assert len(batches) > 20 and len(model.trainer.replay) == 60
    model.save(tmp_path / "model")
    path.unlink()
    assert hashlib.sha256((tmp_path / "model" / "prior.npz").read_bytes()).hexdigest() == model.plan.data["prior"]
    again = api.load(tmp_path / "model", env=Walk)
    for each in (model, again):
        each.learn(40)
    left, right = (each.trainer.state.critic.live for each in (model, again))
    import jax

    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)))


# --- in the replay ----------------------------------------------------------------------------------------------------


def test_rows_enter_a_ring_between_two_episodes_only_and_push_out_the_oldest() -> None:
    rows = dict(prior.make(episodes((3, 2)), SPACES).rows)  # 7 rows, 5 transitions
    ring = Replay(10, 2, 2)
    ring.start(0, [0, 0])
    for step in range(5):
        ring.add(0, [0, 0], 1.0, [step, step], False, step == 4)
    assert len(ring) == 5 and ring.rows(0) == 6
    ring.extend(0, rows)
    assert ring.rows(0) == 13 and ring.oldest(0) == 3 and len(ring) == 5 + 2
    np.testing.assert_array_equal(ring.export(0, 6, 13)["obs"], rows["obs"])
    ring.start(0, [9, 9])
    assert len(ring) == 5 + 1, "the open row takes the place of one more"
    with pytest.raises(ValueError, match="an episode is open in lane 0"):
        ring.extend(0, rows)
    with pytest.raises(ValueError, match="leads nowhere"):
        Replay(10, 2, 2).extend(0, {name: column[:2] for name, column in rows.items()})
    with pytest.raises(ValueError, match="do not fit"):
        Replay(6, 2, 2).extend(0, rows)


@pytest.mark.parametrize("lanes", [1, 2])
def test_data_enter_each_lane_at_its_first_reset_at_or_after_the_step(lanes: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "data.npz", episodes())
    plain, loaded = (
        api.SAC(Walk, **small("sac", num_envs=lanes, eval_episodes=0, random_steps=1_000, load_prior=load)).learn(120).trainer
        for load in (None, f"{path}@30")
    )
    parts = prior.make(episodes(), SPACES).split(lanes)
    assert sum(len(part["flags"]) for part in parts) == 12
    assert sorted(loaded.progress.done) == [f"load_prior@30 lane {lane}" for lane in range(lanes)]
    assert len(loaded.replay) == len(plain.replay) + 9
    for lane, part in enumerate(parts):
        ours, theirs = (each.replay.export(lane, 0, each.replay.rows(lane)) for each in (plain, loaded))
        finals = np.flatnonzero(ours["flags"] & TRANSITION == 0)
        # A step of the run is `lanes` decisions, and a final row is no step: the first end of an episode at step 30 or later.
        at = next(int(row) + 1 for n, row in enumerate(finals) if (row - n) * lanes >= 30)
        for name, column in part.items():
            expected = np.concatenate([ours[name][:at], column, ours[name][at:]])
            np.testing.assert_array_equal(theirs[name], expected, err_msg=name)


def test_data_that_are_there_from_the_start_are_learnt_from_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "data.npz", episodes((40, 30)))
    model = api.BAC(Walk, **small(load_prior=f"{path}@0", eval_episodes=0))
    batches = spied(model, 10, monkeypatch)
    assert len(batches) == 10 and len(model.trainer.replay) == 80
    assert model.trainer.recorder.rows[0]["events"] == 1


def test_data_must_fit_into_the_replay(tmp_path: Path) -> None:
    path = saved(tmp_path / "data.npz", episodes((40, 30)))
    with pytest.raises(ConfigError, match=r"load_prior brings 72 rows, up to 41 for each of 2 .* give >= 84"):
        api.SAC(Walk, **small("sac", num_envs=2, replay_capacity=80, load_prior=f"{path}@0"))
    api.SAC(Walk, **small("sac", num_envs=2, replay_capacity=84, load_prior=f"{path}@0"))


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("data") / "data.npz", episodes((25, 10, 15)))


def with_data(path: Path, **more: Any) -> dict[str, Any]:
    """Episodes of Walk are at most 20 steps long: a reset comes some steps after 65."""
    return small(steps=120, prior=str(path), prior_share=0.5, load_prior=f"{path}@65", checkpoint_every=10, n_step=2, **more)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prior") / "whole"
    api.train("bac", "toys:Walk-v0", out=path, **with_data(data))
    return path


def test_the_run_folder_has_a_copy_whose_hash_is_in_its_config(data: Path, whole: Path) -> None:
    config = api.Run(whole).config
    for option, name in (("prior", "prior.npz"), ("load_prior", "load-prior.npz")):
        copy = (whole / name).read_bytes()
        assert hashlib.sha256(copy).hexdigest() == config["data"][option]
        np.testing.assert_array_equal(npz.read(copy)["obs"], np.load(data)["observations"].astype(np.float32))
    assert set(CheckpointStore(whole).load(pytest.fail).memories()) == {"replay"}, "what never changes is written once"
    assert config["train"]["prior"] == str(data) and config["train"]["load_prior"] == f"{data}@65"


def _entered(path: Path) -> int:
    """The step of the first row that knows of the data."""
    return next(int(row["step"]) for row in api.Run(path).metrics if row["events"])


def test_killed_before_while_waiting_and_after_a_run_ends_the_same(data: Path, whole: Path, tmp_path: Path) -> None:
    step = _entered(whole)
    assert 70 < step <= 100, "there is a checkpoint that waits for the reset"
    killed_and_resumed(tmp_path / "run", 55, 75, step - 1, step + 11, **with_data(data))
    same_run(whole, tmp_path / "run")


def test_a_run_goes_on_with_its_copy_and_with_no_other(beeline: Zygote, data: Path, whole: Path, tmp_path: Path) -> None:
    source, run = shutil.copy(data, tmp_path / "mine.npz"), tmp_path / "run"
    words = ["train", "bac", "toys:Walk-v0", *flags(with_data(source)), "--out", run]
    assert beeline.start(*words, env={"TOY_KILL": "1:72"}).wait() == -9
    copy = (run / "prior.npz").read_bytes()
    saved(run / "prior.npz", episodes((20,)))
    with pytest.raises(CheckpointError, match="is not what this run began with"):
        api.resume(run)
    (run / "prior.npz").unlink()
    saved(Path(source), episodes((20,)))
    with pytest.raises(CheckpointError, match=r"is gone, and .* is not what this run began with"):
        api.resume(run)
    shutil.copy(data, source)  # the data again, so the copy can be made again
    beeline.run("resume", run)
    assert (run / "prior.npz").read_bytes() == copy
    same_run(whole, run)


@pytest.mark.parametrize("n", [5, 7, 10])  # in the first copy, before it has its name, in the second
def test_exit_at_a_file_operation_around_the_copy(n: int, beeline: Zygote, data: Path, whole: Path, tmp_path: Path) -> None:
    words = ["train", "bac", "toys:Walk-v0", *flags(with_data(data)), "--out", tmp_path / "run"]
    assert beeline.start(*words, fault={"n": n}).wait() == 77
    beeline.run(*(["resume", tmp_path / "run"] if (tmp_path / "run" / "config.json").exists() else words))
    same_run(whole, tmp_path / "run")


# --- options ----------------------------------------------------------------------------------------------------------


def test_single_transitions_are_refused_where_a_method_needs_episodes(tmp_path: Path) -> None:
    path = saved(tmp_path / "data.npz", transitions())
    with pytest.raises(ConfigError, match=r"single transitions \(next_observations\), but n_step = 3 needs the rewards"):
        api.train("sac", Walk, out=tmp_path / "run", **small("sac", prior=path, n_step=3))
    assert not (tmp_path / "run").exists()
    api.SAC(Walk, **small("sac", prior=path, prior_share=0.5))


def test_a_method_without_a_replay_refuses_data_with_the_reason(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OffPolicyConfig, "refuses_prior", MethodConfig.refuses_prior)
    for options in ({"prior": data}, {"load_prior": f"{data}@0"}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} is not for sac: it does not learn from a replay"):
            given = small("sac", **options)
            Plan.make("sac", "toys:Walk-v0", given.pop("preset"), given)


@pytest.mark.parametrize("option", ["prior", "load_prior"])
def test_a_scale_of_the_rewards_met_is_refused_beside_data(option: str) -> None:
    """A run that has met zeros alone divides by 1e-4, and a reward of 1 of the data would count ten thousand."""
    scale = met(init_scale(1), 0.99, [Transition(0, *[np.zeros(1)] * 2, 0.0, np.zeros(1), False, False, {})])
    assert float(divisor(scale, 5.0)) == pytest.approx(1e-4)
    value = "rows.npz" if option == "prior" else "rows.npz@0"
    with pytest.raises(ConfigError, match=f"{option} is not for sac: normalize_reward .* or give reward_scale"):
        Plan.make("sac", "gym/Pendulum-v1", None, {option: value, "normalize_reward": True, "steps": 9_000})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prior_share": 0.3}, "prior_share = 0.3 needs prior"),
        ({"prior": "data.npz", "prior_share": 0.0}, "out of range"),
        ({"prior": "data.npz", "prior_share": 1.5}, "out of range"),
        ({"prior": "data.npz", "prior_share": 0.01}, "is less than one transition"),
        ({"prior": "gone.npz"}, "gone.npz: there is nothing at this path"),
        ({"load_prior": "data.npz"}, "load_prior = "),
        ({"load_prior": "data.npz@-1"}, "with a step >= 0"),
        ({"load_prior": "data.npz@soon"}, "cannot be read"),
        ({"load_prior": "data.npz@120"}, "is never reached"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    options: dict[str, Any], says: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    with pytest.raises(BeelineError) as caught:
        api.train("sac", "toys:Walk-v0", out=tmp_path / "run", **small("sac", **options))
    assert says in str(caught.value)
    assert not (tmp_path / "run").exists()
