"""SAC (Haarnoja et al. 2018) and BAC (Ji et al. 2024): tanh-Gaussian policy, entropy as exploration term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beeline.agents.options import BODIES, NET, OffPolicyConfig
from beeline.agents.presets import SMALL, suite_column
from beeline.config import option
from beeline.errors import ConfigError

if TYPE_CHECKING:
    from beeline.agents.base import Task
    from beeline.agents.off_policy import OffPolicy


EXPLORES = ("entropy", "sample-aware", "none")
SAMPLE_AWARE = ("explore", "sample-aware")


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Soft actor-critic: tanh-Gaussian policy, entropy as exploration term."""

    explore: str = option("entropy", "exploration term of the target", choices=EXPLORES)
    tune_alpha: bool = option(True, "tune the temperature towards the target entropy, or keep it fixed")
    alpha: float = option(1.0, "initial temperature, or the fixed one (0: no entropy)", low=0.0)
    alpha_lr: float = option(3e-4, "learning rate of the temperature", above=0.0)
    alpha_beta1: float = option(0.9, "Adam's first moment decay for the temperature", low=0.0, high=0.9999)
    target_entropy: float | None = option(None, "entropy to tune towards; none: as `target_entropy_per_action` says")
    target_entropy_per_action: float = option(-1.0, "entropy to tune towards, for each dimension of an action")
    log_std: str = option("clip", "log σ clipped to [-20, 2], or tanh: bent smoothly into [-10, 2]", choices=("clip", "tanh"))
    entropy_units: str = option("env", "count log π in the env's own action units or in [-1, 1]", choices=("env", "unit"))
    v_entropy: bool = option(True, "entropy term in V's regression, as the release has it and the paper's text does not")
    mixture: float | None = option(
        None, "sample-aware: share of the policy's actions, beside the buffer's, in what is to vary; none: learnt",
        low=0.01, high=0.99, only=SAMPLE_AWARE,
    )  # fmt: skip
    mixture_control: float = option(
        2.0, "sample-aware: how far the learnt share lets the mixture's entropy fall", only=SAMPLE_AWARE
    )
    mixture_lr: float = option(
        3e-4, "sample-aware: learning rate of the ratio and of the learnt share", above=0.0, only=SAMPLE_AWARE
    )

    def check(self) -> None:
        """A tuned temperature is the exponential of something and so cannot start at zero; a fixed share is not steered."""
        super().check()
        if self.mixture is not None and self.changed("mixture_control"):
            raise ConfigError("mixture_control steers a learnt share, and mixture fixes it; allowed: one of them.")
        if self.explore != "none" and self.tune_alpha and self.alpha == 0.0:
            raise ConfigError("alpha = 0 cannot be tuned; allowed: > 0, or tune_alpha = false.")


@dataclass(frozen=True)
class BACConfig(SACConfig):
    """BEE actor-critic: SAC under the BEE operator."""

    network: str = option(
        "bac", "body of all networks: mlp (ReLU), bac (LayerNorm-tanh and ELU), ln (LayerNorm-ReLU), simba (residual)",
        choices=BODIES, objects=NET,
    )  # fmt: skip
    target_interval: int = option(2, "updates between two target updates", low=1)
    lam: float = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")


def build(
    config: SACConfig, task: Task, around: Any = None, next_action: bool = False, *, asked: bool = True, fresh: bool = True,
    kind: Any = None, agent: type[OffPolicy] | None = None, **more: Any,
) -> OffPolicy:  # fmt: skip
    """The agent: `Soft` or `Diverse`, or `around` it, under `Bee` where λ asks for it.

    `kind` is another soft objective, with `more`, and `agent` an agent with steps of its own. Target critics are kept where they
    are asked.
    """
    from beeline.agents import make
    from beeline.agents.actors import GaussianActor
    from beeline.agents.backup import Soft
    from beeline.agents.objective import Entropy

    bounds = (-10.0, 2.0, True) if config.log_std == "tanh" else (-20.0, 2.0, False)
    actor = GaussianActor(make.policy(config, task, heads=2), *bounds)
    diverse = config.explore == "sample-aware"
    followed = bool(config.bee or around) if diverse else asked or config.bee
    critic = make.critic(config, task, followed=followed)
    explore: Any
    if diverse:
        from beeline.agents import mixture

        mixed = mixture.of(config, task, make.network(config), make.optimiser(config, config.mixture_lr))
        entropy = make.entropy(config, task, actor, critic, mixture.SampleAware, mixture=mixed)
        explore = mixture.Diverse(make.value(config, task, followed=True), actor, critic, entropy, mixed)
    else:
        entropy = make.entropy(config, task, actor, critic, kind or Entropy, **more)
        explore = Soft(actor, critic, entropy)
    inner = around(explore, critic) if around else explore
    backup = make.bee(config, inner, actor, critic, task, entropy if config.v_entropy else None)
    own: dict[str, Any] = {} if agent is None else {"kind": agent}
    return make.off_policy(
        config, task, actor, critic, entropy, backup, next_action=next_action, fresh=fresh and not diverse, **own
    )


# --- presets: `best` learns fastest, `light` is plain SAC's size, `paper` holds the tables of the paper -----------------


def best(env_id: str) -> dict[str, Any]:
    """What learns fastest of all we know on a plain CPU: small LayerNorm networks and four updates per decision."""
    return {
        **SMALL, "target_interval": 1, "log_std": "tanh", "alpha": 0.01, "target_entropy_per_action": -0.5,
        "entropy_units": "unit", "v_entropy": False,
    }  # fmt: skip


def wide(env_id: str) -> dict[str, Any]:
    """SimBa's residual body for tasks with many joints and long runs: `best` but for networks, batch, rates and updates."""
    rates = dict.fromkeys(("actor_lr", "critic_lr", "value_lr", "alpha_lr"), 1e-4)
    return best(env_id) | rates | {
        "network": "simba", "policy_hidden": (128,), "weight_decay": 1e-2, "batch_size": 256,
        "critic_updates_per_step": 2, "policy_updates_per_step": 1, "random_steps": 5_000, "learn_after": 5_000,
    }  # fmt: skip


def light(env_id: str) -> dict[str, Any]:
    """Two layers of 256, batch 256, and a short warm-up."""
    return {"random_steps": 1_000}


_PAPER: dict[str, dict[str, Any]] = {
    "gym": {"alpha_beta1": 0.5},
    "dmc": {"alpha_beta1": 0.5, "hidden": (1024, 1024), "batch_size": 512, "target_interval": 2},
    "dmc-dog": {"alpha_beta1": 0.5, "hidden": (1024, 1024), "batch_size": 2048, "target_interval": 2},
    "metaworld": {"alpha_beta1": 0.5, "batch_size": 500},
}
_RATES = {"dmc": 1e-4, "dmc-dog": 3e-4}


def paper(env_id: str) -> dict[str, Any]:
    """The paper's table "Hyperparameter settings for SAC"; the warm-up is the source's, 10k random steps with updates."""
    column = suite_column(env_id)
    rate = _RATES.get(column)
    return _PAPER[column] | ({} if rate is None else {"actor_lr": rate, "critic_lr": rate, "alpha_lr": rate})


def paper_bac(env_id: str) -> dict[str, Any]:
    """The paper's table "Hyperparameter settings for BAC"."""
    return {"hidden": (512, 512), "batch_size": 512}


PRESETS = {"best": best, "wide": wide, "light": light, "paper": paper}
PRESETS_BAC = {"best": best, "wide": wide, "light": light, "paper": paper_bac}
