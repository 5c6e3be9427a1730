"""Matrices of runs: planned, claimed, executed on local cores or a Ray cluster, watched."""
