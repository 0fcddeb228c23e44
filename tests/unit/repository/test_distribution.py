"""What a distribution says of itself, and that the oldest versions are those that it promises."""

import re
import subprocess
import tomllib
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from tests.support.folder_map import ROOT
from tests.support.pip_install import step_of

README = """# Name
![a curve](docs/images/curve.png) and <img width="300" src="docs/images/run.png" alt="a run">
[guide](docs/guide.md#part), [paper](https://arxiv.org/abs/1), [below](#usage)
"""


@pytest.fixture(scope="module")
def addresses():
    spec = spec_from_file_location("setup_of_palestra", ROOT / "setup.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.addresses


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "README.md").write_text(README)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    git(tmp_path, *who, "commit", "--quiet", "--message", "Start")
    return tmp_path


def git(folder, *words):
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    "remote",
    [
        "https://git.example.org/team/palestra.git",
        "https://user:secret@git.example.org/team/palestra",
        "git@git.example.org:team/palestra.git",
    ],
)
def test_pictures_and_links_lead_into_the_repository(addresses, repository, remote):
    git(repository, "remote", "add", "origin", remote)
    text, urls = addresses(repository)
    url, commit = "https://git.example.org/team/palestra", git(repository, "rev-parse", "HEAD")
    assert urls["Repository"] == url
    assert f"![a curve]({url}/raw/{commit}/docs/images/curve.png)" in text
    assert f'<img width="300" src="{url}/raw/{commit}/docs/images/run.png" alt="a run">' in text
    assert f"[guide]({url}/blob/{commit}/docs/guide.md#part)" in text
    assert "[paper](https://arxiv.org/abs/1), [below](#usage)" in text
    assert "secret" not in text + str(urls)


@pytest.mark.parametrize("remote", ["", "/srv/palestra"])
def test_without_an_address_there_are_no_pictures(addresses, repository, remote):
    if remote:
        git(repository, "remote", "add", "origin", remote)
    text, urls = addresses(repository)
    assert urls == {}
    assert "png" not in text
    assert "guide, [paper](https://arxiv.org/abs/1), [below](#usage)" in text


def test_a_source_distribution_keeps_what_it_was_built_with(addresses, tmp_path):
    (tmp_path / "PKG-INFO").write_text(
        "Metadata-Version: 2.4\nName: palestra\n"
        "Project-URL: Repository, https://git.example.org/team/palestra\n\n# Name\n"
    )
    text, urls = addresses(tmp_path)
    assert text == "# Name\n"
    assert urls == {"Repository": "https://git.example.org/team/palestra"}


def bounds():
    """The lower bounds of the dependencies whose oldest version is tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [*project["dependencies"], *extras["train"], *extras["gymnasium"], *extras["uvloop"]]
    tested += [*extras["babyai"], *extras["textcraft"], *extras["lora"]]
    for entry in tested:
        name, _, bound = entry.partition(";")[0].partition(">=")
        if bound and name != "torch":
            yield name.replace("-", "_"), bound.strip()


@pytest.mark.parametrize(("name", "bound"), sorted(set(bounds())))
def test_the_oldest_version_promised_is_the_oldest_tested(name, bound):
    lines = (ROOT / "constraints-oldest.txt").read_text()
    (tested,) = re.findall(rf"^{name}==(\S+)$", lines.replace("-", "_"), re.MULTILINE)
    parts = bound.split(".")
    assert tested.split(".")[: len(parts)] == parts
    rest = tested.split(".")[len(parts) :]
    assert set(rest) <= {"0"}


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Collecting aiohttp>=3.10 (from palestra==0.1.0)", ("collecting aiohttp>=3.10", 0)),
        (
            "  Downloading https://index.example/t/torch-2.13.0-cp311.whl (190.5 MB)",
            ("downloading torch-2.13.0-cp311.whl (190 MB)", 190.5),
        ),
        (
            "  Downloading yarl-1.25.1.whl.metadata (80 kB)",
            ("downloading yarl-1.25.1.whl.metadata", 0.08),
        ),
        (
            "Using cached rich-15.0.0-py3-none-any.whl (300 kB)",
            ("using cached rich-15.0.0-py3-none-any.whl", 0),
        ),
        ("Installing collected packages: a, b, c", ("installing 3 packages", 0)),
        ("Requirement already satisfied: rich in ./lib", None),
    ],
)
def test_what_pip_does_is_said_in_a_few_words(line, step):
    found = step_of(line)
    if step is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == step[0]
        assert found[1] == pytest.approx(step[1])
