"""Mistakes that people make with their environments and options, and what is said: run by a test, shown in docs/mistakes.md.

`said` is what is said, word for word; "…" stands for a path, a line or another part that is not the same everywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MODULE = "tank"  # what MODULE_TEXT is called where the commands run
MODULE_TEXT = '''
import gymnasium
import numpy as np

class Tank(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, size=1, mode="slow"):
        self.size, self.mode = size, mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), 0.0, False, False, {}

gymnasium.register("Tank-v0", Tank, max_episode_steps=20)
'''
BROKEN, BROKEN_TEXT = "broken_tank", "import gymnasium\n\nclass Tank(gymnasium.Env\n    pass\n"


@dataclasses.dataclass(frozen=True)
class Mistake:
    """What somebody did, in words; what is said; and the doing, which returns what was said."""

    did: str
    said: str
    doing: Callable[[], str]


class Tank(gymnasium.Env):
    """As it should be: three observations, one action, episodes of 20 steps."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)
    spec = gymnasium.envs.registration.EnvSpec("Tank-v0", max_episode_steps=20)

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> Any:
        return self.observe(), 0.0, False, False, {}


def checked(env: Any) -> str:
    """The first error or warning of a check."""
    from beeline import envs

    return next((finding.message for finding in envs.check(env) if finding.level != "ok"), "nothing")


def returning(place: int, value: Any) -> Callable[[], str]:
    """A `step` that returns another value at one of its five places."""

    class Odd(Tank):
        def step(self, action: np.ndarray) -> Any:
            outcome = list(super().step(action))
            outcome[place] = value
            return tuple(outcome)

    return lambda: checked(Odd)


def answering(call: str, answer: Callable[[Tank], Any]) -> Callable[[], str]:
    """A `reset` or `step` that does something else."""
    return lambda: checked(type("Odd", (Tank,), {call: lambda self, *args, **more: answer(self)}))


def having(**attributes: Any) -> Callable[[], str]:
    """A class with other attributes."""
    return lambda: checked(type("Odd", (Tank,), attributes))


def command(*words: str) -> Callable[[], str]:
    """A `beeline` command; what it prints on either stream."""

    def run() -> str:
        from beeline.cli import main

        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(list(words))
        beside = ("ok ", "  ", "usage:")
        lines = [line.removeprefix("error   ") for line in out.getvalue().splitlines() if not line.startswith(beside)]
        return lines[0] if lines else "nothing"

    return run


def bench(*words: str) -> Callable[[], str]:
    """A matrix of one run with options of its own."""
    return command("bench", "--algos", "bac", "--tasks", f"{MODULE}:Tank-v0", *words)


def tune(*words: str) -> Callable[[], str]:
    """A search."""
    return command("tune", "bac", f"{MODULE}:Tank-v0", *words)


def brought(option: str) -> Callable[[], str]:
    """A `beeline train sac` with an option that it has not."""
    return command("train", "sac", f"{MODULE}:Tank-v0", option, "1")


def train(algo: str, *words: str, task: str = f"{MODULE}:Tank-v0") -> Callable[[], str]:
    """A training that does not begin."""
    return command("train", algo, task, *words)


def python(doing: Callable[[], object]) -> Callable[[], str]:
    """Python code; its error, or its first warning."""

    def run() -> str:
        from beeline.errors import BeelineError

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                doing()
            except BeelineError as error:
                return str(error)
        return str(caught[0].message) if caught else "nothing"

    return run


def model(env: Any, **options: Any) -> Any:
    import beeline

    return beeline.SAC(env, hidden=(8, 8), **options)


def _sac() -> Any:
    import beeline

    return beeline.SAC


def _above() -> str:
    """A command on the folder above two run folders."""
    for name in ("one", "two"):
        folder = Path("runs") / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    return command("eval", "runs")()


def _deploying() -> str:
    """A run folder is deployed."""
    Path("my run").mkdir()
    return command("deploy", "my run")()


def _raise(error: Exception) -> Any:
    raise error


def _cold(self: Tank) -> Any:
    raise RuntimeError("the pump is cold")


def _hot(self: Tank) -> Any:
    raise RuntimeError("the pump is hot")


def _closing() -> None:
    from beeline import envs

    envs.make(type("Odd", (Tank,), {"close": lambda self: {}["pump"]})).close()


WANTED = "expected is an array of 3 numbers, shape (3,), as in observation_space."
FIVE = "return observation, reward, terminated, truncated, info"
GOAL = spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (2,)), "desired_goal": spaces.Box(-1.0, 1.0, (1,))})
ODD = "environment 'gym/Tank-v0'"

MISTAKES = [
    # --- what `step` returns
    Mistake("`step` returns an observation of one number", f"{ODD}, step 1: the observation has the shape (1,), {WANTED}",
            returning(0, np.zeros(1))),
    Mistake("`step` returns a number as the observation", f"{ODD}, step 1: the observation is 0.5 (float), {WANTED}",
            returning(0, 0.5)),
    Mistake("`step` returns a row of a batch", f"{ODD}, step 1: the observation has the shape (1, 3), {WANTED}",
            returning(0, np.zeros((1, 3)))),
    Mistake("`step` returns an observation of text",
            f"{ODD}, step 1: the observation is an array of shape (3,) and dtype <U3, {WANTED}",
            returning(0, np.array(["0.1", "0.2", "0.3"]))),
    Mistake("`step` returns no observation", f"{ODD}, step 1: the observation is None, {WANTED}", returning(0, None)),
    Mistake("the simulation diverges",
            f"{ODD}, step 1: observation[1] is nan (1 of 3 numbers are not finite). The simulation has probably diverged: bound "
            "the actions or mend the environment, then resume.", returning(0, np.array([0, np.nan, 0]))),
    Mistake("an observation is too large",
            f"{ODD}, step 1: observation[2] is 1e+39, more than float32 holds (at most 3.4e+38; 1 of 3 numbers). Scale the "
            "observation, then resume.", returning(0, np.array([0, 0, 1e39]))),
    Mistake("`step` returns the reward None", f"{ODD}, step 1: the reward is None, expected is one number.", returning(1, None)),
    Mistake("`step` returns an array as the reward",
            f"{ODD}, step 1: the reward is an array of shape (1,) and dtype float64, expected is one number.",
            returning(1, np.zeros(1))),
    Mistake("`step` returns text as the reward", f"{ODD}, step 1: the reward is '1.0' (str), expected is one number.",
            returning(1, "1.0")),
    Mistake("the reward is NaN", f"{ODD}, step 1: the reward is nan. Mend the reward function, then resume.",
            returning(1, float("nan"))),
    Mistake("the reward is too large",
            f"{ODD}, step 1: the reward is 1e+39, more than float32 holds (at most 3.4e+38). Scale the reward, then resume.",
            returning(1, 1e39)),
    Mistake("`terminated` is text", f"{ODD}, step 1: terminated is 'False' (str), expected is True or False.",
            returning(2, "False")),
    Mistake("`truncated` is a number", f"{ODD}, step 1: truncated is 0 (int), expected is True or False.", returning(3, 0)),
    Mistake("`info` is None", f"{ODD}, step 1: info is None, expected is a dict, {{}} where there is nothing to say.",
            returning(4, None)),
    Mistake("`info` is a list",
            f"{ODD}, step 1: info is a list of 0, expected is a dict, {{}} where there is nothing to say.", returning(4, [])),
    Mistake("`info` reports the success of several things",
            f"{ODD}, step 1: info['success'] is a list of 2, expected is True or False.",
            returning(4, {"success": [True, False]})),
    Mistake("`step` returns four values, as old Gym's did",
            f"{ODD}, step 1: four values were returned, as in old Gym, expected are five: {FIVE}; `terminated` is a true end, "
            "`truncated` a time limit.", answering("step", lambda self: (self.observe(), 0.0, False, {}))),
    Mistake("`step` returns the observation alone",
            f"{ODD}, step 1: an array of shape (3,) and dtype float32 was returned, expected are five values: {FIVE}.",
            answering("step", lambda self: self.observe())),
    Mistake("`step` raises an exception",
            f"{ODD} failed in step(): RuntimeError: the pump is hot (…mistakes.py, line …)…", answering("step", _hot)),
    # --- what `reset` returns
    Mistake("`reset` returns the observation alone",
            f"{ODD}, reset: an array of shape (3,) and dtype float32 was returned, expected are two values: return "
            "observation, {}.", having(reset=lambda self, seed=None, options=None: np.zeros(3, np.float32))),
    Mistake("`reset` returns an observation of another shape",
            f"{ODD}, reset: the observation has the shape (4,), {WANTED}", having(observe=lambda self: np.zeros(4))),
    Mistake("`reset` takes no seed",
            f"{ODD}, reset: it takes no seed or no options: def reset(self, *, seed=None, options=None).",
            having(reset=lambda self: (np.zeros(3), {}))),
    Mistake("`reset` raises an exception",
            f"{ODD} failed in reset(): RuntimeError: the pump is cold (…mistakes.py, line …)…", answering("reset", _cold)),
    Mistake("a Dict observation lacks a key",
            f"{ODD}, reset: the observation lacks 'desired_goal'; observation_space has the keys desired_goal, observation.",
            having(observation_space=GOAL, observe=lambda self: {"observation": np.zeros(2)})),
    Mistake("a part of a Dict observation has another shape",
            f"{ODD}, reset: observation['desired_goal'] has the shape (2,), expected is an array of 1 number, shape (1,), as in "
            "observation_space.",
            having(observation_space=GOAL, observe=lambda self: {"observation": np.zeros(1), "desired_goal": np.zeros(2)})),
    # --- spaces and classes
    Mistake("the observation space is missing",
            f"{ODD} has no observation_space. Set it in __init__, such as self.observation_space = "
            "gymnasium.spaces.Box(-np.inf, np.inf, (3,)).", having(observation_space=None)),
    Mistake("the action space is missing",
            f"{ODD} has no action_space. Set it in __init__, such as self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,)).",
            having(action_space=None)),
    Mistake("the action space is a pair of numbers",
            f"{ODD} has a builtins.tuple as action_space. Set it in __init__, such as self.action_space = "
            "gymnasium.spaces.Box(-1.0, 1.0, (2,)).", having(action_space=(-1, 1))),
    Mistake("the actions are discrete",
            f"{ODD} has the action space Discrete(3). Beeline controls continuous actions only: choose the continuous variant of "
            "the task, or wrap it so that its action space is a float Box.", having(action_space=spaces.Discrete(3))),
    Mistake("the actions have no bounds",
            f"{ODD} has unbounded actions (Box(-inf, inf, (1,), float32)). Give every action a finite lower and upper bound, for "
            "example with gymnasium.wrappers.RescaleAction or by changing its action_space.",
            having(action_space=spaces.Box(-np.inf, np.inf, (1,)))),
    Mistake("the observations are images",
            f"{ODD}: the observation is an image of shape (8, 8, 3). Beeline reads vectors: choose the state variant of the "
            "task, or flatten it with gymnasium.wrappers.FlattenObservation.",
            having(observation_space=spaces.Box(0, 255, (8, 8, 3), np.uint8))),
    Mistake("the class does not inherit from `gymnasium.Env`",
            "Plain is not a gymnasium.Env. Pass an id, an instance of a class that inherits from gymnasium.Env, or a function "
            "without arguments that returns one.", lambda: checked(type("Plain", (), {}))),
    Mistake("`__init__` raises an exception",
            "the factory 'Odd' failed: FileNotFoundError: no map (…mistakes.py, line …)…",
            having(__init__=lambda self: _raise(FileNotFoundError("no map")))),
    Mistake("`close` raises an exception", f"{ODD} failed in close(): KeyError: 'pump' (…mistakes.py, line …)", python(_closing)),
    # --- what trains, but not well
    Mistake("no time limit is declared",
            "environment 'Odd' declares no time limit: its episodes are cut after 1,000 decisions. Register it with "
            "max_episode_steps=N, or give limit=N (?limit=N in an id).",
            python(lambda: model(type("Odd", (Tank,), {"spec": None})))),
    Mistake("observations leave their declared bounds",
            "observations leave the bounds of their observation_space: observation[1] was 1.5, 0.5 outside [-1, 1]. Mend the "
            "bounds.", having(observe=lambda self: np.array([self.np_random.uniform(-1, 1), 1.5, 0], np.float32))),
    Mistake("observations have very different scales",
            "observations are badly scaled: observation[0] has a standard deviation of … Train with --normalize-obs.",
            having(observation_space=spaces.Box(-np.inf, np.inf, (3,)),
                   observe=lambda self: self.np_random.normal(size=3).astype(np.float32) * np.float32([5000, 1, 1]))),
    # --- ids, arguments and options
    Mistake("`beeline check-env tonk:Tank-v0`, where the file is `tank.py`",
            "environment 'tonk:Tank-v0': the module 'tonk' cannot be imported (No module named 'tonk'). Install the package that "
            "has it, or start from the folder that it lies in; this one is ….", command("check-env", "tonk:Tank-v0")),
    Mistake("`beeline check-env tank.py:Tank-v0`, the file in place of the module",
            "environment 'tank.py:Tank-v0': a module is named as Python imports it, not by its file: 'tank:Tank-v0'.",
            command("check-env", f"{MODULE}.py:Tank-v0")),
    Mistake("`beeline train sac ./tank.py:Tank-v0`, a path in place of the module",
            "beeline: environment './tank.py:Tank-v0': a module is named as Python imports it, not by its file: 'tank:Tank-v0'.",
            command("train", "sac", f"./{MODULE}.py:Tank-v0")),
    Mistake("`beeline train tank:Tank-v0 sac`, the two words the other way round",
            "beeline: 'tank:Tank-v0' is no algorithm but looks like a task: the algorithm comes first, then the task.",
            command("train", f"{MODULE}:Tank-v0", "sac")),
    Mistake("`beeline train sac`, without a task",
            "beeline: TASK is missing. See: beeline train --help", command("train", "sac")),
    Mistake("`beeline train sac Pendulum-v1`, without the suite",
            "beeline: unknown environment 'Pendulum-v1'. Did you mean 'gym/Pendulum-v1'? An id is suite/task or "
            "package.module:EnvId; the suites are …", command("train", "sac", "Pendulum-v1")),
    Mistake("`beeline check-env tank:Tonk-v0`, where the module registers `Tank-v0`",
            "unknown environment 'tank:Tonk-v0'. Did you mean 'tank:Tank-v0'? The module registers tank:Tank-v0.",
            command("check-env", f"{MODULE}:Tonk-v0")),
    Mistake("the module has a syntax error",
            "the module 'broken_tank' cannot be imported: SyntaxError: '(' was never closed (…broken_tank.py, line 3)",
            command("check-env", f"{BROKEN}:Tank-v0")),
    Mistake("`beeline train sac 'tank:Tank-v0?siz=3'`",
            "beeline: unknown argument of environment 'tank:Tank-v0', 'siz'. Did you mean 'size'? It takes size, mode; options "
            "of every task are limit, noise, repeat, sparse.", command("train", "sac", f"{MODULE}:Tank-v0?siz=3")),
    Mistake("`beeline check-env 'tank:Tank-v0?size=True'`",
            "'tank:Tank-v0?size=True': the argument size=True cannot be read; write true.",
            command("check-env", f"{MODULE}:Tank-v0?size=True")),
    Mistake("`beeline train sac 'dmc/walker-run?size=3'`",
            "beeline: unknown environment option 'size'. Options are limit, noise, repeat, sparse.",
            command("train", "sac", "dmc/walker-run?size=3")),
    Mistake("`beeline.SAC(\"tank:Tank-v0?limit=5\", limit=9)`",
            "'tank:Tank-v0?limit=5' has the limit 5, but limit=9 was given as well.",
            python(lambda: model(f"{MODULE}:Tank-v0?limit=5", limit=9))),
    Mistake("`beeline.SAC(Tank(), env_kwargs={\"size\": 3})`",
            "env_kwargs are for an id or a factory; an instance is made already.",
            python(lambda: model(Tank(), env_kwargs={"size": 3}))),
    Mistake("`beeline.SAC(\"tank:Tank-v0\", env_kwargs={\"size\": open})`",
            "env_kwargs: size = <built-in function open> has no place in an id, which takes JSON values only. Give a factory "
            "instead: lambda: MyEnv(…).", python(lambda: model(f"{MODULE}:Tank-v0", env_kwargs={"size": open}))),
    # --- comparing
    Mistake("`beeline bench --algos bac --tasks tank:Tank-v0 --lam 0,2`",
            "beeline: lam = 2.0 is out of range; allowed: >= 0 and <= 1.", bench("--lam", "0,2")),
    Mistake("`beeline bench --algos bac --tasks tank:Tank-v0 --hidden '64;x'`",
            "beeline: hidden = 'x' is not whole numbers separated by commas; allowed: >= 1.", bench("--hidden", "64;x")),
    Mistake("`beeline bench --algos bac --tasks tank:Tank-v0 --threads 1,2`",
            "beeline: threads is swept over 2 values, but it says nothing of what is trained: give one.",
            bench("--threads", "1,2")),
    Mistake("`beeline tune bac tank:Tank-v0 --lam 1..0`",
            "beeline: lam = '1..0' is no range: its lower end must be below its upper end.", tune("--lam", "1..0")),
    Mistake("`beeline tune bac tank:Tank-v0 --actor-lr 0.001-0.01`",
            "beeline: actor_lr = '0.001-0.01' is not a number; allowed: > 0.", tune("--actor-lr", "0.001-0.01", "--lam", "0..1")),
    Mistake("`beeline tune bac tank:Tank-v0 --lam 0..1:log`",
            "beeline: lam = '0..1:log': a range in logarithms begins above 0.", tune("--lam", "0..1:log")),
    Mistake("`beeline tune bac tank:Tank-v0 --gamma 0.9..1.5`",
            "beeline: gamma = 1.5 is out of range; allowed: >= 0 and <= 1, or auto.", tune("--gamma", "0.9..1.5")),
    Mistake("`beeline tune bac tank:Tank-v0`",
            "beeline: nothing is searched: give an option a range or several values, such as --lam 0..1.", tune()),
    Mistake("`beeline tune --out elsewhere`, where there is no search",
            "beeline: there is no search in elsewhere to go on with: give ALGO, TASK and what is to be searched.",
            command("tune", "--out", "elsewhere")),
    Mistake("`beeline reference tank:Tank-v0`",
            "beeline: nothing to do: give --random, --expert SCORE, or both.", command("reference", f"{MODULE}:Tank-v0")),
    Mistake("`beeline reference tank:Tank-v0 --expert good`",
            "beeline: expert = 'good' is neither a number nor a run folder.",
            command("reference", f"{MODULE}:Tank-v0", "--expert", "good")),
    Mistake("`beeline train bac tank:Tank-v0 --wandb-group walk`",
            "beeline: wandb_group = 'walk' is for Weights & Biases: give wandb as well.",
            command("train", "bac", f"{MODULE}:Tank-v0", "--wandb-group", "walk")),
    Mistake("`beeline train bac tank:Tank-v0 --config best.toml`, where there is no such file",
            "beeline: cannot read best.toml: No such file or directory.",
            command("train", "bac", f"{MODULE}:Tank-v0", "--config", "best.toml")),
    Mistake("`beeline eval runs`, where `runs` holds run folders",
            "beeline: runs is not a run folder: it has no config.json. Runs in it: runs/one, runs/two.", _above),
    Mistake("`beeline train sac tank:Tank-v0 --steps 1k`",
            "beeline: steps = '1k' is not a whole number; allowed: >= 1.",
            command("train", "sac", f"{MODULE}:Tank-v0", "--steps", "1k")),
    Mistake("`beeline train sac tank:Tank-v0 --hidden 256 256`",
            "beeline: '256' is one word too many. A list is one word, such as --hidden 256,256. See: beeline train sac --help",
            command("train", "sac", f"{MODULE}:Tank-v0", "--hidden", "256", "256")),
    Mistake("`beeline train sac tank:Tank-v0 --batch_size 64`",
            "beeline: unknown option --batch_size for sac. Here it is --batch-size.", brought("--batch_size")),
    # --- methods
    Mistake("`beeline train mbpo tank:Tank-v0`, which does not say where its episodes end",
            "beeline: mbpo needs to know where episodes of tank:Tank-v0 end, which a learned model does not say. Known are …; an "
            "environment of yours says it by a function beeline_terminated(obs, action, next_obs) (docs/environments.md).",
            train("mbpo")),
    Mistake("`beeline train mbpo gym/Pendulum-v1 --rollout-schedule 5`",
            "beeline: rollout_schedule = 5 is none; allowed: four numbers a,b,c,d with a < b (epochs) and 1 <= c <= d (steps).",
            train("mbpo", "--rollout-schedule", "5", task="gym/Pendulum-v1")),
    Mistake("`beeline train mbpo gym/Pendulum-v1 --steps 1000`, which ends before learning begins",
            "beeline: steps = 1000 is not more than the warm-up (random_steps = 5000), so the policy would never act or never "
            "learn. Give more steps or lower random_steps.", train("mbpo", "--steps", "1000", task="gym/Pendulum-v1")),
    Mistake("`beeline train mbpo gym/Pendulum-v1 --controller best.npz`, where there is no such file",
            "beeline: there is no controller file …best.npz.", train("mbpo", "--controller", "best.npz", task="gym/Pendulum-v1")),
    Mistake("`beeline train cmlo gym/Pendulum-v1 --model-every 100`",
            "beeline: the option 'model_every' does not apply: cmlo decides when the model is trained: see event_every and "
            "event_threshold.", train("cmlo", "--model-every", "100", task="gym/Pendulum-v1")),
    Mistake("`beeline train mb-bac gym/Pendulum-v1 --targets both`",
            "beeline: targets = 'both' is out of range; allowed: one of blend, split.",
            train("mb-bac", "--targets", "both", task="gym/Pendulum-v1")),
    Mistake("`beeline train pets tank:Tank-v0 --lam 0.5`", "beeline: the option 'lam' does not apply: pets has no Q to blend.",
            train("pets", "--lam", "0.5")),
    Mistake("`beeline train pets tank:Tank-v0 --horizon 20`",
            "beeline: unknown option --horizon for pets. Here it is --lookahead.", train("pets", "--horizon", "20")),
    Mistake("`beeline train slbo tank:Tank-v0 --normalize-obs`",
            "beeline: the option 'normalize_obs' does not apply: slbo scales observations by all that it has met, for model, "
            "policy and V.", train("slbo", "--normalize-obs")),
    Mistake("`beeline train grac tank:Tank-v0 --tau 0.005`",
            "beeline: the option 'tau' does not apply: grac has no target networks.", train("grac", "--tau", "0.005")),
    Mistake("`beeline train grac tank:Tank-v0 --double-q false`",
            "beeline: the option 'double_q' does not apply: grac searches under one of two critics and judges by the smaller of "
            "both.", train("grac", "--double-q", "false")),
    Mistake("`beeline train dac tank:Tank-v0 --mixture 2`",
            "beeline: mixture = 2.0 is out of range; allowed: >= 0.01 and <= 0.99.", train("dac", "--mixture", "2")),
    Mistake("`beeline train td3 tank:Tank-v0 --explore sample-aware`",
            "beeline: explore = 'sample-aware' is out of range; allowed: one of smoothing, pink, none.",
            train("td3", "--explore", "sample-aware")),
    Mistake("`beeline train iql tank:Tank-v0 --lam 0.5`",
            "beeline: the option 'lam' does not apply: iql has the exploit target alone and nothing to blend it with; see bac.",
            train("iql", "--lam", "0.5")),
    Mistake("`beeline train iql tank:Tank-v0 --temperature 3`",
            "beeline: unknown option --temperature for iql. Here it is --inverse-temperature.",
            train("iql", "--temperature", "3")),
    Mistake("`beeline train obac tank:Tank-v0 --lam 0.5`",
            "beeline: the option 'lam' does not apply: obac keeps its in-sample critic beside the target; to blend it in, see "
            "bac.",
            train("obac", "--lam", "0.5")),
    Mistake("`beeline train obac tank:Tank-v0 --expectile 0.3`",
            "beeline: expectile = 0.3 is out of range; allowed: >= 0.5 and <= 0.9999.", train("obac", "--expectile", "0.3")),
    Mistake("`beeline train sac tank:Tank-v0 --beta 3`, an option of XQL", "beeline: unknown option --beta for sac. It is an "
            "option of bee-xql, xql, bee-xtd3 and xtd3, not of sac.", train("sac", "--beta", "3")),
    Mistake("`beeline train trpo tank:Tank-v0 --target-kl 0.01`",
            "beeline: unknown option --target-kl for trpo. Here it is --radius.", train("trpo", "--target-kl", "0.01")),
    Mistake("`beeline train ppo tank:Tank-v0 --gae-lambda 0.95`",
            "beeline: unknown option --gae-lambda for ppo. Here it is --gae.", train("ppo", "--gae-lambda", "0.95")),
    Mistake("`beeline train ppo tank:Tank-v0 --replay-capacity 1000`, less than an update takes",
            "beeline: replay_capacity = 1000 is out of range; allowed: >= 4097 with num_envs = 1 and rollout = 2048, because "
            "learning begins with 2048 transitions and episodes may be as short as a step.",
            train("ppo", "--replay-capacity", "1000")),
    # --- the D'Kitty, export and deployment
    Mistake("`beeline train sac dkitty/walk`",
            "beeline: unknown environment 'dkitty/walk'. Did you mean 'dkitty/walk-hard' or 'dkitty/walk-fixed' or "
            "'dkitty/walk-random'?", command("train", "sac", "dkitty/walk")),
    Mistake("`beeline train sac 'dkitty/walk-fixed?latency=5'`",
            "beeline: environment option latency = 5.0 is out of range; allowed: >= 0 and <= 0.1.",
            command("train", "sac", "dkitty/walk-fixed?latency=5")),
    Mistake("`beeline train sac 'dkitty/walk-fixed?laten=0.02'`",
            "beeline: unknown environment option 'laten'. Did you mean 'latency'? Options are drop, latency, limit, motor, "
            "noise, offset, payload, push, repeat, sense, sparse, torque, wide.",
            command("train", "sac", "dkitty/walk-fixed?laten=0.02")),
    Mistake("`beeline export runs/lost --onnx policy.onnx`, where there is no such run",
            "beeline: there is no run folder runs/lost.", command("export", "runs/lost", "--onnx", "policy.onnx")),
    Mistake("`beeline export runs/one`, without a file", "beeline: --onnx is missing. See: beeline export --help",
            command("export", "runs/one")),
    Mistake("`beeline deploy policy.onnx`, where there is no such file",
            "beeline: there is no exported policy policy.onnx. Make one with: beeline export RUN --onnx policy.onnx",
            command("deploy", "policy.onnx")),
    Mistake("`beeline deploy 'my run'`, a run folder in place of an exported policy",
            "beeline: my run is not an exported policy. Make one with: beeline export 'my run' --onnx policy.onnx", _deploying),
    # --- names that people bring from other codes
    Mistake("`beeline train sac tank:Tank-v0 --lr 3e-4`",
            "beeline: unknown option --lr for sac. Here it is --actor-lr, --critic-lr, --alpha-lr and --value-lr.",
            brought("--lr")),
    Mistake("`beeline train --learning-rate 3e-4 sac tank:Tank-v0`",
            "beeline: unknown option --learning-rate. Here it is --actor-lr, --critic-lr, --alpha-lr and --value-lr.",
            command("train", "--learning-rate", "3e-4", "sac", f"{MODULE}:Tank-v0")),
    Mistake("`beeline train sac tank:Tank-v0 --total-timesteps 100_000`",
            "beeline: unknown option --total-timesteps for sac. Here it is --steps.", brought("--total-timesteps")),
    Mistake("`beeline train sac tank:Tank-v0 --net-arch 256,256`",
            "beeline: unknown option --net-arch for sac. Here it is --hidden and --policy-hidden (the widths of the layers: "
            "hidden=(256, 256), or 256,256 on the command line).", brought("--net-arch")),
    Mistake("`beeline train sac tank:Tank-v0 --ent-coef auto`",
            "beeline: unknown option --ent-coef for sac. Here it is --alpha and --tune-alpha (a fixed one: alpha=0.2 and "
            "tune_alpha=false).", brought("--ent-coef")),
    Mistake("`beeline train sac tank:Tank-v0 --smoothing-noise 0.2`, an option of another algorithm",
            "beeline: unknown option --smoothing-noise for sac. It is an option of bee-td3, td3, bee-rrs and others, "
            "not of sac.",
            brought("--smoothing-noise")),
    Mistake("`beeline train sac tank:Tank-v0 --policy-noise 0.2`, another algorithm's option under another name",
            "beeline: unknown option --policy-noise for sac. Here it is --smoothing-noise, an option of bee-td3, td3, bee-rrs "
            "and others, not of sac.", brought("--policy-noise")),
    Mistake("`beeline train sac tank:Tank-v0 --use-sde`",
            "beeline: unknown option --use-sde for sac. State-dependent exploration is not here; acting_noise=pink is near.",
            brought("--use-sde")),
    Mistake("`beeline.SAC(\"tank:Tank-v0\", learning_rate=3e-4)`",
            "unknown option 'learning_rate' for SAC. Here it is actor_lr, critic_lr, alpha_lr and value_lr.",
            python(lambda: model(f"{MODULE}:Tank-v0", learning_rate=3e-4))),
    Mistake("`beeline.SAC(\"MlpPolicy\", \"tank:Tank-v0\")`",
            "SAC takes one word, the environment: beeline.SAC(env). There is one kind of policy for it.",
            python(lambda: _sac()("MlpPolicy", f"{MODULE}:Tank-v0"))),
    Mistake("`model.learn(total_timesteps=1000)`", "unknown argument 'total_timesteps' of learn. Here it is steps.",
            python(lambda: model(f"{MODULE}:Tank-v0").learn(total_timesteps=1000))),
    Mistake("`model.learn(100)`, which ends before learning begins",
            "nothing was learnt yet: learning begins after random_steps = 1000 steps, and 100 were made.",
            python(lambda: model(f"{MODULE}:Tank-v0", preset="light", eval_episodes=0).learn(100))),
    Mistake("`model.learn(\"many\")`", "steps = 'many' is not a whole number; allowed: >= 1.",
            python(lambda: model(f"{MODULE}:Tank-v0").learn("many"))),
    Mistake("`beeline.SAC(\"tank:Tank-v0\", policy_delay=2)`",
            "unknown option 'policy_delay' for SAC. Here it is policy_updates_per_step (policy_delay=2 is half "
            "of critic_updates_per_step).", python(lambda: model(f"{MODULE}:Tank-v0", policy_delay=2))),
]  # fmt: skip
