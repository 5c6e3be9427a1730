"""What a checkpoint says of the run it belongs to, and whether that is the run that wants to go on from it."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import beeline
from beeline.collect import Episode, Lane
from beeline.errors import CheckpointError, ConfigError
from beeline.loop import Progress, Trainer
from beeline.options import FREE
from beeline.run.checkpoint import Checkpoint, CheckpointStore
from beeline.run.plan import Plan

COUNTS = 2**31  # decisions are counted in 32 bits on the device; updates may go round, since their noise is keyed by 32 bits


class Change(typing.NamedTuple):
    """An option that is not as it was when a checkpoint was written."""

    option: str
    before: Any
    now: Any

    def entry(self, step: int) -> dict[str, Any]:
        """How config.json remembers that it was accepted."""
        return {"step": step, "option": self.option, "from": self.before, "to": self.now}


def decisive(plan: Plan) -> dict[str, Any]:
    """Everything of a plan that decides a result, by the names that a user knows."""
    data = plan.to_dict()
    own = {name: data[name] for name in ("algo", "env", "preset", "init_from")}
    loop = {name: value for name, value in data["train"].items() if name not in FREE}
    return own | data["agent"] | loop


def description(plan: Plan) -> dict[str, Any]:
    """What a checkpoint keeps of its plan: what decides a result, the version that computes it, and how far it was to go."""
    return decisive(plan) | {"beeline": beeline.__version__, "steps": plan.train.steps}


def changes(before: Mapping[str, Any], plan: Plan) -> list[Change]:
    """The options that are not as a checkpoint says; one that only another version of Beeline has is not compared."""
    now = decisive(plan)
    return [Change(name, before[name], now[name]) for name in now if name in before and before[name] != now[name]]


def unaccepted(found: Sequence[Change], accepted: Any) -> list[Change]:
    """The changes that nobody has accepted before, as config.json remembers it; an option may have changed several times."""
    entries = [entry for entry in accepted if isinstance(entry, dict)] if isinstance(accepted, list) else []

    def known(change: Change) -> bool:
        own = [entry for entry in entries if entry.get("option") == change.option]
        return bool(own) and own[-1].get("to") == change.now and any(entry.get("from") == change.before for entry in own)

    return [change for change in found if not known(change)]


def settle(
    checkpoint: Checkpoint, plan: Plan, accepted: Any, accept: bool, report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Compare a run's plan with that of its checkpoint; return the changes that are accepted now, as config.json keeps them.

    An option that has changed and that nobody accepted is a CheckpointError with both values.
    """
    before = checkpoint.meta.get("plan")
    if before is None:
        report(f"the checkpoint of step {checkpoint.step} is of a version that did not store the options with it; whether "
               "config.json has changed since is not known.")  # fmt: skip
        return []
    if before.get("beeline") != beeline.__version__:
        report(f"this is Beeline {beeline.__version__}, the checkpoint was made with {before.get('beeline')}: bytes may differ.")
    found = unaccepted(changes(before, plan), accepted)
    if found and not accept:
        raise _refused(found)
    if found:
        report(f"accepted at step {checkpoint.step}: {_told(found)}.")
    return [change.entry(checkpoint.step) for change in found]


def check_before_building(store: CheckpointStore, plan: Plan, accepted: Any, accept: bool) -> None:
    """Refuse a changed plan before anything is built from it: networks of the size that somebody wrote there, for one."""
    before = store.newest_meta().get("plan")
    if isinstance(before, dict) and not accept and (found := unaccepted(changes(before, plan), accepted)):
        raise _refused(found)


def _told(found: Sequence[Change]) -> str:
    return ", ".join(f"{change.option} was {json.dumps(change.before)} and is {json.dumps(change.now)}" for change in found)


def _refused(found: Sequence[Change]) -> CheckpointError:
    return CheckpointError(
        f"config.json has changed since this checkpoint was made: {_told(found)}. Put back what was, or go on with what is by "
        "--accept-config (accept_config=True), which is written into config.json."
    )


def check_length(trainer: Trainer, plan: Plan) -> None:
    """Refuse a run that is longer than its counters count, at its start and not after years."""
    decisions = -(-plan.train.steps // trainer.steps_per_decision)
    if decisions >= COUNTS:
        raise ConfigError(
            f"steps = {plan.train.steps} is too much: {decisions:,} decisions, where a run counts fewer than {COUNTS:,}."
        )


# --- the description's form ---------------------------------------------------------------------------------------------


def check_meta(meta: Mapping[str, Any]) -> None:
    """Raise CheckpointError if the description of a checkpoint is not one that this version writes or wrote.

    Its SHA-256 was right, so this is no damage; but it may be somebody's edit, or another program's.
    """
    try:
        _check(isinstance(meta["identity"], dict), "identity")
        spaces = meta["spaces"]
        _check(_fits(spaces["obs_dim"], int), "spaces")
        _check(all(_fits(x, float) for name in ("action_low", "action_high") for x in (*spaces[name], 0.0)), "spaces")
        _check(len(spaces["action_low"]) == len(spaces["action_high"]) > 0, "spaces")
        _check_fields(Progress, meta["progress"])
        _check(meta["progress"].get("decisions", 0) < COUNTS, "progress")
        collector = meta["collector"]
        _check(_fits(collector["episodes"], int) and len(collector["lanes"]) > 0, "collector")
        for lane in collector["lanes"]:
            _check_fields(Lane, lane)
        for episode in collector["finished"]:
            _check_fields(Episode, episode)
        if "rows" in meta:
            _check(all(_fits(value, float | None) for row in meta["rows"] for value in row.values()), "rows")
        elif "table" in meta:
            _check(_fits(meta["table"]["bytes"], int) and isinstance(meta["table"]["sha256"], str), "table")
        else:
            _check(_fits(meta["metrics_bytes"], int), "metrics_bytes")
        _check(isinstance(meta.get("plan", {}), dict), "plan")
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"its description is not complete ({error!r})") from None


def _check(good: bool, name: str) -> None:
    if not good:
        raise CheckpointError(f"its description is malformed: {name!r} is not as this program writes it")


def _check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Whether values are those of a dataclass, field by field."""
    hints = typing.get_type_hints(kind)
    name = kind.__name__.lower()
    missing = dataclasses.MISSING
    required = {field.name for field in dataclasses.fields(kind) if field.default is missing and field.default_factory is missing}
    _check(required <= values.keys() <= hints.keys(), name)
    for field, value in values.items():
        _check(_fits(value, hints[field]), f"{name}.{field}")


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a JSON value is one of an annotated field of numbers, words, or a list of them."""
    if typing.get_origin(annotation) is list:
        return isinstance(value, list) and all(_fits(each, *typing.get_args(annotation)) for each in value)
    if annotation is str:
        return isinstance(value, str)
    if isinstance(annotation, types.UnionType):
        return any(_fits(value, kind) for kind in typing.get_args(annotation))
    if annotation is types.NoneType:
        return value is None
    if annotation is int:
        return type(value) is int and -1 <= value < 2**62
    return type(value) in ((bool, int, float) if annotation is bool else (int, float))  # some tasks say 1.0 for success
