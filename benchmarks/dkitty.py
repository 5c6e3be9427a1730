"""What the grounds of the D'Kitty cost: control steps per second on one core, beside gym/Ant-v5 in the same run.

    python benchmarks/dkitty.py [--seconds S] [--quick]

All tasks take turns of a few steps each, with small actions around the crouch from a fresh episode; resets are outside the
clock. Compared are the means of the fastest quarters in processor time, which a busy machine disturbs least. Steps per second
depend on the machine; each ground's share of the flat one's is compared with that of a reference implementation (1250
steps/s on the flat), of which at least 0.8 must be reached.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from beeline import envs
from beeline.envs.dkitty import robot

ANT, FLAT = "gym/Ant-v5", "dkitty/walk-random"
REFERENCE = {  # control steps per second
    FLAT: 1250,
    "dkitty/walk-randomdynamics": 580,
    "dkitty/walk-smooth-road": 1070,
    "dkitty/walk-rough-stone-road": 360,
    "dkitty/walk-uphill-stone-road": 280,
    "dkitty/walk-grassland": 230,
}
TURN = 20  # control steps of one before it is the next one's turn
NEEDED = 0.8


class Player:
    """One task, its actions, and the seconds of its turns."""

    def __init__(self, env_id: str) -> None:
        self.env = envs.make(env_id)
        draw = np.random.default_rng(0)
        middle = robot.action_for(robot.CROUCH) if env_id.startswith("dkitty/") else np.zeros(self.env.facts.action_dim)
        self.actions = [middle + draw.uniform(-0.2, 0.2, middle.shape) for _ in range(TURN)]
        self.times: list[float] = []

    def turn(self, number: int) -> None:
        """Play from a fresh episode; one that ended is begun again, outside the clock."""
        self.env.reset(seed=number)
        spent = 0.0
        for action in self.actions:
            started = time.process_time()
            *_, terminated, truncated, _ = self.env.step(action)
            spent += time.process_time() - started
            if terminated or truncated:
                self.env.reset(seed=number)
        self.times.append(spent / TURN)

    def speed(self) -> float:
        """Steps per second in the fastest quarter of the turns."""
        return 1 / float(np.sort(self.times)[: max(1, len(self.times) // 4)].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all tasks together [60]")
    parser.add_argument("--quick", action="store_true", help="one turn of each task: that it runs, with figures that say nothing")
    given = parser.parse_args()
    players = {env_id: Player(env_id) for env_id in (ANT, *REFERENCE)}
    end, number = time.perf_counter() + (0.0 if given.quick else given.seconds), 0
    while time.perf_counter() < end or not number:
        for player in players.values():
            player.turn(number)
        number += 1
    speeds = {env_id: player.speed() for env_id, player in players.items()}
    print(f"{number} turns of {TURN} steps each; {ANT}: {speeds[ANT]:,.0f} steps/s\n")
    print(f"{'ground':32} {'steps/s':>8} {'over Ant':>9} {'of flat':>8} {'reference':>10} {'reached':>8}")
    worst = np.inf
    for env_id, reference in REFERENCE.items():
        share, wanted = speeds[env_id] / speeds[FLAT], reference / REFERENCE[FLAT]
        worst = min(worst, share / wanted)
        speed, over = speeds[env_id], speeds[env_id] / speeds[ANT]
        print(f"{env_id:32} {speed:8.0f} {over:9.3f} {share:8.3f} {wanted:10.3f} {share / wanted:8.2f}")
    print(f"\nworst {worst:.2f} of the reference's share, needed {NEEDED}")
    raise SystemExit(bool(worst < NEEDED and not given.quick))


if __name__ == "__main__":
    main()
