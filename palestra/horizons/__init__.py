"""How many turns an agent may take as training goes on: ScalingInter-RL and other schedules, as
pure functions of training state.

Importing this package imports no schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.registry import Registry

if TYPE_CHECKING:
    from palestra.horizons.base import Horizon

horizons: Registry[type[Horizon]] = Registry(
    "horizons",
    {
        "stages": "palestra.horizons.scaling_inter:Stages",
        "fixed": "palestra.horizons.fixed:Fixed",
        "linear": "palestra.horizons.linear:Linear",
        "adaptive": "palestra.horizons.adaptive:Adaptive",
    },
    base="palestra.horizons.base:Horizon",
)
