"""Every environment behind one interface: flat float32 observations, actions in [-1, 1], seeded episodes."""

from beeline.envs.check import Finding, check
from beeline.envs.registry import make, spec_of
from beeline.envs.sheet import contact_sheet
from beeline.envs.spec import EnvSpec, check_finite

__all__ = ["EnvSpec", "Finding", "check", "check_finite", "contact_sheet", "make", "spec_of"]
