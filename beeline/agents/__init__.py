"""Algorithms. The registry costs nothing to import; everything else is imported where it is used."""

from beeline.agents.registry import ALGORITHMS, GROUPS, OWN, Entry, bee, get, make_config, owners

__all__ = ["ALGORITHMS", "GROUPS", "OWN", "Entry", "bee", "get", "make_config", "owners"]
