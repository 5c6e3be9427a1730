"""Where our methods come from: the paper, and the code or text each was held against. Costs are measured, not guessed.

`COST` is how many times SAC's time a method takes to learn from one environment step, with equal networks and batches: the column
"time" of `python benchmarks/throughput.py --methods`. A method that was not measured is not in it.
"""

from __future__ import annotations

_BEE, _TD3, _SAC = "Ji et al. 2024", "Fujimoto et al. 2018", "Haarnoja et al. 2018"
_RELEASE = "the BAC release"

# By name: the paper, and what the method was held against.
FROM: dict[str, tuple[str, str]] = {
    "bac": (_BEE, _RELEASE),
    "sac": (_SAC, "pranz24/pytorch-soft-actor-critic"),
    "bee-td3": (_BEE, "the paper's text on sfujim/TD3; no code is public"),
    "td3": (_TD3, "sfujim/TD3"),
    "ppo": ("Schulman et al. 2017", "CleanRL, ppo_continuous_action.py"),
    "trpo": ("Schulman et al. 2015", "facebookresearch/slbo, TRPO.py"),
    "slbo": ("Luo et al. 2019", "facebookresearch/slbo"),
    "pets": ("Chua et al. 2018", "kchua/handful-of-trials; mbrl-lib for walking robots"),
    "bee-rrs": (_BEE, "2Groza/RewardShifting; the combination is ours"),
    "rrs": ("Sun et al. 2022", "2Groza/RewardShifting"),
    "bee-maxq": (_BEE, "the paper's text; the combination is ours"),
    "maxq": (_BEE, "the paper's text; no code is public"),
    "bee-maxq-td3": (_BEE, "the paper's text; the combination is ours"),
    "maxq-td3": (_BEE, "the paper's text; no code is public"),
    "bee-grac": (_BEE, "stanford-iprl-lab/GRAC; the combination is ours"),
    "grac": ("Shao et al. 2021", "stanford-iprl-lab/GRAC"),
    "bee-dac": (_BEE, "seungyulhan/dac; the combination is ours"),
    "dac": ("Han and Sung 2021", "seungyulhan/dac"),
    "bee-xql": (_BEE, "Div99/XQL; the combination is ours"),
    "xql": ("Garg et al. 2023", "Div99/XQL"),
    "bee-xtd3": (_BEE, "Div99/XQL; the combination is ours"),
    "xtd3": ("Garg et al. 2023", "Div99/XQL"),
    "iql": ("Kostrikov et al. 2022", "ikostrikov/implicit_q_learning"),
    "mbpo": ("Janner et al. 2019", "jannerm/mbpo and mbrl-lib"),
    "mb-bac": (_BEE, "the paper's algorithm box; no code is public"),
    "cmlo": ("Ji et al. 2022", "the authors' fork of mbrl-lib"),
    "obac": ("Luo et al. 2024", "Roythuly/OBAC"),
}
COST: dict[str, float] = {}
