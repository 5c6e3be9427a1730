"""The paper's propositions on random finite MDPs, and small MDPs on which they fail without an unstated assumption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeline import tabular
from beeline.tabular import Bools, FiniteMDP, Floats

many = settings(max_examples=150, deadline=None)
few = settings(max_examples=50, deadline=None)


@dataclass(frozen=True)
class Case:
    """An MDP with all that the operator needs, and two arbitrary Q."""

    mdp: FiniteMDP
    lam: float
    support: Bools
    policy: Floats
    omega: Floats
    q: tuple[Floats, Floats]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    states, actions = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    transition = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    transition[rng.random((states, actions)) < 0.2] = 0.0  # some pairs end the episode
    support = rng.random((states, actions)) < 0.4
    support[np.arange(states), rng.integers(actions, size=states)] = True
    policy = rng.dirichlet(np.ones(actions), size=states)
    if draw(st.booleans()):
        policy = np.eye(actions)[rng.integers(actions, size=states)]
    draw_q = lambda: rng.normal(scale=5.0, size=(states, actions))  # noqa: E731
    mdp = FiniteMDP(transition, rng.normal(size=(states, actions)), draw(st.sampled_from([0.0, 0.5, 0.9, 0.97])))
    lam = draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    return Case(mdp, lam, support, policy, rng.normal(size=(states, actions)), (draw_q(), draw_q()))


def above(left: Floats, right: Floats, slack: float = 1e-7) -> bool:
    return bool(np.all(left >= right - slack * (1.0 + np.abs(right))))


def bee(case: Case, q: Floats) -> Floats:
    return tabular.bee(case.mdp, q, case.lam, case.support, case.policy, case.omega)


def deterministic(steps: list[list[int | None]], reward: list[list[float]], discount: float) -> FiniteMDP:
    """Return the MDP in which action a leads from s to `steps[s][a]`, or ends where that is None."""
    transition = np.zeros((len(steps), len(steps[0]), len(steps)))
    for s, row in enumerate(steps):
        for a, target in enumerate(row):
            if target is not None:
                transition[s, a, target] = 1.0
    return FiniteMDP(transition, np.asarray(reward, np.float64), discount)


# --- the operators ----------------------------------------------------------------------------------------------------

PAIR = deterministic([[1, None], [0, 1]], [[1.0, 2.0], [0.0, -1.0]], 0.5)
PAIR_Q = np.array([[4.0, 6.0], [8.0, 2.0]])
PAIR_SUPPORT = np.array([[True, False], [False, True]])
PAIR_POLICY = np.array([[0.5, 0.5], [0.25, 0.75]])
PAIR_OMEGA = np.array([[1.0, 3.0], [2.0, 0.0]])


def test_the_three_operators_by_hand() -> None:
    # buffer's best: 4 in state 0, 2 in state 1; policy's Q − ω: ½·3 + ½·3 = 3 and ¼·6 + ¾·2 = 3
    exploit = tabular.exploit(PAIR, PAIR_Q, PAIR_SUPPORT)
    explore = tabular.explore(PAIR, PAIR_Q, PAIR_POLICY, PAIR_OMEGA)
    np.testing.assert_allclose(exploit, [[2.0, 2.0], [2.0, 0.0]])
    np.testing.assert_allclose(explore, [[2.5, 2.0], [1.5, 0.5]])
    blended = tabular.bee(PAIR, PAIR_Q, 0.2, PAIR_SUPPORT, PAIR_POLICY, PAIR_OMEGA)
    np.testing.assert_allclose(blended, [[2.4, 2.0], [1.6, 0.4]])


def test_an_action_of_probability_zero_costs_nothing_even_at_minus_infinity() -> None:
    policy = np.array([[1.0, 0.0], [0.5, 0.5]])
    value = tabular.explore_value(PAIR_Q, policy, tabular.entropy_term(policy, 2.0))
    np.testing.assert_allclose(value, [4.0, 5.0 + 2.0 * np.log(2.0)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"support": np.array([[True, False], [False, False]])}, "empty"),
        ({"policy": np.array([[0.5, 0.6], [0.5, 0.5]])}, "sum to one"),
        ({"policy": np.ones((1, 2))}, r"\[2, 2\]"),
        ({"support": np.ones((2, 2))}, "boolean"),
    ],
)
def test_impossible_supports_and_policies_are_refused(change: dict[str, Floats], message: str) -> None:
    parts = {"support": PAIR_SUPPORT, "policy": PAIR_POLICY} | change
    with pytest.raises(ValueError, match=message):
        tabular.bee(PAIR, PAIR_Q, 0.5, **parts)


@pytest.mark.parametrize(
    ("transition", "discount"), [(np.ones((1, 2, 2)), 0.9), (np.full((1, 2, 1), 1.1), 0.9), (np.ones((1, 2, 1)), 1.0)]
)
def test_impossible_mdps_are_refused(transition: Floats, discount: float) -> None:
    with pytest.raises(ValueError, match="must"):
        FiniteMDP(transition, np.zeros((1, 2)), discount)


# --- proposition 1: evaluation ----------------------------------------------------------------------------------------


@many
@given(cases())
def test_bee_is_a_gamma_contraction_in_the_maximum_norm(case: Case) -> None:
    first, second = case.q
    distance = np.abs(bee(case, first) - bee(case, second)).max()
    assert distance <= case.mdp.discount * np.abs(first - second).max() + 1e-9


def test_no_rate_below_gamma_would_do() -> None:
    loop = deterministic([[0]], [[0.0]], 0.9)
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    moved = [tabular.bee(loop, q, 0.5, one > 0, one) for q in (one, zero)]
    assert np.abs(moved[0] - moved[1]).max() == pytest.approx(0.9)


@few
@given(cases())
def test_every_start_reaches_the_same_fixed_point_which_the_exact_solution_is(case: Case) -> None:
    ends = [tabular.iterate(lambda q: bee(case, q), start, case.mdp.discount) for start in case.q]
    exact = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, case.omega)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-8)
    np.testing.assert_allclose(exact, ends[0], atol=1e-8)
    np.testing.assert_allclose(bee(case, exact), exact, atol=1e-9)


@few
@given(cases())
def test_the_linear_solve_is_the_fixed_point_of_exploration(case: Case) -> None:
    q = tabular.evaluate_policy(case.mdp, case.policy, case.omega)
    np.testing.assert_allclose(tabular.explore(case.mdp, q, case.policy, case.omega), q, atol=1e-9)


# --- proposition 2: improvement ---------------------------------------------------------------------------------------


def grown(case: Case) -> Bools:
    return case.support | (case.policy > 0.0)


@many
@given(cases())
def test_q_rises_everywhere_when_pi_becomes_greedy_and_mu_grows(case: Case) -> None:
    before = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, case.omega)
    greedy = tabular.greedy(before, case.omega)
    between = tabular.evaluate(case.mdp, case.lam, case.support, greedy, case.omega)
    after = tabular.evaluate(case.mdp, case.lam, grown(case), greedy, case.omega)
    assert above(between, before) and above(after, between)


@many
@given(cases(), st.sampled_from([0.1, 1.0]))
def test_q_rises_everywhere_with_the_soft_greedy_policy_of_the_entropy(case: Case, alpha: float) -> None:
    soft = tabular.entropy_term(case.policy, alpha)
    before = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, soft)
    policy = tabular.soft_greedy(before, alpha)
    after = tabular.evaluate(case.mdp, case.lam, grown(case), policy, tabular.entropy_term(policy, alpha))
    assert above(after, before)


LOOP = deterministic([[0, 0]], [[0.0, 1.0]], 0.9)  # one state; action 1 pays
ONLY_FIRST, BOTH = np.array([[True, False]]), np.array([[True, True]])
FIRST, SECOND = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])


def test_improvement_needs_the_policy_greedy_in_q_minus_omega_not_in_q() -> None:
    omega = np.array([[0.0, 5.0]])
    before = tabular.evaluate(LOOP, 0.5, ONLY_FIRST, FIRST, omega)
    assert tabular.greedy(before).tolist() == SECOND.tolist()
    assert not above(tabular.evaluate(LOOP, 0.5, BOTH, tabular.greedy(before), omega), before)
    assert above(tabular.evaluate(LOOP, 0.5, BOTH, tabular.greedy(before, omega), omega), before)


def test_improvement_needs_an_omega_that_stays_a_fading_bonus_lowers_q() -> None:
    bonus = np.array([[-1.0, -1.0]])
    before = tabular.evaluate(LOOP, 0.5, BOTH, SECOND, bonus)
    after = tabular.evaluate(LOOP, 0.5, BOTH, tabular.greedy(before, bonus), bonus / 2)
    assert np.all(after < before - 1.0)


def test_improvement_needs_a_buffer_that_forgets_nothing() -> None:
    before = tabular.evaluate(LOOP, 0.5, BOTH, SECOND)
    assert np.all(tabular.evaluate(LOOP, 0.5, ONLY_FIRST, SECOND) < before)


# --- proposition 3: iteration -----------------------------------------------------------------------------------------


@many
@given(cases())
def test_iteration_rises_to_the_optimum_of_value_iteration_when_omega_is_zero(case: Case) -> None:
    end = tabular.policy_iteration(case.mdp, case.lam, case.support, case.policy)
    for earlier, later in zip(end.history, end.history[1:]):
        assert above(later, earlier)
    np.testing.assert_allclose(end.q, tabular.optimal(case.mdp), atol=1e-7)
    held = np.sum(end.policy * end.q, axis=1)
    np.testing.assert_allclose(held, end.q.max(axis=1), atol=1e-7)


@many
@given(cases())
def test_no_fixed_point_exceeds_the_optimum_when_omega_is_not_negative(case: Case) -> None:
    q = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, np.abs(case.omega))
    assert above(tabular.optimal(case.mdp), q)


def test_iteration_with_a_penalty_stays_below_the_optimum_and_keeps_a_wrong_policy() -> None:
    end = tabular.policy_iteration(LOOP, 0.5, ONLY_FIRST, FIRST, omega=np.array([[0.0, 2.0]]))
    assert end.policy.tolist() == FIRST.tolist()
    assert np.all(end.q < tabular.optimal(LOOP) - 1.0)


def test_iteration_with_a_bonus_ends_above_the_optimum() -> None:
    end = tabular.policy_iteration(LOOP, 0.5, ONLY_FIRST, FIRST, omega=np.array([[-1.0, -1.0]]))
    np.testing.assert_allclose(end.q, tabular.optimal(LOOP) + 0.9 * 0.5 / (1 - 0.9), rtol=1e-9)


def test_iteration_with_a_buffer_that_never_gains_actions_stays_below_the_optimum() -> None:
    end = tabular.policy_iteration(LOOP, 0.5, ONLY_FIRST, FIRST, grow=False)
    assert end.policy.tolist() == SECOND.tolist()
    np.testing.assert_allclose(end.q, [[0.9 * 5.0, 1.0 + 0.9 * 5.0]])  # half of all steps pay nothing
    assert np.all(end.q < tabular.optimal(LOOP))


# --- the inequality Q_B ≥ Q_explore + λγΔ -----------------------------------------------------------------------------


def test_counterexample_an_average_over_states_bounds_no_single_state() -> None:
    # State 0 ends at once, so nothing the buffer knows about state 1 can raise its value; yet Δ > 0.
    mdp = deterministic([[None, None], [None, None]], [[0.0, 0.0], [0.0, 1.0]], 0.9)
    support, policy = np.array([[True, False], [False, True]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    gap = tabular.delta(mdp, support, policy, np.array([0.5, 0.5]))
    assert gap == pytest.approx(0.5)
    for lam in (0.1, 0.5, 1.0):
        q_bee = tabular.evaluate(mdp, lam, support, policy)
        q_explore = tabular.evaluate_policy(mdp, policy)
        assert np.all(q_bee[0] < q_explore[0] + lam * mdp.discount * gap)


def test_counterexample_even_state_by_state_the_value_of_the_pure_buffer_policy_is_too_much() -> None:
    # 0 → 1 → 2 → reward: π errs in 1 and in 2, the buffer does not. B exploits twice in a row with weight λ² only.
    mdp = deterministic([[1, 1], [None, 2], [None, None]], [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], 0.9)
    support = np.array([[True, False], [False, True], [False, True]])
    policy = np.tile(np.array([1.0, 0.0]), (3, 1))
    q_mu, q_explore = tabular.evaluate(mdp, 1.0, support, policy), tabular.evaluate_policy(mdp, policy)
    gap = tabular.buffer_advantage(q_mu, q_explore, support, policy)
    assert np.all(gap >= 0.0)
    claim = q_explore + 0.5 * 0.9 * (mdp.transition @ gap)
    q_bee = tabular.evaluate(mdp, 0.5, support, policy)
    assert q_bee[0, 0] == pytest.approx(0.5**2 * 0.9**2)
    assert claim[0, 0] == pytest.approx(0.5 * 0.9**2)


@many
@given(cases())
def test_identity_the_gap_is_the_discounted_advantage_of_the_buffer_along_pi(case: Case) -> None:
    q_bee = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, case.omega)
    q_explore = tabular.evaluate_policy(case.mdp, case.policy, case.omega)
    advantage = tabular.buffer_advantage(q_bee, q_explore, case.support, case.policy, case.omega)
    rate = (1.0 - case.lam) * case.mdp.discount
    total = tabular.discounted_visits(case.mdp, case.policy, advantage, rate)
    np.testing.assert_allclose(q_bee - q_explore, case.lam * case.mdp.discount * total, atol=1e-8)


def lower_bound(case: Case) -> tuple[Floats, Floats, Floats]:
    """Return Q_B − Q_explore, the advantage D of the buffer under Q_explore, and the bound by its discounted sum."""
    q_bee = tabular.evaluate(case.mdp, case.lam, case.support, case.policy, case.omega)
    q_explore = tabular.evaluate_policy(case.mdp, case.policy, case.omega)
    advantage = tabular.buffer_advantage(q_explore, q_explore, case.support, case.policy, case.omega)
    best = np.where(case.support, q_explore, -np.inf).argmax(axis=1)
    blended = case.lam * tabular.one_hot(best, q_explore.shape[1]) + (1.0 - case.lam) * case.policy
    total = tabular.discounted_visits(case.mdp, blended, advantage, case.mdp.discount)
    return q_bee - q_explore, advantage, case.lam * case.mdp.discount * total


@many
@given(cases())
def test_the_pointwise_inequality_that_always_holds(case: Case) -> None:
    gap, _, bound = lower_bound(case)
    assert above(gap, bound)


@many
@given(cases())
def test_the_one_step_inequality_holds_where_the_buffer_is_nowhere_worse_than_the_policy(case: Case) -> None:
    everything = np.ones_like(case.support)  # a buffer with all actions beats any policy when ω ≥ 0
    gap, advantage, _ = lower_bound(
        Case(case.mdp, case.lam, everything, case.policy, np.abs(case.omega), case.q)
    )
    assert above(advantage, np.zeros_like(advantage))
    assert above(gap, case.lam * case.mdp.discount * (case.mdp.transition @ advantage))


def test_the_one_step_inequality_fails_where_the_buffer_is_worse_further_on() -> None:
    # 0 → 1 → 2: in state 1 buffer and policy agree, in state 2 only the policy knows the reward.
    mdp = deterministic([[1, 1], [2, 2], [None, None]], [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], 0.9)
    support = np.array([[True, False], [True, False], [False, True]])
    case = Case(mdp, 0.5, support, np.tile(np.array([1.0, 0.0]), (3, 1)), np.zeros((3, 2)), (np.zeros((3, 2)),) * 2)
    gap, advantage, bound = lower_bound(case)
    one_step = 0.5 * 0.9 * (mdp.transition @ advantage)
    assert one_step[0, 0] == 0.0 and gap[0, 0] == pytest.approx(-0.5 * 0.9**2)
    assert above(gap, bound)


def test_delta_by_hand() -> None:
    # In the loop the buffer's action pays 1 for ever, the policy's nothing: 1/(1 − γ) − 0.
    assert tabular.delta(LOOP, np.array([[False, True]]), FIRST, np.ones(1)) == pytest.approx(10.0)
