"""PPO (arXiv:1707.06347): a critic says what was to be expected, token by token or turn by turn."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from palestra.algos.advantages import gae, whiten
from palestra.algos.base import CriticSettings, Need, Prediction
from palestra.algos.losses import Stats, clipped_value_loss
from palestra.algos.policy import PolicyGradient
from palestra.batch import Batch


class PPO(PolicyGradient):
    name: Literal["ppo"] = "ppo"
    level: Literal["turn", "token"] = "turn"
    """What the trace of the advantages passes over: turns, or chosen tokens. Observations are not decisions in either."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """Discount a turn or a token. At 1, with `bootstrap`, putting the end off for ever would cost nothing."""
    lam: float = Field(default=0.95, ge=0, le=1)
    """1: what really followed against what was expected; 0: the next estimate against this one."""
    bootstrap: bool = True
    """Count what the critic still expects where only the horizon ended an episode."""
    whiten: bool = True
    """Bring the advantages of a step to mean 0 and deviation 1."""
    value_weight: PositiveFloat = 0.5
    value_clip: PositiveFloat | None = 0.2
    """How far an estimate may move in one step before moving on stops paying."""
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="after")
    def _time_must_cost(self) -> PPO:
        if self.bootstrap and self.gamma == 1:
            raise ValueError("gamma = 1 with bootstrap = true never teaches to finish: set gamma below 1, or bootstrap = false")
        return self

    @property
    def critic_settings(self) -> CriticSettings:
        return self.critic

    @property
    def needs(self) -> frozenset[Need]:
        return super().needs | {"value"}

    @property
    def compares_within_groups(self) -> bool:
        return False

    @property
    def learns_only_from_advantages(self) -> bool:
        return False

    @property
    def credit_formula(self) -> str:
        after = "V after the last token where only the horizon ended it, else 0" if self.bootstrap else "0 after the end"
        trace = f"GAE over {self.level}s, gamma {self.gamma:g}, lambda {self.lam:g}, {after}"
        return f"{trace}{', whitened' if self.whiten else ''}"

    def explain_credit(self, in_reward: str) -> str:
        rewards = f"the reward of a turn comes with its last token{f'; each token has{in_reward} besides' if in_reward else ''}"
        return f"A_c = {self.credit_formula};  {rewards}"

    def explain(self) -> list[str]:
        clip = f", at most {self.value_clip:g} from the old estimate" if self.value_clip is not None else ""
        own = {"head": "one more output of the policy", "model": "a network of its own"}[self.critic.kind]
        value = f"minimise besides  {self.value_weight:g} x (V_c - return_c)^2 / 2{clip};  V: {own}"
        warmup = [f"in the first {self.critic.warmup} steps only V learns"] if self.critic.warmup else []
        return [*super().explain(), value, *warmup]

    def credit(self, batch: Batch) -> Batch:
        batch = super().credit(batch)
        assert batch.advantage_C is not None
        assert batch.value_C is not None
        expected_C = batch.value_C if self.level == "token" else _turn_values(batch)[batch.turn_C]
        advantage_C = whiten(batch.advantage_C) if self.whiten else batch.advantage_C
        return batch.with_(return_C=batch.advantage_C + expected_C, advantage_C=advantage_C)

    def advantages(self, batch: Batch) -> Tensor:
        assert batch.value_C is not None
        assert batch.value_after_N is not None
        after_N = torch.where(batch.was_cut_N & self.bootstrap, batch.value_after_N, 0.0)
        if self.level == "turn":
            reward_U = batch.reward_U.index_add(0, batch.turn_C, self._kl_penalty(batch))
            return gae(reward_U, _turn_values(batch), batch.owner_U, after_N, gamma=self.gamma, lam=self.lam)[batch.turn_C]
        last_C = _is_first(batch.turn_C.flip(0)).flip(0)
        reward_C = torch.where(last_C, batch.reward_U[batch.turn_C], 0.0) + self._kl_penalty(batch)
        return gae(reward_C, batch.value_C, batch.owner_C, after_N, gamma=self.gamma, lam=self.lam)

    def _kl_penalty(self, batch: Batch) -> Tensor:
        return self.penalised(torch.zeros_like(batch.sampled_logp_C), batch)

    def loss(self, new: Prediction, batch: Batch) -> tuple[Tensor, Stats]:
        assert new.value_C is not None
        assert batch.value_C is not None
        assert batch.return_C is not None
        policy_C, stats = super().loss(new, batch)
        value_C, value_stats = clipped_value_loss(new.value_C, batch.value_C, batch.return_C, clip=self.value_clip)
        return policy_C + self.value_weight * value_C, stats | value_stats


def _turn_values(batch: Batch) -> Tensor:
    """What the critic expected of each turn: its estimate before the turn's first token."""
    assert batch.value_C is not None
    first_C = _is_first(batch.turn_C)
    return torch.zeros_like(batch.reward_U).index_put_((batch.turn_C[first_C],), batch.value_C[first_C])


def _is_first(turn_C: Tensor) -> Tensor:
    """Whether a token is the first of its turn."""
    return torch.cat([torch.ones_like(turn_C[:1], dtype=torch.bool), turn_C[1:] != turn_C[:-1]])
