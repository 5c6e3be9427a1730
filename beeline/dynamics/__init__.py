"""Learned models of the world: probabilistic ensembles, their training, and what is imagined with them."""
