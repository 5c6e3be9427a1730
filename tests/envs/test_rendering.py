import os

import numpy as np
import pytest

from beeline import envs
from beeline.envs import rendering
from beeline.envs.sheet import film_strip
from beeline.envs.video import frame_of, key_frames, record_episode
from beeline.errors import EnvError


@pytest.fixture
def choose(monkeypatch):
    """Return a function that chooses among the backends said to work, starting from a given MUJOCO_GL."""

    def run(working, wished=None):
        rendering._search.cache_clear()
        monkeypatch.setattr(rendering, "works", lambda name: name in working)
        monkeypatch.delenv("MUJOCO_GL", raising=False)
        monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
        if wished is not None:
            monkeypatch.setenv("MUJOCO_GL", wished)
        return rendering.choose_backend(), os.environ.get("MUJOCO_GL")

    yield run
    rendering._search.cache_clear()


def test_egl_comes_before_osmesa(choose):
    assert choose({"egl", "osmesa"})[1] == "egl"
    assert choose({"osmesa"})[1] == "osmesa"


def test_a_working_wish_is_kept_and_a_broken_one_replaced(choose):
    assert choose({"egl", "osmesa"}, "osmesa")[1] == "osmesa"
    backend, variable = choose({"osmesa"}, "glfw")
    assert variable == "osmesa" and "glfw was asked for" in backend.message


def test_without_a_library_the_message_names_the_packages(choose):
    backend, variable = choose(set(), "")
    assert backend.name is None and variable is None
    for package in ("libegl1", "libgl1-mesa-dri", "libosmesa6"):
        assert package in backend.message


def test_an_impossible_backend_does_not_work():
    assert rendering.works("no-such-backend") is False


def test_an_episode_becomes_a_video(tmp_path):
    if rendering.choose_backend().name is None:
        pytest.skip(rendering.INSTALL)
    import imageio.v2 as imageio

    env = envs.make("gym/Swimmer-v5?limit=12&repeat=2", render=True)
    result = record_episode(env, lambda obs: np.ones(2), tmp_path / "videos" / "swim.mp4", seed=0)
    again = record_episode(env, lambda obs: np.ones(2), tmp_path / "again.mp4", seed=0, fps=10)
    assert (result.steps, result.success) == (12, None)
    assert result.episode_return == again.episode_return
    with imageio.get_reader(result.path) as reader:
        assert reader.count_frames() == 7  # the first frame and one per decision
        frame = reader.get_data(6)
    assert frame.shape[0] % 2 == 0 and frame.shape[1] % 2 == 0 and frame.std() > 5, "not a black picture"


def test_key_frames_are_evenly_spaced_and_become_rows_of_a_picture(tmp_path):
    if rendering.choose_backend().name is None:
        pytest.skip(rendering.INSTALL)
    from PIL import Image

    def ones(obs):
        return np.ones(2)

    env = envs.make("gym/Swimmer-v5?limit=24&repeat=2", render=True)  # 12 decisions; a step is 0.04 s, drawn at 25 per second
    frames, total = key_frames(env, lambda: ones, seed=0, count=5)
    assert [frame.seconds for frame in frames] == pytest.approx([0, 0.24, 0.48, 0.72, 0.96])
    record = record_episode(env, ones, tmp_path / "swim.mp4", seed=0)
    assert total == pytest.approx(record.episode_return)
    env.reset(seed=0)
    assert (frame_of(env) == frames[0].picture).all()
    for _ in range(3):
        env.step(np.ones(2))
    assert (frame_of(env) == frames[1].picture).all()
    short, _ = key_frames(envs.make("gym/Swimmer-v5?limit=2", render=True), lambda: ones, seed=0, count=7)
    assert len(short) == 3  # the start and two steps
    film_strip(tmp_path / "new" / "strip.png", [("one", frames), ("another", short)])
    picture = np.asarray(Image.open(tmp_path / "new" / "strip.png").convert("RGB"))
    assert picture.shape == (2 * 250, 5 * 200, 3)
    assert picture[40:220, 810:990].std() > 5 and picture[290:470, 610:].std() == 0  # the second row ends after three


def test_an_environment_made_without_rendering_says_so(tmp_path):
    env = envs.make("gym/Swimmer-v5")
    with pytest.raises(EnvError, match="render=True"):
        record_episode(env, lambda obs: np.zeros(2), tmp_path / "x.mp4", seed=0)
