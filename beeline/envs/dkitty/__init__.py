"""The D'Kitty, a quadruped of twelve motors: our model of ROBEL's robot, its tasks, and the paper's terrains.

`robot` and `observation` import numpy alone: a controller of the real robot needs nothing else of this package.
"""
