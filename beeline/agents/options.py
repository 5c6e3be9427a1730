"""The hyperparameters of the actor-critic family, one typed and documented field each. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from beeline.config import Config, option
from beeline.errors import ConfigError

BODIES = ("mlp", "bac")
INITIALISERS = ("xavier", "torch")
BLENDS = ("fixed", "min", "max", "ada", "ada_h2o", "ada_batch")
EXPLOITS = ("expectile", "sparse", "exponential")


@dataclass(frozen=True)
class ActorCriticConfig(Config):
    """What all four algorithms share."""

    network: str = option("mlp", "body of all networks: mlp (ReLU) or bac (LayerNorm-tanh, then ELU)", choices=BODIES)
    hidden: tuple[int, ...] = option((256, 256), "widths of the hidden layers", low=1)
    initialiser: str = option("xavier", "initial weights: xavier (zero bias) or torch (its default)", choices=INITIALISERS)
    batch_size: int = option(256, "transitions per update", low=1)
    gamma: float = option(0.99, "discount per decision", low=0.0, high=1.0)
    tau: float = option(0.005, "share of the online critics that enters the target critics", above=0.0, high=1.0)
    target_interval: int = option(1, "updates between two target updates", low=1)
    actor_lr: float = option(3e-4, "learning rate of the policy", above=0.0)
    critic_lr: float = option(3e-4, "learning rate of the critics", above=0.0)
    double_q: bool = option(True, "two critics and their minimum, or one critic")
    critic_updates_per_step: int = option(1, "critic updates per decision of each env", low=1)
    policy_updates_per_step: float = option(1.0, "policy updates per decision; 0.5 is one every second decision", above=0.0)
    random_steps: int = option(10_000, "environment steps of uniformly random actions at the start", low=0)
    learn_after: int = option(0, "environment steps before the first update; 0: once a batch is there", low=0)
    n_step: int = option(1, "steps of reward before bootstrapping", low=1, high=100)
    reward_scale: float = option(1.0, "factor on rewards inside the targets", above=0.0)
    grad_clip: float | None = option(None, "bound on each network's gradient norm; none: no bound", above=0.0)
    normalize_obs: bool = option(False, "scale observations by their running mean and deviation")
    acting_noise: str = option("white", "noise of collecting: white, or pink (1/f)", choices=("white", "pink"))

    def check(self) -> None:
        """Critic and policy updates must come in a whole ratio, one way or the other."""
        ratio = self.critic_updates_per_step / self.policy_updates_per_step
        if min(abs(ratio - round(ratio)), abs(1 / ratio - round(1 / ratio))) > 1e-6 or max(ratio, 1 / ratio) < 0.5:
            raise ConfigError(
                f"policy_updates_per_step = {self.policy_updates_per_step:g} and critic_updates_per_step = "
                f"{self.critic_updates_per_step} must be in a whole ratio, such as 1 and 2 or 4 and 2."
            )

    @property
    def policy_interval(self) -> int:
        """Critic updates from one policy round to the next."""
        return max(1, round(self.critic_updates_per_step / self.policy_updates_per_step))

    @property
    def policy_rounds(self) -> int:
        """Policy updates in a round."""
        return max(1, round(self.policy_updates_per_step / self.critic_updates_per_step))


@dataclass(frozen=True)
class SACConfig(ActorCriticConfig):
    """Soft actor-critic: tanh-Gaussian policy, entropy as exploration term."""

    explore: str = option("entropy", "exploration term of the target", choices=("entropy", "none"))
    tune_alpha: bool = option(True, "tune the temperature towards the target entropy, or keep it fixed")
    alpha: float = option(1.0, "initial temperature, or the fixed one (0: no entropy)", low=0.0)
    alpha_lr: float = option(3e-4, "learning rate of the temperature", above=0.0)
    alpha_beta1: float = option(0.9, "Adam's first moment decay for the temperature", low=0.0, high=0.9999)
    target_entropy: float | None = option(None, "entropy to tune towards; none: minus the action dimensions")
    entropy_units: str = option("env", "count log π in the env's own action units or in [-1, 1]", choices=("env", "unit"))

    def check(self) -> None:
        """A tuned temperature is the exponential of something and so cannot start at zero."""
        super().check()
        if self.explore == "entropy" and self.tune_alpha and self.alpha == 0.0:
            raise ConfigError("alpha = 0 cannot be tuned; allowed: > 0, or tune_alpha = false.")


@dataclass(frozen=True)
class TD3Config(ActorCriticConfig):
    """Twin delayed DDPG: deterministic policy, target smoothing as exploration term, policy and targets delayed."""

    initialiser: str = option("torch", "initial weights: xavier (zero bias) or torch (its default)", choices=INITIALISERS)
    policy_updates_per_step: float = option(0.5, "policy updates per decision; 0.5 is one every second decision", above=0.0)
    target_interval: int = option(2, "updates between two target updates", low=1)
    random_steps: int = option(25_000, "environment steps of uniformly random actions at the start", low=0)
    learn_after: int = option(25_000, "environment steps before the first update; 0: once a batch is there", low=0)
    explore: str = option("smoothing", "exploration term of the target", choices=("smoothing", "none"))
    exploration_noise: float = option(0.1, "deviation of the noise added to actions while collecting", low=0.0)
    smoothing_noise: float = option(0.2, "deviation of the noise on the target policy's action", low=0.0)
    smoothing_clip: float = option(0.5, "bound on the noise on the target policy's action", low=0.0)


@dataclass(frozen=True)
class ExploitOptions(Config):
    """The exploit half of the BEE operator."""

    lam: float = option(0.5, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")
    blend: str = option("fixed", "how λ is chosen", choices=BLENDS)
    exploit: str = option("expectile", "estimator of the in-sample maximum", choices=EXPLOITS)
    expectile: float = option(0.7, "expectile of the estimator `expectile`", low=0.5, high=0.9999)
    exploit_alpha: float = option(1.0, "regularisation of the estimators `sparse` and `exponential`", above=0.0)
    value_lr: float = option(3e-4, "learning rate of V", above=0.0)


@dataclass(frozen=True)
class BACConfig(ExploitOptions, SACConfig):
    """BEE actor-critic: SAC under the BEE operator."""

    network: str = option("bac", "body of all networks: mlp (ReLU) or bac (LayerNorm-tanh, then ELU)", choices=BODIES)
    target_interval: int = option(2, "updates between two target updates", low=1)
    v_entropy: bool = option(True, "entropy term in V's regression, as the release has it and the paper's text does not")


@dataclass(frozen=True)
class BEETD3Config(ExploitOptions, TD3Config):
    """TD3 under the BEE operator."""
