"""Rollout lengths, and when models are trained, against steps reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from beeline.dynamics import triggers
from beeline.dynamics.triggers import EventTriggered, Every, Growing, Linear, Look, crossed, hull_volume
from beeline.memory import Clock


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        ((20, 150, 1, 15), {0: 1, 20: 1, 21: 1, 29: 1, 30: 2, 85: 8, 150: 15, 400: 15}),
        ((20, 100, 1, 15), {25: 1, 26: 2, 60: 8, 100: 15}),
        ((20, 100, 1, 25), {23: 1, 24: 2, 60: 13}),
        ((20, 150, 1, 1), {0: 1, 150: 1}),
    ],
)
def test_rollouts_grow_with_the_epochs(rollout, expected) -> None:
    schedule = Linear(0.05, 20, rollout)
    assert {epoch: schedule(epoch).length for epoch in expected} == expected
    assert (schedule(50).ratio, schedule(50).updates) == (0.05, 20)


def test_the_fixed_schedule_of_autombpo() -> None:
    found = {epoch: Growing()(epoch) for epoch in (0, 2, 5, 50, 200)}
    assert [each.updates for each in found.values()] == [10, 18, 20, 20, 20]
    assert [each.length for each in found.values()] == [1, 1, 1, 7, 26]
    assert [each.ratio for each in found.values()] == pytest.approx([0.05, 0.062, 0.08, 0.35, 1.0])
    assert Growing(ant=True)(40) == (0.05, 10, 11)


def look(since: int, trained: int, error=lambda decisions: np.ones(decisions), decision: int = 1) -> Look:
    return Look(Clock(0, 5000 + since, since), since, decision, trained, 400, {}, error)


def test_every_trains_right_after_the_warm_up_and_at_multiples() -> None:
    trigger = Every(Linear(0.05, 20, (20, 150, 1, 15)), 1000, 250)
    due = [since for since in range(1001) if trigger.look({}, look(since, 1))[1].train]
    assert due == [0, 250, 500, 750, 1000]
    assert trigger.look({}, look(250, 1))[1].branches == 100_000 and trigger.look({}, look(251, 1))[1].branches == 0
    assert [since for since in range(0, 1001, 40) if crossed(since, 40, 250)] == [0, 280, 520, 760, 1000]
    assert [trigger.settings({}, since).length for since in (0, 29_999, 30_000)] == [1, 1, 2]


def played(trigger: EventTriggered, volumes: dict[int, float], error: float, until: int, monkeypatch) -> list[int]:
    """The steps at which the model is trained; the hull has the volume of the last named step."""
    now = {"volume": 1.0}
    monkeypatch.setattr(triggers, "hull_volume", lambda obs: now["volume"])
    monkeypatch.setattr(EventTriggered, "sample", lambda self, look: None)
    own, trained, steps = trigger.init(), 0, []
    for since in range(until):
        now["volume"] = volumes.get(since, now["volume"])
        own, due = trigger.look(own, look(since, trained, lambda decisions: np.full(decisions, error)))
        if due.train:
            steps.append(since)
            trained += 1
        assert due.branches == (400 if trained else 0)
    return steps


SCHEDULE = Linear(0.05, 20, (20, 150, 1, 15))


def test_cmlo_trains_at_steps_reckoned_by_hand(monkeypatch) -> None:
    # Equal volumes: F = L̄ = 1 and each event adds log 2 = .693; the sum exceeds 6 · .693 + .1 = 4.26 at the seventh event.
    # First at 250. Events at 260, 280, …: the seventh is at 380, before 250 + 150 = 400, where the eighth comes.
    trigger = EventTriggered(SCHEDULE, 1000, 20, 4.26)
    assert played(trigger, {}, 1.0, 800, monkeypatch) == [250, 400, 560, 720]
    # An error of e − 1 adds 1 an event; above 11 is the twelfth: 260 + 11 · 20 = 480, then 500 … 720, then 740 … 960.
    assert played(EventTriggered(SCHEDULE, 1000, 20, 11.5), {}, np.e - 1, 1000, monkeypatch) == [250, 480, 720, 960]


def test_cmlo_trains_after_500_steps_in_any_case_and_not_only_at_events(monkeypatch) -> None:
    assert played(EventTriggered(SCHEDULE, 1000, 30, 1e9), {}, 1.0, 1300, monkeypatch) == [250, 750, 1250]


def test_cmlo_waits_for_a_second_event_once(monkeypatch) -> None:
    # One event is enough for the sum. The run's first one, at 260, is let pass; from the second on each trains.
    trigger = EventTriggered(SCHEDULE, 1000, 20, 0.5, least=1)
    assert played(trigger, {}, 1.0, 330, monkeypatch) == [250, 280, 300, 320]


def test_cmlo_counts_what_has_grown(monkeypatch) -> None:
    # Of 13 events at error 1 each adds .693; the volume that is a hundredfold at 460 adds log 101 = 4.615 once.
    trigger = EventTriggered(SCHEDULE, 1000, 20, 11.0)
    plain = played(trigger, {}, 1.0, 700, monkeypatch)
    assert plain == [250, 560]  # 16 · .693 = 11.09 at 260 + 15 · 20
    # 10 · .693 + 4.615 = 11.55; from then on the volume is the last one's again, and 16 events come to 780.
    assert played(trigger, {460: 100.0}, 1.0, 770, monkeypatch) == [250, 460]


def test_cmlo_takes_errors_since_the_last_training_alone(monkeypatch) -> None:
    """After each training the mean begins anew: with a large error once, the next stretch does not see it."""
    monkeypatch.setattr(triggers, "hull_volume", lambda obs: 1.0)
    monkeypatch.setattr(EventTriggered, "sample", lambda self, look: None)
    trigger = EventTriggered(SCHEDULE, 1000, 20, 1e9, first=10, least=20, most=100)
    own, asked = trigger.init(), []
    own, due = trigger.look(own, look(10, 0))
    assert due.train and int(own["last"]) == 10

    def error(decisions: int) -> np.ndarray:
        asked.append(decisions)
        return np.full(decisions, 3.0)

    own, _ = trigger.look(own, look(20, 1, error))
    own, _ = trigger.look(own, look(40, 1, error))
    assert asked == [10, 20]  # the transitions since the training, then since the last event
    assert (float(own["error"]), int(own["counted"])) == (90.0, 30)
    own, due = trigger.look(own, look(110, 1, error))
    assert due.train and (float(own["error"]), int(own["counted"]), float(own["sum"])) == (0.0, 0, 0.0)


def test_hull_volumes_by_hand() -> None:
    cube = np.array(np.meshgrid(*[[0.0, 2.0]] * 3)).reshape(3, -1).T
    assert hull_volume(np.repeat(cube, 4, axis=0)) == pytest.approx(8.0)
    turned = np.concatenate([cube, np.zeros((8, 2))], axis=1) @ np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    assert hull_volume(turned) == pytest.approx(8.0)  # three principal axes of five
    assert hull_volume(np.array([[0.0], [3.0], [1.0]])) == 3.0
    assert hull_volume(np.zeros((10, 4))) == 0.0  # flat
