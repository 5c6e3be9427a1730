"""Searches whose runs are written down instead of trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from beeline.bench import study as bench_study
from beeline.bench import tune as bench_tune
from beeline.bench.execute import Ended
from beeline.bench.plan import BenchRun
from beeline.bench.space import TunePlan
from beeline.bench.worker import failure_path


class Written:
    """Executes a run by writing what it would have recorded: one evaluation at each poll."""

    size = 1

    def __init__(self, out: Path, value: Callable[[BenchRun, int], float], evaluations: int = 4, fail: str = "") -> None:
        self.out, self.value, self.evaluations, self.fail = out, value, evaluations, fail
        self.active: dict[str, tuple[BenchRun, int]] = {}
        self.begun: list[str] = []
        self.given_up: list[str] = []

    def free(self) -> bool:
        return not self.active

    def busy(self) -> bool:
        return bool(self.active)

    def submit(self, run: BenchRun) -> None:
        self.active[run.folder] = (run, 0)
        self.begun.append(run.folder)
        (self.out / run.folder).mkdir(parents=True, exist_ok=True)
        (self.out / run.folder / "config.json").write_text("{}")

    def running(self) -> list[BenchRun]:
        return [run for run, _ in self.active.values()]

    def poll(self) -> list[Ended]:
        ended = []
        for folder, (run, done) in list(self.active.items()):
            path = self.out / folder
            rows = [f"{run.steps * n // self.evaluations},{self.value(run, n)}\n" for n in range(1, done + 2)]
            (path / "metrics.csv").write_text("step,eval/return\n" + "".join(rows))
            self.active[folder] = (run, done + 1)
            if self.fail or done + 1 == self.evaluations:
                if self.fail:
                    failure_path(path).write_text(json.dumps({"reason": self.fail}))
                else:
                    (path / "status.json").write_text(json.dumps({"state": "finished", "step": run.steps}))
                ended.append(Ended(self.active.pop(folder)[0]))
        return ended

    def stop(self) -> None:
        self.active = {}

    def give_up(self, runs: Sequence[BenchRun]) -> None:
        for run in runs:
            if self.active.pop(run.folder, None):
                self.given_up.append(run.folder)

    def close(self) -> None: ...


def best_at_half(run: BenchRun, n: int) -> float:
    """What a run of a search over λ records: the best is 0.5."""
    return n * (1 - abs(run.options["lam"] - 0.5)) + run.seed


def search(out: Path, plan: TunePlan, value: Callable[[BenchRun, int], float] = best_at_half, **more: Any) -> tuple[Any, Written]:
    """Search to the end."""
    out.mkdir(exist_ok=True)
    places = Written(out, value, **more)
    study = bench_study.open_study(out, plan)
    bench_tune.Search(out, plan, study, places).work()
    return study, places
