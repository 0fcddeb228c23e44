"""The base of everything a recipe can set: typed, closed, frozen, and open to plugins by name."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

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
    def _read(cls, given: Any) -> Any:
        """Values as recipes and flags write them: "none", and one value for a list of one."""
        if not isinstance(given, dict):
            return given
        values = dict(given)
        for name, field in cls.model_fields.items():
            value = given.get(name)
            is_optional = NoneType in get_args(field.annotation)
            if is_optional and isinstance(value, str) and value.lower() == UNSET:
                values[name] = None
            elif isinstance(value, bool) and _is_number(field.annotation):
                # Also a flag without a value, which pydantic would take for the number 1.
                raise ValueError(f"{name} = {str(value).lower()}: expected a number")
            elif isinstance(value, str | int | float) and _is_list(field.annotation):
                values[name] = (value,)
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


def _is_number(annotation: Any) -> bool:
    """Whether a field is an int or a float, optional or within limits."""
    if get_origin(annotation) is Annotated:
        return _is_number(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return all(map(_is_number, kinds))
    return annotation in (int, float)


def _is_list(annotation: Any) -> bool:
    """Whether a field is a list of any length."""
    return get_origin(annotation) is tuple and get_args(annotation)[-1] is Ellipsis


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
