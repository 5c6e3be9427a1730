"""How long every registered method learns from one environment step, relative to SAC, beside the products that it needs.

Called by `throughput.py --methods`. All methods have networks of one size and one thread, off-policy ones batches of that size
too; each has its own agent on made-up data, and round by round each is given a while, in an order that turns round. An on-policy
update is shared by the steps of its rollout. `time` and `products` are multiples of SAC's; their ratio above 1.2 is slower
than the products explain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from flops import method_flops
from throughput_table import ACT_DIM, OBS_DIM

LIMIT = 1.2  # how much slower than its products a method may be


class Subject:
    """One method's agent, its state, and a batch that it learns from again and again."""

    def __init__(self, algo: str, size: int) -> None:
        from beeline import agents
        from beeline.agents.base import Spaces, Task
        from beeline.collect import Transition
        from beeline.memory import Clock, Replay

        entry = agents.get(algo)
        wished = {"network": "mlp", "hidden": (size, size), "policy_hidden": (size, size), "random_steps": 0, "learn_after": 0}
        own = {name: value for name, value in wished.items() if name in entry.config.names()}
        if entry.group != "on-policy":
            own["batch_size"] = size
        config = agents.make_config(algo, "gym/Walker2d-v5", "light", own)
        spaces = Spaces(OBS_DIM, (-1.0,) * ACT_DIM, (1.0,) * ACT_DIM)
        self.algo, self.config, self.agent = algo, config, entry.build(config, Task(spaces, limit=1_000))
        self.steps_per_update = getattr(config, "rollout", 1.0 / getattr(config, "critic_updates_per_step", 1))
        draw, agent = np.random.default_rng(0), self.agent
        rows = int(getattr(config, "rollout", size + 2))
        replay = Replay(4 * rows + 8, OBS_DIM, ACT_DIM, 1, agent.memories["replay"].columns)
        memories, state, obs = {"replay": replay}, agent.init(0), draw.standard_normal((1, OBS_DIM), np.float32)
        replay.start(0, obs[0])
        carry, clock = agent.begin(1), Clock(0)
        state = agent.notice(state, memories, (), obs, clock)
        for number in range(rows):
            action, extras, carry = agent.act(agent.policy(state), carry, obs, np.array([number == 0]), clock, "collect")
            reward, after = float(draw.normal()), draw.standard_normal((1, OBS_DIM), np.float32)
            replay.add(0, np.asarray(action)[0], reward, after[0], False, False, {k: np.asarray(v)[0] for k, v in extras.items()})
            clock = clock._replace(step=number + 1, decisions=number + 1)
            step = Transition(0, obs[0], np.asarray(action)[0], reward, after[0], False, False, {})
            state, obs = agent.notice(state, memories, [step], after, clock), after
        data = agent.draw(state, memories, clock)
        assert data is not None, f"{algo} has nothing to learn from after {rows} steps"
        self.state, self.data, self.metrics = state, data, {}
        self.rates: list[float] = []
        for _ in range(2 * getattr(config, "policy_interval", 1)):  # every phase of the delays is compiled here
            self.learn()
        self.wait()

    def learn(self) -> None:
        """One call of `update`."""
        self.state, self.metrics = self.agent.update(self.state, self.data)
        self.data = self.data._replace(first=self.data.first + self.data.updates)

    def wait(self) -> None:
        """Until it is done."""
        import jax

        jax.block_until_ready(self.state)

    def measure(self, seconds: float) -> None:
        """Note environment steps learnt from per second."""
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < seconds or not calls:
            for _ in range(2):
                self.learn()
            self.wait()
            calls += 2
        self.rates.append(calls * self.data.updates * self.steps_per_update / (time.perf_counter() - began))

    def products(self) -> float | None:
        """Useful operations for each environment step; None where nobody has counted them."""
        size = self.config.hidden
        seen = {name: float(value) for name, value in self.metrics.items()}
        try:
            return method_flops(self.algo, OBS_DIM, ACT_DIM, size, self.config, seen)
        except ValueError:
            return None


def measure(size: int, rounds: int, seconds: float, algos: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A row for every method: steps learnt from per second, time and products relative to SAC, and whether they fit."""
    from beeline.agents import OWN

    names = ["sac", *(name for name in (algos or OWN) if name != "sac")]
    subjects = []
    for name in names:
        subjects.append(Subject(name, size))
        print(f"{name} is ready", flush=True)
    for number in range(rounds):
        for each in subjects[:: -1 if number % 2 else 1]:
            each.measure(seconds)
        print(f"round {number + 1} of {rounds}", flush=True)
    sac = subjects[0]
    base = sac.products()
    assert base is not None
    rows = []
    for each in subjects:
        ratios = np.array(sac.rates) / np.array(each.rates)
        counted = each.products()
        row: dict[str, Any] = {"algo": each.algo, "size": size, "per_s": float(np.median(each.rates)), "rounds": rounds}
        row |= {"time": float(np.median(ratios)), "products": None if counted is None else counted / base}
        row["excess"] = None if counted is None else row["time"] / row["products"]
        rows.append(row | {"holds": None if counted is None else bool(row["excess"] <= LIMIT)})
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table as it is printed."""
    lines = [f"{'method':14} {'steps/s':>9} {'time':>7} {'products':>9} {'time/products':>14}"]
    for row in rows:
        counted = "–" if row["products"] is None else f"{row['products']:.2f}"
        excess = "–" if row["excess"] is None else f"{row['excess']:.2f}" + ("" if row["holds"] else "  SLOWER")
        lines.append(f"{row['algo']:14} {row['per_s']:9.1f} {row['time']:7.2f} {counted:>9} {excess:>14}")
    return "\n".join(lines)
