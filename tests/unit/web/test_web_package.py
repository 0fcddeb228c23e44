"""palestra-web is a package of its own: found by its entry points, and never needed by palestra."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import palestra_web.env
import palestra_web.suite
from palestra.envs import envs
from palestra.envs.web.suite import suites

PALESTRA = Path(__file__).parents[3] / "palestra"
WITHOUT = """
import importlib.metadata, sys
every = importlib.metadata.distributions
importlib.metadata.distributions = lambda **given: [
    one for one in every(**given) if one.name != "palestra-web"
]
sys.modules["palestra_web"] = None  # whatever tries to import it fails
from palestra.cli.main import main
main(sys.argv[1:])
"""


def test_its_entry_points_are_found():
    assert envs["web"] is palestra_web.env.Web
    assert suites["web"] is palestra_web.suite.SelfHosted


@pytest.mark.parametrize(
    "command",
    ["web up --only map", "web status", "web down", "env check web"],
)
def test_without_it_one_line_says_what_to_install(command):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "pip install palestra-web" in line


def test_without_it_the_other_environments_in_a_browser_are_there():
    code = f"{WITHOUT.rpartition('from palestra.cli')[0]}\nfrom palestra.envs import envs"
    code += "\nprint(envs['webarena'].name, envs['miniwob'].name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["webarena", "miniwob"], done.stderr


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_palestra_does_not_import_it():
    for path in PALESTRA.rglob("*.py"):
        assert "palestra_web" not in {name.split(".")[0] for name in imported_modules(path)}, path
