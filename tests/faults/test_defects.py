"""Each defect that was found has a test of its own: docs/reliability.md names it, and it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (.+?) \| (`.+?::test_.+`) \|$", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)


def test_the_table_is_there() -> None:
    graded = {match[1] for defect, _ in ROWS if (match := re.match(r"\*\*([HM]\d+)\*\*", defect))}
    assert graded == {"H1", "H2", "H3", *(f"M{number}" for number in range(1, 11))} and len(ROWS) > 30


@pytest.mark.parametrize(("defect", "tests"), ROWS, ids=[defect[:40] for defect, _ in ROWS])
def test_every_defect_has_its_tests(defect: str, tests: str) -> None:
    for name in re.findall(r"`(.+?)`", tests):
        file, function = name.split("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(), name
