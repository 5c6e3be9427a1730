"""Every mistake of the table is answered with its sentence, and the page of the docs shows the table as it is."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from mistakes import BROKEN, BROKEN_TEXT, MISTAKES, MODULE, MODULE_TEXT, Mistake


@pytest.fixture
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's own modules, in a working folder that is not on the path."""
    for name, text in ((MODULE, MODULE_TEXT), (BROKEN, BROKEN_TEXT)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "500")
    yield
    gymnasium.registry.pop("Tank-v0", None)


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.did for mistake in MISTAKES])
def test_a_mistake_is_answered_in_words(mistake: Mistake) -> None:
    said = mistake.doing()
    assert re.fullmatch(re.escape(mistake.said).replace("…", ".*"), said, re.DOTALL), said
    assert "Traceback" not in said and "beeline/envs" not in said


def test_no_two_mistakes_are_answered_alike() -> None:
    assert len({mistake.said for mistake in MISTAKES}) == len({mistake.did for mistake in MISTAKES}) == len(MISTAKES) >= 40
