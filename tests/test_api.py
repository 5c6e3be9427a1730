"""The Python interface as its users call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from toys import Walk
from whole_runs import arrays, same_run, small, table

import beeline
from beeline.errors import CheckpointError, ConfigError, EnvError

WALK = "toys:Walk-v0"


def leaves(model: Any) -> dict[str, bytes]:
    from beeline import trees

    trainer = model.trainer
    found = trees.to_arrays(trainer.state) | trees.to_arrays(trainer.carry, "actor") | trees.to_arrays(trainer.metrics, "m")
    return {name: array.tobytes() for name, array in found.items()}


def rows(model: Any) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if not n.startswith("time/") and v is not None} for row in model.metrics]


class Watch(beeline.Callback):
    def __init__(self, stop_at: int = -1, stop_evaluation: int = -1) -> None:
        self.steps: list[int] = []
        self.evaluations: list[tuple[int, float, bool]] = []
        self.stop_at, self.stop_evaluation = stop_at, stop_evaluation
        self.rewards = 0

    def on_step(self, event: beeline.StepEvent) -> bool | None:
        self.steps.append(event.step)
        self.rewards += len(event.transitions)
        return False if event.step == self.stop_at else None

    def on_evaluation(self, event: beeline.EvaluationEvent) -> bool | None:
        self.evaluations.append((event.step, event.evaluation.mean, event.best))
        return False if event.step == self.stop_evaluation else None


def test_train_gives_a_run(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    assert run.path == tmp_path / "run"
    assert [row["step"] for row in run.metrics if row["eval/return"] is not None] == [0, 50, 100, 120]
    assert run.final_return == run.metrics[-1]["eval/return"]
    assert run.policy().meta["step"] == 120
    best = run.policy(best=True)
    assert best.meta["eval_return"] == max(row["eval/return"] for row in run.metrics if row["eval/return"] is not None)
    result, policy = beeline.evaluate_run(run.path, episodes=3)
    again, _ = beeline.evaluate_run(run.path / "policy.npz", episodes=3)
    assert result == again and len(result.returns) == 3 and policy.meta["env"] == WALK
    assert beeline.evaluate_run(run.path, episodes=3, seed=7)[0] != result


def test_the_best_policy_is_the_one_that_was_evaluated(tmp_path: Path) -> None:
    watch = Watch()
    run = beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[watch], **small("sac", eval_every=20))
    best = max(score for _, score, _ in watch.evaluations)
    assert watch.evaluations[0][2] is True
    step, score, _ = [each for each in watch.evaluations if each[2]][-1]
    meta = run.policy(best=True).meta
    assert score == best == meta["eval_return"] and step == meta["step"]


def test_callbacks_see_every_step_and_evaluation(tmp_path: Path) -> None:
    watch = Watch()
    beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[watch], **small("sac", num_envs=2))
    assert watch.steps == list(range(2, 121, 2)) and watch.rewards == 120
    assert [step for step, *_ in watch.evaluations] == [0, 50, 100, 120]


@pytest.mark.parametrize("watch", [Watch(stop_at=37), Watch(stop_evaluation=50), Watch(stop_evaluation=0)])
def test_callbacks_can_stop_and_resume_goes_on(watch: Watch, tmp_path: Path) -> None:
    whole = beeline.train("sac", WALK, out=tmp_path / "whole", **small("sac")).path
    run = beeline.train("sac", WALK, out=tmp_path / "run", callbacks=[watch], **small("sac"))
    last = max(watch.stop_at, watch.stop_evaluation)
    assert (watch.steps or [0])[-1] == last
    assert '"stopped"' in (run.path / "status.json").read_text()
    beeline.resume(run.path)
    same_run(whole, run.path)


def test_learning_twice_is_learning_once() -> None:
    once, twice = (beeline.BAC(WALK, **small("bac", acting_noise="pink")) for _ in range(2))
    once.learn(120)
    assert twice.learn(33).learn(87) is twice and twice.step == 120
    assert leaves(once) == leaves(twice)
    assert rows(once) == rows(twice) and len(rows(once)) == 8


@pytest.mark.parametrize("algo", ["SAC", "BEETD3"])
def test_saved_loaded_and_gone_on_is_uninterrupted(algo: str, tmp_path: Path) -> None:
    make, options = getattr(beeline, algo), small(getattr(beeline, algo).algo, num_envs=2, normalize_obs=True)
    whole = make(WALK, **options).learn(120)
    path = make(WALK, **options).learn(46).save(tmp_path / "model")
    loaded = beeline.load(path)
    assert type(loaded) is make and loaded.step == 46
    loaded.learn(74)
    assert leaves(whole) == leaves(loaded) and rows(whole) == rows(loaded)
    assert loaded.save(path) == path and beeline.load(path).step == 120  # over itself
    assert beeline.load(path / "policy.npz").meta["step"] == 120


def test_a_model_from_a_run_folder(tmp_path: Path) -> None:
    whole = beeline.SAC(WALK, **small("sac")).learn(160)
    run = beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    before, held = table(run.path), arrays(run.path)
    model = beeline.load(run.path).learn(40)
    assert leaves(model) == leaves(whole)
    assert rows(model) == rows(whole)
    assert table(run.path) == before and arrays(run.path) == held  # the folder is only read


def test_saving_before_learning(tmp_path: Path) -> None:
    whole = beeline.SAC(WALK, **small("sac")).learn(60)
    path = beeline.SAC(WALK, **small("sac")).save(tmp_path / "m")
    assert leaves(beeline.load(path).learn(60)) == leaves(whole)


def test_instances(tmp_path: Path) -> None:
    options = small("sac")
    whole = beeline.SAC(Walk(), eval_env=Walk(), **options).learn(120)
    model = beeline.SAC(Walk(), **options).learn(60)
    assert not any("eval/return" in row for row in model.metrics)
    with pytest.raises(EnvError, match="give eval_env="):
        model.evaluate()
    with pytest.raises(CheckpointError, match="no policy was evaluated yet"):
        _ = model.best_policy
    path = model.save(tmp_path / "m")
    with pytest.raises(EnvError, match=r"trained on 'instance:Walk', which has no id: give it again with env="):
        beeline.load(path)
    loaded = beeline.load(path, env=Walk()).learn(60)
    assert leaves(loaded) == leaves(whole)
    evaluation = beeline.load(path, env=Walk(), eval_env=Walk()).evaluate(4)
    assert len(evaluation.returns) == 4
    assert whole.best_policy.meta["eval_return"] == max(row["eval/return"] for row in whole.metrics if "eval/return" in row)


def test_an_instance_in_a_run_stays_open_and_is_given_again(tmp_path: Path) -> None:
    class Closes(Walk):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    env = Closes()
    beeline.train("sac", env, eval_env=Walk, out=tmp_path / "run", **small("sac"))
    assert env.closed == 0
    with pytest.raises(EnvError, match="give it again"):
        beeline.resume(tmp_path / "run", steps=140)
    beeline.resume(tmp_path / "run", steps=140, env=env, eval_env=Walk)
    with pytest.raises(EnvError, match="give the task"):
        beeline.evaluate_run(tmp_path / "run")
    made: list[Closes] = []

    def factory() -> Closes:
        made.append(Closes())
        return made[-1]

    beeline.train("sac", factory, out=tmp_path / "other", **small("sac"))
    assert len(made) == 2 and [each.closed for each in made] == [1, 1]


def test_factories_and_classes() -> None:
    by_id, by_class, by_function = (
        beeline.SAC(env, **small("sac")).learn(60) for env in (WALK, Walk, lambda: gymnasium.make("Walk-v0"))
    )
    assert leaves(by_id) == leaves(by_class) == leaves(by_function)


def test_init_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = beeline.SAC(WALK, **small("sac")).learn(80)
    path = teacher.policy.save(tmp_path / "p.npz")
    obs = np.random.default_rng(0).normal(size=(9, 2))
    pupil = beeline.BAC(WALK, init_from=path, **small("bac", network="mlp"))
    assert pupil.predict(obs)[0].tobytes() == teacher.predict(obs)[0].tobytes()
    with pytest.raises(CheckpointError, match=r"init_from = .*p.npz \(sac on toys:Walk-v0\) does not fit this run: .*needed"):
        beeline.SAC(WALK, init_from=path, **small("sac", hidden=(9,)))
    advice = "It was made with network = mlp, policy_hidden = none, normalize_obs = false: give these options."
    with pytest.raises(CheckpointError, match=advice):  # of a policy that was made with another preset
        beeline.SAC(WALK, init_from=path, **small("sac", preset="best", learn_after=20))
    # The file is read once: a run that was made from it goes on without it, and from wherever it is resumed.
    monkeypatch.chdir(tmp_path)
    whole = beeline.train("sac", WALK, init_from="p.npz", out="whole", **small("sac"))
    stopped = beeline.train("sac", WALK, init_from="p.npz", out="run", callbacks=[Watch(stop_at=37)], **small("sac"))
    assert whole.config["init_from"] == str(path)
    plain = beeline.train("sac", WALK, out="plain", **small("sac"))
    assert whole.metrics[0]["eval/return"] != plain.metrics[0]["eval/return"]
    path.unlink()
    beeline.resume(stopped.path)
    same_run(whole.path, stopped.path)


def test_shorter_than_planned_is_refused(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    with pytest.raises(ConfigError, match="steps = 60 is less than the 120"):
        beeline.resume(run.path, steps=60)


def test_ctrl_c_leaves_a_model_that_goes_on() -> None:
    class Press(beeline.Callback):
        def on_step(self, event: beeline.StepEvent) -> None:
            if event.step == 37:
                signal.raise_signal(signal.SIGINT)

    whole, model = (beeline.SAC(WALK, **small("sac")) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        model.learn(120, callbacks=[Press()])
    assert model.step == 37
    assert leaves(model.learn(83)) == leaves(whole.learn(120))


def test_other_threads_can_train(tmp_path: Path) -> None:
    """Signals are the main thread's; a run elsewhere goes without."""
    paths: list[Path] = []

    def work() -> None:
        paths.append(beeline.train("sac", WALK, out=tmp_path / "run", **small("sac")).path)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    same_run(paths[0], beeline.train("sac", WALK, out=tmp_path / "main", **small("sac")).path)


def test_threads_that_come_too_late_are_told() -> None:
    beeline.SAC(WALK, **small("sac"))
    with pytest.warns(UserWarning, match="threads = 5 comes too late: JAX has started with 1"):
        model = beeline.SAC(WALK, **small("sac", threads=5))
    assert model.plan.train.threads == 1


def test_differences_of_the_machine_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = beeline.train("sac", WALK, out=tmp_path / "run", **small("sac"))
    config = run.config
    config["train"]["threads"] = 7
    (run.path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("beeline.runtime.processor", lambda: "an abacus")
    monkeypatch.setattr("beeline.runtime.versions", lambda: {"jax": "99"})
    said: list[str] = []
    beeline.resume(run.path, report=said.append, accept_config=True)
    text = "\n".join(said)
    assert "this process has 1 threads, the run began with 7" in text
    assert "the CPU is 'an abacus'" in text and "jax is 99" in text and "numpy is None" in text


def test_compiled_programs_are_kept_for_the_next_process(tmp_path: Path) -> None:
    """Beeline imports JAX before it knows its settings, so a variable set later would come too late."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | {"XDG_CACHE_HOME": str(tmp_path)}
    code = "import beeline.api, beeline.runtime as r, jax; r.configure(3, None); print(jax.config.jax_compilation_cache_dir)"
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "beeline" / "xla")


def test_importing_is_quick_and_complete() -> None:
    assert set(beeline.__all__) <= set(dir(beeline))
    for name in beeline.__all__:
        assert getattr(beeline, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'A2C'"):
        _ = beeline.A2C


def test_arguments_of_the_environment(tmp_path: Path) -> None:
    run = beeline.train("sac", WALK, env_kwargs={"success": True}, out=tmp_path / "run", **small("sac", steps=60))
    assert run.config["env"] == f"{WALK}?success=true"
    assert run.metrics[0]["eval/success"] is not None
    assert beeline.resume(run.path, steps=80).metrics[-1]["step"] == 80
    model = beeline.SAC(Walk, env_kwargs={"success": True}, **small("sac"))
    assert model.evaluate(1).successes is not None
    assert model.plan.env == "factory:Walk"
