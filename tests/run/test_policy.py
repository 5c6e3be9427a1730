"""A policy alone: a small file, actions in the environment's units, and nothing executable in it."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Goal, Walk
from whole_runs import small

import beeline
from beeline import trees
from beeline.errors import CheckpointError
from beeline.run.policy import flatten, load_policy, save_arrays


@pytest.fixture(scope="module")
def model() -> Any:
    return beeline.SAC(Walk, **small("sac")).learn(60)


def arrays_of(model: Any) -> dict[str, np.ndarray]:
    """What a policy file of this model would hold."""
    return trees.to_arrays(model.trainer.agent.policy(model.trainer.state))


def test_actions_are_in_the_environments_units(model: Any) -> None:
    obs = np.random.default_rng(0).normal(size=(500, 2)) * 100
    action, state = model.predict(obs)
    assert action.shape == (500, 2) and action.dtype == np.float32 and state is None
    low, high = Walk.action_space.low, Walk.action_space.high
    assert (action >= low).all() and (action <= high).all()
    assert np.ptp(action[:, 0]) > 1.0  # not squeezed into [-1, 1] around the middle
    pendulum = beeline.TD3("gym/Pendulum-v1", **small("td3"))
    far, _ = pendulum.predict(np.random.default_rng(0).normal(size=(500, 3)) * 1e4)
    assert far.min() >= -2 and far.max() <= 2 and np.abs(far).max() > 1.9


def test_one_observation_or_many_give_the_same(model: Any) -> None:
    batch = np.random.default_rng(1).normal(size=(3, 4, 2)).astype(np.float32)
    many, _ = model.predict(batch)
    assert many.shape == (3, 4, 2)
    one, _ = model.predict(batch[1, 2])
    assert one.shape == (2,)
    np.testing.assert_allclose(one, many[1, 2], rtol=1e-5, atol=1e-6)
    assert Walk.action_space.contains(one)


def test_deterministic_or_not(model: Any) -> None:
    obs = np.zeros(2, np.float32)
    fixed = [model.predict(obs)[0] for _ in range(3)]
    assert all(a.tobytes() == fixed[0].tobytes() for a in fixed)
    drawn = [model.predict(obs, deterministic=False)[0] for _ in range(8)]
    assert len({a.tobytes() for a in drawn}) == 8
    policy = model.policy
    assert len({policy.predict(obs, deterministic=False)[0].tobytes() for _ in range(8)}) == 8


def test_wrong_sizes_are_named(model: Any) -> None:
    with pytest.raises(CheckpointError, match="reads 2 numbers per observation, but got 3"):
        model.predict(np.zeros(3))


def test_dict_observations() -> None:
    model = beeline.SAC(Goal, **small("sac")).learn(40)
    obs, _ = Goal().reset(seed=3)
    flat = np.array([*obs["observation"], *obs["achieved_goal"], *obs["desired_goal"]])
    np.testing.assert_array_equal(flatten(obs), flat.astype(np.float32))
    assert model.predict(obs)[0].tobytes() == model.predict(flat)[0].tobytes()
    batch = {key: np.stack([value] * 5) for key, value in obs.items()}
    assert model.predict(batch)[0].shape == (5, 1)
    assert model.metrics[-1]["eval/success"] in (0.0, 1.0) if "eval/success" in model.metrics[-1] else True


def test_a_policy_outlives_the_learning_that_made_it(model: Any) -> None:
    obs = np.ones(2, np.float32)
    policy, before = model.policy, model.predict(obs)[0]
    model.learn(40)
    assert policy.predict(obs)[0].tobytes() == before.tobytes()
    assert model.predict(obs)[0].tobytes() != before.tobytes()


@pytest.mark.parametrize("more", [{}, {"normalize_obs": True}])
def test_the_file_is_small_and_acts_alike(more: dict[str, Any], tmp_path: Path) -> None:
    model = beeline.TD3(Walk, **small("td3", **more)).learn(60)
    path = model.policy.save(tmp_path / "p.npz")
    parameters = sum(a.size for a in arrays_of(model).values())
    assert path.stat().st_size < 4 * parameters + 8_000
    policy = beeline.load(path)
    obs = np.random.default_rng(0).normal(size=(20, 2))
    assert policy.predict(obs)[0].tobytes() == model.predict(obs)[0].tobytes()
    assert policy.meta["algo"] == "td3" and policy.meta["env"] == "factory:Walk" and policy.meta["step"] == 60


def test_damage_is_noticed_at_every_place(model: Any, tmp_path: Path) -> None:
    path = model.policy.save(tmp_path / "p.npz")
    data = path.read_bytes()
    whole = load_policy(path).policy["actor"]
    import jax

    for position in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
        try:
            found = load_policy(path).policy["actor"]
        except CheckpointError as error:
            assert str(path) in str(error)
        else:  # a byte that means nothing, such as a date
            assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), whole, found))
        path.write_bytes(data[:position])
        with pytest.raises(CheckpointError):
            load_policy(path)


def test_other_files_are_refused(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    with pytest.raises(CheckpointError, match="there is no policy file"):
        load_policy(path)
    with pytest.raises(CheckpointError, match="not an intact policy file"):
        load_policy(tmp_path)

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(tmp_path / "sprung").touch, ())

    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", **{"meta.json": np.array([Trap()], object)})  # type: ignore[arg-type]
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("one.npy", "other.npz", "pickled.npz", "raw.npz"):
        with pytest.raises(CheckpointError):
            load_policy(tmp_path / name)
    assert not (tmp_path / "sprung").exists()

    meta = model.policy.meta
    arrays = arrays_of(model)
    for change, message in (
        ({"format": 9}, "format 1"), ({"algo": "none"}, "unknown algorithm"),
        ({"spaces": {}}, "not complete"), ({"agent": 3}, "not complete"),
        ({"spaces": meta["spaces"] | {"obs_dim": 5}}, "made for other networks or another environment"),
    ):  # fmt: skip
        save_arrays(path, arrays, meta | change)
        with pytest.raises(CheckpointError, match=message):
            load_policy(path)
    save_arrays(path, dict(list(arrays.items())[1:]), meta)
    with pytest.raises(CheckpointError, match="it has no array"):
        load_policy(path)
    buffer = io.BytesIO()
    np.savez(buffer, **{"meta.json": np.frombuffer(json.dumps([1]).encode(), np.uint8)})
    path.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="not a policy file of format 1"):
        load_policy(path)


SPACES: dict[str, Any] = {"obs_dim": 2, "action_low": [-2.0, 0.0], "action_high": [3.0, 1.0]}
WIDE = np.zeros((10**6, 0), np.float32)  # an array of a million rows that takes no byte

CRAFTED: list[tuple[str, dict[str, Any], dict[str, np.ndarray], str]] = [
    # 2·200,000 + 2·200,000 + 200,000² + 200,000·2, and a number for each transition of the batch
    ("298 GB", {"agent": {"hidden": [200_000] * 2}}, {}, r"networks of 40,001,200,256 numbers or more, but its arrays have 132"),
    ("wide observations", {"spaces": SPACES | {"obs_dim": 10**9}}, {}, r"numbers or more, but"),
    ("hollow array", {"agent": {"hidden": [10**6, 10**6]}}, {"wide": WIDE}, r"numbers or more, but"),
    ("wide critics", {"spaces": {"obs_dim": 1, "action_low": [0] * 9_000, "action_high": [1] * 9_000},
                      "agent": {"hidden": [9_000, 1]}}, {}, r"numbers or more, but"),
    ("long batch", {"agent": {"hidden": [8, 8], "batch_size": 10**12}}, {}, r"numbers or more, but"),
    ("deep", {"agent": {"hidden": [1] * 20_000}}, {}, r"a network of 20000 hidden layers, but has 6 arrays"),
    ("beyond any number", {"agent": {"hidden": [10**400]}}, {}, r"hidden = \(1000+…? is out of range"),
    ("impossible ratio", {"agent": {"hidden": [8, 8], "critic_updates_per_step": 10**400}}, {}, r"= 1000+…? is out of range"),
    ("no layers", {"agent": {"hidden": []}}, {}, r"hidden = \(\) is out of range"),
    ("no width", {"agent": {"hidden": [8, 0]}}, {}, r"out of range"),
    ("negative observations", {"spaces": SPACES | {"obs_dim": -3}}, {}, r"obs_dim = -3 is not a number of observations"),
    ("no observations", {"spaces": SPACES | {"obs_dim": 0}}, {}, r"obs_dim = 0 is"),
    ("half an observation", {"spaces": SPACES | {"obs_dim": 2.0}}, {}, r"obs_dim = 2.0 is"),
    ("bounds of two lengths", {"spaces": SPACES | {"action_low": [0.0]}}, {}, r"do not fit together: 1 lower and 2 upper"),
    ("bounds the wrong way", {"spaces": SPACES | {"action_low": [9.0, 0.0]}}, {}, r"do not fit together"),
    ("no bounds", {"spaces": SPACES | {"action_low": [], "action_high": []}}, {}, r"do not fit together"),
    ("infinite bounds", {"spaces": SPACES | {"action_low": [-np.inf, 0.0]}}, {}, r"not all finite numbers"),
    ("NaN bounds", {"spaces": SPACES | {"action_high": [np.nan, 1.0]}}, {}, r"not all finite numbers"),
    ("bounds of text", {"spaces": SPACES | {"action_high": "12"}}, {}, r"not all finite numbers"),
    ("one bound", {"spaces": SPACES | {"action_high": 3}}, {}, r"not complete"),
    ("spaces of text", {"spaces": "obs_dim"}, {}, r"not complete"),
    ("algorithm of numbers", {"algo": 3}, {}, r"must name the algorithm"),
    ("no environment", {"env": None}, {}, r"must name .* the environment"),
    ("step out of the folder", {"step": "../../../x"}, {}, r"its step '../../../x' is not a count"),
    ("negative step", {"step": -1}, {}, r"its step -1 is not a count"),
    ("repeat for ever", {"repeat": 10**9}, {}, r"repeat = 1000000000 is out of range"),
    ("repeat of text", {"repeat": "x"}, {}, r"repeat = 'x' is not"),
    ("one array more", {}, {"more": np.zeros(3)}, r"it has an array 'more' that has no place here"),
    ("long description", {"note": "x" * 2**20}, {}, r"its description has 1,0\d\d,\d+ bytes where 1,048,576 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "more", "message"), [case[1:] for case in CRAFTED], ids=[case[0] for case in CRAFTED])
def test_a_description_that_its_arrays_do_not_bear_out_builds_nothing(
    change: dict[str, Any], more: dict[str, np.ndarray], message: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = arrays_of(model)
    assert sum(array.size for array in arrays.values()) == 132 == 2 * 8 + 8 + 8 * 8 + 8 + 8 * 4 + 4
    path = save_arrays(tmp_path / "p.npz", arrays | more, model.policy.meta | change)
    if change:
        monkeypatch.setattr(type(model.trainer.agent), "init", lambda *args: pytest.fail("networks were made"))
    with pytest.raises(CheckpointError, match=message) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_and_statistics_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    model = beeline.TD3(Walk, **small("td3", normalize_obs=True)).learn(30)
    arrays = arrays_of(model)
    assert len([name for name in arrays if "normaliser" in name]) == 3
    for name, array in arrays.items():
        bad = array.copy()
        bad.reshape(-1)[-1] = value
        path = save_arrays(tmp_path / "p.npz", arrays | {name: bad}, model.policy.meta)
        with pytest.raises(CheckpointError) as caught:
            load_policy(path)
        assert repr(name) in str(caught.value) and "NaN or infinity" in str(caught.value)
        with pytest.raises(CheckpointError, match="NaN or infinity"):
            beeline.TD3(Walk, init_from=path, **small("td3", normalize_obs=True))


def test_statistics_that_no_observations_have_are_refused(tmp_path: Path) -> None:
    model = beeline.TD3(Walk, **small("td3", normalize_obs=True)).learn(30)
    arrays = trees.to_arrays(model.policy.policy)
    names = [name for name in arrays if name.endswith(("['count']", "['variance']"))]
    assert len(names) == 2
    for name in names:
        path = save_arrays(tmp_path / "p.npz", arrays | {name: -arrays[name]}, model.policy.meta)
        with pytest.raises(CheckpointError, match="no observations have such statistics"):
            load_policy(path)


def test_an_action_that_is_not_finite_is_the_policys_fault(model: Any, tmp_path: Path) -> None:
    """Finite weights can still overflow; evaluation would blame the reward function of the environment."""
    arrays = arrays_of(model)
    for array in arrays.values():
        if array.ndim == 2:
            array[0::2], array[1::2] = 3e38, -3e38
    path = save_arrays(tmp_path / "p.npz", arrays, model.policy.meta)
    policy = load_policy(path)
    with pytest.raises(CheckpointError, match="the policy's action is not finite"):
        policy.predict(np.array([1e30, -1e30]))
    with pytest.raises(CheckpointError, match="the policy's action is not finite"):
        policy.act(np.array([1e30, -1e30], np.float32))


def test_nested_descriptions_pipes_and_loops_are_refused(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    for text in ("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, '{"format": 1, "agent": ' + "[" * 500_000):
        np.savez(path, **{"meta.json": np.frombuffer(text.encode(), np.uint8)})
        with pytest.raises(CheckpointError, match="not an intact policy file"):
            load_policy(path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nothing").symlink_to(tmp_path / "missing")
    for name in ("pipe", "loop"):
        with pytest.raises(CheckpointError, match=f"{name} is not an intact policy file"):
            load_policy(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"{name} is not an intact policy file"):
            beeline.SAC(Walk, init_from=tmp_path / name, **small("sac"))
    with pytest.raises(CheckpointError, match="there is no policy file"):
        load_policy(tmp_path / "nothing")


def test_a_link_is_followed_where_the_user_names_it_and_not_out_of_a_run(tmp_path: Path) -> None:
    run = beeline.train("sac", Walk, out=tmp_path / "run", **small("sac"))
    outside = (run.path / "policy.npz").rename(tmp_path / "outside.npz")
    (run.path / "policy.npz").symlink_to(outside)
    (tmp_path / "named.npz").symlink_to(outside)
    assert load_policy(tmp_path / "named.npz").meta["step"] == 120
    with pytest.raises(CheckpointError, match="a link that leads out of its folder"):
        run.policy()
    assert run.policy(best=True).meta["algo"] == "sac"


def test_a_policy_file_knows_its_action_repeat(tmp_path: Path) -> None:
    """Evaluated from its file alone, a policy decides as often as it was trained to."""
    model = beeline.SAC("gym/Pendulum-v1", repeat=4, **small("sac"))
    path = model.policy.save(tmp_path / "policy.npz")
    result, _ = beeline.evaluate_run(path, episodes=1)
    assert result.lengths == [200]  # 50 decisions of 4 steps; without the repeat, 200 decisions of 1
    assert load_policy(path).meta["repeat"] == 4
    calls = []
    policy = load_policy(path)
    from beeline import envs
    from beeline.evaluate import evaluate

    env = envs.make("gym/Pendulum-v1", repeat=policy.meta["repeat"])
    evaluate(lambda obs: calls.append(1) or policy.act(obs), env, seed=1, episodes=1)  # type: ignore[func-returns-value]
    assert len(calls) == 50
