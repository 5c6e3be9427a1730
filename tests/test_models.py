"""The classes of the algorithms are made from the registry; editors and `help` see every option."""

from __future__ import annotations

import ast
import inspect
import pydoc
from typing import Any

import pytest
from toys import Walk
from whole_runs import small

import beeline
from beeline import agents, models
from beeline.options import TrainConfig


def test_the_stub_is_up_to_date_with_the_configs(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(check=True) == 0, capsys.readouterr().out


def test_the_stub_has_every_public_name_and_every_option() -> None:
    tree = ast.parse(models.STUB.read_text())
    named = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert named | set(classes) | {"__version__"} == set(beeline.__all__)
    for entry in agents.OWN.values():
        init = next(each for each in classes[entry.class_name].body if isinstance(each, ast.FunctionDef))
        given = [each.arg for each in init.args.kwonlyargs]
        assert given == [*models.FIRST, *entry.config.names(), *TrainConfig.names()]


def test_a_stale_stub_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(models, "STUB", tmp_path / "__init__.pyi")
    assert models.main(check=True) == 1 and "python -m beeline.models" in capsys.readouterr().out
    assert models.main(check=False) == 0
    assert models.main(check=True) == 0


@pytest.mark.parametrize("algo", agents.OWN)
def test_every_entry_has_a_class_with_its_options(algo: str) -> None:
    kind = getattr(beeline, agents.get(algo).class_name)
    assert kind is beeline.model(algo) and issubclass(kind, beeline.Model) and kind.algo == algo
    assert kind.__name__ in dir(beeline)
    parameters = inspect.signature(kind).parameters
    for name, value in agents.make_config(algo, "", None, {}).to_dict().items():
        default = parameters[name].default
        assert (list(default) if isinstance(default, tuple) else default) == value, name


def test_help_names_options_with_types_and_defaults() -> None:
    text = pydoc.render_doc(beeline.BAC, renderer=pydoc.plaintext)
    assert "lam: float = 0.5" in text and "weight λ of the exploit target" in text
    assert "hidden: Sequence[int] = (256, 256)" in text
    assert "steps: int = 100000" in text
    assert "random_steps: int = 2500" in text  # as the default preset has it, not as the config alone


def test_the_paper_s_four_names_stay() -> None:
    assert [kind.algo for kind in (beeline.SAC, beeline.BAC, beeline.TD3, beeline.BEETD3)] == ["sac", "bac", "td3", "bee-td3"]
    with pytest.raises(AttributeError, match="XYZ"):
        _ = beeline.XYZ
    with pytest.raises(beeline.BeelineError, match="unknown algorithm"):
        beeline.model("xyz")


def test_a_loaded_model_has_its_class(tmp_path: Any) -> None:
    model = beeline.SAC(Walk, **small("sac", eval_episodes=0)).learn(30)
    assert type(beeline.load(model.save(tmp_path / "saved"), env=Walk)) is beeline.SAC
