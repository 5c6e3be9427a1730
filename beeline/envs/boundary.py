"""Where the world comes in: what an environment does wrong becomes one sentence of ours, here and nowhere else.

Everything that an environment returns is looked at once, in the type in which it is kept (float32), before anything else
sees it: training, evaluation, instruments, films and `beeline check-env` read adapted environments, and these read here.
What is as promised passes quickly; whatever is not is looked at again, slowly, for the words.
"""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beeline.errors import EnvError, NonFiniteError

if TYPE_CHECKING:
    import gymnasium

FLOAT32 = np.dtype(np.float32)
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = -LARGEST
BOOLS = frozenset({bool, np.bool_})
NUMBERS = frozenset({float, int, np.float64, np.float32, np.int64})
SUCCESS_KEYS = ("success", "is_success", "solved", "goal_achieved")
FEW = 16  # numbers, up to which Python adds them up faster than NumPy is called
FRAMES = 3  # last lines of the user's own code that are shown
OURS = str(Path(__file__).parents[1])
Flatten = Callable[[Any], np.ndarray]
# What overflows in the quick look is told in words by the slow one, or was no fault at all.
warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning, r"beeline\.envs\.(adapter|boundary)")


# --- exceptions of the user's code --------------------------------------------------------------------------------------


def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (OURS, "<frozen", *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The last frames of the user's code; of the library that failed where none of the frames is the user's."""
    found = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in found if not frame.filename.startswith(OURS)]
    own = [frame for frame in theirs if not frame.filename.startswith(_libraries())]
    return (own or theirs)[-FRAMES:]


def _short(path: str) -> str:
    """A file's name as seen from the working folder."""
    with contextlib.suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def failed(what: str, error: Exception) -> EnvError:
    """The user's own exception as an error of ours: one line with file and line, the last frames as a note beside it."""
    if isinstance(error, SyntaxError):  # its place is in the exception, not in the frames
        places = [(error.filename or "?", error.lineno, "", (error.text or "").strip())]
        said = error.msg
    else:
        places = [(frame.filename, frame.lineno, f", in {frame.name}", frame.line or "") for frame in _own_frames(error)]
        said = " ".join(str(error).split())
    where = f" ({_short(places[-1][0])}, line {places[-1][1]})" if places else ""
    told = EnvError(f"{what}: {type(error).__name__}{': ' if said else ''}{said}{where}")
    for file, line, function, code in places:
        told.add_note(f"  {_short(file)}, line {line}{function}\n    {code}")
    return told


@contextlib.contextmanager
def calling(what: str) -> Iterator[None]:
    """Code of the user runs inside: an exception of its own is told as `what`, errors of ours pass."""
    try:
        yield
    except EnvError:
        raise
    except Exception as error:
        raise failed(what, error) from error


@contextlib.contextmanager
def during(place: str) -> Iterator[None]:
    """Errors of an environment inside say where they happened, such as "in an evaluation episode"."""
    try:
        yield
    except EnvError as error:
        raise placed(error, place)  # noqa: B904 (it is the same error)


def placed(error: EnvError, place: str) -> EnvError:
    """The same error, which says where it happened."""
    error.args = (f"{place}: {error}",)
    return error


# --- spaces ---------------------------------------------------------------------------------------------------------


def space_of(env_id: str, env: gymnasium.Env, name: str) -> gymnasium.Space:
    """Return `observation_space` or `action_space`, or say that it is missing or no space."""
    import gymnasium

    space = getattr(env, name, None)
    if isinstance(space, gymnasium.Space):
        return space
    example = "Box(-1.0, 1.0, (2,))" if name == "action_space" else "Box(-np.inf, np.inf, (3,))"
    met = "has no" if space is None else f"has a {type(space).__module__}.{type(space).__qualname__} as"
    raise EnvError(f"environment {env_id!r} {met} {name}. Set it in __init__, such as self.{name} = gymnasium.spaces.{example}.")


# --- what comes out ---------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return f"{value!r} ({type(value).__name__})" if value is not None else "None"
    size = f" of {len(value)}" if isinstance(value, list | tuple | dict) else ""
    return f"a {type(value).__name__}{size}"


class Boundary:
    """Calls one environment and lets through what is as promised."""

    def __init__(self, env: gymnasium.Env, env_id: str, flatten: Flatten | None, size: int) -> None:
        self.env_id, self.taken = env_id, 0  # environment steps of this episode
        self._reset, self._step = env.reset, env.step
        self._flatten, self._shape, self._space = flatten, (size,), env.observation_space
        self._few = size if size <= FEW else 0

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; a flat float32 observation and a dict."""
        self.taken = 0
        try:
            given = self._reset(seed=seed, options=options)
        except Exception as error:
            if isinstance(error, TypeError) and "unexpected keyword argument" in str(error) and not _own_frames(error):
                raise self._refused("it takes no seed or no options: def reset(self, *, seed=None, options=None).") from error
            raise failed(f"environment {self.env_id!r} failed in reset()", error) from error
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise self._refused(f"{shown(given)} was returned, expected are two values: return observation, {{}}.")
        return self.observation(given[0]), self._info(given[1])

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One environment step; observation and reward are as they came, but the reward is a number."""
        self.taken += 1
        try:
            given: Any = self._step(action)
        except Exception as error:
            raise failed(f"environment {self.env_id!r} failed in step()", error) from error
        if given.__class__ is tuple and len(given) == 5:
            _, reward, terminated, truncated, info = given
            if (
                reward.__class__ in NUMBERS
                and (terminated is False or terminated.__class__ in BOOLS)
                and (truncated is False or truncated.__class__ in BOOLS)
                and info.__class__ is dict
            ):
                return given
        return self._examined_step(given)

    def observation(self, given: Any) -> np.ndarray:
        """The observation as a flat float32 array of the promised length, every number finite."""
        try:
            flatten = self._flatten
            flat = given if flatten is None else flatten(given)
            if self._few:
                # A finite sum proves every term finite; float32 numbers do not overflow a sum in float64. Lists of lists
                # and single numbers have no sum, so that the length is the shape.
                numbers = flat.tolist()
                if isfinite(sum(numbers)) and len(numbers) == self._few and flat.dtype is FLOAT32:
                    return flat
            # A finite sum of squares does too, at a third of the price of looking at each; overflow of the squares takes
            # the slow way.
            elif flat.shape == self._shape and flat.dtype is FLOAT32 and isfinite(flat.dot(flat)):
                return flat
        except Exception:  # whatever it was, the slow way finds the words
            pass
        return self._examined_observation(given)

    def success(self, info: dict[str, Any]) -> None:
        """Put the success that a step reports, under whatever name, as a bool under `success`."""
        for key in SUCCESS_KEYS:
            if key in info:
                value = info[key]
                info["success"] = value if value.__class__ is bool else self._success(key, value)
                return

    def reward(self, total: float) -> float:
        """The reward of a step or of a decision, finite in float32."""
        return total if SMALLEST <= total <= LARGEST else self._reward(total)

    # --- the slow way, for the words --------------------------------------------------------------------------------

    def _refused(self, message: str, kind: type[EnvError] = EnvError) -> EnvError:
        at = f"step {self.taken}" if self.taken else "reset"
        return kind(f"environment {self.env_id!r}, {at}: {message}")

    def _examined_step(self, given: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        expected = "observation, reward, terminated, truncated, info"
        if not isinstance(given, tuple | list):
            raise self._refused(f"{shown(given)} was returned, expected are five values: return {expected}.")
        if len(given) == 4:
            raise self._refused(
                "four values were returned, as in old Gym, expected are five: "
                f"return {expected}; `terminated` is a true end, `truncated` a time limit."
            )
        if len(given) != 5:
            raise self._refused(f"{len(given)} values were returned, expected are five: return {expected}.")
        obs, reward, terminated, truncated, info = given
        return (
            obs, self._number(reward), self._flag("terminated", terminated), self._flag("truncated", truncated),
            self._info(info),
        )  # fmt: skip

    def _flag(self, name: str, value: Any) -> bool:
        if value.__class__ in BOOLS or (isinstance(value, np.ndarray) and value.shape == () and value.dtype == np.bool_):
            return bool(value)
        raise self._refused(f"{name} is {shown(value)}, expected is True or False.")

    def _success(self, key: str, value: Any) -> bool:
        if np.ndim(value) == 0 and isinstance(value, int | float | np.generic | np.ndarray):
            return bool(value)
        raise self._refused(f"info[{key!r}] is {shown(value)}, expected is True or False.")

    def _info(self, info: Any) -> dict[str, Any]:
        if isinstance(info, Mapping):
            return info if isinstance(info, dict) else dict(info)
        raise self._refused(f"info is {shown(info)}, expected is a dict, {{}} where there is nothing to say.")

    def _number(self, reward: Any) -> float:
        if np.ndim(reward) == 0 and not isinstance(reward, str | bytes | complex | np.complexfloating):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                return float(reward)
        raise self._refused(f"the reward is {shown(reward)}, expected is one number.")

    def _reward(self, reward: float) -> float:
        if not isfinite(reward):
            raise self._refused(f"the reward is {reward}. Mend the reward function, then resume.", NonFiniteError)
        if abs(reward) > LARGEST:
            raise self._refused(
                f"the reward is {reward:g}, more than float32 holds (at most {LARGEST:.3g}). Scale the reward, then resume.",
                NonFiniteError,
            )
        return reward

    def _examined_observation(self, given: Any) -> np.ndarray:
        parts: Mapping[str, Any] | None = getattr(self._space, "spaces", None)
        if parts is None:
            return self._examined_array("the observation", given, self._space.shape or ())
        if not isinstance(given, Mapping):
            raise self._refused(f"the observation is {shown(given)}, expected is a dict with the keys {', '.join(parts)}.")
        missing = [key for key in parts if key not in given]
        if missing:
            raise self._refused(f"the observation lacks {missing[0]!r}; observation_space has the keys {', '.join(parts)}.")
        for key, space in parts.items():
            self._examined_array(f"observation[{key!r}]", given[key], space.shape)
        assert self._flatten is not None
        return self._flatten({key: np.asarray(given[key]) for key in parts})

    def _examined_array(self, name: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
        numbers = "1 number" if shape == (1,) else f"{shape[0]} numbers"
        expected = f"expected is an array of {numbers}, shape {shape}, as in observation_space"
        try:
            array = np.asarray(given)
        except Exception:
            raise self._refused(f"{name} is {shown(given)} that is no array, {expected}.") from None
        if array.dtype.kind not in "fiub":
            raise self._refused(f"{name} is {shown(given)}, {expected}.")
        if array.shape != shape:
            met = f"has the shape {array.shape}" if isinstance(given, np.ndarray) else f"is {shown(given)}"
            raise self._refused(f"{name} {met}, {expected}.")
        with np.errstate(over="ignore"):
            flat = array.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(flat))
        if bad.size:
            first, label = bad[0], "observation" if name == "the observation" else name
            value, count = array[first], f"{bad.size} of {flat.size} numbers"
            if isfinite(value):
                raise self._refused(
                    f"{label}[{first}] is {value:g}, more than float32 holds (at most {LARGEST:.3g}; {count}). "
                    "Scale the observation, then resume.",
                    NonFiniteError,
                )
            raise self._refused(
                f"{label}[{first}] is {value} ({count} are not finite). The simulation has probably diverged: bound the "
                "actions or mend the environment, then resume.",
                NonFiniteError,
            )
        return flat
