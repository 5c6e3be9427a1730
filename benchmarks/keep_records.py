"""Keep what the finished runs of a matrix recorded, without checkpoints and replay: enough for reports, tables and figures.

    python benchmarks/keep_records.py runs/bac-against-sac benchmarks/records/bac-against-sac

The plan that is kept is that of the finished runs, so a matrix that lacks some goes on with them elsewhere:
`cp -r benchmarks/records/bac-against-sac runs/` and
`beeline bench benchmarks/bac_against_sac.toml --out runs/bac-against-sac`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from beeline.bench import plan as bench_plan
from beeline.bench import watch as bench_watch

KEPT = ("config.json", "metrics.csv", "status.json")


def keep(matrix: Path, records: Path) -> tuple[int, int]:
    """Copy what all finished runs recorded; how many these are, and how many runs the matrix has."""
    runs = bench_plan.recorded(matrix)
    finished = [run for run in runs if bench_watch.look(matrix, run).state == "finished"]
    if finished:
        records.mkdir(parents=True, exist_ok=True)
        bench_plan.record(records, finished)
    for run in finished:
        (records / run.folder).mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copy(matrix / run.folder / name, records / run.folder / name)
    return len(finished), len(runs)


def main() -> None:
    """Copy, and say how much there was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrix", type=Path, help="the folder of a matrix")
    parser.add_argument("records", type=Path, help="where its records are kept")
    given = parser.parse_args()
    finished, planned = keep(given.matrix, given.records)
    if not planned:
        parser.error(f"{given.matrix} holds no matrix.")
    print(f"kept the records of {finished} of {planned} runs in {given.records}")


if __name__ == "__main__":
    main()
