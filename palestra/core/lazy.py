"""Packages that are imported when they are first used, so that settings can be read without them.

An algorithm is its settings and its arithmetic in one class. Reading a recipe needs the settings
only, and importing torch takes longer than everything else that does.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from palestra.core.extras import naming_extras


class LazyModule(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        with naming_extras("this part of palestra"):
            module = import_module(self.__name__)
        return getattr(module, name)


if TYPE_CHECKING:
    import numpy as numpy
    import torch as torch
else:
    numpy = LazyModule("numpy")
    torch = LazyModule("torch")
