"""The documentation's Python blocks run, its commands exist, its links lead somewhere, and what it
names is there.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
import typer

from palestra.algos import algos
from palestra.cli.main import app
from palestra.config.config import Config, build
from palestra.config.model import models
from palestra.config.renamed import RENAMED, RENAMED_METRICS, RENAMED_VALUES
from palestra.config.run_format import format_line
from palestra.core.settings import Settings
from palestra.engines import engines
from palestra.horizons import horizons
from tests.support.folder_map import FOLDERS
from tests.support.viewed import trained_copy
from tests.unit.repository.test_imports import folder_of, imported, name_of

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / "SECURITY.md", ROOT / "packages" / "palestra-web" / "README.md"]


def blocks(page, language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fences if name == language]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # runs go to runs/
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
    settings = command.make_context(command.name, words).obj
    if command.name in ("train", "eval", "explain", "doctor", "plan"):
        assert [name for name in settings if not is_setting(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def anchors(page):
    """What GitHub calls the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_into_pages_lead_to_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_tests_that_are_named_exist():
    """Also in comments of the code: a test that moves takes its name along."""
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    code = [ROOT / folder for folder in ("palestra", "packages", "benchmarks", "tests")]
    for page in [*pages, *(file for folder in code for file in folder.rglob("*.py"))]:
        for named in re.findall(r"\btests/[\w/]+\.py\b", page.read_text()):
            if "NAME" not in named:  # a pattern, in CONTRIBUTING.md
                assert (ROOT / named).exists(), f"{page.name}: {named}"


def test_recipes_that_are_named_exist():
    for page in PAGES:
        for recipe in re.findall(r"recipes/[\w/-]+\.toml", page.read_text()):
            assert (ROOT / "palestra" / recipe).is_file(), recipe


def test_the_tutorials_environment_is_checked_and_trained_on_as_the_page_says(tmp_path):
    page = ROOT / "docs" / "guides" / "environments.md"
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
        line += f" {small}" if "train" in line else ""
        command = [
            sys.executable,
            "-c",
            "from palestra.cli.main import main; main()",
            *shlex.split(line)[1:],
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(commands) == 2


CHOSEN = {"algo": algos, "engine": engines, "horizon": horizons, "model": models}


def tables():
    """The settings of each table of a recipe, of everything that can be chosen there."""
    found = {}
    for table, field in Config.model_fields.items():
        if table in CHOSEN:
            kinds = [CHOSEN[table][name] for name in CHOSEN[table].names()]
        else:
            inside = (field.annotation, *get_args(field.annotation))
            inside += tuple(part for kind in inside for part in get_args(kind))
            kinds = [kind for kind in inside if isinstance(kind, type)]
        kinds = [kind for kind in kinds if issubclass(kind, Settings)]
        found[table] = {name for kind in kinds for name in kind.model_fields}
    return found


TABLES = tables()
NAMES = {name for names in TABLES.values() for name in names} | set(TABLES)
"""All tables, and all settings without their table."""


def is_setting(dotted):
    table, *rest = dotted.split(".")
    return table in TABLES and (not rest or rest[0] in TABLES[table])


def code(page):
    """What stands in backticks outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def by_name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_commands_in_sentences_exist_with_their_flags(page):
    for line in code(page):
        program, *words = line.split()
        if program != "palestra" or not words:
            continue
        command = typer.main.get_command(app)
        while hasattr(command, "commands") and words and not words[0].startswith(("-", ".")):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in option.opts} | {"--help", "-h"}
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        unknown = [flag for flag in flags if flag not in known and not is_setting(flag[2:])]
        assert unknown == [], line


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_files_that_are_named_exist(page):
    named = re.findall(
        r"(?<![\w./-])(?:palestra|tests|benchmarks|recipes|viewer|packages)/[\w./-]*\w",
        page.read_text(),
    )
    tests = [words for words in code(page) if re.fullmatch(r"[\w/]+/test_\w+\.py", words)]
    named += [f"tests/{path.removeprefix('tests/')}" for path in tests]
    named = [path for path in named if "NAME" not in path]
    assert [path for path in named if not (ROOT / path).exists()] == []


GROUPS = ("envs", "agents", "algos", "engines", "horizons", "formats", "models", "trackers")
ENTRY_POINTS = {f"palestra.{kind}" for kind in GROUPS}


def is_there(dotted):
    """Whether there is such a module, or one with such a name in it. Nothing is imported."""
    place = ROOT / "packages" / "palestra-web" if dotted.startswith("palestra_web") else ROOT
    for part in dotted.split("."):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            place = place / f"{part}.py"
        else:
            file = place if place.is_file() else place / "__init__.py"
            return re.search(rf"\b{part}\b", file.read_text()) is not None
    return True


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_modules_that_are_named_exist(page):
    named = re.findall(r"(?<![\w./-])palestra(?:_web)?(?:\.\w+)+", page.read_text())
    assert [dotted for dotted in named if dotted not in ENTRY_POINTS and not is_there(dotted)] == []


NO_SETTINGS = {"model.generate"}
"""Code that looks like one."""


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_settings_that_are_named_exist(page):
    files = ("toml", "json", "jsonl", "safetensors", "txt", "md", "py")
    wrong = []
    for words in code(page):
        found = re.match(r"(?:--)?([a-z_]+)\.([a-z_]+)(?:\.\w+)*(?= |=|$)", words)
        if found and found[1] in TABLES and found[2] not in files:
            wrong += [] if found[2] in TABLES[found[1]] else [words]
    assert set(wrong) <= NO_SETTINGS


OLD = {name.split(".")[1] for name in RENAMED} - NAMES
OLD |= {value for values in RENAMED_VALUES.values() for value in values}
OLD |= {*RENAMED, *RENAMED_METRICS}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_no_renamed_setting_value_or_metric_is_named(page):
    assert [words for words in code(page) if words.partition(" = ")[0].strip('"') in OLD] == []


METRICS = r"(policy|groups|queue|tokens|staleness|tasks|faults|value|dpo|time)/(\w+)"
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "palestra").rglob("*.py")))


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_metrics_that_are_named_exist(page):
    for words in code(page):
        if found := re.fullmatch(METRICS, words):
            written = f'timed("{found[2]}")' if found[1] == "time" else f'"{words}"'
            assert written in SOURCE or f'"{words}"' in SOURCE, words


def page_name(value):
    return value.name if isinstance(value, Path) else ""


SETTINGS_BLOCKS = [
    (page, block)
    for page in PAGES
    for block in blocks(page, "toml")
    if set(tomllib.loads(block)) <= set(TABLES)
]


@pytest.mark.parametrize(("page", "block"), SETTINGS_BLOCKS, ids=page_name)
def test_settings_in_toml_blocks_are_accepted(page, block):
    build(tomllib.loads(block))


def test_the_run_folders_page_names_all_that_is_in_a_run_folder(tmp_path):
    run = trained_copy(tmp_path / "run")
    (tree,) = [
        block
        for block in blocks(ROOT / "docs" / "reference" / "run-folder.md", "")
        if "runs/" in block
    ]
    described = {re.split(r"[\s/]", line.strip())[0] for line in tree.splitlines()}
    assert {path.name for path in run.folder.iterdir()} - described <= {".lock"}


def test_the_way_of_an_episode_is_short_and_has_no_way_back():
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    hops = re.findall(r"^(\d+)\. `(palestra/[\w./]+)`", page, re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert 10 <= len(hops) <= 20
    folders = [folder_of(name_of(ROOT / path)) for _, path in hops]
    entered = [new for old, new in zip([None, *folders], folders, strict=False) if new != old]
    assert len(entered) == len(set(entered)), "a folder is entered twice"
    parts = {"cli", "training", "rollout", "agents", "engines", "envs", "learner", "view"}
    assert parts <= set(entered)
    known = set()
    for folder in entered:
        if known:
            assert folder in known, f"nothing before it imports {folder}"
        files = (ROOT / "palestra" / folder).rglob("*.py") if folder else [ROOT / hops[0][1]]
        known |= {folder_of(module) for path in files for module in imported(path)}


def test_the_architecture_page_has_every_folder():
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    first = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    assert re.findall(r"`(\w+)`", "".join(first)) == FOLDERS


def test_the_example_reports_configuration_is_that_of_a_run_of_today():
    text = (ROOT / "docs" / "example-report" / "report.md").read_text()
    lines = text.partition("    # palestra run")[2].splitlines()[1:]
    written = tomllib.loads("\n".join(line.removeprefix("    ") for line in lines))
    assert format_line().strip() in text
    assert build(written).algo.name == "grpo"
