"""Algorithms: who gets credit and what is minimized, as pure functions over one batch of tensors.

Importing this package imports no algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.registry import Registry

if TYPE_CHECKING:
    from palestra.algos.base import Algorithm

algos: Registry[type[Algorithm]] = Registry(
    "algos",
    {
        "grpo": "palestra.algos.grpo:GRPO",
        "dr_grpo": "palestra.algos.dr_grpo:DrGRPO",
        "gspo": "palestra.algos.gspo:GSPO",
        "cispo": "palestra.algos.cispo:CISPO",
        "gigpo": "palestra.algos.gigpo:GiGPO",
        "rloo": "palestra.algos.rloo:RLOO",
        "reinforce_pp": "palestra.algos.reinforce_pp:ReinforcePP",
        "ppo": "palestra.algos.ppo:PPO",
        "remax": "palestra.algos.remax:ReMax",
        "mt_grpo": "palestra.algos.mt_grpo:MultiTurnGRPO",
        "sft": "palestra.algos.sft:SFT",
        "rft": "palestra.algos.rft:RFT",
        "dpo": "palestra.algos.dpo:DPO",
        "evol": "palestra.algos.evol:AgentEvol",
    },
    base="palestra.algos.base:Algorithm",
)
