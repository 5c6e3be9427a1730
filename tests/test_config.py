"""Every field of every config is typed, documented and bounded, and says so when it is given something else."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import types
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beeline
from beeline import agents, loop, runtime
from beeline.agents.rrs import RRSConfig
from beeline.agents.sac import BACConfig
from beeline.config import Config, Rule, option
from beeline.errors import ConfigError, UnknownNameError
from beeline.memory import Replay
from beeline.options import TrainConfig
from beeline.run.plan import Plan

CONFIGS: list[type[Config]] = [TrainConfig, *(entry.config for entry in agents.ALGORITHMS.values())]
FIELDS = [(config, name) for config in CONFIGS for name in config.names()]


def kinds(config: type[Config], name: str) -> tuple[Any, ...]:
    hint = typing.get_type_hints(config)[name]
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def item(kind: Any) -> Any:
    """The type of what a field holds, one by one."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


def outside(rule: Rule, kind: Any) -> list[Any]:
    """Values of the right type that a rule must refuse."""
    if rule.choices:
        return ["no such choice", ""]
    found: list[Any] = []
    if rule.low is not None:
        found.append(rule.low - 1)
    if rule.above is not None:
        found += [rule.above, rule.above - 1]
    if rule.high is not None:
        found.append(rule.high + 1)
    if item(kind) is float:
        found += [math.nan, math.inf, -math.inf]
    if kind == tuple[str, ...]:
        return [(), "", "a,,b"]
    return [(item(kind)(value),) for value in found] + [()] if typing.get_origin(kind) is tuple else found


@pytest.mark.parametrize(("config", "name"), FIELDS, ids=[f"{c.__name__}.{n}" for c, n in FIELDS])
def test_every_field_is_documented_and_refuses_what_lies_outside_its_range(config: type[Config], name: str) -> None:
    rule, kind = config.rules()[name], next(k for k in kinds(config, name) if k is not types.NoneType)
    assert rule.doc and "\n" not in rule.doc
    if item(kind) is int:
        assert rule.low is not None, "a whole number without a lower bound"
    for value in outside(rule, kind):
        with pytest.raises(ConfigError) as caught:
            config.make({name: value})
        text = str(caught.value)
        assert name in text
        assert (rule.allowed or ("words" if kind == tuple[str, ...] else "finite")) in text


WRONG: dict[Any, list[Any]] = {
    tuple[int, ...]: ["a,b", [1.5], ["x"], "", None, 2.5, {}],
    tuple[float, ...]: ["a,b", ["x"], [True], "1,,2", "", None, {}],
    int: ["many", "1.5", 1.5, np.float32(1.5), True, None, [1], "nan", "1e400", ""],
    float: ["much", True, None, [1.0], "", 1j],
    bool: ["maybe", 2, None, 1.0],
    str: [1, None, ["a"], True],
    tuple[str, ...]: [[1], 1.5, {}],
}


@pytest.mark.parametrize(("config", "name"), FIELDS, ids=[f"{c.__name__}.{n}" for c, n in FIELDS])
def test_every_field_refuses_other_types(config: type[Config], name: str) -> None:
    allowed = kinds(config, name)
    kind = next(k for k in allowed if k is not types.NoneType)
    for value in WRONG[kind]:
        if (value is None and types.NoneType in allowed) or (value is True and "on" in (config.rules()[name].choices or ())):
            continue
        with pytest.raises(ConfigError, match=name) as caught:
            config.make({name: value})
        assert config.rules()[name].allowed in str(caught.value)


@pytest.mark.parametrize("config", CONFIGS)
def test_text_and_json_bring_back_the_same_config(config: type[Config]) -> None:
    made = config.make({})
    assert config.make(made.to_dict()) == made
    words = {n: ",".join(map(str, v)) if isinstance(v, list) else str(v) for n, v in made.to_dict().items()}
    assert config.make(words) == made


def test_numbers_as_people_write_them() -> None:
    assert TrainConfig.make({"steps": "100_000"}).steps == 100_000
    assert TrainConfig.make({"steps": "1e6"}).steps == 1_000_000
    assert TrainConfig.make({"steps": np.int64(7)}).steps == 7
    assert BACConfig.make({"hidden": "64,32"}).hidden == (64, 32)
    assert BACConfig.make({"hidden": 64}).hidden == (64,)
    assert RRSConfig.make({"shifts": "-0.5,0,1e-1"}).shifts == (-0.5, 0.0, 0.1)
    assert RRSConfig.make({"shifts": 1}).shifts == (1.0,)
    assert BACConfig.make({"grad_clip": "none"}).grad_clip is None
    assert BACConfig.make({"double_q": "no"}).double_q == "off"
    assert BACConfig.make({"lambda": 0.25}).lam == 0.25


@given(st.floats(), st.floats(-100, 100), st.floats(-100, 100))
def test_a_range_admits_exactly_what_lies_in_it(value: float, low: float, high: float) -> None:
    assert Rule("", low=low, high=high).admits(value) == (low <= value <= high)
    assert Rule("", above=low).admits(value) == (low < value < math.inf)


def test_a_config_that_exists_is_valid() -> None:
    config = BACConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.gamma = 2.0  # type: ignore[misc]
    with pytest.raises(ConfigError, match="gamma"):
        dataclasses.replace(config, gamma=2.0)


def test_readable_type_errors() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(Config):
        size: int | None = option(1, "a size", low=1, high=3)

    with pytest.raises(ConfigError, match=r"^size = 'x' is not a whole number or none; allowed: >= 1 and <= 3\.$"):
        Mine.make({"size": "x"})


@pytest.mark.parametrize(
    ("given_name", "near"), [("gama", "gamma"), ("lambd", "lambda"), ("num_env", "num_envs"), ("eval_evry", "eval_every")]
)
def test_unknown_options_get_the_nearest_of_the_run_and_of_the_algorithm(given_name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{given_name}'.*{near}"):
        Plan.make("bac", "gym/X-v0", "light", {given_name: 1, "lambda": 0.5})


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown algorithm 'bca'. Did you mean 'bac'"):
        Plan.make("bca", "gym/X-v0", "light", {})
    with pytest.raises(UnknownNameError, match=r"unknown preset 'lite'. Did you mean 'light'"):
        Plan.make("bac", "gym/X-v0", "lite", {})


def test_fields_that_belong_together() -> None:
    with pytest.raises(ConfigError, match="whole ratio"):
        BACConfig.make({"policy_updates_per_step": 0.3})
    with pytest.raises(ConfigError, match="alpha = 0 cannot be tuned"):
        BACConfig.make({"alpha": 0})
    assert BACConfig.make({"alpha": 0, "tune_alpha": False}).alpha == 0
    with pytest.raises(ConfigError, match=r"replay_capacity = 256 .*>= 515.*batch_size = 256"):
        Plan.make("bac", "gym/X-v0", "light", {"replay_capacity": 256})
    with pytest.raises(ConfigError, match=r"steps = 1000 is not more than the warm-up \(random_steps = 1000\)"):
        Plan.make("bac", "gym/X-v0", "light", {"steps": 1000}).check_budget()
    with pytest.raises(ConfigError, match=r"steps = 1500 .*learn_after = 2000"):
        Plan.make("td3", "gym/X-v0", "light", {"steps": 1500, "learn_after": 2000}).check_budget()
    Plan.make("bac", "gym/X-v0", "light", {"steps": 1001}).check_budget()


def transitions(capacity: int, lanes: int) -> int:
    """The fewest transitions in a ring that has been full for a while, when every episode is a step long."""
    ring, fewest = Replay(capacity, 1, 1, lanes), capacity
    for count in range(4 * capacity):
        for lane in range(lanes):
            ring.start(lane, 0.0)
        fewest = min(fewest, len(ring)) if count > 2 * capacity else fewest
        for lane in range(lanes):
            ring.add(lane, 0.0, 0.0, 0.0, True, False)
    return fewest


@pytest.mark.parametrize(("batch", "lanes"), [(1, 1), (2, 1), (16, 1), (16, 3), (7, 4), (2, 5), (8, 8)])
def test_the_smallest_ring_holds_more_than_a_batch_of_the_shortest_episodes(batch: int, lanes: int) -> None:
    options = {"batch_size": batch, "num_envs": lanes}
    with pytest.raises(ConfigError, match="as short as a step") as caught:
        Plan.make("sac", "gym/X-v0", "light", options | {"replay_capacity": 2})
    least = int(re.findall(r">= (\d+)", str(caught.value))[0])
    Plan.make("sac", "gym/X-v0", "light", options | {"replay_capacity": least})
    with pytest.raises(ConfigError):
        Plan.make("sac", "gym/X-v0", "light", options | {"replay_capacity": least - 1})
    assert transitions(least, lanes) > batch >= transitions(least - 1, lanes)


def test_a_ring_that_final_rows_would_fill_is_refused() -> None:
    """18 rows with a batch of 16: episodes of three steps leave 13 transitions, and nothing would ever be learnt."""
    with pytest.raises(ConfigError, match=r"replay_capacity = 18 .*>= 35 with num_envs = 1 and batch_size = 16"):
        Plan.make("sac", "gym/X-v0", "light", {"replay_capacity": 18, "batch_size": 16})


def test_a_ring_beyond_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "free_memory", lambda: 2_000_000)
    options = {"replay_capacity": 10**8, "steps": 10**8}
    plan = Plan.make("sac", "gym/X-v0", "light", options)
    # 3 observations, 1 action and a reward as float32 and a byte: 21 bytes, of which 2 MB hold 95,238.
    with pytest.raises(ConfigError, match=r"100,000,000 rows of 21 bytes are 2\.1 GB, but 0\.0 GB .*allowed here: <= 95238\."):
        plan.check_memory(3, 1)
    Plan.make("sac", "gym/X-v0", "light", options | {"replay_capacity": 95_238}).check_memory(3, 1)
    Plan.make("sac", "gym/X-v0", "light", options | {"steps": 95_237}).check_memory(3, 1)  # it will not fill the ring
    with pytest.raises(ConfigError):
        Plan.make("sac", "gym/X-v0", "light", options | {"steps": 95_238}).check_memory(3, 1)
    with pytest.raises(ConfigError, match=r"replay_capacity = 100000000 is too much"):
        beeline.SAC("gym/Pendulum-v1", **options)
    monkeypatch.setattr(runtime, "free_memory", lambda: None)
    plan.check_memory(3, 1)


def test_memory_that_the_system_refuses_is_no_raw_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*sizes: int) -> None:
        raise MemoryError("Unable to allocate 10.9 TiB")

    monkeypatch.setattr(loop, "Replay", refuse)
    with pytest.raises(ConfigError, match=r"more memory than there is \(Unable .*lower replay_capacity = 1000000000000\."):
        beeline.SAC("gym/Pendulum-v1", replay_capacity=10**12)


def test_free_memory_is_what_the_system_says() -> None:
    free = runtime.free_memory()
    assert free is not None and 10**6 < free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_plan_survives_json() -> None:
    plan = Plan.make("bee-td3", "dmc/walker-run", "paper", {"hidden": (3, 4), "lambda": 0.1, "seed": 5}, "/x.npz")
    assert Plan.from_dict(plan.to_dict()) == plan


def test_whole_bounds_are_written_in_full() -> None:
    from beeline.options import TrainConfig

    assert TrainConfig.rules()["seed"].allowed == ">= 0 and <= 2147483647"


def test_a_long_value_is_not_told_in_full() -> None:
    """A file can hold one of a megabyte, and an error is a sentence."""
    for value in ("x" * 10**6, [0] * 10**5):
        with pytest.raises(ConfigError, match="hidden = ") as caught:
            BACConfig.make({"hidden": value})
        assert len(str(caught.value)) < 400 and "…" in str(caught.value)


def test_a_field_that_is_no_option_is_named() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs(BACConfig):
        samples: int = 4

    with pytest.raises(ConfigError, match=r"the field samples of Theirs is no option: write samples: … = option\(default, "):
        Theirs()
    with pytest.raises(ConfigError, match="the field samples of Theirs is no option"):
        Theirs.rules()
