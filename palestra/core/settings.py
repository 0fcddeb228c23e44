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
"""The value of an optional setting that is not set, in recipes and flags: TOML has no null."""


class Settings(BaseModel):
    """The base of all settings: an unknown name is an error, and values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _unset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        values = dict(given)
        for name, field in cls.model_fields.items():
            value = given.get(name)
            is_optional = NoneType in get_args(field.annotation)
            if is_optional and isinstance(value, str) and value.lower() == UNSET:
                values[name] = None
        return values

    @model_serializer(mode="wrap")
    def _with_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write "none" for a setting that is not set and has another default: TOML leaves nulls
        out, and the default would be read back.
        """
        values: dict[str, Any] = handler(self)
        for name, field in type(self).model_fields.items():
            if getattr(self, name) is None and field.default is not None:
                values[name] = UNSET
        return values


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
    """A table whose class is named "module:Class", as it was read. Importing the class would run a
    stranger's code, so only commands that need it do so.
    """

    model_config = ConfigDict(extra="allow", frozen=True)


def chosen_from(registry: Registry[Any], key: str, default: str) -> WrapValidator:
    """Validates a table with the class that its `key` names in `registry`, so that plugins have
    typed settings, too.

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
