"""Names that people bring from other codes: the table names what exists, and the answers are the same everywhere."""

from __future__ import annotations

import pytest

from beeline import agents, foreign
from beeline.agents.sac import SACConfig
from beeline.agents.td3 import TD3Config
from beeline.errors import ConfigError
from beeline.options import TrainConfig
from beeline.run.plan import Plan

OPTIONS = {name for entry in agents.ALGORITHMS.values() for name in entry.config.names()} | set(TrainConfig.names())
BROUGHT = [(name, row) for row in foreign.TABLE for name in row.names]


def test_every_answer_names_an_option_that_exists() -> None:
    for row in foreign.TABLE:
        assert set(row.ours) <= OPTIONS | set(foreign.WORDS) | {"quiet"}, row
        assert row.ours or row.note, row


def test_no_name_is_brought_twice_for_the_same_methods_and_few_are_our_own() -> None:
    pairs = [(name, option) for name, row in BROUGHT for option in row.ours or ("",)]
    assert len(set(pairs)) == len(pairs)
    assert {name for name, _ in BROUGHT} & OPTIONS == {"lr", "beta"}  # ppo's and xql's own, and what others call so elsewhere


@pytest.mark.parametrize(
    ("algo", "name", "ours"),
    [
        ("ppo", "n_steps", "rollout"), ("sac", "n_steps", "n_step"), ("ppo", "ent_coef", "entropy_weight"),
        ("ppo", "learning_rate", "lr"), ("ppo", "clip_range", "clip"), ("ppo", "lambda", "gae"), ("bac", "lambda", "lam"),
        ("trpo", "target_kl", "radius"), ("iql", "temperature", "inverse_temperature"), ("iql", "beta", "inverse_temperature"),
        ("pets", "horizon", "lookahead"), ("sac", "horizon", "limit"), ("pets", "num_elites", "elites"),
        ("mbpo", "num_elites", "model_elites"), ("mbpo", "rollout_length", "rollout_schedule"),
        ("cmlo", "real_data_ratio", "real_ratio"),
    ],
)  # fmt: skip
def test_a_name_that_is_several_things_is_answered_for_the_method(algo: str, name: str, ours: str) -> None:
    known = [*agents.get(algo).config.names(), *TrainConfig.names()]
    assert foreign.unknown(name, known, algo, owners=agents.owners).startswith(f"Here it is {ours}")
    assert foreign.unknown("beta", SACConfig.names(), "sac", owners=agents.owners).startswith("It is an option of bee-xql")


@pytest.mark.parametrize(("name", "row"), BROUGHT, ids=[name for name, _ in BROUGHT])
def test_every_name_is_answered_in_python(name: str, row: foreign.Foreign) -> None:
    if name in foreign.WORDS or name in ("lambda", "env"):  # accepted as they are
        return
    with pytest.raises(ConfigError, match=rf"^unknown option '{name}' for SAC\. ") as caught:
        Plan.make("sac", "gym/Pendulum-v1", None, {name: 1})
    here = [option for option in row.ours if option in (*SACConfig.names(), *TrainConfig.names(), *foreign.WORDS)]
    assert all(option in str(caught.value) for option in here)
    assert "Did you mean" not in str(caught.value) and "It is not here" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("--ent-coef", "Here it is --alpha, an option of bac, sac, bee-maxq and others; or --tune-alpha, an option of bac, sac, "
                       "bee-maxq and others, not of td3 "
                       "(a fixed one: alpha=0.2 and tune_alpha=false)."),
        ("alpha_beta1", "It is an option of bac, sac, bee-maxq and others, not of td3."),
        ("--no-cuda", "Here it is --device (such as cpu or gpu)."),
        ("--no-autotune", "Here it is --tune-alpha, an option of bac, sac, bee-maxq and others, not of td3."),
        ("batchsize", "Did you mean --batch-size?"),
        ("xyz", "See the help."),
    ],
)  # fmt: skip
def test_answers(name: str, answer: str) -> None:
    known = [*TD3Config.names(), *TrainConfig.names()]
    flag = lambda option: f"--{option.replace('_', '-')}"  # noqa: E731
    assert foreign.unknown(name, known, "td3", owners=agents.owners, write=flag, otherwise="See the help.") == answer


def test_the_table_of_a_matrix_answers_too() -> None:
    from beeline.bench.plan import expand

    with pytest.raises(ConfigError, match=r"unknown option of sac 'buffer_size'\. Here it is replay_capacity\."):
        expand({"algos": ["sac"], "tasks": ["gym/Pendulum-v1"], "options": {"buffer_size": 3}})
