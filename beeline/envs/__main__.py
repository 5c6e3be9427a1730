"""`python -m beeline.envs FILE.png` makes the contact sheet of the paper's tasks."""

import sys

from beeline.envs.sheet import contact_sheet

if len(sys.argv) != 2:
    sys.exit(__doc__)
sys.exit("\n".join(contact_sheet(sys.argv[1])) or 0)
