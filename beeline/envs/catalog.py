"""`beeline envs`: suites, tasks and their sizes, without importing a simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from beeline.envs import ids
from beeline.envs.paper import PAPER_TASKS, PaperTask
from beeline.envs.registry import installed, suite_of
from beeline.envs.tables import SUITES, Suite
from beeline.errors import install_line


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a listing; `columns` gives the heading and the text of each cell in order."""

    columns: dict[str, str]


def catalog() -> dict[str, Suite]:
    """Return every suite with its tasks, (observation, action) sizes, success key, and extra."""
    return dict(SUITES)


def rows(suite: str | None = None, *, paper: bool = False, preset: Callable[[str], str] | None = None) -> list[Row]:
    """List the suites, the tasks of one suite, or the paper's tasks (of one suite) with the preset that each uses.

    What presets there are is not an environment's to know: `preset` names it by a task's id.
    """
    if suite is not None:
        suite_of(suite, suite)  # an unknown suite is an error with the nearest names
    if paper:
        return [_paper_row(task, preset) for task in PAPER_TASKS if suite in (None, task.suite)]
    if suite is None:
        return [_suite_row(each) for each in SUITES.values()]
    chosen = SUITES[suite]
    shared = {"success": chosen.success_key or "–", "installed": _state(chosen)}
    return [
        Row({"task": f"{suite}/{task}", "observations": str(obs), "actions": str(action), **shared})
        for task, (obs, action) in chosen.tasks.items()
    ]


def _state(suite: Suite) -> str:
    return "yes" if installed(suite) else install_line(suite.extra or "")


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


def _paper_row(task: PaperTask, preset: Callable[[str], str] | None) -> Row:
    name, bare, _ = ids.split(task.id)
    suite = SUITES[name]
    obs, action = suite.tasks[bare]
    return Row(
        {
            "benchmark": task.benchmark,
            "task": task.id,
            "observations": str(obs),
            "actions": str(action),
            "success": suite.success_key or "–",
            **({"preset": preset(task.id)} if preset else {}),
            "installed": _state(suite),
            "note": task.note,
        }
    )
