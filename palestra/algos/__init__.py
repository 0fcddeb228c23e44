"""Algorithms: whom to credit and what to minimise. Importing this package imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.registry import Registry

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
    },
)
