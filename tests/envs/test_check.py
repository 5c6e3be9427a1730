import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from beeline.envs.check import check


class Base(gymnasium.Env):
    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.spec = gymnasium.envs.registration.EnvSpec("Base-v0", max_episode_steps=20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action):
        self.count += 1
        return self.observe(), 1.0, False, self.count == 20, {}


def levels(env):
    return {finding.level for finding in check(env)}


def messages(env, level):
    return " | ".join(finding.message for finding in check(env) if finding.level == level)


def test_a_good_environment_has_only_ok_findings():
    assert levels(Base()) == {"ok"}, check(Base())
    assert levels("gym/Pendulum-v1") == {"ok"}


class Forgetful(Base):
    def observe(self):
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class Carries(Base):
    """The second episode depends on the first one."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        obs, info = super().reset(seed=seed)
        return obs / self.episodes, info


class Fixed(Base):
    def observe(self):
        return np.zeros(2, np.float32)


class WrongType(Base):
    def observe(self):
        return super().observe().astype(np.float64)


class Outside(Base):
    def observe(self):
        return super().observe() + 5


class Endless(Base):
    def __init__(self):
        pass

    def step(self, action):
        return self.observe(), 1.0, False, False, {}


class RewardArray(Base):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, np.array(1.0), *rest


@pytest.mark.parametrize(
    ("env", "level", "words"),
    [
        (Forgetful, "warning", "self.np_random"),
        (Carries, "warning", "another episode from step 0"),
        (Fixed, "warning", "the start is fixed"),
        (WrongType, "warning", "dtype is float64, declared is float32"),
        (Outside, "warning", "bounds"),
        (Endless, "warning", "declares no time limit: its episodes are cut after 1,000 decisions"),
        (RewardArray, "warning", "reward as ndarray"),
    ],
)
def test_findings(env, level, words):
    assert words in messages(env, level)


@pytest.mark.parametrize(
    ("algo", "preset", "scaled", "optional"),
    [("bac", "best", True, True), ("bac", "light", False, True), ("mbpo", "light", False, False), ("slbo", "light", True, False),
     ("pets", "light", True, False)],
)  # fmt: skip
def test_what_is_advised_of_scales_is_what_the_method_can_do(monkeypatch, algo, preset, scaled, optional):
    from beeline import envs
    from beeline.cli import main
    from beeline.errors import BeelineError

    class Wide(Base):
        observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

        def observe(self):
            return np.float32([5000, 1]) * super().observe()

    def look(env, is_scaled, optional=True):
        asked.append((is_scaled, optional))
        raise BeelineError

    asked = []
    with monkeypatch.context() as patch:
        patch.setattr(envs, "quick", look)
        assert main(["train", algo, "gym/Pendulum-v1", "--preset", preset]) == 2
    assert asked == [(scaled, optional)]
    monkeypatch.setattr(sys.modules["beeline.envs.check"], "make", lambda env: envs.make(Wide))
    said = "".join(finding.message for finding in envs.quick("tank:Tank-v0", scaled, optional=optional))
    advice = "" if scaled else "Train with --normalize-obs." if optional else "Scale them in the environment."
    assert said.endswith(advice) and ("badly scaled" in said) == (not scaled)


def test_bounds_are_looked_at_in_several_episodes():
    class Later(Base):
        def reset(self, *, seed=None, options=None):
            self.low = -1.5 if seed == 0 else -2.5
            return super().reset(seed=seed)

        def observe(self):
            return np.array([super().observe()[0], self.low], np.float32)

    assert "observation[1] was -2.5, 0.5 outside [-2, 2]" in messages(Later, "warning")


def test_bounds_of_actions_are_said_one_by_one_where_they_differ():
    assert "1 actions in [-2, 2]" in messages("gym/Pendulum-v1", "ok")

    class Furnace(Base):
        action_space = spaces.Box(np.array([0.0, -3.0]), np.array([0.05, 12.0]), dtype=np.float32)

    class Wide(Base):
        action_space = spaces.Box(np.array([0.0, -3.0]), np.array([0.05, 5000.0]), dtype=np.float32)

    assert "2 actions in [0, 0.05], [-3, 12]" in messages(Furnace, "ok")
    assert "spans" not in messages(Furnace, "warning")
    assert "action[1] spans [-3, 5000]: exploration covers it all" in messages(Wide, "warning")


def test_nan_and_crashes_are_errors():
    class Nan(Base):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, float("nan") if self.count == 7 else 0.0, *rest

    class Crash(Base):
        def step(self, action):
            raise RuntimeError("motor on fire")

    assert "step 7: the reward is nan" in messages(Nan, "error")
    assert "motor on fire" in messages(Crash, "error")
    assert "continuous actions" in messages("gym/CartPole-v1", "error")
    assert "unknown environment" in messages("gym/Nothing-v0", "error")


def test_hardware_is_not_moved():
    class Robot(Base):
        beeline_replayable = False

        def step(self, action):
            raise AssertionError("moved")

    assert "not replayable" in messages(Robot, "warning") and "error" not in levels(Robot)
