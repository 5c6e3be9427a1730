"""Every environment behind one interface: flat float32 observations, actions in [-1, 1], seeded episodes."""

from beeline.envs.check import Finding, check, quick
from beeline.envs.registry import make, spec_of, with_arguments
from beeline.envs.sheet import contact_sheet
from beeline.envs.spec import EnvSpec

__all__ = ["EnvSpec", "Finding", "check", "contact_sheet", "make", "quick", "spec_of", "with_arguments"]
