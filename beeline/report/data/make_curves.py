"""Turn curves.parquet into curves.npz:  python -m beeline.report.data.make_curves curves.parquet

No value is changed. A curve is all rows of one (source, algorithm, suite, task, version, metric, action repeat); its
rows lie together, sorted by seed and step. Steps are stored as differences, which compress better.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

KEYS = ["source", "algo", "suite", "task", "version", "metric", "action_repeat"]


def convert(parquet: Path, target: Path) -> int:
    """Write the compressed arrays and the index of curves; return the number of curves."""
    import polars as pl

    table = pl.read_parquet(parquet).with_row_index("row").sort([*KEYS, "seed", "env_step", "row"])
    index = table.group_by(KEYS, maintain_order=True).len("rows")
    offsets = np.concatenate([[0], np.cumsum(index["rows"].to_numpy())])
    curves = [[*row[:-1], int(offset)] for row, offset in zip(index.rows(), offsets)]
    np.savez_compressed(
        target,
        index=np.frombuffer(json.dumps({"keys": [*KEYS, "offset"], "curves": curves}).encode(), np.uint8),
        seed=table["seed"].to_numpy().astype(np.int16),
        step=np.diff(table["env_step"].to_numpy().astype(np.int64), prepend=0).astype(np.int32),
        value=table["value"].to_numpy().astype(np.float32),
    )
    return len(curves)


if __name__ == "__main__":
    print(convert(Path(sys.argv[1]), Path(__file__).with_name("curves.npz")), "curves")
