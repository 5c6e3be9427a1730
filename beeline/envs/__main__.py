"""`python -m beeline.envs FILE.png [SUITE]` makes the contact sheet of the paper's tasks, or of all tasks of a suite."""

import sys

from beeline.envs.sheet import contact_sheet, tasks_of

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
sys.exit("\n".join(contact_sheet(sys.argv[1], *map(tasks_of, sys.argv[2:]))) or 0)
