"""Everything that shows runs: report, live page, tables, the matrix and `beeline runs`, as functions of a folder of runs."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outcome import Shown, Tally, Trial, of_call

from beeline import report
from beeline.bench import matrix, watch
from beeline.bench.plan import BenchRun
from beeline.cli.commands import main
from beeline.report import page
from beeline.report.live import Watched
from beeline.run.reading import Damage

WALK = "toys:Walk-v0"
RUNS = [BenchRun("sac", "sac", WALK, seed, 120, "light", {}) for seed in (0, 1)]

def _plain(data: dict[str, Any]) -> str:
    """What a page shows, without the moment at which it was made."""
    kept = {key: value for key, value in data.items() if key not in ("created", "version", "warnings")}
    return json.dumps(kept, sort_keys=True)


def _page(out: Path) -> Shown:
    damaged: list[Damage] = []
    path = report.build([out], out / "report.html", note=damaged.append)
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)
    assert found is not None
    data = json.loads(found[1])
    assert all(any(damage.reason in text for text in data["warnings"]) for damage in damaged)
    return Shown(_plain(data), list(map(str, damaged)))


def _live(out: Path) -> Shown:
    data = Watched(out).data()
    page.render(data).encode()
    return Shown(_plain(data), [text for text in data["warnings"] if "seed1: " in text or "references.json" in text])


def _runs(out: Path) -> Shown:
    said: list[str] = []
    rows = report.runs_table(out, sort="-return,run,preset", note=lambda damage: said.append(str(damage)))
    report.write_table(rows, out / "runs.csv")
    return Shown((out / "runs.csv").read_text(), said)


def _results(out: Path) -> Shown:
    said: list[str] = []
    rows = report.results(out, note=lambda damage: said.append(str(damage)))
    report.write_table(rows, out / "results.parquet")
    return Shown(json.dumps(rows), said)


def _bench(out: Path) -> Shown:
    views = [watch.look(out, run) for run in RUNS]
    watch.table(views, watch.eta(views, 1), 20)
    watch.whole(views, watch.eta(views, 1))
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        matrix.write_results(out, RUNS)
    own = [view.warning for view in views if view.warning]
    return Shown([(view.state, view.step, view.score) for view in views], [*own, *said.getvalue().splitlines()])


def _command(out: Path) -> Shown:
    shown, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        assert main(["runs", str(out)]) == 0
    return Shown(shown.getvalue(), said.getvalue().splitlines())


READERS: dict[str, Callable[[Path], Shown]] = {
    "report": _page, "live": _live, "runs": _runs, "results": _results, "bench": _bench, "beeline runs": _command,
}  # fmt: skip


def trials(out: Path, name: str, sound: dict[str, Shown]) -> list[Trial]:
    """What becomes of a fault in every reader."""
    found = []
    for reader, read in READERS.items():
        found.append(of_call(f"{name} -> {reader}", lambda read=read: read(out), sound[reader].content))  # type: ignore[misc]
    return found


def read_by_all(tally: Tally, out: Path, name: str, sound: dict[str, Shown]) -> None:
    for trial in trials(out, name, sound):
        tally.add(trial)


def sound_content(out: Path) -> dict[str, Shown]:
    found = {reader: read(out) for reader, read in READERS.items()}
    assert all(not shown.warnings for shown in found.values())
    return found


