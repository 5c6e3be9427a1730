"""Names that people bring from other codes, and what they are called here. Imports nothing.

One table for the command line, for Python and for docs/coming-from-sb3.md: stable-baselines3's names first, then those of
CleanRL, jaxrl and the sources of SAC, TD3 and BAC.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Sequence


@dataclasses.dataclass(frozen=True)
class Foreign:
    """Names of one thing elsewhere; our options for it, where there are any; and what differs."""

    names: tuple[str, ...]
    ours: tuple[str, ...] = ()
    note: str = ""


def _row(names: str, ours: str = "", note: str = "") -> Foreign:
    return Foreign(tuple(names.split()), tuple(ours.split()), note)


# What `train` and models take in Python beside the options of configs.
WORDS = ("callbacks", "env_kwargs", "eval_env", "init_from", "out", "preset", "verbose")

TABLE = (
    # --- the run
    _row("total_timesteps n_timesteps num_timesteps timesteps max_steps num_steps max_timesteps total_steps env_steps", "steps"),
    _row("n_envs num_env nenvs vec_envs num_workers", "num_envs"),
    _row("buffer_size replay_size replay_buffer_size memory_size capacity buffer_capacity", "replay_capacity"),
    _row("eval_freq eval_interval evaluate_every test_every", "eval_every", "counted in environment steps"),
    _row("n_eval_episodes num_eval_episodes num_evals test_episodes num_test_episodes", "eval_episodes"),
    _row("log_interval log_freq", "log_every", "counted in environment steps"),
    _row("save_freq save_interval checkpoint_freq save_every", "checkpoint_every"),
    _row("action_repeat frame_skip frameskip", "repeat"),
    _row("max_episode_steps time_limit episode_length max_ep_len horizon", "limit"),
    _row("tensorboard_log tb_log_name use_tb", "tensorboard", "the events lie in the run folder, which out names"),
    _row("track use_wandb wandb_project_name wandb_entity", "wandb"),
    _row("capture_video save_video record_video", "video"),
    _row("cuda gpu use_gpu no_cuda", "device", "such as cpu or gpu"),
    _row("log_dir logdir save_dir save_path output_dir outdir exp_name run_name experiment_name", "out"),
    _row("progress_bar tqdm silent verbose", "quiet verbose", "progress is shown unless it is turned off: verbose=0 in Python"),
    _row("callback", "callbacks", "a list of them"),
    _row("load_from pretrained checkpoint resume_from", "init_from", "a policy file; a run goes on with `beeline resume`"),
    _row("seeds", "seed", "several seeds are a matrix: `beeline bench --seeds`"),
    _row("env env_id env_name task", note="The task is the second word: beeline.train(algo, task), `beeline train ALGO TASK`"),
    _row("policy policy_class policy_type",
         note="There is one kind of policy for each algorithm; its layers are hidden and network"),
    _row("reset_num_timesteps", note="There is no such option: `learn` always goes on where it stopped"),
    _row("torch_deterministic deterministic", note="Runs with the same seed are always the same"),
    # --- learning
    _row("learning_rate lr learning_rates step_size", "actor_lr critic_lr alpha_lr value_lr"),
    _row("policy_lr pi_lr lr_actor lr_policy actor_learning_rate", "actor_lr"),
    _row("q_lr qf_lr lr_critic lr_q critic_learning_rate", "critic_lr"),
    _row("v_lr vf_lr lr_value", "value_lr"),
    _row("temp_lr ent_lr entropy_lr alpha_learning_rate", "alpha_lr"),
    _row("batch minibatch_size mini_batch_size", "batch_size"),
    _row("discount discount_factor", "gamma"),
    _row("polyak", "tau", "polyak=0.995 is tau=0.005"),
    _row("soft_target_tau target_tau", "tau"),
    _row("learning_starts start_steps start_timesteps start_training random_exploration_steps warmup_steps warmup",
         "random_steps learn_after", "random_steps of random actions; no update before learn_after"),
    _row("update_after", "learn_after"),
    _row("train_freq update_every",
         "critic_updates_per_step", "updates follow every decision; this says how many"),
    _row("gradient_steps utd utd_ratio updates_per_step num_updates replay_ratio g_updates",
         "critic_updates_per_step policy_updates_per_step"),
    _row("policy_delay policy_frequency policy_freq actor_update_interval",
         "policy_updates_per_step", "policy_delay=2 is half of critic_updates_per_step"),
    _row("target_update_interval target_network_frequency target_update_period target_update_freq", "target_interval"),
    _row("n_steps nstep n_step_returns multi_step", "n_step"),
    _row("reward_scaling reward_scale_factor rew_scale", "reward_scale"),
    _row("max_grad_norm grad_clip_norm gradient_clip clip_grad", "grad_clip"),
    _row("norm_obs normalize_observations obs_norm normalize", "normalize_obs"),
    # --- networks
    _row("net_arch hidden_size hidden_sizes hidden_dims hidden_dim layers policy_layers",
         "hidden policy_hidden", "the widths of the layers: hidden=(256, 256), or 256,256 on the command line"),
    _row("policy_kwargs", "hidden policy_hidden network initialiser", "options of their own, net_arch is hidden"),
    _row("activation_fn activation", "network", "the body says it: mlp has ReLU, bac LayerNorm-tanh and ELU"),
    _row("layer_norm use_layer_norm", "network", "network=ln"),
    _row("ortho_init init_method weight_init", "initialiser"),
    _row("n_critics num_critics num_qs num_q twin_q double_critic", "double_q", "on is two critics, off is one"),
    # --- SAC
    _row("ent_coef temperature init_temperature alpha_init init_alpha entropy_coef",
         "alpha tune_alpha", "a fixed one: alpha=0.2 and tune_alpha=false"),
    _row("autotune automatic_entropy_tuning auto_alpha auto_entropy learn_alpha tune_temperature", "tune_alpha"),
    _row("log_std_init log_std_bounds", "log_std"),
    # --- TD3
    _row("target_policy_noise policy_noise target_noise", "smoothing_noise"),
    _row("target_noise_clip noise_clip", "smoothing_clip"),
    _row("action_noise expl_noise act_noise noise_std", "exploration_noise acting_noise"),
    # --- BEE
    _row("lambda lambda_ lmbda", "lam"),
    _row("quantile expectile_tau iql_tau", "expectile"),
    # --- in-sample methods
    _row("temperature inverse_temp beta adv_temperature", "inverse_temperature"),
    _row("exp_adv_max clip_score", "weight_bound"),
    _row("loss_temp", "beta"),
    _row("max_clip", "gumbel_clip"),
    # --- on-policy methods
    _row("learning_rate lr", "lr"),
    _row("n_steps rollout_length rollout_steps steps_per_epoch num_steps", "rollout", "over all environments together"),
    _row("n_epochs update_epochs num_epochs ppo_epochs train_iters", "epochs"),
    _row("gae_lambda gae_lam lambda", "gae"),
    _row("clip_range clip_coef clip_ratio clip_param", "clip"),
    _row("clip_range_vf clip_vloss", "value_clip"),
    _row("vf_coef value_loss_coef vf_loss_coef", "value_weight"),
    _row("ent_coef entropy_coef", "entropy_weight"),
    _row("anneal_lr", "anneal"),
    _row("target_kl max_kl kl_target", "radius"),
    _row("cg_max_steps cg_iters cg_steps", "cg_iterations"),
    _row("cg_damping", "damping"),
    _row("line_search_max_iter backtrack_iters", "search_tries"),
    # --- learned models
    _row("ensemble_size num_networks n_ensemble", "model_members"),
    _row("num_elites elite_size", "model_elites elites"),
    _row("rollout_length", "rollout_schedule", "four numbers: the length grows from epoch to epoch"),
    _row("effective_model_rollouts_per_step rollout_batch_size", "branches"),
    _row("freq_train_model model_train_freq", "model_every"),
    _row("real_data_ratio", "real_ratio"),
    _row("model_retain_epochs", "retain_epochs"),
    _row("model_wd", "model_decay"),
    _row("epoch_length", "epoch_steps"),
    _row("num_sac_updates_per_step", "critic_updates_per_step"),
    _row("horizon planning_horizon plan_hor", "lookahead"),
    _row("population_size popsize pop_size", "population"),
    _row("num_particles npart", "particles"),
    _row("max_iters num_iterations", "iterations"),
    # --- what is not here
    _row("use_sde sde_sample_freq use_sde_at_warmup", note="State-dependent exploration is not here; acting_noise=pink is near"),
    _row("replay_buffer_class replay_buffer_kwargs optimize_memory_usage",
         note="There is one replay, which stores each observation once; its size is replay_capacity"),
    _row("prioritized_replay per prioritized",
         note="Prioritised replay is not here: transitions are drawn uniformly, or by age with replay_decay"),
    _row("optimizer_class optimizer optim", note="There is no such option: the optimiser is Adam, or AdamW with weight_decay"),
    _row("lr_schedule lr_decay learning_rate_schedule", note="Learning rates are constant here"),
    _row("features_extractor_class features_extractor_kwargs cnn", note="Observations are vectors here; images are not read"),
)  # fmt: skip

_BY_NAME: dict[str, list[Foreign]] = {}
for _each in TABLE:
    for _name in _each.names:
        _BY_NAME.setdefault(_name, []).append(_each)


def unknown(
    name: str,
    known: Collection[str],
    algo: str = "",
    *,
    owners: Callable[[str], Sequence[str]] = lambda option: (),
    write: Callable[[str], str] = str,
    otherwise: str = "",
) -> str:
    """The answer to an option that is unknown: what it is called here, whose it is, the nearest names, or `otherwise`.

    `known` are the options that could have been given, `owners` says which algorithms have one, and `write` how options are
    written where the answer is read.
    """
    plain = name.lstrip("-").replace("-", "_").lower()
    if plain in known and write(plain) != name:
        return f"Here it is {write(plain)}."
    if plain not in _BY_NAME and plain.startswith("no_"):
        plain = plain.removeprefix("no_")  # as switches are turned off
    rows = _BY_NAME.get(plain, [])  # one name may be several things; what a family of methods calls so stands below
    fitting = next((row for row in (reversed(rows) if algo else rows) if set(row.ours) & set(known)), None)
    if fitting is None and (has := owners(plain)):
        return f"It is an option of {_and(has)}{f', not of {algo}' if algo else ''}."
    if rows:
        return _brought(fitting or rows[0], known, algo, owners, write)
    near = difflib.get_close_matches(plain, [each.replace("-", "_") for each in known], n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(map(write, near))}?"
    return otherwise


def _brought(
    row: Foreign, known: Collection[str], algo: str, owners: Callable[[str], Sequence[str]], write: Callable[[str], str]
) -> str:
    if not row.ours:
        return f"{row.note}."
    note = f" ({row.note})" if row.note else ""
    if here := [option for option in row.ours if option in known]:
        return f"Here it is {_and([write(option) for option in here])}{note}."
    theirs = {option: owners(option) for option in row.ours}
    there = [f"{write(option)}, an option of {_and(names)}" for option, names in theirs.items() if names]
    return f"Here it is {'; or '.join(there)}{f', not of {algo}' if algo else ''}{note}." if there else "It is not here."


def _and(names: Sequence[str]) -> str:
    """The names, or the first three of many: a reader looks for the method at hand, not for all of them."""
    if len(names) > 4:
        names = [*names[:3], "others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
