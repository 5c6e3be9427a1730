"""What the throughput benchmark makes of its samples: rows, ratios with their thresholds, printed tables. No timing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flops import algorithm_flops

OBS_DIM, ACT_DIM = 17, 6  # Walker2d
SIZES = (256, 512)  # hidden units of both layers, and the batch
OURS = ("sac", "bac", "td3", "bee-td3")
PEERS = tuple((subject, algo) for subject in ("sb3", "sbx") for algo in ("sac", "td3"))


@dataclass
class Samples:
    """The rates that one worker reported, one of each per round; the peers have only the first."""

    subject: str
    algo: str
    size: int
    threads: int
    steps: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    env: list[float] = field(default_factory=list)

    def overhead(self) -> float | None:
        """Median over rounds of (whole step − env.step alone − update alone) / whole step."""
        if not self.updates or not self.env:
            return None
        rounds = zip(self.steps, self.updates, self.env)
        return statistics.median(1 - step * (1 / update + 1 / env) for step, update, env in rounds)


@dataclass(frozen=True)
class Check:
    """A figure, and the bound it has to keep where it has one."""

    name: str
    value: float
    sense: str = ""  # ">=" or "<="
    bound: float | None = None
    aim: float | None = None
    unit: str = ""
    size: int | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bound is kept; None where there is none."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.sense == ">=" else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"holds": self.holds}


def gflops(algo: str, size: int, updates_per_s: float) -> float:
    """The useful operations of this many updates, in GFLOP/s."""
    return 1e-9 * algorithm_flops(algo, OBS_DIM, ACT_DIM, (size, size), size) * updates_per_s


def row(group: Sequence[Samples], roof: float, about: dict[str, Any]) -> dict[str, Any]:
    """One system at its best thread count, best of all rounds; `group` has its samples at each thread count."""
    best = max(group, key=lambda samples: max(samples.steps))
    made: dict[str, Any] = {
        "subject": best.subject,
        "algo": best.algo,
        "hidden": best.size,
        "batch": best.size,
        "threads": best.threads,
        "steps_per_s": max(best.steps),
        "steps_per_s_by_threads": {str(samples.threads): max(samples.steps) for samples in group},
        "steps_per_s_rounds": best.steps,
    }
    if best.updates:
        fastest = max(group, key=lambda samples: max(samples.updates))
        rate = max(fastest.updates)
        made |= {
            "updates_per_s": rate,
            "update_threads": fastest.threads,
            "updates_per_s_by_threads": {str(samples.threads): max(samples.updates) for samples in group},
            "update_gflops": gflops(best.algo, best.size, rate),
            "roof_gflops": roof,
            "roof_share": gflops(best.algo, best.size, rate) / roof,
            "env_steps_per_s": max(max(samples.env) for samples in group),
            "overhead": best.overhead(),
        }
    return made | about


def rows(
    samples: Iterable[Samples], roofs: dict[int, float], about: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row per system and size, in order of first occurrence; `about` is what each subject's rows say beside."""
    groups: dict[tuple[str, str, int], list[Samples]] = {}
    for each in samples:
        groups.setdefault((each.subject, each.algo, each.size), []).append(each)
    return [row(group, roofs[size], about.get(subject, {})) for (subject, _, size), group in groups.items()]


def checks(table: Sequence[dict[str, Any]]) -> list[Check]:
    """What must hold between the rows of one run; sizes that were not measured are left out."""
    found = {(each["subject"], each["algo"], each["hidden"]): each for each in table}
    made: list[Check] = []

    def steps(
        ours: str, subject: str, theirs: str, bounds: dict[int, float], aims: dict[int, float] | None = None
    ) -> None:
        for size, bound in bounds.items():
            if ("beeline", ours, size) in found and (subject, theirs, size) in found:
                value = found["beeline", ours, size]["steps_per_s"] / found[subject, theirs, size]["steps_per_s"]
                name = f"our {ours.upper()} / {subject.upper()} {theirs.upper()}, whole training"
                made.append(Check(name, value, ">=", bound, (aims or {}).get(size), size=size))

    steps("sac", "sbx", "sac", {256: 1.6, 512: 1.2}, {256: 1.8})
    steps("bac", "sbx", "sac", {256: 1.3, 512: 0.85}, {256: 1.5})
    steps("sac", "sb3", "sac", {256: 2.3, 512: 1.8}, {256: 2.6})
    steps("td3", "sbx", "td3", {256: 1.5, 512: 1.1})
    shares = {256: (0.65, 0.75), 512: (0.80, None)}
    for size, (bound, aim) in shares.items():
        for algo in ("sac", "bac"):
            if ours := found.get(("beeline", algo, size)):
                name = f"{algo.upper()} update FLOP/s / OpenBLAS roof"
                made.append(Check(name, ours["roof_share"], ">=", bound, aim, size=size))
    for size in SIZES:
        sac, bac = (found.get(("beeline", algo, size)) for algo in ("sac", "bac"))
        if sac and bac:
            value = sac["updates_per_s"] / bac["updates_per_s"]
            made.append(Check("BAC update time / SAC update time", value, "<=", 1.42, size=size))
    for size in SIZES:
        for algo in OURS:
            if ours := found.get(("beeline", algo, size)):
                name = f"{algo.upper()} overhead: (step − env.step − update) / step"
                bound = 0.08 if size == 256 else None
                made.append(Check(name, ours["overhead"], "<=" if bound else "", bound, size=size))
    return made


# --- printing ---------------------------------------------------------------------------------------------------------


def _grid(lines: Sequence[Sequence[str]], left: int) -> str:
    """Columns as wide as they need to be; the first `left` of them flush left."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def text(line: Sequence[str]) -> str:
        pairs = enumerate(zip(line, widths))
        cells = (cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in pairs)
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([text(lines[0]), rule, *map(text, lines[1:])])


def _number(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def table_text(table: Sequence[dict[str, Any]]) -> str:
    """The main table."""
    titles = "subject algo hidden batch steps/s threads updates/s GFLOP/s roof share env.step/s overhead"
    lines = [titles.split()]
    for each in table:
        lines.append(
            [
                each["subject"],
                each["algo"],
                str(each["hidden"]),
                str(each["batch"]),
                f"{each['steps_per_s']:.1f}",
                str(each["threads"]),
                _number(each.get("updates_per_s"), ".1f"),
                _number(each.get("update_gflops"), ".1f"),
                _number(each.get("roof_gflops"), ".1f"),
                _number(each.get("roof_share"), ".2f"),
                _number(each.get("env_steps_per_s"), ".0f"),
                _number(each.get("overhead"), ".1%"),
            ]
        )
    return _grid(lines, left=2)


def checks_text(made: Sequence[Check]) -> str:
    """Every figure with its bound, and whether it holds."""
    lines = [["", "size", "value", "must be", "aim", ""]]
    for each in made:
        bound = "" if each.bound is None else f"{each.sense} {each.bound:g}"
        held = {None: "", True: "holds", False: "FAILS"}[each.holds]
        value = f"{each.value:.3g} {each.unit}".strip()
        lines.append([each.name, _number(each.size, "d"), value, bound, _number(each.aim, "g"), held])
    return _grid(lines, left=1)
