import pytest
import report_browser


def pytest_configure(config):
    config.addinivalue_line("markers", "browser: drives the report in headless Chromium; skipped where there is none")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not (report_browser.CHROMIUM and report_browser.DRIVER):
        pytest.skip("no Chromium with chromedriver on the path (Debian: apt install chromium chromium-driver)")
    found = report_browser.Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
