"""`python -m beeline`: the command line without its script."""

import sys

from beeline.cli import main

sys.exit(main())
