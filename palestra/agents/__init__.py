"""Agents: what turns observations into actions and records every token of an episode.

Importing this package imports no agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.core.registry import Registry

if TYPE_CHECKING:
    from palestra.agents.base import Agent

agents: Registry[type[Agent]] = Registry(
    "agents",
    {
        "chat": "palestra.agents.chat:ChatAgent",
        "expert": "palestra.agents.scripted:ExpertAgent",
        "random": "palestra.agents.scripted:RandomAgent",
    },
    base="palestra.agents.base:Agent",
)
