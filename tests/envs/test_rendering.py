import os

import numpy as np
import pytest

from beeline import envs
from beeline.envs import rendering
from beeline.envs.video import record_episode
from beeline.errors import EnvError, Interrupted


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


def test_an_environment_made_without_rendering_says_so(tmp_path):
    env = envs.make("gym/Swimmer-v5")
    with pytest.raises(EnvError, match="render=True"):
        record_episode(env, lambda obs: np.zeros(2), tmp_path / "x.mp4", seed=0)


def test_a_film_that_is_given_up_leaves_no_file(tmp_path):
    env, asked = envs.make("gym/Swimmer-v5?limit=50", render=True), []
    with pytest.raises(Interrupted):
        record_episode(env, lambda obs: np.ones(2), tmp_path / "x.mp4", seed=0, stop=lambda: len(asked) > 3 or asked.append(1))
    assert len(asked) == 4 and not list(tmp_path.iterdir())
