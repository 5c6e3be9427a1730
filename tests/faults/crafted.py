"""Files that somebody made: bombs, pickles, ways out, huge and odd shapes, NaN, deep JSON, links, pipes; as policies, records,
run folders and plans of matrices, and, in `crafted_given.py`, as what is given to a run or a robot.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import given
import mutate
import mutations
import numpy as np
import readers
from outcome import Outcome, Shown, Trial, of_call, worst
from trials import WALK, Case, Place, options

import beeline
from beeline import agents, trees

KIND = "crafted"
MARKER = "ran.txt"  # what a pickle would leave


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARKER}",)


def cases(seed: int) -> Iterator[Case]:
    """All that was thought of; finite."""
    import crafted_given

    yield from crafted_given.cases(seed)
    for name in POLICIES:
        yield Case(KIND, f"policy: {name}", lambda place, name=name: policy(place, name))  # type: ignore[misc]
    for what, file in itertools.product(PLACED, (*RECORDS, *OTHERS, *COPIES)):
        yield Case(KIND, f"{what} as {file}", lambda place, what=what, file=file: placed(place, what, file))  # type: ignore[misc]
    for name in EDITS:
        yield Case(KIND, f"config: {name}", lambda place, name=name: edited(place, name))  # type: ignore[misc]
    for name in MATRICES:
        yield Case(KIND, f"matrix: {name}", lambda place, name=name: matrix(place, name))  # type: ignore[misc]
    yield from crafted_given.learned(seed)
    for algo, entry in agents.ALGORITHMS.items():
        for option in entry.config.names():
            name = f"policy of {algo}: {option} of seed {seed}"
            yield Case(KIND, name, lambda place, case=(name, algo, option): described(place, *case))  # type: ignore[misc]


# --- policy files -----------------------------------------------------------------------------------------------------


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as container:
        return {info.filename: container.read(info) for info in container.infolist()}


def _zip(members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as container:
        for name, data in members.items():
            container.writestr(name, data)
    return buffer.getvalue()


def _npy(array: Any, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=allow_pickle)
    return buffer.getvalue()


def _meta(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        members = _members(data)
        array = np.lib.format.read_array(io.BytesIO(members["meta.json.npy"]))
        meta = json.loads(array.tobytes())
        change(meta)
        members["meta.json.npy"] = _npy(np.frombuffer(json.dumps(meta).encode(), np.uint8))
        return _zip(members)

    return make


def _text(text: bytes) -> Callable[[bytes], bytes]:
    return lambda data: _zip(_members(data) | {"meta.json.npy": _npy(np.frombuffer(text, np.uint8))})


def _weights(change: Callable[[np.ndarray], Any], allow_pickle: bool = False) -> Callable[[bytes], bytes]:
    """One array of the policy is another."""

    def make(data: bytes) -> bytes:
        members = _members(data)
        name = next(name for name in sorted(members) if name != "meta.json.npy")
        members[name] = _npy(change(np.lib.format.read_array(io.BytesIO(members[name]))), allow_pickle)
        return _zip(members)

    return make


def _header(shape: str, dtype: str = "<f4") -> Callable[[bytes], bytes]:
    """An array whose header promises a shape that its bytes do not have."""

    def make(data: bytes) -> bytes:
        members = _members(data)
        name = next(name for name in sorted(members) if name != "meta.json.npy")
        text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}"
        text = text + " " * (63 - (10 + len(text)) % 64) + "\n"
        members[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0" * 64
        return _zip(members)

    return make


def _bomb(data: bytes) -> bytes:
    return _zip({"meta.json.npy": b"\0" * (64 << 20)}, zipfile.ZIP_DEFLATED)


def _set(*path: str, to: Any) -> Callable[[bytes], bytes]:
    def change(meta: dict[str, Any]) -> None:
        for key in path[:-1]:
            meta = meta[key]
        meta[path[-1]] = to

    return _meta(change)


ODD_NUMBERS = (-3, 0, 10**9, 2**63, 1.5, float("nan"), "3", None, [], True)
POLICIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"", "text": lambda data: b"hello", "pickle": lambda data: pickle.dumps(_Evil()),
    "zip without members": lambda data: _zip({}), "bomb": _bomb,
    "compressed": lambda data: _zip(_members(data), zipfile.ZIP_DEFLATED),
    "objects": _weights(lambda array: np.array([_Evil()], object), True), "pickle as a member": lambda data: _zip(
        _members(data) | {"evil.npy": pickle.dumps(_Evil())}),
    "way out": lambda data: _zip(_members(data) | {"../../../out.npy": _npy(np.zeros(1))}),
    "absolute": lambda data: _zip(_members(data) | {"/tmp/out.npy": _npy(np.zeros(1))}),
    "many members": lambda data: _zip(_members(data) | {f"m{n}.npy": _npy(np.zeros(1)) for n in range(2000)}),
    "left over": lambda data: _zip(_members(data) | {"more.npy": _npy(np.zeros(1))}),
    "no description": lambda data: _zip({k: v for k, v in _members(data).items() if "meta" not in k}),
    "nan": _weights(lambda array: array * np.nan), "infinite": _weights(lambda array: array + np.inf),
    "huge weights": _weights(lambda array: array * 0 + np.float32(3e38)),
    "double": _weights(lambda array: array.astype(np.float64)),
    "integers": _weights(lambda array: array.astype(np.int64)), "booleans": _weights(lambda array: array > 0),
    "complex": _weights(lambda array: array + 1j), "text array": _weights(lambda array: np.array(["x"])),
    "transposed": _weights(lambda array: array[..., None]), "flat": _weights(lambda array: array.reshape(-1)),
    "void": _weights(lambda array: np.zeros(3, "V8")), "records": _weights(lambda array: np.zeros(3, "f4,f4")),
    "shape of 1e18": _header("1000000000, 1000000000"), "negative shape": _header("-1,"), "81 dimensions": _header("1, " * 81),
    "odd dtype": _header("16,", "<f3"), "object dtype": _header("16,", "|O"), "code in the header": _header("__import__('os'),"),
    "deep description": _text(b"[" * 100_000), "deep objects": _text(b'{"a":' * 50_000), "not UTF-8": _text(b"\xff\xfe{}"),
    "no object": _text(b"[]"), "null": _text(b"null"),
    "long description": _text(b'{"format": 1, "x": "' + b"y" * (2 << 20) + b'"}'),
    "bomb of digits": _text(b'{"format": ' + b"9" * 100_000 + b"}"), "twice a key": _text(b'{"format": 1, "format": 2}'),
    **{f"hidden {value!r:.30}": _set("agent", "hidden", to=value) for value in (
        [200_000, 200_000], [1] * 20_000, [], [0], [-1], "8,8", [8.5, 8], [None], [[8]], [2**40])},
    **{f"obs_dim {value!r}": _set("spaces", "obs_dim", to=value) for value in ODD_NUMBERS},
    **{f"step {value!r}": _set("step", to=value) for value in ODD_NUMBERS},
    **{f"format {value!r}": _set("format", to=value) for value in (2, "1", None, [], 1.5)},
    **{f"algo {value!r:.30}": _set("algo", to=value) for value in ("nothing", "", 5, None, ["sac"], "os:system", "../sac")},
    **{f"env {value!r:.30}": _set("env", to=value) for value in (
        "antigravity:Pendulum-v1", "", 5, None, "\ud800", "gym/", "gym/../x", "os:system", "x" * 100_000,
        "gym/Pendulum-v1?repeat=²")},
    **{f"repeat {value!r}": _set("repeat", to=value) for value in (0, -1, "x", 1e9, [1])},
    "bounds of two lengths": _set("spaces", "action_low", to=[0.0]),
    "bounds crossed": _set("spaces", "action_low", to=[9.0, 9.0]),
    "bounds infinite": _set("spaces", "action_high", to=[float("inf")] * 2), "no bounds": _set("spaces", "action_low", to=[]),
    "bounds of text": _set("spaces", "action_low", to=["a", "b"]), "unknown option": _set("agent", "evil", to=1),
    "batch of 1e12": _set("agent", "batch_size", to=10**12),
    "no spaces": _set("spaces", to=None), "no agent": _set("agent", to=[]),
}  # fmt: skip


def policy(place: Place, name: str) -> Trial:
    """Load and evaluate a crafted policy file: a sentence, or the same as without; never NaN, never somebody's code."""
    folder = place.folder() / "run_folder"
    folder.mkdir()
    file = folder / "policy.npz"
    file.write_bytes(POLICIES[name]((mutations.run_folder(place) / "policy.npz").read_bytes()))
    found = [mutations.load(place, file, f"{name} -> load"), mutations.evaluate(place, file, f"{name} -> eval")]
    if any(Path(at, MARKER).exists() for at in (".", folder)):
        return Trial(f"policy: {name}", Outcome.LOST, "somebody's code ran")
    if name in MEANT:
        found = [trial for trial in found if trial.outcome != Outcome.SILENT]
    return worst(f"policy: {name}", found or [Trial(name, Outcome.HELD)])


# Policies that somebody may well make: other numbers that are numbers.
MEANT = {"huge weights", "double", "integers", "booleans"}


SEVERAL = 4  # odd values of each option of each algorithm


def described(place: Place, name: str, algo: str, option: str) -> Trial:
    """A policy file of an algorithm whose description has odd values of one option: refused, or the same policy."""

    def make(path: Path) -> None:
        path.mkdir()
        beeline.model(algo)(WALK, verbose=0, **options(algo)).policy.save(path / "policy.npz")

    sound, chance, found = place.made(("described", algo), make) / "policy.npz", random.Random(name), []
    file = place.folder() / "policy.npz"

    def read(path: Path) -> Shown:
        policy = beeline.load(path)
        return Shown({key: array.tobytes() for key, array in trees.to_arrays(policy.policy).items()})

    for value in chance.sample((*mutate.ODD, *NUMBERS), SEVERAL):
        file.write_bytes(_set("agent", option, to=value)(sound.read_bytes()))
        whole = place.kept(("described", algo), lambda: read(sound).content)
        found.append(of_call(f"{value!r:.40}", lambda: read(file), whole))
    shutil.rmtree(file.parent)
    return worst(name, found)


NUMBERS = (-3, 10**9, 2**40, 3.0, 1e300, [-1], [2**40], [1] * 20_000, [1, 2], [[1]], "none", "auto")

# --- things in the place of files ---------------------------------------------------------------------------------------

RECORDS = ("config.json", "status.json", "metrics.csv")
OTHERS = (".lock", "policy.npz", "checkpoints", "replay", "tensorboard", "checkpoints/metrics.csv")
COPIES = ("prior.npz", "load-prior.npz")  # of a run with prior data


def _deep(path: Path) -> None:
    path.write_text("[" * 200_000)


PLACED: dict[str, Callable[[Path], Any]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a loop": lambda path: path.symlink_to(path),
    "a link out": lambda path: path.symlink_to("/etc/passwd"),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "an empty file": lambda path: path.touch(),
    "a sparse file of a terabyte": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "deep JSON": _deep,
    "a lone surrogate": lambda path: path.write_text('{"state": "\\ud800"}'),
    "nothing": lambda path: None,
}


def _replace(path: Path, what: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    PLACED[what](path)


def placed(place: Place, what: str, file: str) -> Trial:
    """Something that is no such file, met by resume, load and, where it is a record, by all that shows runs."""
    name, found = f"{what} as {file}", []
    subject = given.prior_run if file in COPIES else mutations.run_folder
    for user in (mutations.resume, mutations.load):
        with place.copy(subject(place), subject.__name__) as folder:
            _replace(folder / file, what)
            found.append(user(place, folder, f"{name} -> {user.__name__}"))
    if file in RECORDS:
        sound, out = mutations._sound_content(place), mutations.records(place)
        path = out / readers.RUNS[1].folder / file
        data = path.read_bytes()
        _replace(path, what)
        try:
            found += readers.trials(out, name, sound)
        finally:
            path.rmdir() if what == "a folder" else path.unlink(missing_ok=True)
            path.write_bytes(data)
    return worst(name, found)


# --- edited configs and plans -------------------------------------------------------------------------------------------


def _edit(section: str | None, key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda config: (config[section] if section else config).update({key: value})


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    f"{section or 'top'}.{key} = {value!r:.30}": _edit(section, key, value)
    for section, key, values in (
        ("agent", "gamma", (0.9, 2.0, "x", None, float("nan"))), ("agent", "hidden", ([9, 9], [], [10**9])),
        ("agent", "batch_size", (9, 0, 10**15)), ("train", "seed", (1, -1, 2**40)), ("train", "num_envs", (2, 0, 10**9)),
        ("train", "steps", (121, 2**62, 0, float("inf"))), ("train", "replay_capacity", (5, 10**11)),
        ("train", "threads", (0, 10**6)), (None, "env", ("antigravity:Pendulum-v1", "gym/Nope-v0", 5)),
        (None, "algo", ("td3", "nope", None)), (None, "init_from", ("/etc/passwd", 5)), (None, "versions", ([1], "x")),
    )
    for value in values
}  # fmt: skip


def edited(place: Place, name: str) -> Trial:
    """A config that somebody edited: resume and load refuse it by name, or go on as if it were not."""
    found = []
    for user in (mutations.resume, mutations.load):
        with place.copy(mutations.run_folder(place), "run_folder") as folder:
            config = json.loads((folder / "config.json").read_text())
            EDITS[name](config)
            (folder / "config.json").write_text(json.dumps(config))
            found.append(user(place, folder, f"{name} -> {user.__name__}"))
    return worst(f"config: {name}", found)


def _run(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan["runs"][0].update(changes)


MATRICES: dict[str, Callable[[dict[str, Any]], object]] = {
    "variant that leads out": _run(variant="../../.."), "variant absolute": _run(variant="/tmp/x"), "task 5": _run(task=5),
    "options as a list": _run(options=[]), "threads x": _run(options={"threads": "x"}), "seed -1": _run(seed=-1),
    "steps infinite": _run(steps=float("inf")), "unknown field": _run(evil=1), "eval_env": _run(options={"eval_env": "os:x"}),
    "init_from": _run(options={"init_from": "/etc/passwd"}), "algo": _run(algo="nope"), "no runs": lambda plan: plan.pop("runs"),
    "runs of text": lambda plan: plan.update(runs="x"), "run none": lambda plan: plan.update(runs=[None]),
    "format": lambda plan: plan.update(format=9), "twice": lambda plan: plan.update(runs=plan["runs"] * 2),
    "seed changed": _run(seed=5), "steps changed": _run(steps=119),
    "deep": lambda plan: plan.update(x=json.loads("[" * 500 + "]" * 500)),
    "variant of nulls": _run(variant="a\0b"), "task of markup": _run(task="<script>"), "preset 5": _run(preset=5),
}  # fmt: skip


def matrix(place: Place, name: str) -> Trial:
    """A plan that somebody edited."""
    with place.copy(mutations.matrix(place), "matrix") as folder:
        plan = json.loads((folder / "matrix.json").read_text())
        MATRICES[name](plan)
        (folder / "matrix.json").write_text(json.dumps(plan))
        whole = mutations.go_on_with_matrix(place, folder, f"matrix: {name}")
        plan.pop("sha256", None)  # and as one who knows of the seal would
        (folder / "matrix.json").write_text(json.dumps(plan))
        unsealed = mutations.go_on_with_matrix(place, folder, f"matrix: {name}")
    return worst(f"matrix: {name}", [whole] if unsealed.outcome == Outcome.SILENT else [whole, unsealed])


