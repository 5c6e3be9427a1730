"""Presets are functions of a task's id, beside each method; here is what several of them ask.

A preset is a set of options that a method starts from; options given by the user come after it. It may set options of the run
as well. Numbers of steps are absolute, never a share of the budget, so that a run can be extended.
"""

from __future__ import annotations


def paper_preset(env_id: str) -> str:
    """The preset of the paper's tables for a task, and its column there."""
    return f"paper ({suite_column(env_id)})"


def suite_column(env_id: str) -> str:
    """Which column of the paper's tables a task belongs to."""
    suite, _, task = env_id.partition("/")
    if suite == "dmc":
        return "dmc-dog" if task.startswith("dog") else "dmc"
    return suite if suite == "metaworld" else "gym"
