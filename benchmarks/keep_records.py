"""Keep what the finished runs of a matrix recorded, without checkpoints and replay: enough for reports, tables and figures.

    python benchmarks/keep_records.py runs/bac-against-sac benchmarks/records/bac-against-sac

The plan that is kept is that of the finished runs, so a matrix that lacks some goes on with them elsewhere:
`cp -r benchmarks/records/bac-against-sac runs/` and
`beeline bench benchmarks/bac_against_sac.toml --out runs/bac-against-sac`.

With `--so-far` runs that have begun are kept too, as far as they are: for curves, not to go on with, which needs checkpoints.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch

KEPT = ("config.json", "status.json", "metrics.csv")  # the table last: of a run that goes on it may only be longer


def keep(matrix: Path, records: Path, *, so_far: bool = False) -> tuple[int, int]:
    """Copy what all finished runs, or all that have begun, recorded; how many these are, and how many runs the matrix has."""
    runs = bench_plan.recorded(matrix)
    begun = [run for run in runs if so_far and all((matrix / run.folder / name).exists() for name in KEPT)]
    kept = [run for run in runs if run in begun or bench_watch.look(matrix, run).state == "finished"]
    if kept:
        records.mkdir(parents=True, exist_ok=True)
        bench_plan.record(records, kept)
    for run in kept:
        (records / run.folder).mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copy(matrix / run.folder / name, records / run.folder / name)
    return len(kept), len(runs)


def main() -> None:
    """Copy, and say how much there was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=Path, help="the folder of a matrix")
    parser.add_argument("records", type=Path, help="where its records are kept")
    parser.add_argument("--so-far", action="store_true", help="also runs that are not finished, as far as they are")
    given = parser.parse_args()
    kept, planned = keep(given.matrix, given.records, so_far=given.so_far)
    if not planned:
        parser.error(f"{given.matrix} holds no matrix.")
    print(f"kept the records of {kept} of {planned} runs in {given.records}")


if __name__ == "__main__":
    main()
