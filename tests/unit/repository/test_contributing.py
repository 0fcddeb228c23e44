"""What CONTRIBUTING.md says of the repository is so, and CI runs what it says."""

import re
import tomllib

import pytest
import yaml

from tests.support.folder_map import PACKAGE, PAGE, PLACE, ROOT, folder_map, packages, sentence


@pytest.mark.parametrize(
    "package", packages(), ids=lambda package: str(package.relative_to(PACKAGE))
)
def test_a_folder_says_its_job_in_one_sentence(package):
    said = sentence(package)
    assert said.endswith(".")
    assert ". " not in said
    assert 20 <= len(said) <= 160


def test_the_map_is_what_the_folders_say():
    (written,) = PLACE.findall(PAGE.read_text())
    assert written == folder_map(), "run: make map"


def test_every_dependency_of_the_core_install_and_of_training_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    names = {re.match(r"[\w-]+", entry)[0].replace("_", "-") for entry in entries}
    names.discard("palestra")  # train brings an extra of ours, whose packages have rows as well
    page = PAGE.read_text().split("## Dependencies of the core install")[1]
    core, train = page.split("## Dependencies of the extra `train`")
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \|$", core + train.split("\n## ")[0], re.MULTILINE)
    explained = {name.replace("_", "-") for name, _ in rows if name != "package"}
    assert explained - names == {"minigrid"}
    assert names <= explained


def test_github_runs_the_targets_that_ci_runs():
    ours = re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"run: make (\S+)$", workflow, re.MULTILINE) == ours
    assert ours


def test_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    pages = [PAGE, ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")]
    for page in pages:
        named = set(re.findall(r"`make ([\w-]+)[` ]", page.read_text()))
        assert named <= targets, page


def test_the_citation_has_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]


@pytest.mark.parametrize(
    "path",
    [ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))],
    ids=lambda path: path.name,
)
def test_configuration_of_the_repository_is_yaml(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)
