"""The live page: what it serves, and what it refuses."""

import http.client
import json
import os
import shutil
import threading

import pytest
from report_fixtures import make_run

from beeline.errors import ConfigError, RunFolderError, UnknownNameError
from beeline.report.live import Watched, make_server


@pytest.fixture
def served(tmp_path):
    root = tmp_path / "runs"
    run = make_run(root, steps=20_000, done=10_000, state="running", name="one")
    (run / "videos").mkdir()
    (run / "videos" / "a.mp4").write_bytes(b"film")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "secret.mp4").write_bytes(b"secret")
    server = make_server(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield root, server.server_address[1]
    server.shutdown()
    server.server_close()


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_page_and_data(served):
    _, port = served
    status, body = get(port, "/")
    assert status == 200
    assert b'"live":true' in body
    data = json.loads(get(port, "/data.json")[1])
    assert data["summary"]["runs"] == 1
    assert data["version"] == get(port, "/version")[1].decode()
    assert data["videos"][0]["src"] == "video/one/videos/a.mp4"
    assert get(port, "/video/one/videos/a.mp4") == (200, b"film")


def test_it_follows_the_runs(served):
    root, port = served
    before = get(port, "/version")[1]
    assert get(port, "/version")[1] == before
    with (root / "one" / "metrics.csv").open("a") as file:
        file.write("15000,,,,,,999.0" + "," * 12 + "\n")
    assert get(port, "/version")[1] != before
    curve = json.loads(get(port, "/data.json")[1])["tasks"][0]["curves"][0]
    assert (curve["steps"][-1], curve["mean"][-1]) == (15_000, 999.0)
    make_run(root, "sac", steps=20_000, name="two")
    assert json.loads(get(port, "/data.json")[1])["summary"]["runs"] == 2


@pytest.mark.parametrize("path", [
    "/video/../videos/secret.mp4", "/video/%2e%2e/videos/secret.mp4", "/video/..%2fvideos%2fsecret.mp4",
    "/video//etc/passwd", "/video/one/config.json", "/video/one/videos/../config.json", "/one/config.json", "/etc/passwd",
    "/video/", "/video/one/videos/none.mp4", "/video/%00", "/video/one/videos/a%00.mp4", "/video/" + "x" * 5000 + ".mp4",
    "/video/one/videos/%ff.mp4", "/video/one/videos", "/video/one/videos/loop.mp4",
])
def test_paths_outside_are_refused(served, path):
    root, port = served
    (root / "one" / "videos" / "loop.mp4").symlink_to("loop.mp4")
    status, body = get(port, path)
    assert status == 404
    assert b"secret" not in body


def test_absolute_path_and_link_are_refused(served, tmp_path):
    root, port = served
    assert get(port, f"/video/{tmp_path}/videos/secret.mp4")[0] == 404
    (root / "one" / "videos" / "link.mp4").symlink_to(tmp_path / "videos" / "secret.mp4")
    assert get(port, "/video/one/videos/link.mp4")[0] == 404


def test_a_pipe_among_the_videos_is_refused_at_once(served):
    root, port = served
    os.mkfifo(root / "one" / "videos" / "pipe.mp4")
    assert get(port, "/video/one/videos/pipe.mp4")[0] == 404


def test_a_damaged_run_is_a_warning_of_the_page_until_it_is_mended(served):
    root, port = served
    sound = (root / "one" / "status.json").read_text()
    (root / "one" / "status.json").write_text('{"state": "running", "step": "600"}')
    data = json.loads(get(port, "/data.json")[1])
    assert data["summary"]["runs"] == 1
    assert data["warnings"][0] == "one: status.json is damaged (step is '600', no number of steps)."
    assert json.loads(get(port, "/data.json")[1])["warnings"] == data["warnings"]  # also where nothing is read anew
    assert get(port, "/")[0] == 200
    (root / "one" / "status.json").write_text(sound)
    assert not any("damaged" in text for text in json.loads(get(port, "/data.json")[1])["warnings"])


def test_a_root_that_is_gone_is_an_answer(served):
    root, port = served
    shutil.rmtree(root)
    status, body = get(port, "/data.json")
    assert (status, body) == (500, f"{root} does not exist.".encode())


def test_foreign_host_names_are_refused(served):
    _, port = served
    assert get(port, "/", host="evil.example")[0] == 403
    assert get(port, "/data.json", host=f"evil.example:{port}")[0] == 403
    assert get(port, "/version", host=f"localhost:{port}")[0] == 200


def test_only_the_loopback_address(tmp_path):
    for host in ("0.0.0.0", "192.168.1.5", "example.org", ""):
        with pytest.raises(ConfigError, match="ssh -L"):
            make_server(tmp_path, host)
    with pytest.raises(RunFolderError):
        make_server(tmp_path / "nowhere")
    with pytest.raises(UnknownNameError):
        make_server(tmp_path, overlay=["nope"])


def test_a_taken_port_is_explained(tmp_path):
    first = make_server(tmp_path)
    try:
        with pytest.raises(ConfigError, match="another port"):
            make_server(tmp_path, port=first.server_address[1])
    finally:
        first.server_close()


def test_an_empty_root_gives_an_empty_page(tmp_path):
    data = Watched(tmp_path).data()
    assert data["summary"]["runs"] == 0
    assert data["tasks"] == []
