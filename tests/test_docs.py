"""The docs say what the code does: names, options, commands, links, tables and examples are checked against it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import beeline
from beeline import agents
from beeline.agents.base import Spaces
from beeline.cli.commands import COMMANDS, main
from beeline.options import TrainConfig
from beeline.run.record import LOOP_COLUMNS, TIME_COLUMNS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
ALGORITHMS = list(agents.OWN)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPACES = Spaces(3, (-2.0,), (2.0,))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(page.read_text()) if found == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


# --- algorithms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_has_a_formula_for_every_metric(algo: str) -> None:
    algorithm = agents.get(algo)
    agent = algorithm.build(algorithm.config(hidden=(8, 8)), SPACES)
    text = (DOCS / "algorithms" / f"{algo}.md").read_text()
    formulas = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE))
    missing = [metric for metric in (*agent.metric_names, *LOOP_COLUMNS, *TIME_COLUMNS) if not formulas.get(metric, "").strip()]
    assert not missing, f"docs/algorithms/{algo}.md has no formula for {missing}"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_names_no_metric_that_does_not_exist(algo: str) -> None:
    algorithm = agents.get(algo)
    agent = algorithm.build(algorithm.config(hidden=(8, 8)), SPACES)
    text = (DOCS / "algorithms" / f"{algo}.md").read_text()
    section = text.partition("## Logged metrics")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert set(named) <= {*agent.metric_names, *LOOP_COLUMNS, *TIME_COLUMNS}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_option_is_on_the_command_line_page(algo: str) -> None:
    text = (DOCS / "command-line.md").read_text()
    for option in (*TrainConfig.names(), *agents.get(algo).config.names()):
        assert re.search(rf"`--(\[no-\])?{option.replace('_', '-')}`", text), option


# --- generated tables -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_tables", DOCS / "generate_tables.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_up_to_date(generator: ModuleType, capsys: pytest.CaptureFixture) -> None:
    assert generator.main(check=True) == 0, capsys.readouterr().out


def test_a_generated_table_follows_the_code(generator: ModuleType) -> None:
    stale = "before\n<!-- generated: presets bac -->\nold\n<!-- end -->\nafter\n"
    fresh = generator.render(stale)
    assert "old" not in fresh and fresh.startswith("before\n") and fresh.endswith("after\n")
    assert "| `batch_size` | 128 | 256 | 256 | 512 |" in fresh
    assert generator.render(fresh) == fresh


# --- links ------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes from the headings."""
    headings = re.findall(r"^#+ +(.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name(page)} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{name(page)} links to {target}, which has no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    targets = re.findall(r"\]\(([^)#]+)", (DOCS / "index.md").read_text())
    linked = {(DOCS / target).resolve() for target in targets}
    assert set(DOCS.rglob("*.md")) - linked <= {DOCS / "index.md"}


# --- commands ---------------------------------------------------------------------------------------------------------


def shown_commands(page: Path) -> list[list[str]]:
    """Every `beeline …` on a page, as words: lines of shell blocks and code in running text."""
    shell = "\n".join(body for language in ("sh", "bash", "console") for body in blocks(page, language))
    lines = [line.removeprefix("$ ") for line in shell.splitlines()]
    meant = re.sub(r"<!-- generated: mistakes -->.*?<!-- end -->", "", prose(page), flags=re.DOTALL)  # those are wrong on purpose
    lines += re.findall(r"`([^`\n]+)`", meant)
    return [shlex.split(line, comments=True) for line in lines if re.match(r"beeline [a-z-]", line)]


@pytest.fixture(scope="module")
def flags() -> dict[tuple[str, str], set[str]]:
    return {}


def flags_of(command: str, algo: str, known: dict[tuple[str, str], set[str]], capsys: pytest.CaptureFixture) -> set[str]:
    """The options that a command's own help lists."""
    if (command, algo) not in known:
        with pytest.raises(SystemExit):
            main([command, *([algo] if algo else []), "--help"])
        known[command, algo] = set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out))
    return known[command, algo]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shown_commands_exist(page: Path, flags: dict, capsys: pytest.CaptureFixture) -> None:
    for words in shown_commands(page):
        assert words[1] in COMMANDS, f"{name(page)} shows {shlex.join(words)}"
        given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        algo = words[2] if words[1] == "train" and len(words) > 2 and words[2] in ALGORITHMS else ""
        if given:
            unknown = given - flags_of(words[1], algo, flags, capsys)
            assert not unknown, f"{name(page)} shows {shlex.join(words)}: no option {unknown}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_documented(command: str, capsys: pytest.CaptureFixture) -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for flag in flags_of(command, "", {}, capsys):
        word = re.escape(flag.removeprefix("--").removeprefix("no-"))
        assert re.search(rf"--(\[no-\])?{word}\b", text), f"{flag} of beeline {command} is on no page"


def test_the_readme_names_what_make_train_trains() -> None:
    trained = re.search(r"beeline train (\S+) (\S+)", (ROOT / "Makefile").read_text())
    assert trained and f"`{trained[2].partition('?')[0]}" in (ROOT / "README.md").read_text()


def test_shown_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets, name(page)


# --- Python -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_compile_and_use_what_exists(page: Path) -> None:
    for block in blocks(page, "python"):
        tree = ast.parse(block, filename=name(page))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "beeline":
                assert hasattr(beeline, node.attr), f"{name(page)}: beeline.{node.attr}"
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("beeline."):
                check_keywords(page, node)


def check_keywords(page: Path, call: ast.Call) -> None:
    """A call of ours is given options that exist."""
    function = getattr(beeline, ast.unparse(call.func).removeprefix("beeline."), None)
    algo = getattr(function, "algo", "") or (ast.literal_eval(call.args[0]) if function is beeline.train else "")
    allowed = set(inspect.signature(function).parameters) if callable(function) else set()
    if algo:
        allowed |= {*TrainConfig.names(), *agents.get(algo).config.names()}
    if "objects" in allowed:
        configs = (entry.config for entry in agents.OWN.values())
        allowed |= {name for config in configs for name, rule in config.rules().items() if rule.objects}
    given = {keyword.arg for keyword in call.keywords if keyword.arg}
    assert given <= allowed, f"{name(page)}: {ast.unparse(call)} has no {given - allowed}"


def run_block(page: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Execute the block of a page that holds a text, as a module of its own."""
    block = next(block for block in blocks(DOCS / page, "python") if text in block)
    module = ModuleType("an_example_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, page, "exec"), module.__dict__)
    return module


def test_the_walk_through_an_algorithm_shows_every_line_of_it() -> None:
    """tests/test_third_party.py trains, kills, resumes and loads it."""

    def lines(text: str) -> list[str]:
        return [line.strip() for line in text.splitlines() if line.strip()]

    example = ROOT / "examples" / "expected_sac" / "expected_sac"
    source = [line for file in ("__init__.py", "backup.py") for line in lines((example / file).read_text())]
    shown = [line for block in blocks(DOCS / "adding-an-algorithm.md", "python") for line in lines(block)]
    assert shown[: len(source)] == source


def test_the_example_of_an_environment_passes_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium

    from beeline import envs

    try:
        run_block("adding-an-environment.md", "class Reach", monkeypatch)
        findings = envs.check("gym/Reach-v0")
    finally:
        gymnasium.registry.pop("Reach-v0", None)
    assert [finding.message for finding in findings if finding.level != "ok"] == []


# --- citation ---------------------------------------------------------------------------------------------------------


def test_the_citation_has_the_version_and_the_paper() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"version: {beeline.__version__}\n" in text
    assert "2306.02865" in text and "license: Apache-2.0\n" in text
    assert f"## {beeline.__version__}" in (ROOT / "CHANGELOG.md").read_text()
