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


ARGUMENTS = {"size": 3, "rate": 0.5, "deep": True, "none": None, "walls": [1, [2.5, "a"]], "mode": "fast", "text": "a&b=c?%d é"}


def test_arguments_of_the_environment_are_typed_and_written_back():
    query = 'size=3&rate=0.5&deep=true&none=null&walls=[1,[2.5,"a"]]&mode=fast&text="a%26b=c?%25d é"&repeat=2'
    options = ids.split(f"tank:Tank-v0?{query}")[2]
    assert options == ids.Options(repeat=2, arguments=ARGUMENTS)
    assert {name: type(value) for name, value in options.arguments.items()} == {k: type(v) for k, v in ARGUMENTS.items()}
    assert ids.split("gym/Tank-v0" + options.query())[2] == options
    assert ids.split(ids.with_arguments("tank:Tank-v0?repeat=2", ARGUMENTS))[2] == options
    assert ids.split("gym/Tank-v0" + ids.Options(arguments={"word": "true", "empty": ""}).query())[2].arguments["word"] == "true"


@pytest.mark.parametrize("text", ["True", "None", "nan", "NaN", "-Infinity", "[1,", "{", "", "'a'", "1 2", "[" * 100_000])
def test_an_argument_that_is_no_json_is_an_error_that_names_it(text):
    with pytest.raises(ConfigError, match="the argument size="):
        ids.split(f"tank:Tank-v0?size={text}")


def test_arguments_beside_an_id():
    assert ids.with_arguments("tank:Tank-v0", {}) == "tank:Tank-v0"
    assert ids.with_arguments("tank:Tank-v0?size=3", {"size": 3}) == "tank:Tank-v0?size=3"
    for env_id, arguments, words in (
        ("tank:Tank-v0?size=3", {"size": 4}, "size = 3, but env_kwargs gives 4"),
        ("tank:Tank-v0", {"limit": 4}, "option of Beeline's"),
        ("tank:Tank-v0", {"size": float("nan")}, "JSON values only"),
        ("tank:Tank-v0", {"size": {1: 2}}, "JSON values only"),
        ("dmc/walker-run", {"size": 4}, "not for the suite 'dmc'"),
    ):
        with pytest.raises(ConfigError, match=words):
            ids.with_arguments(env_id, arguments)
    with pytest.raises(ConfigError, match="no name of an argument"):
        ids.split("tank:Tank-v0?a-b=3")
    with pytest.raises(ConfigError, match="size twice: 3 and 4"):
        ids.split("tank:Tank-v0?size=3&size=4")


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
