"""Tables of runs: the rows of `beeline runs`, and one results file that Polars and DuckDB read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beeline.errors import ConfigError, MissingExtraError, UnknownNameError
from beeline.files import write_atomic
from beeline.report.runs import Run, names, read_all
from beeline.run.reading import Note, legible, warn

FIELDS = ["run", "algo", "task", "seed", "preset", "state", "step", "steps", "return", "success", "best", "reason",
          "path"]
CONDITION = re.compile(r"\s*([\w./-]+?)\s*(>=|<=|!=|==?|~|>|<)\s*(.*?)\s*")


def row(run: Run, name: str) -> dict[str, Any]:
    """One run in one row; `return` and `success` are the last evaluation's, `best` the highest evaluated return."""
    returns, success = run.series("eval/return").values, run.series("eval/success").values
    return {
        "run": name,
        "algo": run.algo,
        "task": run.task,
        "seed": run.seed,
        "preset": run.config.get("preset"),
        "state": run.state,
        "step": run.step,
        "steps": run.planned,
        "return": float(returns[-1]) if returns.size else None,
        "success": float(success[-1]) if success.size else None,
        "best": float(returns.max()) if returns.size else None,
        "reason": run.reason,
        "path": str(run.path),
    }


def _field(name: str) -> str:
    if name not in FIELDS:
        raise UnknownNameError("field of a run", name, FIELDS, f"Fields are {', '.join(FIELDS)}.")
    return name


def _holds(item: dict[str, Any], condition: str) -> bool:
    found = CONDITION.fullmatch(condition)
    if not found:
        raise ConfigError(f"cannot read the filter {condition!r}; write algo=bac, task~walker or return>500.")
    value, sign, text = item[_field(found[1])], found[2], found[3]
    if sign == "~":
        return text.lower() in str(value).lower()
    if sign in ("=", "==", "!="):
        same = str(value) == text or (isinstance(value, int | float) and _equal(value, text))
        return same == (sign != "!=")
    if value is None:
        return False
    try:
        left, right = float(value), float(text)
    except ValueError:
        raise ConfigError(f"the filter {condition!r} compares {value!r} with {text!r}: not both are numbers.") from None
    return {">": left > right, "<": left < right, ">=": left >= right, "<=": left <= right}[sign]


def _equal(value: float, text: str) -> bool:
    try:
        return float(value) == float(text)
    except ValueError:
        return False


def _all(root: Path | Sequence[Path], note: Note) -> list[tuple[Run, str]]:
    """The runs at or below `root` with their names."""
    found = read_all([Path(item) for item in ([root] if isinstance(root, str | Path) else root)], note)
    called = names([run.path for run in found])
    return [(run, called[run.path]) for run in found]


def runs_table(
    root: Path | Sequence[Path], filters: Sequence[str] = (), sort: str = "", *, note: Note = warn
) -> list[dict[str, Any]]:
    """Rows of the runs below `root` that meet every filter (`algo=bac`, `task~walker`, `return>500`, `state!=failed`).

    `sort` is a comma-separated list of fields, `-field` from the highest; runs without a value come last. A run that is
    damaged is told to `note`.
    """
    rows = [row(run, name) for run, name in _all(root, note)]
    for condition in filters:
        rows = [item for item in rows if _holds(item, condition)]
    for key in reversed([part.strip() for part in sort.split(",") if part.strip()]):
        name, down = _field(key.lstrip("-+")), key.startswith("-")
        there = [item for item in rows if item[name] is not None]
        there.sort(key=lambda item: item[name], reverse=down)
        rows = there + [item for item in rows if item[name] is None]
    return rows


def results(root: Path | Sequence[Path], *, note: Note = warn) -> list[dict[str, Any]]:
    """One row per run and evaluation: run, algo, task, seed, preset, step, return, return_std, length, success.

    A run that is damaged is told to `note`.
    """
    rows = []
    for run, name in _all(root, note):
        columns = {metric: run.series(f"eval/{metric}") for metric in ("return", "return_std", "length", "success")}
        values = {metric: dict(zip(found.steps, found.values)) for metric, found in columns.items()}
        for step in columns["return"].steps:
            rows.append({
                "run": name, "algo": run.algo, "task": run.task, "seed": run.seed,
                "preset": run.config.get("preset"), "step": int(step),
                **{metric: float(found[step]) if step in found else None for metric, found in values.items()},
            })
    return rows


RESULT_TYPES = {"seed": int, "step": int, "steps": int, "return": float, "return_std": float, "length": float,
                "success": float, "best": float}


def write_table(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Write rows as `.csv` or `.parquet`, replacing an older file in one step."""
    heads = list(rows[0]) if rows else FIELDS
    rows = [{head: legible(value) if isinstance(value, str) else value for head, value in item.items()} for item in rows]
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        data = text.getvalue().encode()
    elif path.suffix == ".parquet":
        try:
            import polars as pl
        except ImportError as error:
            raise MissingExtraError("a Parquet table", "stats", str(error)) from error
        types = {int: pl.Int64, float: pl.Float64}
        schema = {name: types.get(RESULT_TYPES.get(name, str), pl.String) for name in heads}
        buffer = io.BytesIO()
        pl.DataFrame(rows, schema=schema).write_parquet(buffer)
        data = buffer.getvalue()
    else:
        raise ConfigError(f"{path.name}: a table is written as .csv or .parquet.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)
    return path
