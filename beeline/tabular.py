"""The operators of `beeline.operators`, exact, on finite MDPs: what the paper's propositions can be checked against.

Arrays are float64. A state-action function is `[S, A]`; `support` is a boolean `[S, A]` that says which actions the
replay buffer holds (μ(a|s) > 0), `policy` is π(a|s) and `omega` is ω(s, a|π), zero where it is not given.
docs/operator.md has the propositions, with the assumptions that they need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SLACK = 1e-9  # rounding allowed in sums of probabilities


@dataclass(frozen=True)
class FiniteMDP:
    """P(s'|s, a) `[S, A, S]`, r(s, a) `[S, A]` and γ in [0, 1); what a row of P lacks to 1 is the chance of ending."""

    transition: Floats
    reward: Floats
    discount: float

    def __post_init__(self) -> None:
        states, actions = self.reward.shape
        if self.transition.shape != (states, actions, states):
            raise ValueError(
                f"transition must be [S, A, S] = {[states, actions, states]}, but is {list(self.transition.shape)}"
            )
        if not 0.0 <= self.discount < 1.0:
            raise ValueError(f"discount must lie in [0, 1), but is {self.discount}")
        if self.transition.min() < 0.0 or self.transition.sum(axis=2).max() > 1.0 + _SLACK:
            raise ValueError("every row of transition must be non-negative and sum to at most 1")

    def check(self, support: Bools | None = None, policy: Floats | None = None) -> None:
        """Raise unless every state has an action in the buffer and a policy that sums to one."""
        if support is not None:
            if support.shape != self.reward.shape or support.dtype != np.bool_:
                raise ValueError(f"support must be boolean {list(self.reward.shape)}")
            if not support.any(axis=1).all():
                raise ValueError("support is empty in some state: the maximum over no action is undefined")
        if policy is not None:
            if policy.shape != self.reward.shape:
                raise ValueError(f"policy must be {list(self.reward.shape)}, but is {list(policy.shape)}")
            if policy.min() < 0.0 or np.abs(policy.sum(axis=1) - 1.0).max() > _SLACK:
                raise ValueError("policy must be non-negative and sum to one in every state")


# --- state values and the three operators -----------------------------------------------------------------------------


def exploit_value(q: Floats, support: Bools) -> Floats:
    """Return `max_{a: μ(a|s) > 0} Q(s, a)`."""
    return np.where(support, q, -np.inf).max(axis=1)


def explore_value(q: Floats, policy: Floats, omega: Floats | None = None) -> Floats:
    """Return `E_π[Q(s, a) − ω(s, a)]`; actions of probability zero count nothing even where ω is infinite (log 0)."""
    term = q if omega is None else q - omega
    return np.sum(policy * np.where(policy > 0.0, term, 0.0), axis=1)


def backup(mdp: FiniteMDP, value: Floats) -> Floats:
    """Return `r(s, a) + γ E_{s'}[v(s')]`."""
    return mdp.reward + mdp.discount * (mdp.transition @ value)


def exploit(mdp: FiniteMDP, q: Floats, support: Bools) -> Floats:
    """Return `T_exploit Q = r + γ E_{s'} max_{a': μ(a'|s') > 0} Q(s', a')` (maximum inside, as in the proofs)."""
    mdp.check(support=support)
    return backup(mdp, exploit_value(q, support))


def explore(mdp: FiniteMDP, q: Floats, policy: Floats, omega: Floats | None = None) -> Floats:
    """Return `T_explore Q = r + γ E_{s'} E_π[Q(s', a') − ω(s', a')]`."""
    mdp.check(policy=policy)
    return backup(mdp, explore_value(q, policy, omega))


def bee(
    mdp: FiniteMDP, q: Floats, lam: float, support: Bools, policy: Floats, omega: Floats | None = None
) -> Floats:
    """Return `B Q = λ T_exploit Q + (1 − λ) T_explore Q`."""
    return lam * exploit(mdp, q, support) + (1.0 - lam) * explore(mdp, q, policy, omega)


# --- evaluation -------------------------------------------------------------------------------------------------------


def iterate(
    operator: Callable[[Floats], Floats], start: Floats, discount: float, tolerance: float = 1e-10
) -> Floats:
    """Apply a γ-contraction until the fixed point is within `tolerance` in the maximum norm (Banach's bound)."""
    q = start
    while True:
        following = operator(q)
        change = float(np.abs(following - q).max())
        q = following
        # below one unit in the last place no further application can come closer
        if discount * change <= (1.0 - discount) * tolerance or change <= np.spacing(np.abs(q).max()):
            return q


def evaluate_policy(mdp: FiniteMDP, policy: Floats, omega: Floats | None = None) -> Floats:
    """Return the fixed point of `T_explore` by one linear solve."""
    mdp.check(policy=policy)
    into = np.einsum("sat,tb->satb", mdp.transition, policy).reshape(mdp.reward.size, -1)
    constant = backup(mdp, explore_value(np.zeros_like(mdp.reward), policy, omega))
    solution = np.linalg.solve(np.eye(mdp.reward.size) - mdp.discount * into, constant.ravel())
    return solution.reshape(mdp.reward.shape)


def evaluate(
    mdp: FiniteMDP, lam: float, support: Bools, policy: Floats, omega: Floats | None = None
) -> Floats:
    """Return the fixed point of the BEE operator, exactly: a linear solve per choice of the buffer's actions (Howard).

    B is the optimality operator of an agent that is free, among the buffer's actions, with probability λ and follows π
    otherwise. Each improvement of that choice raises Q, and there are finitely many.
    """
    mdp.check(support, policy)
    cost = None if omega is None else (1.0 - lam) * explore_value(np.zeros_like(mdp.reward), policy, -omega)[:, None]
    choice = np.where(support, mdp.reward, -np.inf).argmax(axis=1)
    while True:
        blended = lam * one_hot(choice, mdp.reward.shape[1]) + (1.0 - lam) * policy
        q = evaluate_policy(mdp, blended, None if cost is None else np.broadcast_to(cost, mdp.reward.shape))
        chosen = np.take_along_axis(q, choice[:, None], axis=1)[:, 0]
        better = exploit_value(q, support) > chosen + 1e-12 * (1.0 + np.abs(chosen))
        if not better.any():
            return q
        choice = np.where(better, np.where(support, q, -np.inf).argmax(axis=1), choice)


def optimal(mdp: FiniteMDP, tolerance: float = 1e-10) -> Floats:
    """Return Q* by value iteration."""
    return iterate(lambda q: backup(mdp, q.max(axis=1)), np.zeros_like(mdp.reward), mdp.discount, tolerance)


# --- improvement ------------------------------------------------------------------------------------------------------


def one_hot(choice: NDArray[np.int64], actions: int) -> Floats:
    """Return the deterministic policy that takes `choice[s]`."""
    return np.eye(actions)[choice]


def greedy(q: Floats, omega: Floats | None = None) -> Floats:
    """Return `argmax_π E_π[Q − ω]` for an ω that does not depend on π."""
    return one_hot((q if omega is None else q - omega).argmax(axis=1), q.shape[1])


def soft_greedy(q: Floats, alpha: float) -> Floats:
    """Return `argmax_π E_π[Q − α log π]`, the softmax of Q/α."""
    weight = np.exp((q - q.max(axis=1, keepdims=True)) / alpha)
    return weight / weight.sum(axis=1, keepdims=True)


def entropy_term(policy: Floats, alpha: float) -> Floats:
    """Return `ω = α log π`, minus infinity where π is zero."""
    with np.errstate(divide="ignore"):
        return alpha * np.log(policy)


@dataclass(frozen=True)
class Iteration:
    """The end of a policy iteration, and the Q of every evaluation on the way."""

    q: Floats
    policy: Floats
    support: Bools
    history: list[Floats] = field(repr=False)


def policy_iteration(
    mdp: FiniteMDP,
    lam: float,
    support: Bools,
    policy: Floats,
    omega: Floats | None = None,
    grow: bool = True,
    limit: int = 10_000,
) -> Iteration:
    """Alternate exact evaluation, a greedy π, and a μ that gains the actions of the policies so far (if `grow`).

    ω is a fixed function of (s, a). With ω = 0 and a growing μ the end is Q*; see docs/operator.md for what else holds.
    """
    mdp.check(support, policy)
    history: list[Floats] = []
    for _ in range(limit):
        q = evaluate(mdp, lam, support, policy, omega)
        score = q if omega is None else q - omega
        held = np.sum(policy * score, axis=1)
        improvable = score.max(axis=1) > held + 1e-10 * (1.0 + np.abs(held))
        history.append(q)
        covered = bool((support | (policy <= 0.0)).all()) or not grow
        if not improvable.any() and covered:
            return Iteration(q, policy, support, history)
        if grow:
            support = support | (policy > 0.0)
        policy = np.where(improvable[:, None], greedy(q, omega), policy)
    raise RuntimeError(f"policy iteration did not end within {limit} iterations")


# --- how much better the buffer's actions are than the policy's -------------------------------------------------------


def delta(mdp: FiniteMDP, support: Bools, policy: Floats, states: Floats) -> float:
    """Return the paper's `Δ(μ, π) = E_s[max_{a∼μ} Q^μ(s, a) − E_π Q^π(s, a)]` with `states` the distribution of s.

    Q^μ is the fixed point of T_exploit, Q^π that of T_explore without ω.
    """
    buffer_best = exploit_value(evaluate(mdp, 1.0, support, policy), support)
    return float(states @ (buffer_best - explore_value(evaluate_policy(mdp, policy), policy)))


def buffer_advantage(
    q_buffer: Floats, q_policy: Floats, support: Bools, policy: Floats, omega: Floats | None = None
) -> Floats:
    """Return `max_{a: μ(a|s) > 0} Q_buffer(s, a) − E_π[Q_policy(s, a) − ω(s, a)]` for every state."""
    return exploit_value(q_buffer, support) - explore_value(q_policy, policy, omega)


def discounted_visits(mdp: FiniteMDP, policy: Floats, value: Floats, rate: float) -> Floats:
    """Return `Σ_t rate^t E[value(s_{t+1})]` from every (s, a) with π followed from s_1 on."""
    steps = np.einsum("sat,sa->st", mdp.transition, policy)
    total = np.linalg.solve(np.eye(len(value)) - rate * steps, value)
    return mdp.transition @ total
