"""Fixtures of all tests. What tests import by name is in whole_runs: several folders have a conftest, one name each."""

from whole_runs import _keep_compiled_agents, beeline

__all__ = ["_keep_compiled_agents", "beeline"]
