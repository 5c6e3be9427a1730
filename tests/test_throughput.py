"""What the throughput benchmark makes of its samples, against numbers worked out by hand; nothing is timed here."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import throughput_table

        yield throughput_table
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def link(tables: ModuleType) -> ModuleType:
    import throughput_link

    return throughput_link


def _samples(tables: ModuleType, size: int = 256) -> list[Any]:
    def ours(algo: str, threads: int, steps: list[float], updates: list[float]) -> Any:
        return tables.Samples("beeline", algo, size, threads, steps, updates, [10_000.0] * len(steps))

    return [
        ours("sac", 1, [80.0, 90.0], [100.0, 110.0]),
        ours("sac", 2, [150.0, 160.0], [180.0, 200.0]),
        ours("bac", 2, [120.0, 117.0], [140.0, 145.0]),
        ours("td3", 2, [200.0, 190.0], [250.0, 240.0]),
        tables.Samples("sb3", "sac", size, 1, [50.0, 64.0]),
        tables.Samples("sb3", "sac", size, 2, [60.0, 63.0]),
        tables.Samples("sbx", "sac", size, 2, [100.0, 91.0]),
        tables.Samples("sbx", "td3", size, 2, [100.0, 125.0]),
    ]


def _value(tables: ModuleType, made: list[Any], name: str) -> Any:
    [found] = [check for check in made if name in check.name]
    return found


def test_a_row_is_the_best_round_of_the_best_thread_count(tables: ModuleType) -> None:
    rows = tables.rows(_samples(tables), {256: 150.0}, {"sb3": {"cpu": "x", "versions": {"torch": "1"}}})
    sac, *_, peer, _, _ = rows
    assert (sac["subject"], sac["algo"], sac["hidden"], sac["batch"]) == ("beeline", "sac", 256, 256)
    assert (sac["threads"], sac["steps_per_s"]) == (2, 160.0)
    assert sac["steps_per_s_by_threads"] == {"1": 90.0, "2": 160.0}
    assert (peer["subject"], peer["threads"], peer["steps_per_s"]) == ("sb3", 1, 64.0)
    assert (peer["cpu"], peer["versions"]) == ("x", {"torch": "1"})
    assert "update_gflops" not in peer


def test_the_share_of_the_roof_counts_useful_operations(tables: ModuleType) -> None:
    sac = tables.rows(_samples(tables), {256: 150.0}, {})[0]
    # 200 updates of 0.577 GFLOP each.
    assert sac["update_gflops"] == pytest.approx(200 * 0.577, rel=1e-3)
    assert sac["roof_gflops"] == 150.0
    assert sac["roof_share"] == pytest.approx(200 * 0.577 / 150, rel=1e-3)


def test_overhead_is_the_median_of_rounds_in_which_parts_and_whole_were_taken_together(tables: ModuleType) -> None:
    # Whole 10 ms; update 8, 7 and 2 ms; env.step 1 ms: 1, 2 and 7 ms are left.
    samples = tables.Samples("beeline", "sac", 256, 2, [100.0] * 3, [125.0, 1000 / 7, 500.0], [1000.0] * 3)
    assert samples.overhead() == pytest.approx(0.2)
    assert tables.Samples("sb3", "sac", 256, 2, [100.0]).overhead() is None


def test_ratios_are_between_best_rates_and_know_their_bounds(tables: ModuleType) -> None:
    made = tables.checks(tables.rows(_samples(tables), {256: 150.0}, {}))
    sbx = _value(tables, made, "our SAC / SBX SAC")
    assert (sbx.value, sbx.bound, sbx.aim, sbx.size, sbx.holds) == (pytest.approx(1.6), 1.6, 1.8, 256, True)
    bac = _value(tables, made, "our BAC / SBX SAC")
    assert (bac.value, bac.bound, bac.holds) == (pytest.approx(1.2), 1.3, False)
    sb3 = _value(tables, made, "our SAC / SB3 SAC")
    assert (sb3.value, sb3.bound, sb3.holds) == (pytest.approx(2.5), 2.3, True)
    td3 = _value(tables, made, "our TD3 / SBX TD3")
    assert (td3.value, td3.bound, td3.holds) == (pytest.approx(1.6), 1.5, True)
    times = _value(tables, made, "BAC update time / SAC update time")
    assert (times.value, times.sense, times.bound, times.holds) == (pytest.approx(200 / 145), "<=", 1.42, True)
    assert _value(tables, made, "SAC update FLOP/s").bound == 0.65
    assert _value(tables, made, "SAC overhead").bound == 0.08


def test_the_larger_size_has_bounds_of_its_own_and_none_on_overhead(tables: ModuleType) -> None:
    made = tables.checks(tables.rows(_samples(tables, 512), {512: 150.0}, {}))
    bounds = {check.name.split(",")[0]: check.bound for check in made}
    assert bounds["our SAC / SBX SAC"] == 1.2
    assert bounds["our BAC / SBX SAC"] == 0.85
    assert bounds["our SAC / SB3 SAC"] == 1.8
    assert bounds["our TD3 / SBX TD3"] == 1.1
    assert bounds["SAC update FLOP/s / OpenBLAS roof"] == 0.80
    overhead = _value(tables, made, "SAC overhead")
    assert overhead.bound is None and overhead.holds is None


def test_tables_show_every_row_and_say_what_fails(tables: ModuleType) -> None:
    rows = tables.rows(_samples(tables), {256: 150.0}, {})
    lines = tables.table_text(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[2].split()[:6] == ["beeline", "sac", "256", "256", "160.0", "2"]
    checks = tables.checks(rows)
    text = tables.checks_text(checks).splitlines()
    assert len(text) == 2 + len(checks)
    [bac] = [line for line in text if line.startswith("our BAC / SBX SAC")]
    assert bac.split()[-6:] == ["256", "1.2", ">=", "1.3", "1.5", "FAILS"]


def test_rows_and_checks_are_plain_json(tables: ModuleType) -> None:
    rows = tables.rows(_samples(tables), {256: 150.0}, {})
    assert json.loads(json.dumps(rows)) == rows
    check = tables.Check("a", 2.0, "<=", 1.0, unit="s")
    assert json.loads(json.dumps(check.to_json())) == {
        "name": "a", "value": 2.0, "sense": "<=", "bound": 1.0, "aim": None, "unit": "s", "size": None, "holds": False,
    }  # fmt: skip


class _FakeParent:
    """A parent that asks as written and keeps what it is told."""

    def __init__(self, link: ModuleType, requests: list[dict[str, Any]]) -> None:
        self.told: list[dict[str, Any]] = []
        self._link, self._text = link, io.StringIO("".join(json.dumps(request) + "\n" for request in requests))

    def answer(self, content: dict[str, Any]) -> None:
        self.told.append(content)

    def serve(self, answers: Any, until: str | None = None) -> Any:
        stdin, sys.stdin = sys.stdin, self._text
        try:
            return self._link.Parent.serve(self, answers, until)
        finally:
            sys.stdin = stdin


def test_a_paced_run_counts_the_steps_between_requests_only(link: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(link.time, "perf_counter", lambda: now)
    parent = _FakeParent(link, [{"do": "train", "seconds": 2}, {"do": "env"}, {"do": "train", "seconds": 1}])
    finished = []
    pacer = link.Pacer(parent, lambda: finished.append(now), {"env": lambda request: {"asked": request["do"]}})
    assert pacer.ready(100, {"versions": {}})
    going, step = True, 100
    while going:  # four steps a second
        now, step = now + 0.25, step + 1
        going = pacer.tick(step)
    assert parent.told == [{"versions": {}}, {"per_s": 4.0, "steps": 8}, {"asked": "env"}, {"per_s": 4.0, "steps": 4}]
    assert finished == [0.0, 2.0, 3.0]
