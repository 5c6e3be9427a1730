"""`beeline envs`: suites, tasks and their sizes, without importing a simulator."""

from __future__ import annotations

import dataclasses

from beeline.envs import ids
from beeline.envs.paper import PAPER_TASKS
from beeline.envs.registry import installed, suite_of
from beeline.envs.tables import SUITES, Suite


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a listing; `columns` gives the heading and the text of each cell in order."""

    columns: dict[str, str]


def catalog() -> dict[str, Suite]:
    """Return every suite with its tasks, (observation, action) sizes, success key, and extra."""
    return dict(SUITES)


def rows(suite: str | None = None, *, paper: bool = False) -> list[Row]:
    """List the suites, the tasks of one suite, or the paper's tasks (of one suite) with their presets."""
    if suite is not None:
        suite_of(suite, suite)  # an unknown suite is an error with the nearest names
    if paper:
        return [_paper_row(task.id, task.benchmark, task.note) for task in PAPER_TASKS if suite in (None, task.suite)]
    if suite is None:
        return [_suite_row(each) for each in SUITES.values()]
    chosen = SUITES[suite]
    shared = {"success": chosen.success_key or "–", "installed": _state(chosen)}
    return [
        Row({"task": f"{suite}/{task}", "observations": str(obs), "actions": str(action), **shared})
        for task, (obs, action) in chosen.tasks.items()
    ]


def _state(suite: Suite) -> str:
    return "yes" if installed(suite) else f"pip install 'beeline-rl[{suite.extra}]'"


def _span(numbers: set[int]) -> str:
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)}–{max(numbers)}"


def _suite_row(suite: Suite) -> Row:
    return Row(
        {
            "suite": suite.name,
            "what": suite.title,
            "tasks": str(len(suite.tasks)),
            "observations": _span({obs for obs, _ in suite.tasks.values()}),
            "actions": _span({action for _, action in suite.tasks.values()}),
            "success": suite.success_key or "–",
            "example": f"{suite.name}/{next(iter(suite.tasks))}",
            "installed": _state(suite),
        }
    )


def _paper_row(env_id: str, benchmark: str, note: str) -> Row:
    from beeline.agents.presets import suite_column

    name, task, _ = ids.split(env_id)
    suite = SUITES[name]
    obs, action = suite.tasks[task]
    return Row(
        {
            "benchmark": benchmark,
            "task": env_id,
            "observations": str(obs),
            "actions": str(action),
            "success": suite.success_key or "–",
            "preset": f"paper ({suite_column(env_id)})",
            "installed": _state(suite),
            "note": note,
        }
    )
