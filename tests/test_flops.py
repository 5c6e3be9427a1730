"""The operation count behind every share-of-roof figure, against numbers worked out by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

_PATH = Path(__file__).parents[1] / "benchmarks" / "flops.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_flops", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
flops = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_flops"] = flops
_SPEC.loader.exec_module(flops)


def test_forward_counts_two_operations_per_weight_and_row() -> None:
    assert flops.Mlp((3, 5, 2)).forward(batch=7) == 2 * 7 * (15 + 10)


def test_parameter_gradient_leaves_out_the_gradient_of_the_data() -> None:
    # dW: 15 + 10 weights; dx: the second layer's 10 only.
    assert flops.Mlp((3, 5, 2)).parameter_gradient(batch=7) == 2 * 7 * (15 + 10 + 10)


def test_input_gradient_counts_only_the_columns_asked_for() -> None:
    # Two of three inputs: 2·5 in the first layer, 5·2 in the second; no weight gradients.
    assert flops.Mlp((3, 5, 2)).input_gradient(batch=7, inputs=2) == 2 * 7 * (10 + 10)


def test_walker2d_at_256_is_the_published_count() -> None:
    sac = flops.algorithm_flops("sac", 17, 6, (256, 256), 256)
    bac = flops.algorithm_flops("bac", 17, 6, (256, 256), 256)
    assert sac == pytest.approx(0.577e9, abs=0.0005e9)
    assert bac == pytest.approx(0.792e9, abs=0.0005e9)
    assert bac / sac == pytest.approx(1.372, abs=0.001)


def test_sac_of_unit_sizes_by_hand() -> None:
    # obs 1, act 1, one hidden unit, batch 1. Actor 1-1-2: 3 weights. Critic 2-1-1: 3 weights.
    actor_forward, actor_backward = 3, 3 + 2
    critic_forward, critic_backward, critic_input = 3, 3 + 1, 1 + 1
    products = actor_forward + 2 * critic_forward  # target
    products += 2 * (critic_forward + critic_backward)
    products += actor_forward + actor_backward + 2 * (critic_forward + critic_input)
    assert flops.update_flops(1, 1, (1,), 1) == 2 * products


def test_td3_spreads_the_delayed_actor_over_two_updates_and_uses_one_critic() -> None:
    # obs 1, act 1, one hidden unit, batch 1. Actor 1-1-1: 2 weights. Critic 2-1-1: 3 weights.
    target, critic_step = 2 + 2 * 3, 2 * (3 + 4)
    actor_step = 2 + 3 + (3 + 2)
    assert flops.algorithm_flops("td3", 1, 1, (1,), 1) == 2 * (target + critic_step + actor_step / 2)


@pytest.mark.parametrize(("plain", "bee"), [("sac", "bac"), ("td3", "bee-td3")])
def test_exploit_adds_value_passes_and_one_target_evaluation(plain: str, bee: str) -> None:
    # V 17-h-h-1 forward at s and s', gradients at s; both target critics 23-h-h-1 at (s, a).
    h, b = 32, 8
    value, critic = 17 * h + h * h + h, 23 * h + h * h + h
    extra = 2 * b * (2 * value + 2 * value - 17 * h + 2 * critic)
    args = (17, 6, (h, h), b)
    assert flops.algorithm_flops(bee, *args) - flops.algorithm_flops(plain, *args) == extra


def test_unknown_algorithm_is_named() -> None:
    with pytest.raises(ValueError, match="ppo"):
        flops.algorithm_flops("ppo", 17, 6, (256, 256), 256)


def test_grac_of_unit_sizes_by_hand() -> None:
    # obs 1, act 1, one hidden unit, batch 1, searches of 2 x 3 + 1 candidates, 4 steps of the critics. Actor 3 weights, critic 3.
    config = SimpleNamespace(batch_size=1, population=3, iterations=2)
    products = 3 + 7 * 3 + 2 * 2 * 3  # π(s'), the search, both critics at two actions
    products += 2 * (3 + 4) + 3 * 2 * 2 * (3 + 4)  # a step at (s, a), three at (s', a*) as well
    products += 3 + 5 + 7 * 3 + 3 + 2  # the policy, its search, Q_1 and its slope by the action
    assert flops.grac_flops(1, 1, (1,), config, 4, exploit=False) == 2 * products
    assert flops.grac_flops(1, 1, (1,), config, 4, exploit=True) == 2 * (products + 2 * 2 + 3 + 2 * 3)


def test_on_policy_counts_of_unit_sizes_by_hand() -> None:
    # Policy 1-1-1 and V 1-1-1: 2 weights, gradients 2 + 1. Two epochs of V, one V(s').
    config = SimpleNamespace(epochs=2, cg_iterations=4, policy_hidden=None)
    value = 2 + 2 * (2 + 3)
    assert flops.on_policy_flops("ppo", 1, 1, (1,), config, {}) == 2 * (value + 2 * (2 + 3))
    fisher = (2 * 2 - 1) + 3  # changes of both layers, and back
    wanted = 2 * (value + 2 + 3 + 5 * fisher + 3 * 2)
    assert flops.on_policy_flops("trpo", 1, 1, (1,), config, {"step/tries": 3.0}) == wanted


def test_every_method_relates_to_what_it_is_made_of() -> None:
    config = SimpleNamespace(batch_size=8, critic_updates_per_step=2, shifts=(0.0,))
    count = lambda algo: flops.method_flops(algo, 17, 6, (32, 32), config, {})  # noqa: E731
    assert count("sac") == 2 * flops.algorithm_flops("sac", 17, 6, (32, 32), 8)
    assert count("rrs") == flops.algorithm_flops("td3", 17, 6, (32, 32), 8)  # of one shift
    assert count("bee-rrs") == flops.algorithm_flops("bee-td3", 17, 6, (32, 32), 8)
    assert count("maxq") - flops.algorithm_flops("sac", 17, 6, (32, 32), 8) == 2 * flops.Mlp((23, 32, 32, 1)).forward(8)
    with pytest.raises(ValueError, match="no operation count for 'pets'"):
        count("pets")
