"""The changes that benchmarks/mutants.py makes still fit the code and name tests that exist; it runs them, this does not."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("benchmark_mutants", ROOT / "benchmarks" / "mutants.py")
assert _SPEC is not None and _SPEC.loader is not None
mutants = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_mutants"] = mutants
_SPEC.loader.exec_module(mutants)


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_code_and_names_tests_that_exist(mutant: mutants.Mutant) -> None:
    for file, text in mutants.changed(mutant, ROOT).items():
        assert text != (ROOT / file).read_text()
        ast.parse(text)
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_a_text_that_is_not_there_or_there_twice_is_refused() -> None:
    with pytest.raises(LookupError, match=r"a\.py has this 0 times, not once: 'c'"):
        mutants.Edit("a.py", "c", "d").applied("a b")
    with pytest.raises(LookupError, match="2 times"):
        mutants.Edit("a.py", "a", "d").applied("a a")
