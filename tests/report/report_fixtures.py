"""Synthetic run folders in the format that training writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

VERSIONS = {"beeline-rl": "0.1.0", "jax": "0.10.2", "numpy": "2.4.1", "mujoco": "3.11.0", "dm-control": "1.0.44"}
HEADER = ["step", "episodes", "updates", "train/return", "train/length", "train/success", "eval/return",
          "eval/return_std", "eval/length", "eval/success", "eval/success_any", "q/mean",
          "loss/critic", "alpha", "lambda", "diag/bias", "diag/delta", "time/wall", "time/steps_per_second"]


def make_run(
    root: Path, algo="bac", env="dmc/walker-run", seed=0, *, steps=100_000, done=None, state="finished", level=0.7,
    agent=None, success=False, diag=True, every=5000, log=1000, tail="", name=None, reason="", repeat=2,
) -> Path:
    """A run whose evaluated return climbs to about `level` x 1000 (or success to `level`), written up to step `done`."""
    rng = np.random.default_rng([seed, sum(map(ord, algo + env))])
    path = root / (name or f"{algo}-{env.replace('/', '-').replace('?', '-')}-{seed}")
    path.mkdir(parents=True)
    done = steps if done is None else done
    fields = {"lam": 0.5 if algo == "bac" else 0.0, "hidden": [256, 256], "batch": 256, "lr": 3e-4} | (agent or {})
    config = {
        "format": 1, "algo": algo, "env": env, "seed": seed, "preset": "light", "init_from": None, "agent": fields,
        "train": {"steps": steps, "repeat": repeat, "eval_every": every}, "versions": VERSIONS,
        "cpu": "Example CPU 2.4 GHz", "threads": 2, "created": "2026-11-16T00:00:00+00:00",
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "status.json").write_text(json.dumps({"state": state, "step": done, "reason": reason}))
    top, half, noise = level * rng.uniform(0.9, 1.1), steps * rng.uniform(0.25, 0.45), rng.normal(0, 0.03, 100_000)
    with (path / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for number, step in enumerate(range(log, done + 1, log)):
            score = float(np.clip(top / (1 + np.exp(-6 * (step - half) / steps)) - 0.02 + noise[number] * top, 0, 1))
            there = step % every == 0
            kept = float(round(score * 10) / 10) if success else ""
            evaluation = [round(1000 * score, 3), 20.5, 1000, kept, kept] if there else [""] * 5
            share = step / steps
            bias = [round((12 if algo == "sac" else 5) * share - 8 * np.exp(-9 * share) + 9 * noise[number], 4),
                    round(4 * np.exp(-4 * share) - 1.5 * share + 5 * noise[number], 4)]
            bias = bias if diag and there else ["", ""]
            signals = [round(80 * score + noise[number], 4), round(2 + noise[number], 4), round(np.exp(-3 * step / steps), 5)]
            counters = [step, step // 1000, step // 2]
            writer.writerow([*counters, round(900 * score, 3), 1000, "", *evaluation, *signals, fields["lam"], *bias,
                             round(step * 0.004, 3), 250.0])
        file.write(tail)
    return path


def make_matrix(root: Path, algos=("bac", "sac"), tasks=("dmc/walker-run", "dmc/finger-spin"), seeds=2, **more) -> Path:
    """Every algorithm on every task with every seed; later algorithms are a little worse."""
    for number, algo in enumerate(algos):
        for place, task in enumerate(tasks):
            for seed in range(seeds):
                make_run(root, algo, task, seed, level=0.85 - 0.12 * number - 0.05 * (place % 4), **more)
    return root
