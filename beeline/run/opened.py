"""A run folder as a value: what was trained, how it stands, its rows for any table, and its policies. JAX is not needed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline.errors import BeelineError, MissingExtraError
from beeline.run import reading
from beeline.run.folder import RunFolder
from beeline.run.record import read_metrics

if TYPE_CHECKING:
    from beeline.run.policy import Policy
    from beeline.run.reading import Status

COUNTS = ("step", "updates")  # the columns that hold whole numbers
POLICIES = {"latest": "policy.npz", "best": "policy-best.npz"}


@dataclasses.dataclass
class Run:
    """A run folder with its results; all is read when it is asked for, so that a run that goes on shows what it has now."""

    path: Path

    def __repr__(self) -> str:
        about = str(self.path)
        with contextlib.suppress(BeelineError, OSError, KeyError):  # a folder may be gone or damaged, and still has a name
            config, status = self.config, self.status
            state = status.state if status.step is None else f"{status.state} at step {status.step:,}"
            about += f": {config['algo']} on {config['env']}, seed {config['seed']}, {state}"
            score = self.final_return
            about += "" if score is None else f", return {score:,.1f}"
        return f"Run({' '.join(reading.legible(about).split())})"

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return RunFolder.open(self.path).config()

    @property
    def status(self) -> Status:
        """`state` (running, finished, stopped, failed or unknown), `step` and `reason`, as the run has left them."""
        found, rows = reading.status(self.path, lambda text: None), self.rows
        return found._replace(step=reading.reached(found, int(rows[-1]["step"]))) if rows else found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the metrics table that are there, one dict each; None where a cell is empty."""
        try:
            return read_metrics(self.path / "metrics.csv")
        except FileNotFoundError:  # it has not begun
            return []

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The same as `rows`."""
        return self.rows

    def frame(self) -> Any:
        """The rows as a Polars data frame, null where a cell is empty."""
        try:
            import polars as pl
        except ImportError as error:
            raise MissingExtraError("a Polars data frame", "stats", str(error)) from error
        rows = self.rows
        names = list(rows[0]) if rows else []
        found = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Float64))
        return found.with_columns(pl.col(name).cast(pl.Int64) for name in COUNTS if name in names)

    def pandas(self) -> Any:
        """The rows as a pandas data frame, NaN where a cell is empty."""
        try:
            import pandas as pd
        except ImportError as error:
            raise BeelineError(f"a pandas data frame needs pandas ({error}). Run: pip install pandas") from error
        rows = self.rows
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        counted = {name: [int(value) for value in values] if name in COUNTS else values for name, values in columns.items()}
        return pd.DataFrame(counted)

    @property
    def policies(self) -> dict[str, Path]:
        """The policy files that are there: "latest" and "best"."""
        return {name: self.path / file for name, file in POLICIES.items() if (self.path / file).is_file()}

    def policy(self, best: bool = False, **objects: Any) -> Policy:
        """The latest policy, or the best evaluated one; objects handed over in Python are given again."""
        from beeline.run.policy import load_policy

        return load_policy(self.path / POLICIES["best" if best else "latest"], within=self.path, **objects)

    @property
    def final_return(self) -> float | None:
        """The last evaluation's mean return."""
        scores = [row["eval/return"] for row in self.rows if row.get("eval/return") is not None]
        return scores[-1] if scores else None


def open(path: str | os.PathLike[str]) -> Run:
    """A run that is finished or goes on, from its folder; it is read and never written."""
    return Run(RunFolder.open(Path(path)).path)
