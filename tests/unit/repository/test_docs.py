"""The documentation's Python blocks run, its commands exist, and its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from palestra.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fences if name == language]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_blocks_run(page):
    names: dict = {"__name__": "docs"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


COMMANDS = [
    (page.name, line)
    for page in PAGES
    for block in blocks(page, "")
    for line in block.splitlines()
    if line.startswith("palestra ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_parse(page, line):
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    if words[0].startswith("--"):  # of palestra itself: parsing it would do what it says
        assert words[0] in [name for option in command.params for name in option.opts]
        return
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_tests_that_are_named_exist():
    """Also in comments of the code: a test that moves takes its name along."""
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    code = [ROOT / folder for folder in ("palestra", "packages", "benchmarks", "tests")]
    for page in [*pages, *(file for folder in code for file in folder.rglob("*.py"))]:
        for named in re.findall(r"\btests/[\w/]+\.py\b", page.read_text()):
            assert (ROOT / named).exists(), f"{page.name}: {named}"


def test_recipes_that_are_named_exist():
    for page in PAGES:
        for recipe in re.findall(r"recipes/[\w/-]+\.toml", page.read_text()):
            assert (ROOT / recipe).is_file(), recipe


def test_the_tutorials_environment_is_checked_and_trained_on_as_the_page_says(tmp_path):
    page = ROOT / "docs" / "environments.md"
    (tmp_path / "my_module.py").write_text("\n".join(blocks(page, "python")[:3]))
    small = (
        "--steps 1 --out run --warm_start.episodes 20 --warm_start.updates 2 --eval.tasks 5 "
        "--rollout.tasks 2"
    )
    commands = [
        line
        for line in "\n".join(blocks(page, "")).splitlines()
        if "env check" in line or "palestra train" in line
    ]
    for line in commands:
        line = line.replace("recipes/", f"{ROOT}/recipes/") + (
            f" {small}" if "train" in line else ""
        )
        command = [
            sys.executable,
            "-c",
            "from palestra.cli.main import main; main()",
            *shlex.split(line)[1:],
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(commands) == 2
