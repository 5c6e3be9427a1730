"""What is seen while a run goes on: the speed of now, a time left that is right, and a line that fits its terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from whole_runs import small

import beeline
from beeline.display import BarDisplay, LineDisplay, View, automatic
from beeline.pace import Compiler, Pace

WALK = "toys:Walk-v0"


class Simulated:
    """A run whose decisions, evaluations and compilation take given seconds of a clock that it moves itself."""

    def __init__(self, total: int, warm_up: float, learning: float, evaluation: float, starts: int, every: int = 5_000) -> None:
        self.now = 0.0
        self.total, self.warm_up, self.learning, self.evaluation, self.starts = total, warm_up, learning, evaluation, starts
        self.pace = Pace(total, {"evaluating": every, "saving": 2 * every}, lambda: self.now)

    def run(self, look_after: float, compiles: bool = True) -> tuple[float | None, float]:
        """The time left as it was shown after some seconds, and as it was."""
        pace, updates, shown, looked = self.pace, 0, None, None
        self.now += self.evaluation
        pace.costs["evaluating"] = self.evaluation
        pace.begin(0, 0)
        for step in range(1, self.total + 1):
            learns = step > self.starts
            compiled = compiles and learns and not updates
            updates += learns
            self.now += 15.0 if compiled else self.learning if learns else self.warm_up
            pace.decided(step, updates, compiled)
            due = [kind for kind, every in pace.every.items() if step % every == 0]
            self.now += self.evaluation * ("evaluating" in due) + 0.2 * ("saving" in due)
            pace.happened(due)
            if looked is None and self.now >= look_after:
                shown, looked = pace.left, self.now
        assert looked is not None
        return shown, self.now - looked


@pytest.mark.parametrize("compiles", [True, False])  # False: all was compiled before
@pytest.mark.parametrize("evaluation", [0.1, 10.0])
@pytest.mark.parametrize("learning", [0.004, 0.02])
@pytest.mark.parametrize(("warm_up", "starts"), [(0.0003, 256), (0.001, 10_000), (0.0003, 12_000)])
def test_the_time_left_is_right_after_a_minute(
    compiles: bool, evaluation: float, learning: float, warm_up: float, starts: int
) -> None:
    run = Simulated(60_000, warm_up, learning, evaluation, starts)
    shown, true = run.run(look_after=60.0, compiles=compiles)
    assert shown == pytest.approx(true, rel=0.2)
    assert run.pace.left == 0


def test_before_anything_is_learnt_no_time_is_shown() -> None:
    run = Simulated(30_000, warm_up=0.001, learning=0.01, evaluation=1.0, starts=25_000)
    shown, _ = run.run(look_after=10.0)
    assert shown is None


def test_the_speed_is_that_of_now() -> None:
    now = 0.0
    pace = Pace(100_000, {}, lambda: now)
    pace.begin(0, 0)
    for step in range(1, 14_001):
        now += 0.01 if step <= 10_000 else 0.02
        pace.decided(step, step, False)
        pace.happened([])
        if step == 11_000:  # 20 s at the new speed, of the last minute
            assert pace.rate == pytest.approx(50, rel=1e-6)
            assert pace.left == pytest.approx(89_000 / (5_000 / 60), rel=0.01)
    assert pace.left == pytest.approx(86_000 / 50, rel=1e-6)


def test_what_was_compiled_is_no_measure() -> None:
    now = 0.0
    pace = Pace(10_000, {}, lambda: now)
    pace.begin(0, 0)
    for step in range(1, 1_001):
        compiled = step in (1, 300, 995)
        now += 20.0 if compiled else 0.01
        pace.decided(step, step, compiled)
        pace.happened([])
    assert pace.rate == pytest.approx(100, rel=1e-6) and pace.left == pytest.approx(90, rel=1e-6)


def test_an_agent_that_works_between_decisions_is_measured_by_whole_rounds() -> None:
    """SLBO and PETS make no updates of the loop's; their models are trained between two decisions."""
    now, shown = 0.0, {}
    pace = Pace(100_000, {}, lambda: now)
    pace.begin(0, 0)
    for step in range(1, 52_001):
        worked = step % 4_000 == 0
        now += 0.001 + 16.0 * worked  # 20 s for every 4,000 steps
        pace.decided(step, 0, False, worked)
        pace.happened([])
        shown[step] = pace.left
    assert shown[3_999] is None and shown[4_000] == pytest.approx(96_000 * 20 / 4_000, rel=1e-3)
    for step in (12_000, 15_999, 30_000, 52_000):
        assert shown[step] == pytest.approx((100_000 - step) * 20 / 4_000, rel=1e-3), step


def test_rounds_of_one_decision_are_no_hasty_measure() -> None:
    """CMLO imagines at every decision."""
    now = 0.0
    pace = Pace(10_000, {}, lambda: now)
    pace.begin(0, 0)
    for step in range(1, 5_001):
        now += 0.5 if step % 100 < 10 else 0.05  # ten slow ones in a hundred
        pace.decided(step, 20 * step, False, True)
        pace.happened([])
    assert pace.left == pytest.approx(5_000 * 0.095, rel=0.1)


def test_what_two_events_take_together_is_told_apart() -> None:
    now = 0.0
    pace = Pace(100, {"evaluating": 10, "saving": 20}, lambda: now)
    pace.begin(0, 0)
    for spent, due in ((3.0, ["evaluating"]), (4.0, ["evaluating", "saving"])):
        pace.decided(10, 1, False)
        now += spent
        pace.happened(due)
    assert pace.costs == {"evaluating": 3.0, "saving": 1.0}
    now += 8.0
    pace.happened(["evaluating", "saving"])
    assert pace.costs == {"evaluating": 6.0, "saving": 2.0}


# --- the line ---------------------------------------------------------------------------------------------------------


class Still(View):
    """A view that shows nothing by itself."""

    def say(self, text: str) -> None:
        self.told = [*getattr(self, "told", []), text]


def view(kind: type[View] = Still, env: str = "dmc/walker-run", steps: int = 1_000_000) -> Any:
    train = SimpleNamespace(steps=steps, seed=0, eval_every=5_000, eval_episodes=10, diagnose=None, checkpoint_every=10_000)
    progress = SimpleNamespace(step=345_678, rows=3, updates=345_000)
    trainer: Any = SimpleNamespace(
        progress=progress, folder=Path("runs/[/x]"), events=[], eval_env=object(), diagnoser=None, store=object(),
        due=lambda every: False, on_row=None, on_decision=None,
    )  # fmt: skip
    plan: Any = SimpleNamespace(algo="bac", env=env, train=train)
    return kind(trainer, plan)


ROW = {"step": 345_678, "eval/return": 712.3, "lambda": 0.5, "alpha": 0.01234, "q/mean": 81.2, "train/return": 640.0}


@pytest.fixture
def learning() -> Any:
    """A view of a run in the middle, at 100 steps/s."""
    found, now = view(), 0.0
    found.pace.clock = lambda: now
    found.started()
    for step in range(345_001, 345_679):
        now += 0.01
        found.pace.decided(step, step, False)
        found.pace.happened([])
    found.pace._began = now - 3_700.0
    found.row(ROW)
    yield found
    found.close()


def test_at_80_columns_everything_that_is_watched_is_there_and_the_bar_gives_way(learning: Any) -> None:
    text = learning.line(80)
    assert text == "345,678/1,000,000  100 steps/s  ETA 1:49:03  return 712  λ 0.50  α 0.012"
    wide = learning.line(160)
    assert re.fullmatch(r"━+╌+  345,678/1,000,000  100 steps/s  ETA 1:49:03  return 712  train 640  Q 81\.20  λ 0\.50  α 0\.012"
                        r"  1:01:40 gone", wide)  # fmt: skip
    assert all(len(learning.line(width)) <= width for width in range(20, 200))
    bars = [sum(c in "━╌" for c in learning.line(width)) for width in (80, 90, 160, 200)]
    assert bars == sorted(bars) and bars[0] == 0 and bars[1] >= 10 and bars[-1] == 40


def test_compiling_and_evaluating_are_said(learning: Any) -> None:
    learning.compiler.busy = True
    assert "  compiling  " in learning.line(80)
    learning.compiler.busy = False
    learning.trainer.due = lambda every: every == 5_000
    learning.decided()
    assert "  evaluating  " in learning.line(80)
    learning.over()
    assert "  100 steps/s  " in learning.line(80)


def test_what_was_measured_is_said_once(learning: Any) -> None:
    learning.over()
    learning.over()
    assert learning.told[2:] == ["measured here: 100 updates/s, 100 steps/s; about 1.8 h to go"]


def test_a_run_that_begins_says_how_long_all_of_it_takes(learning: Any) -> None:
    learning._first = True  # an hour and 1:40 are gone, 1:49:03 to go
    learning.over()
    assert learning.told[2:] == ["measured here: 100 updates/s, 100 steps/s; 1,000,000 steps in about 2.8 h"]
    assert len(learning.told[2]) <= 80


def test_a_trainer_is_left_as_it_was() -> None:
    found = view()
    assert found.trainer.events
    found.close()
    assert found.trainer.events == [] and found.trainer.on_decision() is None


def test_jax_says_when_it_compiles() -> None:
    import jax

    heard: list[bool] = []
    compiler = Compiler(lambda: heard.append(compiler.busy))
    function = jax.jit(lambda x: x * 3 + 1)
    function(2.0)
    assert heard[-2:] == [True, False] and compiler.count >= 1 and compiler.seconds > 0
    count = compiler.count
    function(3.0)
    compiler.close()
    jax.jit(lambda x: x * 5 + 1)(2.0)
    assert compiler.count == count


# --- Python -----------------------------------------------------------------------------------------------------------


def test_python_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    beeline.SAC(WALK, **small("sac")).learn(40)
    assert capsys.readouterr().out == ""


def test_python_shows_runs_on_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    beeline.train("bac", WALK, out=tmp_path / "run", **small("bac"))
    out = capsys.readouterr().out
    assert "bac on toys:Walk-v0, seed 0, 120 environment steps\n" in out
    assert re.search(r"120/120 .*ETA 0:00  return .*λ 0\.50  α", out)
    model = beeline.BAC(WALK, **small("bac"))
    model.learn(40)
    assert "40/40" in capsys.readouterr().out
    model.learn(20)
    assert "60/60" in capsys.readouterr().out
    model.learn(20, verbose=0)
    beeline.train("bac", WALK, out=tmp_path / "silent", verbose=0, **small("bac"))
    beeline.BAC(WALK, verbose=0, **small("bac")).learn(40)
    assert capsys.readouterr().out == ""


def test_python_shows_runs_in_a_notebook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, content: dict[str, str], raw: bool) -> None:
            shown.append(content["text/plain"])

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(content["text/plain"])
        return Handle()

    kernel, notebook = ModuleType("IPython"), ModuleType("IPython.display")
    kernel.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    notebook.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    beeline.SAC(WALK, **small("sac")).learn(60)
    assert "evaluating" in shown[0] and re.search(r"\n[━╌]+  60/60  .*ETA 0:00  return ", shown[-1])
    assert capsys.readouterr().out == ""
    count = len(shown)
    beeline.SAC(WALK, **small("sac")).learn(60, verbose=0)
    assert len(shown) == count


def test_where_nobody_looks_there_is_no_display() -> None:
    found: Any = automatic(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    assert found is None


@pytest.mark.parametrize("kind", [BarDisplay, LineDisplay])
def test_brackets_are_shown_as_they_are(kind: type[View], capsys: pytest.CaptureFixture[str]) -> None:
    found = view(kind, env="my[/x]:A-v1")
    found.row(ROW)
    found.close()
    out = capsys.readouterr().out
    assert "bac on my[/x]:A-v1" in out and "run folder: runs/[/x]\n" in out


def test_sentences_above_the_live_line_are_broken_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    view(BarDisplay, env="my_package.envs:Reach-v0").close()
    assert "bac on my_package.envs:Reach-v0, seed 0,\n1,000,000 environment steps\n" in capsys.readouterr().out
