import os

import gymnasium
import numpy as np
import pytest

from beeline import envs
from beeline.api import film
from beeline.envs import rendering
from beeline.envs.sheet import film_strip
from beeline.envs.video import frame_of, key_frames, record_episode
from beeline.errors import EnvError, Interrupted, RunFolderError


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


class Filmed(gymnasium.Env):
    """An environment that draws without any library."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,))
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    render_mode = "rgb_array"

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}

    def render(self):
        return np.full((16, 16, 3), 200, np.uint8)


def test_a_video_replaces_a_link_and_writes_through_none(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    videos = tmp_path / "run" / "videos"
    videos.mkdir(parents=True)
    (videos / "step-1.mp4").symlink_to(precious)
    os.link(precious, videos / "step-2.mp4")
    for name in ("step-1.mp4", "step-2.mp4"):
        record_episode(envs.make(Filmed()), lambda obs: obs, videos / name, seed=0)
        assert precious.read_text() == "mine"
        assert (videos / name).stat().st_size > 100 and not (videos / name).is_symlink()
    assert sorted(path.name for path in videos.iterdir()) == ["step-1.mp4", "step-2.mp4"]


def test_a_film_that_fails_leaves_the_one_before(tmp_path):
    class Breaks(Filmed):
        def step(self, action):
            raise RuntimeError("the motor is hot")

    (tmp_path / "x.mp4").write_text("the one before")
    with pytest.raises(EnvError):
        record_episode(envs.make(Breaks()), lambda obs: obs, tmp_path / "x.mp4", seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["x.mp4"] and (tmp_path / "x.mp4").read_text() == "the one before"


def test_no_video_leaves_the_run_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "videos").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match="videos is a link"):
        film(lambda obs: obs, Filmed, 1, tmp_path / "run" / "videos" / "x.mp4", seed=0)
    assert not list((tmp_path / "elsewhere").iterdir())


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


def test_a_video_that_could_not_be_written_whole_is_none(tmp_path, monkeypatch):
    import imageio.v2 as imageio

    class Screen:
        facts = type("Facts", (), {"id": "screen", "repeat": 1, "max_episode_steps": None, "limit": 1000})
        metadata = {"render_fps": 10}  # noqa: RUF012
        render_mode = "rgb_array"

        def reset(self, seed):
            return np.zeros(1), {}

        def step(self, action):
            return np.zeros(1), 0.0, True, False, {}

        def render(self):
            return np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)

    path = tmp_path / "videos" / "x.mp4"
    assert record_episode(Screen(), lambda obs: obs, path, seed=0).path == path
    whole = path.read_bytes()

    class Cut:
        """An encoder whose disk is full before it has written its index."""

        def __init__(self, part, **more):
            self.part = part

        def __enter__(self):
            return self

        def append_data(self, frame):
            self.part.write_bytes(whole[: whole.index(b"moov")])

        def __exit__(self, *failure):
            pass

    monkeypatch.setattr(imageio, "get_writer", Cut)
    other = path.with_name("y.mp4")
    with pytest.raises(RunFolderError, match=r"y\.mp4 could not be written whole\. Is the disk full\?"):
        record_episode(Screen(), lambda obs: obs, other, seed=0)
    assert list(path.parent.iterdir()) == [path]


def test_a_film_that_is_given_up_leaves_no_file(tmp_path):
    env, asked = envs.make("gym/Swimmer-v5?limit=50", render=True), []
    with pytest.raises(Interrupted):
        record_episode(env, lambda obs: np.ones(2), tmp_path / "x.mp4", seed=0, stop=lambda: len(asked) > 3 or asked.append(1))
    assert len(asked) == 4 and not list(tmp_path.iterdir())
