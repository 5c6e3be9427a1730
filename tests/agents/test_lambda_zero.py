"""Every method of the registry that stands for another under the BEE operator is that other, to the byte, with λ = 0."""

from __future__ import annotations

from typing import Any

import pytest
from states import leaves_equal
from whole_runs import small

from beeline.agents import OWN
from beeline.api import model

# `bac` has its own body and target interval beside λ; every other pair differs in the operator alone.
ALIKE: dict[str, dict[str, Any]] = {"bac": {"network": "mlp", "target_interval": 2}, "bee-rrs": {"switch_every": 20}}
NAMED = [("sac", "bac"), ("mbpo", "mb-bac")]
PAIRS = [*NAMED, *((name.removeprefix("bee-"), name) for name in sorted(OWN) if name.startswith("bee-"))]


def test_every_method_of_the_group_is_in_a_pair() -> None:
    assert {bee for _, bee in PAIRS} == {name for name, entry in OWN.items() if entry.group == "bee"} | {"mb-bac"}
    assert {backbone for backbone, _ in PAIRS} <= set(OWN)


# What the small networks of `best` bring along, and two options that touch what is drawn and what a target is made of.
BEST: dict[str, Any] = {
    "preset": "best", "policy_hidden": (8, 8), "learn_after": 20, "normalize_reward": True, "replay_decay": 0.001,
}  # fmt: skip


@pytest.mark.parametrize(
    ("backbone", "bee", "more"),
    [*((*pair, {"preset": "light"}) for pair in PAIRS), ("sac", "bac", BEST), ("td3", "bee-td3", BEST)],
)
def test_lambda_zero_gives_the_same_bytes(backbone: str, bee: str, more: dict[str, Any]) -> None:
    options = small(backbone, **(ALIKE.get(bee, {}) if more["preset"] == "light" else {}) | more)
    steps = options.pop("steps")
    one, two = (model(name)("gym/Pendulum-v1", **options, **own).learn(steps)
                for name, own in ((backbone, {}), (bee, {"lam": 0.0})))  # fmt: skip
    assert one.trainer.progress.updates >= 80
    assert leaves_equal(one.trainer.state, two.trainer.state)
    rows = [[{k: v for k, v in row.items() if not k.startswith("time/")} for row in each.metrics] for each in (one, two)]
    assert rows[0] == rows[1] and any("loss/critic" in row for row in rows[0])
