"""The base of everything a recipe can set: typed, closed, frozen, and open to plugins by name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from palestra.registry import Registry, UnknownName


class Settings(BaseModel):
    """A typo is an error, and nothing changes once the run has begun."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def chosen_from(registry: Registry[Any], key: str, default: str) -> BeforeValidator:
    """Validates a table by the class that its `key` names in `registry`, so that plugins' settings are as typed as ours."""

    def resolve(value: Any) -> Any:
        if isinstance(value, Settings):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"expected a table; its {key!r} is one of: {', '.join(registry.names())}")
        name = str(value.get(key, default))
        try:
            settings_class = registry[name]
        except UnknownName as error:
            raise ValueError(f"{key} = {name!r}: {error}") from error
        return settings_class.model_validate(value)

    return BeforeValidator(resolve)
