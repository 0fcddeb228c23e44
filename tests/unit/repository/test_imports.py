"""Who may import whom, what the tree looks like, and what must stay light."""

import ast
import subprocess
import sys

import pytest

from tests.support.environments import needs_sciworld
from tests.support.folder_map import FOLDERS, PACKAGE


def module_files():
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {name_of(path) for path in module_files()}


def imported(path):
    """The modules of ours that a file imports anywhere, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == "palestra":
                yield name if name in MODULES else name.rpartition(".")[0]


def folder_of(module):
    """`palestra.runs.run` -> `runs`; empty for the root."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""


def test_the_folders_are_those_of_the_list():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(FOLDERS)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_folders_above_it(folder):
    allowed = {*FOLDERS[: FOLDERS.index(folder) + 1]}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in module_files()
        if path.is_relative_to(PACKAGE / folder)
        for module in imported(path)
        if folder_of(module) not in allowed
    ]
    assert wrong == []


LIGHT = [
    "palestra",
    "palestra.cli",
    "palestra.cli.report",
    "palestra.cli.view",
    "palestra.envs",
    "palestra.envs.adapters.agentgym",
    "palestra.envs.babyai.env",
    "palestra.envs.check",
    "palestra.envs.guess.env",
    "palestra.envs.gym",
    "palestra.envs.search.env",
    "palestra.envs.search.world",
    "palestra.envs.serving.agentgym_routes",
    "palestra.envs.serving.client",
    "palestra.envs.serving.handles",
    "palestra.envs.serving.main",
    "palestra.envs.serving.remote",
    "palestra.envs.serving.worker",
    "palestra.envs.serving.worker_pool",
    "palestra.envs.textcraft.env",
    "palestra.tools.report.write",
    "palestra.view.bundle",
    "palestra.view.play",
    "palestra.view.scenes",
    "palestra.view.server",
    pytest.param("palestra.envs.sciworld.env", marks=needs_sciworld),
]


@pytest.mark.parametrize("module", LIGHT)
def test_no_torch(module):
    code = (
        f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
