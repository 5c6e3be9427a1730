"""Presets are functions of a task's id, beside each method; here is what several of them ask.

A preset is a set of options that a method starts from; options given by the user come after it. It may set options of the run
as well. Numbers of steps are absolute, never a share of the budget, so that a run can be extended.
"""

from __future__ import annotations

from beeline.envs.paper import suite_column

__all__ = ["suite_column"]
