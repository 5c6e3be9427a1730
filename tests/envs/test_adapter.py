"""The adapter against an environment whose every number can be computed by hand."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from beeline import envs
from beeline.envs.adapter import Adapter
from beeline.envs.ids import Options
from beeline.envs.spec import Built
from beeline.errors import ConfigError, EnvError


class Counter(gymnasium.Env):
    """Observes (step, last action...); pays the step number; terminates at `end`."""

    def __init__(self, low=(-2.0, 0.0), high=(2.0, 4.0), end=None, obs_space=None, success_at=None):
        self.action_space = spaces.Box(np.array(low), np.array(high), dtype=np.float64)
        self.observation_space = obs_space or spaces.Box(-np.inf, np.inf, (1 + len(low),), np.float64)
        self.end, self.success_at = end, success_at
        self.count = 0
        self.taken = []

    def obs(self):
        last = self.taken[-1] if self.taken else np.zeros(self.action_space.shape)
        return np.array([self.count, *last])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.taken = 0, []
        return self.obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        self.taken.append(action)
        info = {} if self.success_at is None else {"is_success": np.float64(self.count >= self.success_at)}
        return self.obs(), np.float32(self.count), self.count == self.end, False, info


def adapted(env=None, limit=None, success=False, **options):
    return Adapter(Built(env or Counter(), "counter", limit, success), "test/counter", Options(**options))


def test_interface_types():
    env = adapted(Counter(success_at=2))
    obs, info = env.reset(seed=0)
    assert obs.dtype == np.float32 and obs.shape == (3,) and info == {}
    obs, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
    assert obs.dtype == np.float32
    assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
    assert info["success"] is False
    assert env.step(np.zeros(2))[4]["success"] is True
    assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)


def test_actions_are_clipped_then_rescaled_from_the_bounds():
    env = adapted()
    env.reset(seed=0)
    assert env.step(np.array([-1.0, -1.0]))[0][1:].tolist() == [-2.0, 0.0]
    assert env.step(np.array([0.5, 0.0]))[0][1:].tolist() == [1.0, 2.0]
    assert env.step(np.array([9.0, -9.0]))[0][1:].tolist() == [2.0, 0.0]


def test_rescaling_never_leaves_the_bounds():
    low, high = np.float32([-0.1, 0.3, -1.1]), np.float32([0.7, 0.30001, 1e30])
    env = adapted(Counter(low, high))
    env.reset(seed=0)
    for sign in (-1.0, 1.0):
        env.step(np.full(3, sign, np.float32))  # Counter asserts that its space contains the action


def test_repeat_sums_rewards_and_stops_at_the_end():
    env = adapted(Counter(end=5), repeat=3)
    env.reset(seed=0)
    assert env.facts.repeat == 3
    assert env.step(np.zeros(2))[1:4] == (1.0 + 2.0 + 3.0, False, False)
    assert env.step(np.zeros(2))[1:4] == (4.0 + 5.0, True, False)


def test_limit_counts_environment_steps_and_truncates():
    env = adapted(limit=1000, **{})
    assert env.facts.max_episode_steps == 1000
    env = adapted(limit=7)
    env.reset(seed=0)
    ends = [env.step(np.zeros(2))[2:4] for _ in range(7)]
    assert ends == [(False, False)] * 6 + [(False, True)]
    env = Adapter(Built(Counter(), "counter", 1000, False), "id", Options(repeat=2, limit=5))
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[3] for _ in range(3)] == [False, False, True]
    assert env.env.count == 5
    env.reset(seed=1)
    assert env.step(np.zeros(2))[3] is False, "the count starts again with the episode"


def test_terminal_at_the_limit_stays_terminal():
    env = adapted(Counter(end=2), limit=2)
    env.reset(seed=0)
    env.step(np.zeros(2))
    assert env.step(np.zeros(2))[2:4] == (True, True)


def test_sparse_pays_success_or_a_threshold():
    env = adapted(Counter(success_at=3), success=True, sparse=1.0)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[1] for _ in range(4)] == [0.0, 0.0, 1.0, 1.0]
    env = adapted(sparse=2.0)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[1] for _ in range(3)] == [0.0, 1.0, 1.0]
    with pytest.raises(ConfigError, match="sparse=1"):
        adapted(success=True, sparse=0.5)


def test_noise_has_the_given_deviation_is_clipped_and_follows_the_reset_seed():
    def actions(seed, noise=0.1, decisions=400):
        env = adapted(Counter((-1.0,), (1.0,)), noise=noise)
        env.reset(seed=seed)
        for _ in range(decisions):
            env.step(np.zeros(1))
        return np.array(env.env.taken)[:, 0]

    first = actions(3)
    assert abs(first.std() - 0.1) < 0.02 and abs(first.mean()) < 0.02
    assert np.array_equal(first, actions(3))
    assert not np.array_equal(first, actions(4))
    assert np.abs(actions(3, noise=5.0)).max() == 1.0
    assert not actions(3, noise=0.0).any()


def test_noise_is_drawn_anew_for_each_environment_step():
    env = adapted(Counter((-1.0,), (1.0,)), noise=0.1, repeat=2)
    env.reset(seed=0)
    env.step(np.zeros(1))
    assert env.env.taken[0] != env.env.taken[1]


def box(n, dtype=np.float64):
    return spaces.Box(-np.inf, np.inf, (n,), dtype)


def test_dict_observations_have_a_documented_order():
    class Goal(Counter):
        def obs(self):
            return {"desired_goal": np.array([5.0]), "achieved_goal": np.array([3.0, 4.0]), "observation": np.ones(2)}

    space = spaces.Dict({"desired_goal": box(1), "achieved_goal": box(2), "observation": box(2)})
    env = envs.make(Goal(obs_space=space))
    assert env.reset(seed=0)[0].tolist() == [1.0, 1.0, 3.0, 4.0, 5.0]
    assert env.facts.success

    class Plain(Counter):
        def obs(self):
            return {"b": np.array([2.0]), "a": np.array([1.0])}

    env = envs.make(Plain(obs_space=spaces.Dict({"b": box(1), "a": box(1)})))
    assert env.reset(seed=0)[0].tolist() == [1.0, 2.0]


def test_observations_are_copies():
    class Shared(Counter):
        buffer = np.zeros(3, np.float32)

        def obs(self):
            self.buffer[0] = self.count
            return self.buffer

    env = envs.make(Shared(obs_space=box(3, np.float32)))
    first, _ = env.reset(seed=0)
    env.step(np.zeros(2))
    assert first[0] == 0.0


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Discrete(3), "continuous actions only"),
        (spaces.Box(0, 5, (2,), np.int64), "continuous actions only"),
        (spaces.Box(-np.inf, np.inf, (2,)), "unbounded"),
        (spaces.Box(0.0, np.inf, (2,)), "unbounded"),
        (spaces.Box(-1, 1, (2, 2)), r"shape \(2, 2\)"),
    ],
)
def test_bad_action_spaces(space, words):
    env = Counter()
    env.action_space = space
    with pytest.raises(EnvError, match=f"Counter.*{words}"):
        envs.make(env)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "an image"),
        (spaces.Box(-1, 1, (2, 2)), r"array of shape \(2, 2\)"),
        (spaces.Discrete(4), "Discrete.*FlattenObservation"),
        (spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}), "'camera' is an image"),
    ],
)
def test_bad_observation_spaces(space, words):
    with pytest.raises(EnvError, match=f"Counter.*{words}"):
        envs.make(Counter(obs_space=space))


def test_hardware_declares_that_it_must_not_be_replayed():
    class Robot(Counter):
        beeline_replayable = False

    assert envs.spec_of(Robot).replayable is False
    assert envs.spec_of(Counter).replayable is True
