"""Made-up prior data, exported policies, studies and reference scores."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import given
import mutate
import mutations
import numpy as np
import readers
from crafted import KIND, MARKER, NUMBERS, PLACED, _bomb, _Evil, _header, _members, _npy, _replace, _weights, _zip
from outcome import Outcome, Trial, worst
from trials import WALK, Case, Place

from beeline import files, npz
from beeline.dynamics import saved


def cases(seed: int) -> Iterator[Case]:
    """All that was thought of; finite."""
    kinds: tuple[tuple[str, Any, Callable[[Place, str, str], Trial]], ...] = (
        ("prior data", PRIORS, prior), ("prior data", PLACED, prior), ("exported policy", GRAPHS, exported),
        ("exported policy", PLACED, exported), ("study", STUDIES, study), ("study", PLACED, study),
        ("references", REFERENCES, references), ("references", PLACED, references),
    )  # fmt: skip
    for what, names, act in kinds:
        for each in names:
            name = f"{what}: {each}"
            yield Case(KIND, name, lambda place, name=name, each=each, act=act: act(place, name, each))  # type: ignore[misc]


def learned(seed: int) -> Iterator[Case]:
    """Odd descriptions of learned models, controllers and their trainings, sealed as one who knows of the seal would."""
    for file, number in itertools.product(LEARNED, range(10)):
        name = f"{file} {number} of seed {seed}"
        yield Case(KIND, name, lambda place, name=name, file=file: described(place, name, file))  # type: ignore[misc]


OWN = ("kind", "arrays", files.SEAL)  # what writing such a file adds
LEARNED = ("model.npz", "controller.npz", "learner.npz", "autombpo.json")


def described(place: Place, name: str, file: str) -> Trial:
    """Several odd values in the description of such a file: refused, or other numbers that somebody may well write."""
    chance, found, sound = random.Random(name), [], given.learned(place)
    folder = place.folder()
    arrays = npz.read((sound / file).read_bytes()) if file.endswith(".npz") else {}
    about = json.loads(arrays.pop(saved.ABOUT).tobytes() if arrays else (sound / file).read_bytes())
    for _ in range(12):
        edited = copy.deepcopy(about)
        owner, key = chance.choice([each for each in mutate.places(edited) if each[1] not in OWN])
        owner[key] = chance.choice((*mutate.ODD, *NUMBERS))
        if arrays:
            own = {entry: value for entry, value in edited.items() if entry not in OWN}
            saved.write(folder / file, about["kind"], arrays, own)
        else:
            (folder / file).write_bytes(files.sealed(edited))
        what = f"{key} = {owner[key]!r:.40}"
        found.append(given.read_learned(place, folder / file if arrays else folder, what))
    shutil.rmtree(folder)
    return worst(name, [trial for trial in found if trial.outcome != Outcome.SILENT] or [Trial(name, Outcome.HELD)])


def _ran(folder: Path) -> bool:
    return any(Path(at, MARKER).exists() for at in (".", folder))


# --- prior data -------------------------------------------------------------------------------------------------------

Arrays = dict[str, np.ndarray]


def _arrays(change: Callable[[Arrays], object]) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        arrays = given.episodes()
        change(arrays)
        return _zip({f"{name}.npy": _npy(array) for name, array in arrays.items()})

    return make


def _at(name: str, place: Any, value: Any) -> Callable[[bytes], bytes]:
    return _arrays(lambda arrays: arrays[name].__setitem__(place, value))


def _as(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[bytes], bytes]:
    return _arrays(lambda arrays: arrays.update({name: np.asarray(change(arrays[name]))}))


PRIORS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"", "text": lambda data: b"hello", "pickle": lambda data: pickle.dumps(_Evil()),
    "zip without members": lambda data: _zip({}), "bomb": _bomb, "compressed": lambda data: _zip(_members(data), 8),
    "objects": _weights(lambda array: np.array([_Evil()], object), True),
    "pickle as a member": lambda data: _zip(_members(data) | {"evil.npy": pickle.dumps(_Evil())}),
    "way out": lambda data: _zip(_members(data) | {"../../../out.npy": _npy(np.zeros(1))}),
    "many members": lambda data: _zip(_members(data) | {f"m{n}.npy": _npy(np.zeros(1)) for n in range(2000)}),
    "shape of 1e18": _header("1000000000, 1000000000"), "negative shape": _header("-1,"), "81 dimensions": _header("1, " * 81),
    "object dtype": _header("16,", "|O"), "code in the header": _header("__import__('os'),"),
    "nan observation": _at("observations", (3, 1), np.nan), "infinite reward": _at("rewards", 2, np.inf),
    "nan action": _at("actions", (0, 0), np.nan), "reward of 1e300": _at("rewards", 1, 1e300),
    "action out of bounds": _at("actions", (4, 1), 7.0), "no end": _at("truncations", -1, False),
    "wide observations": _as("observations", lambda x: np.ones((len(x), 3))), "one observation less": _as(
        "observations", lambda x: x[:-1]), "flat actions": _as("actions", lambda x: x[:, 0]),
    "a number for actions": _as("actions", lambda x: 1.0), "no rows": _arrays(
        lambda arrays: arrays.update({name: array[:0] for name, array in arrays.items()})),
    "deep rewards": _as("rewards", lambda x: x[:, None]), "floats for flags": _as("truncations", lambda x: x.astype(float)),
    "twos for flags": _as("terminations", lambda x: 2 + x.astype(int)), "complex rewards": _as("rewards", lambda x: x + 1j),
    "text for rewards": _as("rewards", lambda x: x.astype(str)), "no actions": _arrays(lambda arrays: arrays.pop("actions")),
    "next observations of another length": _arrays(lambda arrays: arrays.update(next_observations=np.zeros((3, 2)))),
    "actions without numbers": _arrays(lambda arrays: arrays.update(actions=np.zeros((10**12, 0)))),
}  # fmt: skip


def prior(place: Place, name: str, what: str) -> Trial:
    """Data that somebody gives to `--prior` and to `--load-prior`: a sentence, or the rows that they hold."""
    folder = place.folder()
    file = folder / "data.npz"
    if what in PRIORS:
        file.write_bytes(PRIORS[what](given.data(place).read_bytes()))
    else:
        _replace(file, what)
    found = [given.given_to(place, option, file, f"{name} -> {option}") for option in ("prior", "load_prior")]
    return Trial(name, Outcome.LOST, "somebody's code ran") if _ran(folder) else worst(name, found)


# --- exported policies ------------------------------------------------------------------------------------------------


def _model(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    """Another model, without the seal: as one who knows of it would write."""

    def make(data: bytes) -> bytes:
        import onnx

        model = onnx.load_model_from_string(data)
        kept = [prop for prop in model.metadata_props if prop.key != "sha256"]
        del model.metadata_props[:]
        model.metadata_props.extend(kept)
        change(model)
        return bytes(model.SerializeToString())

    return make


def _entry(key: str, text: str | None) -> Callable[[bytes], bytes]:
    """An entry of the metadata is another, or gone."""

    def change(model: Any) -> None:
        found = next(prop for prop in model.metadata_props if prop.key == key)
        if text is None:
            model.metadata_props.remove(found)
        else:
            found.value = text

    return _model(change)


def _largest(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    """The largest array of the model is another."""

    def edit(model: Any) -> None:
        from onnx import numpy_helper

        array = max(model.graph.initializer, key=lambda each: len(each.raw_data))
        array.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(array)), array.name))

    return _model(edit)


def _first(operation: str, **attributes: Any) -> Callable[[bytes], bytes]:
    """Another operation stands before all others."""

    def edit(model: Any) -> None:
        from onnx import helper

        _use(model, "other")
        model.graph.node.insert(0, helper.make_node(operation, ["observation"], ["other"], **attributes))

    return _model(edit)


def _use(model: Any, name: str) -> None:
    """Let the network read something else than the observation."""
    for node in model.graph.node:
        for place, put in enumerate(node.input):
            if put == "observation":
                node.input[place] = name


def _endless(model: Any) -> None:
    """A loop of 4·10¹⁸ turns."""
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info
    _use(model, "looped")
    turn = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Neg", ["x"], ["y"])], "turn",
        [info("n", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, None)],
        [info("go_on", TensorProto.BOOL, []), info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model.graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [4 * 10**18]))
    model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    model.graph.node.insert(0, helper.make_node("Loop", ["turns", "yes", "observation"], ["looped"], body=turn))


def _elsewhere(location: str) -> Callable[[bytes], bytes]:
    """The largest array is said to be in another file."""

    def edit(model: Any) -> None:
        from onnx import TensorProto

        array = max(model.graph.initializer, key=lambda each: len(each.raw_data))
        array.ClearField("raw_data")
        array.data_location = TensorProto.EXTERNAL
        array.external_data.add(key="location", value=location)

    return _model(edit)


def _huge(model: Any) -> None:
    """An array of 4·10¹² numbers that the graph makes itself."""
    from onnx import TensorProto, helper

    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [2], [4 * 10**6, 10**6]))
    _use(model, "shifted")
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["ones"]))
    model.graph.node.insert(1, helper.make_node("ReduceSum", ["ones"], ["sum"], keepdims=0))
    model.graph.node.insert(2, helper.make_node("Add", ["observation", "sum"], ["shifted"]))


def _long(model: Any) -> None:
    """Ten thousand operations that do nothing."""
    from onnx import helper

    _use(model, "after9999")
    names = ["observation", *(f"after{number}" for number in range(10_000))]
    for number, (before, after) in enumerate(zip(names, names[1:])):
        model.graph.node.insert(number, helper.make_node("Identity", [before], [after]))


ENTRIES = ("observation", "action_low", "action_high", "control_rate", "repeat", "env")
ODD_TEXTS = ("", "null", "{}", "NaN", "[" * 100_000, "1" + "0" * 400, "1e999", '"\\ud800"', "hello")
GRAPHS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"", "text": lambda data: b"hello", "pickle": lambda data: pickle.dumps(_Evil()),
    "a policy file": lambda data: _zip({"meta.json.npy": _npy(np.zeros(3))}), "half": lambda data: data[: len(data) // 2],
    "twice": lambda data: data * 2, "without its end": lambda data: data[:-78], "zeros after it": lambda data: data + bytes(64),
    "no metadata": _model(lambda model: model.metadata_props.__delitem__(slice(None))),
    **{f"no {entry}": _entry(entry, None) for entry in ENTRIES},
    **{f"{entry} {text[:12]!r}": _entry(entry, text) for entry in ENTRIES for text in ODD_TEXTS},
    "nan": _largest(lambda array: array * np.float32("nan")), "another shape": _largest(lambda array: array[:-1]),
    "double": _largest(lambda array: array.astype(np.float64)),
    "text array": _largest(lambda array: array.astype(str).astype(object)),
    "no nodes": _model(lambda model: model.graph.node.__delitem__(slice(None))),
    "no graph": _model(lambda model: model.ClearField("graph")), "opset of the future": _model(
        lambda model: setattr(model.opset_import[0], "version", 10**6)),
    "version of the future": _model(lambda model: setattr(model, "ir_version", 10**6)),
    "unknown operation": _first("Evil"), "somebody's operation": _first("PyOp", domain="ai.onnx.contrib"),
    "another input": _model(lambda model: setattr(model.graph.input[0], "name", "evil")),
    "two outputs": _model(lambda model: model.graph.output.append(model.graph.output[0])), "endless": _model(_endless),
    "huge": _model(_huge), "long": _model(_long), "turned": _first("Transpose"),
    "arrays in /etc/passwd": _elsewhere("/etc/passwd"), "arrays above": _elsewhere("../../../etc/passwd"),
    "arrays in a device": _elsewhere("/dev/zero"), "arrays nowhere": _elsewhere("nothing.bin"),
}  # fmt: skip


def exported(place: Place, name: str, what: str) -> Trial:
    """Something that is given to `beeline deploy`: a sentence before a robot has power, or what the policy does."""
    folder = place.folder()
    file = folder / "policy.onnx"
    if what in GRAPHS:
        file.write_bytes(GRAPHS[what]((given.exported(place) / "policy.onnx").read_bytes()))
    else:
        _replace(file, what)
    found = [user(place, file, f"{name} -> {user.__name__}") for user in (given.decide, given.deploy)]
    return Trial(name, Outcome.LOST, "somebody's code ran") if _ran(folder) else worst(name, found)


# --- studies ----------------------------------------------------------------------------------------------------------


def _lines(**change: Any) -> Callable[[list[dict[str, Any]]], object]:
    """Every line that has such an entry has it so."""
    return lambda lines: [line.update({key: new}) for line in lines for key, new in change.items() if line.get(key) is not None]


STUDIES: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    f"{key} = {value!r:.30}": _lines(**{key: value})
    for key, values in {
        "values": (["x"], [], [1.0, 2.0], [None], [True], [float("nan")], [float("inf")], "x", 5, [10**400]),
        "directions": ([1], [], [2, 2], ["x"], 5), "study_name": ("other", 5, None), "op_code": (99, "x", 3, None),
        "trial_id": (10**9, -1, "x", [1]), "state": (99, "x", 0, 3), "param_name": ("evil", 5, "gamma"),
        "param_value_internal": ("x", 9.0, float("nan"), [1]), "distribution": ("{}", "x", "[" * 50_000, '{"name": "os.system"}'),
        "intermediate_value": ("x", None, float("nan"), [1]), "step": ("x", -1, 0.5, 10**400),
        "datetime_complete": ("0001-01-01T00:00:00", "x", 5), "worker_id": (5, None), "study_id": (7, "x"),
    }.items()
    for value in values
} | {
    "no lines": lambda lines: lines.clear(), "an empty object": lambda lines: lines.append({}),
    "another study": lambda lines: lines.insert(0, lines[0] | {"study_name": "first"}), "all twice": lambda lines: lines.extend(
        list(lines)), "backwards": lambda lines: lines.reverse(),
    "a reason that is no text": lambda lines: lines.insert(3, {"op_code": 8, "worker_id": "x", "trial_id": 0, "user_attr": {
        "reason": [1]}}),
}  # fmt: skip
# Scores that somebody made up, in a journal whose seals were taken away, are the user's own.
MADE_UP = ("all twice", "values", "intermediate_value", "state", "step", "param_value_internal", "op_code", "trial_id")


def study(place: Place, name: str, what: str) -> Trial:
    """A journal that somebody wrote, sealed no more: a sentence, or a search that goes on."""
    with place.copy(given.search(place), "search") as folder:
        path = folder / "study.jsonl"
        if what in STUDIES:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            for line in lines:
                line.pop("sha256")
            STUDIES[what](lines)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        else:
            _replace(path, what)
        trial = given.go_on_with_search(place, folder, name)
    meant = trial.outcome == Outcome.SILENT and what.startswith(MADE_UP)
    return Trial(name, Outcome.HELD, "made-up scores are taken as they are") if meant else trial


# --- reference scores -------------------------------------------------------------------------------------------------


def _task(table: Any) -> str:
    return json.dumps({"format": 1, "tasks": {WALK: table}})


REFERENCES: dict[str, str] = {
    **{f"expert {value!r:.20}": _task({"random": -50.0, "expert": value}) for value in (
        "x", True, [], {}, float("nan"), float("inf"), 10**400, -50.0, -60)},
    "too far apart": _task({"random": -1.7e308, "expert": 1.7e308}), "another name": _task({"best": 5}), "no table": _task(5),
    "an empty table": _task({}), "no tasks": '{"format": 1}', "tasks of text": '{"format": 1, "tasks": "x"}',
    "format 2": '{"format": 2, "tasks": {}}', "a list": "[]", "deep": '{"a":' * 50_000, "not JSON": "hello",
    "another seal": json.dumps(json.loads(_task({"random": -50.0, "expert": 10.0})) | {"sha256": "0" * 64}),
    "a seal that is no text": json.dumps(json.loads(_task({"random": -50.0, "expert": 10.0})) | {"sha256": [1]}),
    "markup": json.dumps({"format": 1, "tasks": {WALK: {"random": -50.0, "expert": 10.0}, "<script>": {"expert": "</script>"}}}),
}  # fmt: skip


def references(place: Place, name: str, what: str) -> Trial:
    """Reference scores that somebody wrote, met by all that shows runs."""
    sound, out = mutations._sound_content(place), mutations.records(place)
    path = out / "references.json"
    data = path.read_bytes()
    path.write_text(REFERENCES[what]) if what in REFERENCES else _replace(path, what)
    try:
        found = readers.trials(out, name, sound)
    finally:
        path.rmdir() if what == "a folder" else path.unlink(missing_ok=True)
        path.write_bytes(data)
    if what == "nothing":  # a folder without references is one like any other
        found = [trial for trial in found if trial.outcome != Outcome.SILENT]
    return worst(name, found or [Trial(name, Outcome.HELD)])
