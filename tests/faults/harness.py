"""Try faults by the hundred and say what came of them: `python tests/faults/harness.py`, which is what `make faults` runs.

Every trial that is done is a line in a journal, so that the same command goes on where it was ended. It prints how many trials
of each kind ended how, and the command that repeats each one that ended badly.

    --kinds kills,mutations   only these kinds        --count 20      that many of each kind (kills: that many signals)
    --only "config 3 of seed 0"   this trial alone    --seed 1        other trials
    --write docs/reliability.md   put the figures onto this page
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "report"), str(HERE.parents[1])]

import whole_runs  # noqa: F401, E402 (before JAX: threads, caches)

os.environ["WANDB_MODE"] = "disabled"

from outcome import BAD, Outcome, Shown, Trial, of_call, patient  # noqa: E402

KINDS = ("kills", "mutations", "crafted", "worlds", "limits", "serving")
COUNTS = {"kills": 100, "mutations": 1500, "crafted": 1660, "worlds": 255, "limits": 60, "serving": 40}
TITLES = {
    "kills": "SIGKILL, SIGTERM, SIGINT at random moments: train, resume, bench, bench on Ray",
    "mutations": "bits, bytes, cuts, holes, values, swaps in every file",
    "crafted": "crafted files and folders",
    "worlds": "misbehaving environments, one lane, three, and in processes",
    "limits": "full disk, read-only, limits, links, second writers",
    "serving": "live server: paths, hosts, methods, markup",
}
STUCK = 900.0  # seconds without a trial after which a worker is taken for hung


def stream(kind: str, seed: int) -> Iterator[Any]:
    """The cases of a kind, in their order."""
    return __import__(kind).cases(seed)


class Done(NamedTuple):
    """A line of the journal."""

    kind: str
    name: str
    outcome: str
    detail: str
    count: int
    commit: str


def commit() -> str:
    """What is being tried: the commit, with a mark where files differ from it."""
    run = {"cwd": HERE, "capture_output": True, "text": True}
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **run).stdout.strip()  # type: ignore[call-overload]
    if not found:
        return "unknown"
    return found + ("+" if subprocess.run(["git", "status", "--porcelain", "-uno"], **run).stdout.strip() else "")  # type: ignore[call-overload]


def journal(path: Path, at: str) -> list[Done]:
    """The trials that are done with this commit; a line that was not written to its end is none."""
    found = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            done = Done(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if done.commit == at:
            found[done.kind, done.name] = done
    return list(found.values())


def enter(path: Path, kind: str, trial: Trial, at: str) -> None:
    """Write a trial down, in one piece."""
    line = Done(kind, trial.name, str(trial.outcome), trial.detail[:600], trial.count, at)._asdict()
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def work(arguments: argparse.Namespace, mine: int) -> None:
    """A worker: its share of all kinds, one trial after the other."""
    from trials import Place
    from whole_runs import compiled_agents_kept

    done = {(each.kind, each.name): each.count for each in journal(arguments.journal, arguments.commit)}
    with tempfile.TemporaryDirectory(prefix="beeline-faults-", ignore_cleanup_errors=True) as folder, compiled_agents_kept():
        place = Place(Path(folder))
        try:
            for kind in arguments.kinds:
                count, share = 0, -(-arguments.counts[kind] // arguments.workers)
                for case in itertools.islice(stream(kind, arguments.seed), mine, None, arguments.workers):
                    if count >= share:
                        break
                    if (kind, case.name) not in done:
                        print(json.dumps([kind, case.name]), flush=True)
                        trial = tried(case, place)
                        enter(arguments.journal, kind, trial, arguments.commit)
                        done[kind, case.name] = trial.count
                    count += max(done[kind, case.name], 1)
        finally:
            place.close()


def tried(case: Any, place: Any) -> Trial:
    """Try a case; an error in the trial itself counts as raw."""
    found: list[Trial] = []

    def act() -> Shown:
        found.append(case.act(place))
        return Shown(None)

    outer = of_call(case.name, act, None, 600.0)
    if found:
        return dataclasses.replace(found[0], name=case.name)
    return dataclasses.replace(outer, outcome=max(outer.outcome, Outcome.RAW, key=list(Outcome).index))


def table(done: list[Done], kinds: tuple[str, ...]) -> str:
    """How many faults of each kind ended how."""
    lines = ["| fault | tried | " + " | ".join(Outcome) + " |", "|---|---|" + "---|" * len(Outcome)]
    for kind in kinds:
        counts: Counter[str] = Counter()
        for each in done:
            if each.kind == kind:
                counts[each.outcome] += each.count
        cells = [TITLES[kind], str(counts.total()), *(str(counts[outcome]) for outcome in Outcome)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


BEGIN, END = "<!-- figures: make faults -->", "<!-- end of figures -->"


def write(page: Path, done: list[Done], arguments: argparse.Namespace) -> None:
    """Put the figures where the page has the marks for them."""
    from beeline import agents

    names = ", ".join(f"`{name}`" for name in agents.ALGORITHMS)
    before, _, rest = page.read_text().partition(BEGIN)
    between, _, after = rest.partition(END)
    if not (between and after):
        raise SystemExit(f"{page} has no {BEGIN} … {END}")
    told = f"At commit {arguments.commit}, with {len(agents.ALGORITHMS)} algorithms: {names}."
    head = textwrap.fill(told, 128, break_on_hyphens=False)
    page.write_text(f"{before}{BEGIN}\n{head}\n\n{table(done, arguments.kinds)}\n{END}{after}")


class Worker:
    """A process that tries its share; begun again after it was lost, which counts against the trial it was at."""

    def __init__(self, words: list[str], mine: int) -> None:
        self.words, self.mine = words, mine
        self.at: tuple[str, str] | None = None
        self.last = time.monotonic()
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen([sys.executable, __file__, *words, "--worker", str(mine)], stdout=self.log, stderr=None)

    def look(self) -> None:
        """Take notice of the trial that it has begun."""
        self.log.seek(0)
        lines = [line for line in self.log.read().splitlines() if line.startswith("[")]
        if lines and (found := tuple(json.loads(lines[-1]))) != self.at:
            self.at, self.last = found, time.monotonic()  # type: ignore[assignment]


def supervise(arguments: argparse.Namespace, words: list[str]) -> None:
    """Run the workers to their end; what ends one of them is the outcome of the trial that it was at."""
    workers = [Worker(words, mine) for mine in range(arguments.workers)]
    try:
        while workers:
            time.sleep(0.5)
            for worker in list(workers):
                worker.look()
                code, stuck = worker.process.poll(), time.monotonic() - worker.last > patient(STUCK)
                if stuck and code is None:
                    worker.process.kill()
                    worker.process.wait()
                if code == 0 and not stuck:
                    workers.remove(worker)
                elif (code is not None or stuck) and worker.at:
                    kind, name = worker.at
                    what = (Outcome.HANG, "the whole process") if stuck else (Outcome.RAW, f"the process ended with {code}")
                    enter(arguments.journal, kind, Trial(name, *what), arguments.commit)
                    workers[workers.index(worker)] = Worker(words, worker.mine)
                elif code is not None:
                    raise SystemExit(f"a worker ended with {code} before its first trial")
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.wait()


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=lambda text: tuple(text.split(",")), default=KINDS)
    parser.add_argument("--count", type=int, help="faults of each kind instead of the usual number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--journal", type=Path, default=Path("faults.jsonl"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures between the marks of this page")
    parser.add_argument("--only", help="the name of one trial; it is tried whether it is in the journal or not")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--commit", default="", help=argparse.SUPPRESS)
    found = parser.parse_args(words)
    found.commit = found.commit or commit()
    found.counts = {kind: found.count or COUNTS[kind] for kind in KINDS}
    if not found.count and "kills" in found.kinds:
        import kills

        from beeline import agents

        found.counts["kills"] = kills.budget(len(agents.ALGORITHMS))
    return found


def again(name: str) -> Trial:
    """Try the one case of a name."""
    import re

    from trials import Place

    seed = int(found[1]) if (found := re.search(r"of seed (\d+)$", name)) else 0
    for kind in KINDS:
        for number, case in enumerate(stream(kind, seed)):
            if case.name == name:
                with tempfile.TemporaryDirectory(prefix="beeline-faults-", ignore_cleanup_errors=True) as folder:
                    place = Place(Path(folder))
                    try:
                        return tried(case, place)
                    finally:
                        place.close()
            if number > 20_000:
                break
    raise SystemExit(f"no trial is called {name!r}")


def _end(number: int, frame: Any) -> None:
    raise KeyboardInterrupt  # so that disks are unmounted and processes ended on the way out


def main(words: list[str]) -> int:
    """Try what is not in the journal yet; 1 where something ended badly."""
    signal.signal(signal.SIGTERM, _end)
    arguments = parsed(words)
    if arguments.only:
        trial = again(arguments.only)
        print(trial)
        return int(trial.outcome in BAD)
    if arguments.worker is not None:
        work(arguments, arguments.worker)
        return 0
    supervise(arguments, [*words, "--commit", arguments.commit])
    done = journal(arguments.journal, arguments.commit)
    print(table(done, arguments.kinds))
    if arguments.write:
        write(arguments.write, done, arguments)
    bad = [each for each in done if each.kind in arguments.kinds and each.outcome in BAD]
    for each in bad:
        print(f"\n{each.outcome}: {each.detail}\n    python tests/faults/harness.py --only {each.name!r}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
