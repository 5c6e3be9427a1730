"""The page as a reader meets it, in headless Chromium. Set BEELINE_SCREENSHOTS to a folder to keep the pictures."""

import os
import threading
import time
from pathlib import Path

import pytest
from report_fixtures import make_matrix, make_run

from beeline import report
from beeline.report.live import make_server

pytestmark = pytest.mark.browser
LINES = (
    "return [...document.querySelector('#curves figure').querySelectorAll('path[data-series]')]"
    ".map((p) => p.dataset.series)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two algorithms on two tasks of five seeds; one video; one name that tries to be a script."""
    root = tmp_path_factory.mktemp("report")
    make_matrix(root / "runs", seeds=5, steps=50_000)
    film = root / "runs" / "bac-dmc-walker-run-0" / "videos"
    film.mkdir()
    (film / "a.mp4").write_bytes(b"not really a film")
    return report.build([root / "runs"], root / "report.html")


@pytest.fixture
def opened(browser, page):
    browser.size(1280, 900)
    browser.scheme("light")
    browser.open(page.as_uri())
    browser.run("try { localStorage.clear() } catch {} delete document.documentElement.dataset.theme")
    browser.console(), browser.requests()
    browser.open(page.as_uri())
    return browser


def keep(browser, tmp_path, name):
    folder = Path(os.environ.get("BEELINE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    browser.screenshot(folder / f"{name}.png")
    return (folder / f"{name}.png").read_bytes()


def test_loads_with_no_error_and_no_request(opened, page):
    assert opened.console() == []
    requests = opened.requests()
    assert requests[0] == page.as_uri()
    assert all(one.startswith("data:") for one in requests[1:])
    assert opened.run("return document.querySelectorAll('#curves figure').length") == 2
    assert opened.run("return document.querySelectorAll('section h2').length") == 6
    text = opened.run("return document.body.innerText")
    assert "2 algorithms × 2 tasks × 5 seeds each" in text
    assert "beats a run of sac with probability" in text
    assert "NaN" not in text
    assert "undefined" not in text


def test_a_line_is_hidden_and_shown_by_its_name(opened):
    assert opened.run(LINES) == ["bac", "sac"]
    opened.click('[data-line="1"]')
    assert opened.run(LINES) == ["bac"]
    assert opened.run("return document.querySelector('[data-line=\"1\"]').getAttribute('aria-pressed')") == "false"
    assert opened.run("return [...document.querySelectorAll('#final thead th')].map((th) => th.textContent)") == [
        "task", "at step", "bac", ""]
    opened.click('[data-line="1"]')
    assert opened.run(LINES) == ["bac", "sac"]
    assert opened.console() == []


def test_all_lines_hidden_is_no_error(opened):
    opened.click('[data-line="0"]')
    opened.click('[data-line="1"]')
    assert opened.run(LINES) == []
    assert opened.console() == []


def test_each_seed(opened):
    count = "return document.querySelectorAll('#curves path.run').length"
    assert opened.run(count) == 0
    opened.click("#seeds")
    assert opened.run(count) == 2 * 2 * 5


def test_published_curves_appear_with_their_notes(opened):
    count = "return document.querySelectorAll('#curves path.pub').length"
    assert opened.run(count) == 0
    opened.click("#overlays summary")
    opened.click('[data-overlay="bee_figures/bac"]')
    assert opened.run(count) == 2
    captions = opened.run("return [...document.querySelectorAll('#curves figcaption')].map((c) => c.textContent)")
    assert captions == ["bee_figures/bac: action repeat 1, these runs 2; read off figures, error about 1 % of the axis"] * 2
    opened.click('[data-overlay="tdmpc2/sac"]')
    assert opened.run(count) == 4
    last = (
        "return [...document.querySelector('#curves figure svg').querySelectorAll('text')]"
        ".some((e) => e.textContent === '4M')"
    )
    assert not opened.run(last)
    opened.click("#extend")
    assert opened.run(last)
    opened.click('[data-overlay="bee_figures/bac"]')
    assert opened.run(count) == 2
    assert opened.console() == []


def test_values_under_the_pointer_and_the_keys(opened):
    assert opened.run("return document.getElementById('tip').hidden")
    opened.point("#curves figure svg[tabindex]", 0.5, 0.5)
    opened.wait("return !document.getElementById('tip').hidden")
    text = opened.run("return document.getElementById('tip').innerText")
    assert "steps" in text
    assert "bac" in text
    assert "n = 5" in text
    inside = "const b = document.getElementById('tip').getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth"
    assert opened.run(inside)
    opened.run("const s = document.querySelector('#curves figure svg[tabindex]'); s.focus();"
               "s.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}))")
    assert opened.run("return document.getElementById('tip').innerText") != text


def test_signals_can_be_chosen(opened):
    head = "return document.querySelector('#signals figure .note').textContent"
    assert opened.run(head) == "diag/bias"
    opened.click('[data-signal="alpha"]')
    assert opened.run(head) == "alpha"
    assert opened.run("return document.activeElement.dataset.signal") == "alpha"  # the focus stays where it was


def test_dark_by_the_system_and_by_the_switch(opened, page, tmp_path):
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = opened.run(ground)
    opened.scheme("dark")
    dark = opened.run(ground)
    assert dark != light
    opened.click("#theme")
    assert opened.run(ground) == light
    opened.click("#theme")
    assert opened.run(ground) == dark
    keep(opened, tmp_path, "dark")
    opened.scheme("light")
    assert opened.run(ground) == dark  # the switch wins


@pytest.mark.parametrize("width", [360, 820, 1280, 1920])
def test_no_width_needs_sideways_scrolling(opened, page, tmp_path, width):
    opened.size(width, 900, width < 500)
    opened.open(page.as_uri())
    # Against the device's width: on a phone innerWidth grows with a page that is too wide.
    assert opened.run("return document.documentElement.scrollWidth") <= width
    fits = ("return [...document.querySelectorAll('svg[viewBox]')].every((s) => {"
            "const b = s.getBoundingClientRect(); return b.right <= arguments[0] + 1 || s.closest('.scroll')})")
    assert opened.run(fits, width)
    small = (
        "return Math.min(...[...document.querySelectorAll('#curves svg[tabindex]')]"
        ".map((s) => s.getBoundingClientRect().width / s.viewBox.baseVal.width))"
    )
    assert opened.run(small) > 0.9  # text is drawn at its own size, not shrunk
    assert keep(opened, tmp_path, f"width-{width}")[:4] == b"\x89PNG"


def test_resizing_draws_again(opened):
    width = "return document.querySelector('#curves svg[tabindex]').viewBox.baseVal.width"
    before = opened.run(width)
    opened.size(400, 900)
    opened.wait(f"return (() => {{ {width} }})() < {before}")


def test_print_is_black_on_white_and_opens_the_particulars(opened):
    opened.devtools("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    shown = opened.run("return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
                       "getComputedStyle(document.querySelector('#seeds')).display,"
                       "getComputedStyle(document.querySelector('#theme')).display,"
                       "getComputedStyle(document.querySelector('#curves path.line')).stroke]")
    assert shown == ["rgb(255, 255, 255)", "rgb(0, 0, 0)", "none", "none", "rgb(0, 114, 178)"]
    opened.devtools("Emulation.setEmulatedMedia", media="")
    opened.devtools("Page.printToPDF")
    assert opened.run("return [...document.querySelectorAll('details:not(.plain)')].every((d) => d.open)")


def test_names_are_text(browser, tmp_path):
    evil = "<img src=x onerror=\"window.bad=1\">"
    make_run(tmp_path / "runs", evil, steps=20_000, name="evil", agent={"x": evil}, reason=evil)
    browser.open(report.build([tmp_path / "runs"], tmp_path / "r.html").as_uri())
    assert browser.run("return document.querySelector('h1').textContent").startswith(evil)
    assert browser.run("return window.bad") is None
    assert browser.run("return document.querySelectorAll('img').length") == 0


def test_a_run_without_evaluations_has_an_empty_state(browser, tmp_path):
    browser.console()
    make_run(tmp_path / "runs", steps=20_000, done=2000, state="running")
    browser.open(report.build([tmp_path / "runs"], tmp_path / "r.html").as_uri())
    assert browser.console() == []
    text = browser.run("return document.body.innerText")
    assert "No evaluation yet." in text
    assert "Aggregates need" in text
    assert "not there yet" in text


def test_two_hundred_runs_open_in_under_three_seconds(browser, tmp_path):
    tasks = [f"dmc/{name}" for name in ("walker-run", "walker-stand", "finger-spin", "hopper-stand", "reacher-hard",
                                        "reacher-easy", "cheetah-run", "dog-run", "humanoid-run", "quadruped-walk")]
    make_matrix(tmp_path / "runs", ("bac", "bee-td3", "sac", "td3"), tasks, 5, steps=200_000, log=5000)
    out = report.build([tmp_path / "runs"], tmp_path / "r.html")
    assert out.stat().st_size < 3_000_000
    browser.size(1280, 900)
    browser.console()
    start = time.monotonic()
    browser.open(out.as_uri())
    browser.wait("return document.documentElement.dataset.ready")
    assert time.monotonic() - start < 3.0
    assert browser.console() == []
    assert browser.run("return document.querySelectorAll('#curves figure svg[tabindex]').length") == 10
    toggle = "const t = performance.now(); document.querySelector('[data-line]').click(); return performance.now() - t"
    assert browser.run(toggle) < 1500
    keep(browser, tmp_path, "200-runs")


def test_the_live_page_follows_and_keeps_what_the_reader_chose(browser, tmp_path):
    make_run(tmp_path, "bac", steps=50_000, done=20_000, state="running")
    make_run(tmp_path, "sac", steps=50_000, done=20_000, state="running")
    server = make_server(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.console(), browser.requests()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        browser.open(address)
        browser.click('[data-line="1"]')
        assert browser.run(LINES) == ["bac"]
        make_run(tmp_path, "aaa", steps=50_000, done=20_000, state="running")  # sorts before both: numbers move
        browser.wait("return document.querySelectorAll('[data-line]').length === 3")
        assert browser.run(LINES) == ["aaa", "bac"]
        assert browser.console() == []
        assert {one[: len(address)] for one in browser.requests() if not one.startswith("data:")} == {address}
    finally:
        browser.open("about:blank")
        server.shutdown()
        server.server_close()
