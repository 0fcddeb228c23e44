"""The base of everything a recipe can set: typed, closed, frozen, and open to plugins by name."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)

from palestra.core.registry import Registry, UnknownName

UNSET = "none"
"""How a recipe and a flag say that an optional setting is not set: TOML has no word of its own for
it.
"""


class Settings(BaseModel):
    """A typo is an error, and nothing changes once the run has begun."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _unset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        optional = {
            name
            for name, field in cls.model_fields.items()
            if NoneType in get_args(field.annotation)
        }
        return {
            name: None
            if name in optional and isinstance(value, str) and value.lower() == UNSET
            else value
            for name, value in given.items()
        }

    @model_serializer(mode="wrap")
    def _with_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is not set, and would be by default, must be said."""
        fields = type(self).model_fields
        unset = {
            name: UNSET
            for name, field in fields.items()
            if getattr(self, name) is None and field.default is not None
        }
        return {**handler(self), **unset}


def named_in(registry: Registry[Any]) -> Callable[[str], str]:
    """A validator of names in `registry`. It imports nothing."""

    def check(name: str) -> str:
        try:
            registry.check_name(name)
        except UnknownName as error:
            raise ValueError(str(error)) from error
        return name

    return check


class Unresolved(Settings):
    """A table whose class is named "module:Class", as it was read: importing that class would run
    whatever the name says.
    """

    model_config = ConfigDict(extra="allow", frozen=True)


def chosen_from(registry: Registry[Any], key: str, default: str) -> WrapValidator:
    """Validates a table by the class that its `key` names in `registry`, so that plugins' settings
    are as typed as ours.

    A "module:Class" is imported only with `context={"imports": True}`; else the table stays
    `Unresolved`.
    """

    def resolve(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, Settings):
            return value if isinstance(value, Unresolved) else handler(value)
        if not isinstance(value, dict):
            raise ValueError(
                f"expected a table; its {key!r} is one of: {', '.join(registry.names())}"
            )
        name = str(value.get(key, default))
        if registry.is_external(name) and not (info.context or {}).get("imports"):
            return Unresolved(**value)
        try:
            settings_class = registry[name]
        except UnknownName as error:
            raise ValueError(f"{key} = {name!r}: {error}") from error
        return handler(settings_class.model_validate(value, context=info.context))

    return WrapValidator(resolve)
