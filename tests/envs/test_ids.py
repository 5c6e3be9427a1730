import pytest

from beeline.envs import ids
from beeline.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("env_id", "suite", "task"),
    [
        ("gym/Hopper-v5", "gym", "Hopper-v5"),
        ("dmc/ball_in_cup-catch?repeat=2", "dmc", "ball_in_cup-catch"),
        ("some.module:Env-v0", "gym", "some.module:Env-v0"),
        ("some.module:space/Env-v0?noise=0.1", "gym", "some.module:space/Env-v0"),
        ("Hopper-v5", "", "Hopper-v5"),
    ],
)
def test_split(env_id, suite, task):
    assert ids.split(env_id)[:2] == (suite, task)


def test_options_are_read_and_written_in_one_order():
    options = ids.split("dmc/walker-run?sparse=1&repeat=2&noise=0.2&limit=1000000")[2]
    assert options == ids.Options(noise=0.2, repeat=2, sparse=1.0, limit=1_000_000)
    assert options.query() == "?limit=1000000&noise=0.2&repeat=2&sparse=1"
    assert ids.split("dmc/walker-run" + options.query())[2] == options
    assert ids.Options().query() == ""


@pytest.mark.parametrize(
    "query", ["noise=-0.1", "noise=nan", "noise=", "repeat=0", "repeat=1.5", "limit=0", "sparse=inf", "limit=many"]
)
def test_values_out_of_range_are_errors_that_name_the_option(query):
    with pytest.raises(ConfigError, match=query.partition("=")[0]):
        ids.split(f"dmc/walker-run?{query}")


def test_unknown_option_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="'repeat'"):
        ids.split("dmc/walker-run?repat=2")


def test_an_option_twice_in_conflict_is_an_error():
    assert ids.split("a/b?repeat=2&repeat=2")[2].repeat == 2
    with pytest.raises(ConfigError, match="twice: 2 and 3"):
        ids.split("a/b?repeat=2&repeat=3")
    assert ids.with_repeat("a/b", ids.Options(repeat=2), 2).repeat == 2
    assert ids.with_repeat("a/b", ids.Options(), 4).repeat == 4
    assert ids.with_repeat("a/b", ids.Options(repeat=2), 1).repeat == 2
    with pytest.raises(ConfigError, match="repeat=3"):
        ids.with_repeat("a/b", ids.Options(repeat=2), 3)
    with pytest.raises(ConfigError, match="repeat"):
        ids.with_repeat("a/b", ids.Options(), 0)
