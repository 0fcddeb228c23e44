"""Names for things that recipes and other packages can choose."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from palestra.core.errors import UserError
from palestra.core.extras import naming_extras

T = TypeVar("T")

IMPORT_ERRORS = (ImportError, AttributeError, ValueError)
"""What says by itself what is wrong with a name."""

MOST_LISTED = 30
"""Names in an error message."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint for an error message: the choice most like `name`, or all of them."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    if not close:
        others = len(known) - MOST_LISTED
        more = f" and {others:,} more" if others > 0 else ""
        return f"there are: {', '.join(known[:MOST_LISTED])}{more}"
    likeness = {c: difflib.SequenceMatcher(None, name, c).ratio() for c in close}
    best = max(likeness.values())
    return f"did you mean {' or '.join(repr(c) for c in close if likeness[c] == best)}?"


def check_options(
    kind: Callable[..., Any], options: Mapping[str, Any], name: str, *, given: tuple[str, ...] = ()
) -> None:
    """ValueError for an option that the class has no parameter for. `given`: parameters that are
    no options.
    """
    parameters = inspect.signature(kind).parameters.values()
    accepted = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in given]
    for option, value in options.items():
        if option not in accepted:
            hint = nearest(option, accepted) if accepted else "it has none"
            raise ValueError(f"options.{option} = {value!r}: {name} has no such option; {hint}")


class UnknownName(UserError, KeyError):
    """Nothing of that name is registered. Prints as its message."""

    def __str__(self) -> str:
        return str(self.args[0])


class NotInstalled(UnknownName):
    """The name is known, and the package that brings it is not installed."""


class Registry(Generic[T]):
    """A name for each choice: built in (imported when asked for), registered, or a plugin's entry
    point `palestra.<kind>`.
    """

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, str] | None = None,
        *,
        base: str = "",
        packages: Mapping[str, str] | None = None,
    ) -> None:
        """`base`: "module:Class" that everything must be a subclass of,
        imported when it is needed. `packages`: by name, the package of ours that brings it as a
        plugin.
        """
        self.kind = kind
        self._packages = dict(packages or {})
        self._base = base
        self._builtin = dict(builtin or {})
        """name -> "module:attribute"."""
        self._items: dict[str, T] = {}
        self._local: set[str] = set()
        """Names of classes that only this process knows."""

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that adds an item under `name`."""

        def add(item: T) -> T:
            if name in self._items or name in self._builtin:
                raise ValueError(f"two {self.kind} are called {name!r}")
            self._items[name] = item
            return item

        return add

    def register_local(self, name: str) -> Callable[[T], T]:
        """`register`, for a class that other processes do not know by this name.

        The same name again replaces the class: a cell of a notebook may be run twice.
        """
        if name in self._builtin or (name in self._items and name not in self._local):
            raise ValueError(f"two {self.kind} are called {name!r}")

        def add(item: T) -> T:
            self._items[name] = item
            self._local.add(name)
            return item

        return add

    def name_class(self, item: T) -> str:
        """The "module:Class" of a class.

        One that cannot be imported under that name, as it is defined in a script, a notebook or a
        function, is registered in this process.
        """
        assert isinstance(item, type)
        name = f"{item.__module__}:{item.__qualname__}"
        try:
            is_importable = item.__module__ != "__main__" and _attribute(name) is item
        except (ImportError, AttributeError, ValueError):
            is_importable = False
        if not is_importable:
            self._items[name] = item
            self._local.add(name)
        return name

    def is_local(self, name: str) -> bool:
        """Whether only this process knows the class: no other one can import it."""
        return name in self._local or name.startswith("__main__:")

    @property
    def _singular(self) -> str:
        return self.kind[:-1]

    def _imported(self, name: str, path: str) -> T:
        try:
            with naming_extras("it"):
                return cast(T, _attribute(path))
        except IMPORT_ERRORS as error:
            if path.startswith("__main__:"):
                raise UnknownName(
                    f"the {self._singular} {name!r} is defined in a script or notebook; use it "
                    "from there (palestra.train(..., resume=True)), or move it to a module"
                ) from error
            raise UnknownName(
                f"the {self._singular} {name!r} cannot be imported: {error}"
            ) from error
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # whatever the module does when it is imported
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UnknownName(
                f"the {self._singular} {name!r} cannot be imported: it raised {said}"
            ) from error

    def _fits(self, name: str, item: T) -> T:
        """The item, where it is a class of the right kind. It is called only after this."""
        if not self._base:
            return item
        base = _attribute(self._base)
        if not isinstance(item, type) or not issubclass(item, base):
            raise UnknownName(
                f"the {self._singular} {name!r} is no subclass of {self._base.replace(':', '.')}"
            )
        return item

    def names(self) -> list[str]:
        """All names, plugins' included, without importing anything. Of our own packages' names,
        also those that are not installed. A "module:Class" is no name to choose from.
        """
        plugins = {point.name for point in entry_points(group=f"palestra.{self.kind}")}
        registered = {name for name in self._items if ":" not in name}
        return sorted({*registered, *self._builtin, *self._packages, *plugins})

    def __contains__(self, name: str) -> bool:
        return name in self._items or name in self.names()

    def is_external(self, name: str) -> bool:
        """Whether the name is a "module:Class", which imports whatever it names."""
        return ":" in name and name not in self._items and name not in self._builtin

    def check_name(self, name: str) -> None:
        """Raise UnknownName where the name cannot mean anything. Nothing is imported."""
        if not self.is_external(name) and name not in self:
            raise UnknownName(
                f"no {self._singular} is called {name!r}; {nearest(name, self.names())}"
            )

    def __getitem__(self, name: str) -> T:
        """Imports what is asked for: `palestra` itself, an installed plugin, or whatever a
        "module:Class" names.
        """
        if name in self._items:
            return self._items[name]
        if name in self._builtin:
            self._items[name] = self._imported(name, self._builtin[name])
            return self._items[name]
        if self.is_external(name):
            return self._fits(name, self._imported(name, name))
        for point in entry_points(group=f"palestra.{self.kind}", name=name):
            self._items[name] = self._fits(name, point.load())
            return self._items[name]
        if name in self._packages:
            package = self._packages[name]
            raise NotInstalled(
                f"the {self._singular} {name!r} is in the package {package}, which is not "
                f"installed: pip install {package}"
            )
        raise UnknownName(f"no {self._singular} is called {name!r}; {nearest(name, self.names())}")


def _attribute(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
