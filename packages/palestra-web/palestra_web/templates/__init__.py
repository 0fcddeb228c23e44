"""The templates of the tasks on the self-hosted sites: a module for each site, with its
`TEMPLATES`.

`python -m palestra_web.generate` writes the tasks of all of them to `task_files`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from palestra.envs.web.template import Template


@cache
def all_templates() -> Mapping[str, Template]:
    """The templates of all modules, by id."""
    found: dict[str, Template] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for template in import_module(f"{__name__}.{module}").TEMPLATES:
            if template.id in found:
                raise ValueError(f"two templates are called {template.id!r}")
            found[template.id] = template
    return found
