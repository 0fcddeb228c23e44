"""Which agent acts, how it writes actions, and how many tokens it has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from palestra.agents import agents
from palestra.core.action_formats import formats
from palestra.core.settings import Settings, named_in


class AgentSettings(Settings):
    """The agent: how the model is prompted, how it writes actions, and its token budgets."""

    name: Annotated[str, AfterValidator(named_in(agents))] = "chat"
    """A registered agent, or "module:Class"."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the agent's constructor."""
    format: Annotated[str, AfterValidator(named_in(formats))] = "react"
    """How the model writes actions: "react", "plain", "tags" or "block"."""
    example: bool = False
    """Show the environment's worked example in the prompt."""
    template: Literal["auto", "model", "chatml"] = "auto"
    """Chat template: "model" (the model's own), "chatml" (built in), or "auto", which uses the
    model's own if it is append-only and ChatML otherwise.
    """
    context_tokens: PositiveInt = 4096
    """Maximum number of tokens in an episode."""
    reply_tokens: PositiveInt = 256
    """Maximum number of tokens in one reply."""

    @model_validator(mode="after")
    def _reply_fits(self) -> AgentSettings:
        if self.reply_tokens >= self.context_tokens:
            raise ValueError(
                f"reply_tokens ({self.reply_tokens}) must be below context_tokens "
                f"({self.context_tokens})"
            )
        return self
