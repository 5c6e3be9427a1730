"""The study of a search: Optuna's, in a journal of JSON lines that is sealed line by line.

The journal lies in the folder of the search (Optuna's JournalStorage on a file: it stores and reads no pickle). Each line has a
SHA-256 over itself and the one before, so that a line that is not as it was written is seen.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beeline import files
from beeline.bench import space
from beeline.bench.space import Range, TunePlan
from beeline.errors import MissingExtraError, RunFolderError
from beeline.rng import stream

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

JOURNAL = "study.jsonl"
REASON = "reason"  # under which a failed trial says why


def import_optuna() -> Any:
    """Optuna without its log, or the error that says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("a search", "tune", str(error)) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def _digest(entry: Mapping[str, Any], before: str) -> str:
    """The SHA-256 of an entry of the journal and, through that of the one before, of all that stand above it."""
    own = {name: value for name, value in entry.items() if name != files.SEAL}
    return hashlib.sha256(f"{before} {json.dumps(own, sort_keys=True)}".encode()).hexdigest()


def _whole_lines(path: Path) -> str:
    """Cut off what a process that was killed had half written, and refuse what is no journal; the seal of the last entry.

    Entries above the first that has a seal are taken as they are; every seal covers all that stand above it.
    """
    try:
        data = files.read_regular(path)
    except FileNotFoundError:
        return ""
    *lines, rest = data.split(b"\n")
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines if not rest or rest.startswith(b"{") else [*lines, rest], 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise RunFolderError(f"{path} cannot be read: line {number} is no entry of a journal.")
        entries.append(entry)
    last, sealed = "", False
    for number, entry in enumerate(entries, 1):
        last, sealed = _digest(entry, last), sealed or files.SEAL in entry
        if sealed and entry.get(files.SEAL) != last:
            raise RunFolderError(
                f"{path} is not as it was written (the SHA-256 of line {number} is another): put back what was, or search anew "
                "in another folder with --out."
            )
    if rest or path.stat().st_nlink > 1:  # Optuna appends in place: a hard-linked copy becomes a file of its own
        files.write_atomic(path, data.removesuffix(rest))
    return last


def _journal(path: Path, last: str) -> Any:
    """Optuna's journal in a file, whose entries are sealed."""

    class Sealed(import_optuna().storages.journal.JournalFileBackend):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(str(path), lock_obj=_Held())
            self.last = last

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            entries = []
            for log in logs:
                plain = json.loads(json.dumps(log))  # as it will be read
                self.last = _digest(plain, self.last)
                entries.append(plain | {files.SEAL: self.last})
            with files.explained(path):
                super().append_logs(entries)

    return Sealed()


class _Held:
    """In place of Optuna's lock, which would outlive a killed process: the folder's own is held, and ends with the process."""

    def acquire(self) -> bool:
        """It is held."""
        return True

    def release(self) -> None:
        """It stays."""


def open_study(out: Path, plan: TunePlan) -> Study:
    """The study in a folder whose lock this process holds, or a new one."""
    optuna = import_optuna()
    path = out / JOURNAL
    last = _whole_lines(path)
    pruner = optuna.pruners.NopPruner()
    if plan.prune:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=plan.startup)
    try:
        storage = optuna.storages.JournalStorage(_journal(path, last))
        study = optuna.create_study(
            storage=storage, study_name="beeline", direction="maximize", load_if_exists=True, pruner=pruner,
            sampler=sampler(plan, 0, 1),
        )  # fmt: skip
        if [each.name for each in study.directions] != ["MAXIMIZE"]:
            raise ValueError("it does not look for the highest score")
        for trial in study.get_trials(deepcopy=False):
            _check_trial(trial, plan)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, OverflowError, RecursionError) as error:
        raise RunFolderError(f"{path} cannot be read: it is none of this search ({type(error).__name__}: {error}).") from None
    return study


def _check_trial(trial: FrozenTrial, plan: TunePlan) -> None:
    """Whether a trial is one that a search of this plan can have written."""
    if not set(trial.params) <= set(plan.search):
        raise ValueError(f"trial {trial.number} has the options {', '.join(map(str, trial.params))}")
    values = trial.values or []
    if len(values) != (trial.state.name == "COMPLETE") and not (trial.state.name == "PRUNED" and len(values) == 1):
        raise ValueError(f"trial {trial.number} is {trial.state.name} with {len(values)} scores")
    steps, reports = list(trial.intermediate_values), list(trial.intermediate_values.values())
    if not all(isinstance(step, int) and not isinstance(step, bool) for step in steps):
        raise ValueError(f"trial {trial.number} has evaluations at {steps}, which are no steps")
    numbers = [value for value in (*values, *reports) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) + len(reports) or not all(map(math.isfinite, numbers)):
        raise ValueError(f"trial {trial.number} has scores that are no finite numbers")
    if not isinstance(trial.user_attrs.get(REASON, ""), str):
        raise ValueError(f"trial {trial.number} has a reason that is no text")


def sampler(plan: TunePlan, number: int, workers: int) -> Any:
    """Draws one trial. Its seed is the trial's own: a search that was killed draws what it would have drawn."""
    seed = int(stream(plan.seed, "tune", number).integers(2**31))
    return import_optuna().samplers.TPESampler(seed=seed, n_startup_trials=plan.startup, constant_liar=workers > 1)


def distributions(plan: TunePlan) -> dict[str, BaseDistribution]:
    """What Optuna draws from: a range or a choice for every option that is searched."""
    kinds = import_optuna().distributions
    found = {}
    for name, each in plan.space.items():
        if isinstance(each, Range):
            found[name] = (kinds.IntDistribution if each.whole else kinds.FloatDistribution)(each.low, each.high, log=each.log)
        else:
            found[name] = kinds.CategoricalDistribution([space.plain(value) for value in each.values])
    return found
