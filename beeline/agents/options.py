"""The options that methods share, one typed and documented field each. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Self

from beeline.config import OBJECT, Config, option
from beeline.errors import ConfigError

BODIES = ("mlp", "bac", "ln", "simba")
VALUE_HEADS = ("scalar", "two_hot", "hl_gauss")
INITIALISERS = ("xavier", "torch", "orthogonal")
DISTRIBUTIONS = ("value_head", "two_hot", "hl_gauss")
CRITICS = ("auto", "on", "mean", "off")
BLENDS = ("fixed", "min", "max", "ada", "ada_h2o", "ada_batch")
EXPLOITS = ("expectile", "sparse", "exponential")
# What an object must satisfy that is handed over in Python instead of a name.
NET, BLEND, LOSS = "beeline.networks:Net", "beeline.agents.blends:Blend", "beeline.operators:ExploitLoss"


@dataclass(frozen=True)
class MethodConfig(Config):
    """Base of every method's config: what the run asks of it before it starts."""

    scales_observations: ClassVar[bool] = False  # whatever the options say

    def scheduled(self, steps: int) -> Self:
        """The config of a run of so many steps: schedules without a length take this one, and keep it if the run is extended."""
        open_ended = getattr(self, "schedule_steps", 0) is None
        return dataclasses.replace(self, **{"schedule_steps": steps}) if open_ended else self

    def begin(self, env_id: str) -> None:
        """What a new run of this task must find, such as files of its own: an error where it does not."""

    @property
    def warm_up(self) -> tuple[str, int]:
        """The option that says when learning has begun, and the step; a run must be longer."""
        return "", 0

    @property
    def least_transitions(self) -> tuple[str, int]:
        """How many transitions the replay must be able to hold, or nothing would be learnt, and the option that says so."""
        return "", 1

    @property
    def refuses_prior(self) -> str:
        """Why this method cannot learn from data of others; empty where it can."""
        return "it does not learn from a replay"

    @property
    def needs_episodes(self) -> str:
        """Why single transitions are not enough for it; empty where they are."""
        return ""

    @property
    def needs_terminated(self) -> bool:
        """Whether a function of the task must say where episodes end."""
        return False

    @property
    def policy_networks(self) -> int:
        """How many networks of the widths that it describes a policy consists of."""
        return 1


@dataclass(frozen=True)
class OffPolicyConfig(MethodConfig):
    """What all off-policy methods share, the exploit half of the BEE operator included."""

    network: str = option(
        "mlp", "body of all networks: mlp (ReLU), bac (LayerNorm-tanh and ELU), ln (LayerNorm-ReLU), simba (residual)",
        choices=BODIES, objects=NET,
    )  # fmt: skip
    hidden: tuple[int, ...] = option((256, 256), "widths of the hidden layers; simba: the width, once per block", low=1)
    policy_hidden: tuple[int, ...] | None = option(None, "widths of the policy's hidden layers; none: as `hidden`", low=1)
    initialiser: str = option("xavier", "initial weights: xavier (zero bias), torch's, or orthogonal", choices=INITIALISERS)
    batch_size: int = option(256, "transitions per update", low=1)
    gamma: float | str = option(
        0.99, "discount per decision; auto: 1 − 5/T within [.95, .995] for episodes of T decisions", low=0.0, high=1.0,
        choices=("auto",),
    )  # fmt: skip
    tau: float = option(0.005, "share of the online critics that enters the target critics", above=0.0, high=1.0)
    target_interval: int = option(1, "updates between two target updates", low=1)
    actor_lr: float = option(3e-4, "learning rate of the policy", above=0.0)
    critic_lr: float = option(3e-4, "learning rate of the critics", above=0.0)
    weight_decay: float = option(0.0, "AdamW's decay of all networks' parameters, in shares of the rate", low=0.0, high=1.0)
    value_head: str = option(
        "scalar", "what critics put out: a number (scalar), or a distribution over atoms (two_hot, hl_gauss)", choices=VALUE_HEADS
    )
    atoms: int = option(101, "two_hot, hl_gauss: atoms, evenly on the support", low=2, high=1001, only=DISTRIBUTIONS)
    support: tuple[float, ...] = option(
        (-5.0, 5.0), "two_hot, hl_gauss: smallest and largest Q; normalize_reward fits it", only=DISTRIBUTIONS
    )
    double_q: str = option(
        "on", "on: two critics and their minimum; mean: their mean; off: one critic; auto: on where episodes can terminate",
        choices=CRITICS,
    )  # fmt: skip
    critic_updates_per_step: int = option(1, "critic updates per decision of each env", low=1)
    policy_updates_per_step: float = option(1.0, "policy updates per decision; 0.5 is one every second decision", above=0.0)
    random_steps: int = option(10_000, "environment steps of uniformly random actions at the start", low=0)
    learn_after: int = option(0, "environment steps before the first update; 0: once a batch is there", low=0)
    n_step: int = option(1, "steps of reward before bootstrapping", low=1, high=100)
    reward_scale: float = option(1.0, "factor on rewards inside the targets", above=0.0)
    normalize_reward: bool = option(False, "divide rewards by the deviation of discounted returns, or their largest by 5")
    replay_decay: float = option(0.0, "share of its weight that a transition loses per decision; 0: none", low=0.0, high=0.5)
    replay_floor: float = option(0.1, "replay_decay: weight below which age does not count any more", above=0.0, high=1.0)
    grad_clip: float | None = option(None, "bound on each network's gradient norm; none: no bound", above=0.0)
    normalize_obs: bool = option(False, "scale observations by their running mean and deviation")
    acting_noise: str = option("white", "noise of collecting: white, or pink (1/f)", choices=("white", "pink"))
    lam: float = option(0.0, "weight λ of the exploit target; 0 drops the exploit part", low=0.0, high=1.0, alias="lambda")
    blend: str = option("fixed", "how λ is chosen", choices=BLENDS, objects=BLEND)
    exploit: str = option("expectile", "estimator of the in-sample maximum", choices=EXPLOITS, objects=LOSS)
    expectile: float = option(0.7, "expectile of the estimator `expectile`", low=0.5, high=0.9999, only=("exploit", "expectile"))
    exploit_alpha: float = option(
        1.0, "regularisation of the estimators `sparse` and `exponential`", above=0.0,
        only=("exploit", "sparse", "exponential", OBJECT),
    )  # fmt: skip
    value_lr: float = option(3e-4, "learning rate of V", above=0.0)

    def check(self) -> None:
        """Critic and policy updates come in a whole ratio; a block keeps its width; what an absent part would read is refused."""
        for name in ("hidden", "policy_hidden"):
            widths = getattr(self, name)
            if self.network == "simba" and widths and len(set(widths)) > 1:
                raise ConfigError(f"{name} = {','.join(map(str, widths))}: the blocks of simba have one width, such as 256,256.")
        if self.replay_decay == 0.0 and self.changed("replay_floor"):
            raise ConfigError(f"replay_floor = {self.replay_floor} is read with replay_decay above 0 only.")
        if len(self.support) != 2 or self.support[0] >= self.support[1]:
            raise ConfigError(f"support = {','.join(f'{each:g}' for each in self.support)}: two numbers, the smaller first.")
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

    @property
    def bee(self) -> bool:
        """Whether the exploit part is there: a fixed λ = 0 drops it."""
        return self.blend != "fixed" or self.lam != 0.0

    @property
    def warm_up(self) -> tuple[str, int]:
        """The option that says when the policy has begun to act and learn, and the step."""
        return max(("random_steps", self.random_steps), ("learn_after", self.learn_after), key=lambda each: each[1])

    @property
    def least_transitions(self) -> tuple[str, int]:
        """Learning begins with more than a batch."""
        return f"batch_size = {self.batch_size}", self.batch_size + 1

    @property
    def refuses_prior(self) -> str:
        """Whoever collected a transition, it can be learnt from, unless rewards are scaled by those met."""
        if self.normalize_reward:
            return (
                "normalize_reward divides by what the run itself has met, which may be next to nothing beside the rewards of the "
                "data; leave it out, or give reward_scale"
            )
        return ""

    @property
    def needs_episodes(self) -> str:
        """Returns over several steps need what came after a transition."""
        return f"n_step = {self.n_step} needs the rewards that followed a transition" if self.n_step > 1 else ""
