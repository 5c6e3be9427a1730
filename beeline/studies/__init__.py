"""The paper's studies: each module has a `run` that makes a table and a figure in the folder it is given."""
