"""Events as values of the config: parts that begin anew at a step, exactly, also where the run is killed around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import Walk
from whole_runs import Zygote, flags, killed_and_resumed, same_run, small, table

import beeline as api  # `beeline` is the fixture that runs the command
from beeline import trees
from beeline.errors import BeelineError, ConfigError, UnknownNameError
from beeline.memory import Clock
from beeline.options import Loading, Renewal, TrainConfig, loading, renewals

MODELS = {"sac": api.SAC, "bac": api.BAC, "td3": api.TD3, "bee-td3": api.BEETD3}
PREFIXES = {"policy": ".actor", "critic": ".critic", "value": ".backup['value']"}


# --- renewal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["bac", "bee-td3"])
@pytest.mark.parametrize("parts", [("critic",), ("policy", "value")])
def test_a_renewed_part_is_fresh_and_everything_else_is_as_it_was(algo: str, parts: tuple[str, ...]) -> None:
    trainer = MODELS[algo](Walk, **small(algo, eval_episodes=0, blend="ada", normalize_obs=True)).learn(60).trainer
    agent, first = trainer.agent, trees.to_arrays(trainer.agent.init(0))
    before = trees.to_arrays(trainer.state)
    after, again, other = (trees.to_arrays(agent.renew(trainer.state, parts, Clock(0, step))) for step in (60, 60, 61))
    renewed = tuple(PREFIXES[part] for part in parts)
    for name, array in after.items():
        if not name.startswith(renewed):
            assert array.tobytes() == before[name].tobytes(), name
            continue
        assert array.tobytes() == again[name].tobytes(), name
        if ".opt" in name:
            assert not array.any(), f"{name} remembers"
        elif np.ptp(array):  # drawn: biases and scales may begin at 0 and 1
            for elsewhere in (first, before, other):
                assert array.tobytes() != elsewhere[name].tobytes(), name
        if ".target" in name:
            assert array.tobytes() == after[name.replace(".target", ".live")].tobytes()
    for prefix in renewed:
        assert any(before[name].any() for name in after if name.startswith(f"{prefix}.opt")), "it had learnt"
        assert any(np.ptp(array) for name, array in after.items() if name.startswith(f"{prefix}.live")), "it was drawn"


def test_a_run_renews_once_at_the_first_decision_that_reaches_the_step_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = api.BAC(Walk, **small(num_envs=3, renew="critic,value@40; policy@70", log_every=10, eval_every=50))
    agent, asked = model.trainer.agent, []
    plain = agent.renew

    def spy(state: Any, parts: Any, clock: Clock) -> Any:
        alpha = [np.array(leaf) for leaf in jax.tree.leaves(state.objective)]
        renewed = plain(state, parts, clock)
        asked.append((parts, clock.step, clock.updates == int(renewed.updates) > 0))
        assert [leaf.tobytes() for leaf in alpha] == [np.array(leaf).tobytes() for leaf in jax.tree.leaves(renewed.objective)]
        return renewed

    monkeypatch.setattr(agent, "renew", spy)
    trainer = model.learn(120).trainer
    assert asked == [(("critic", "value"), 42, True), (("policy",), 72, True)]
    assert trainer.progress.done == ["renew critic,value@40", "renew policy@70"]
    assert len(trainer.replay) == 120
    # The row of a step is written before what happens there.
    counted = {row["step"]: row["events"] for row in trainer.recorder.rows}
    assert (counted[0], counted[30], counted[42], counted[51], counted[72], counted[81], counted[120]) == (0, 0, 0, 1, 1, 2, 2)


def test_before_its_step_a_renewal_changes_nothing_and_after_it_the_critics_differ() -> None:
    plain, renewed = (api.SAC(Walk, **small(eval_episodes=0, renew=renew)) for renew in (None, "critic@40"))
    for each in (plain, renewed):
        each.learn(39)
    left, right = (trees.to_arrays(each.trainer.state) for each in (plain, renewed))
    assert all(left[name].tobytes() == right[name].tobytes() for name in left)
    for each in (plain, renewed):
        each.learn(1)
    left, right = (trees.to_arrays(each.trainer.state) for each in (plain, renewed))
    assert {name.split(".")[1] for name in left if left[name].tobytes() != right[name].tobytes()} == {"critic"}


RENEWED = small(steps=120, renew="critic,value@60; policy@75", checkpoint_every=30, log_every=5)


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("renewed") / "whole"
    api.train("bac", "toys:Walk-v0", out=path, **RENEWED)
    return path


@pytest.mark.parametrize("steps", [(59, 60), (61, 74), (75, 76), (91,)], ids=str)
def test_killed_before_at_and_after_a_renewal_a_run_ends_the_same(steps: tuple[int, ...], renewed: Path, tmp_path: Path) -> None:
    killed_and_resumed(tmp_path / "run", *steps, **RENEWED)
    same_run(renewed, tmp_path / "run")


def test_sigkill_right_after_a_renewal_and_the_command_line(beeline: Zygote, renewed: Path, tmp_path: Path) -> None:
    words = ["train", "bac", "toys:Walk-v0", *flags(RENEWED), "--out", tmp_path / "run"]
    assert beeline.start(*words, env={"TOY_KILL": "1:76"}).wait() == -9
    beeline.run("resume", tmp_path / "run")
    assert table(renewed) == table(tmp_path / "run")


def test_the_table_counts_events_only_where_there_are_any(renewed: Path, tmp_path: Path) -> None:
    assert "events" in table(renewed)[0]
    api.train("sac", Walk, out=tmp_path / "run", **small("sac", steps=30))
    assert "events" not in table(tmp_path / "run")[0]


@pytest.mark.parametrize(
    "value", ["policy", "policy@", "@100", "policy@0", "policy@-1", "policy@x", "policy,@50", "policy,policy@50", "", ";",
              "policy@50;", "policy@50;critic@50", "policy@1.5"]
)  # fmt: skip
def test_a_malformed_renewal_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="renew = "):
        TrainConfig(renew=value)


def test_renewals_are_read_as_they_are_written() -> None:
    assert renewals("policy, critic@100_000 ; value@2e4") == (Renewal(("value",), 20_000), Renewal(("policy", "critic"), 100_000))
    assert renewals(None) == ()
    assert loading("a folder/with@sign.npz@1_000") == Loading("a folder/with@sign.npz", 1000)
    assert loading(None) is None


@pytest.mark.parametrize(
    ("algo", "renew", "kind", "says"),
    [
        ("sac", "polcy@50", UnknownNameError, "unknown part to renew 'polcy'. Did you mean 'policy'?"),
        ("sac", "value@50", UnknownNameError, "Known for sac with these options: policy, critic."),
        ("bac", "policy@120", ConfigError, "'policy@120' is never reached: the run has 120 steps"),
    ],
)
def test_what_cannot_be_renewed_is_refused_before_anything_is_written(
    algo: str, renew: str, kind: type[BeelineError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(kind) as caught:
        api.train(algo, Walk, out=tmp_path / "run", **small(algo, renew=renew))
    assert says in str(caught.value)
    assert not (tmp_path / "run").exists()
