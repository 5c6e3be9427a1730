"""Instruments that show what an operator does to Q: bias, Δ(μ, π), λ, and figures of them (docs/diagnostics.md)."""

from __future__ import annotations

from beeline.diagnostics.delta import Fit, fitted_delta
from beeline.diagnostics.monitor import Diagnoser, Effort

__all__ = ["Diagnoser", "Effort", "Fit", "fitted_delta"]
