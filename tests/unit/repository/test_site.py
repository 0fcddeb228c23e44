"""The documentation site: its navigation, its links, and reference pages that are true."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import typer

import palestra
from palestra.algos import algos
from palestra.cli.main import app
from palestra.cli.settings import settings_of_class
from palestra.config.config import Config
from palestra.config.env import Member
from palestra.config.model import models
from palestra.config.units import UNITS
from palestra.core.types import Stop
from palestra.engines import engines
from palestra.envs.serving import wire
from palestra.envs.serving.openapi import IN_PATH, ROUTES
from palestra.horizons import horizons
from palestra.runs.metric_glossary import all_metrics, describe
from tests.support.overlap import STREAM
from tests.support.training import ECHO, MIXTURE, trained
from tests.unit.repository.test_docs import SOURCE
from website import build, reference

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = DOCS / "reference"


@pytest.mark.parametrize("name", reference.PAGES)
def test_generated_parts_are_what_make_reference_writes(name):
    page = REFERENCE / name
    assert page.read_text() == reference.with_reference(page), "run: make reference"


# navigation and links


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    inner = entry if isinstance(entry, list) else entry.values()
    return [page for one in inner for page in pages_of(one)]


def test_the_navigation_has_every_page_once():
    nav = tomllib.loads((DOCS.parent / "zensical.toml").read_text())["project"]["nav"]
    found = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(pages_of(nav)) == sorted(found)


PAGE = DOCS / "guides" / "server.md"


def test_links_out_of_the_docs_lead_into_the_repository():
    text = "[rules](../../SECURITY.md#x) [data](../lab/measured/) [page](faults.md)"
    assert build.for_site(text, PAGE, "https://host/us/it") == (
        "[rules](https://host/us/it/blob/main/SECURITY.md#x) "
        "[data](https://host/us/it/tree/main/docs/lab/measured) [page](faults.md)"
    )
    assert build.for_site(text, PAGE, "") == "rules data [page](faults.md)"


def test_code_and_pictures_stay_as_they_are():
    text = "![view](../images/viewer-run.png)\n\n```\n[x](../../SECURITY.md)\n```\n"
    assert build.for_site(text, PAGE, "https://host/us/it") == text


def test_the_contents_of_lists_are_indented_by_four_blanks():
    text = "- one\n  more\n\n  ```\n  code\n    inner\n  ```\n  - nested\n\n```\n  as it is\n```\n"
    assert build.for_site(text, PAGE, "") == (
        "- one\n    more\n\n    ```\n    code\n      inner\n    ```\n    - nested\n\n"
        "```\n  as it is\n```\n"
    )


def test_a_link_to_a_missing_file_ends_the_build():
    with pytest.raises(SystemExit, match="nothing.py"):
        build.for_site("[x](../../nothing.py)", PAGE, "")


def test_broken_links_and_foreign_scripts_of_a_built_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#here">1</a><a href="b.html#gone">2</a>'
        '<a href="c.json">3</a><img src="d.png"><a href="#top">4</a>'
        '<script src="https://cdn.test/x.js"></script><a href="https://arxiv.org/abs/1">5</a>'
        "<p>text\n- <b>no</b> item</p><pre>\n- code</pre>"
    )
    (tmp_path / "b.html").write_text('<h2 id="here">B</h2><a href="a.html">A</a>')
    assert build.problems(tmp_path) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.json does not exist",
        "a.html: d.png does not exist",
        "a.html: loads https://cdn.test/x.js from another host",
        "a.html: a list needs a blank line before it: text -",
    ]


# the Python API


def api_sections():
    """The page's text about each name, by name."""
    text = (REFERENCE / "python-api.md").read_text()
    parts = re.split(r"^### `?(\w+)`?\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


SECTIONS = api_sections()


def test_every_public_name_is_on_the_page_of_the_api_and_nothing_else():
    assert sorted(SECTIONS) == sorted(palestra.__all__)


@pytest.mark.parametrize("name", palestra.__all__)
def test_every_public_name_has_a_docstring_and_an_example(name):
    section = SECTIONS[name]
    assert re.search(r"^```python\n", section, re.MULTILINE)
    if name != "__version__":
        assert f"\n::: palestra.{name}\n" in section
        thing = getattr(palestra, name)
        own = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
        assert own
        assert not own.startswith(f"{name}("), "made by @dataclass"


# settings


def all_settings():
    found = [*settings_of_class(Config), *settings_of_class(Member, "mixture")]
    registries = {"algo": algos, "engine": engines, "horizon": horizons, "model": models}
    for table, registry in registries.items():
        for name in registry.names():
            found += settings_of_class(registry[name], table)
    return found


SETTINGS = all_settings()


def is_number(setting):
    return bool({"int", "float"} & set(re.findall(r"[a-z]+\d*", setting.type)))


def test_every_setting_has_a_type_a_default_and_a_sentence():
    for setting in SETTINGS:
        assert setting.type, setting
        assert setting.default, setting
        assert setting.meaning[0].isupper() or setting.meaning[0] == '"', setting
        assert setting.meaning.endswith("."), setting
        assert "Undefined" not in setting.default, setting


def test_every_number_among_the_settings_has_a_unit():
    assert {setting.name for setting in SETTINGS if is_number(setting)} == set(UNITS)
    assert {setting.name for setting in SETTINGS if setting.unit} == set(UNITS)


def test_every_setting_is_on_the_page():
    text = (REFERENCE / "settings.md").read_text()
    choices = {"algo.name", "engine.name", "horizon.kind", "model.kind"}  # headings
    for setting in SETTINGS:
        as_env = setting.name.replace("mixture.", "env.")
        found = [name for name in (setting.name, as_env) if f"| `{name}` |" in text]
        assert found or setting.name in choices, setting


# the command line


def commands(group, path=("palestra",)):
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else ()


def test_every_command_argument_and_option_is_explained():
    text = (REFERENCE / "command-line.md").read_text()
    for path, command in commands(typer.main.get_command(app)):
        assert f"\n## {path}\n" in text
        assert command.help
        assert [parameter.name for parameter in command.params if not parameter.help] == [], path


# the wire protocol

WIRE = (REFERENCE / "wire-protocol.md").read_text()


def test_the_page_of_the_wire_protocol_has_every_route():
    rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)`", WIRE, re.MULTILINE)
    assert rows == [(route.method, route.path) for route in ROUTES]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_the_page_of_the_wire_protocol_has_every_field(route):
    (row,) = re.findall(rf"^\| `{route.method} {re.escape(route.path)}`.*$", WIRE, re.MULTILINE)
    _, path, body, answer, _ = row.split("|")
    if route.query:
        assert re.findall(r"`(\w+)`", path) == list(route.query)
    if route.call is not None:
        fields = [name for name in route.call.__struct_fields__ if name not in IN_PATH]
        assert sorted(re.findall(r"`(\w+)`", body)) == sorted(fields)
    if isinstance(route.result, type) and route.result is not wire.Done:
        fields = [field.name for field in msgspec.inspect.type_info(route.result).fields]
        assert re.findall(r"`(\w+)`", answer)[: len(fields)] == fields
        for name in fields:
            assert re.search(rf"^\| .*`{name}`.* \| .* \| .* \|$", WIRE, re.MULTILINE), name


def test_the_page_of_the_wire_protocol_has_every_error():
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", WIRE, re.MULTILINE)
    assert {code: int(status) for code, status in rows} == wire.STATUS


def test_the_page_of_the_wire_protocol_has_the_limits_of_the_code():
    assert f"{wire.BATCH_CALLS:,} calls and {wire.BODY_BYTES // 2**20} MiB" in WIRE
    assert f"{wire.OBSERVATION_CHARACTERS:,} characters" in WIRE


# metrics

MIXED = {name: value for name, value in ECHO.items() if name not in ("env", "horizon")}
RUNS = {
    "guarded": (ECHO, {"guard.entropy_below": 1e-9, "algo.kl": 0.01}),
    "critic": (ECHO, {"algo.name": "ppo"}),
    "asynchronous": (ECHO, STREAM),
    "prefetched": (ECHO, {"rollout.prefetch": 1, "rollout.skip_solved": 0.5}),
    "mixture": ({**MIXED, "mixture": MIXTURE}, {"algo.name": "dr_grpo"}),
    "baseline": (ECHO, {"algo.name": "remax"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_metric_that_a_run_writes_is_described(name, tmp_path):
    tree, overrides = RUNS[name]
    run = trained(tmp_path / "run", tree, **{"steps": 2, "eval.tasks": 4, **overrides})
    written = {field for row in run.metrics() for field in row}
    assert {field for field in written if describe(field) is None} == set()
    assert len(written) > 30


def test_every_metric_that_is_described_is_written_somewhere():
    glossary = Path(reference.__file__).parents[1] / "palestra" / "runs" / "metric_glossary.py"
    source = SOURCE.replace(glossary.read_text(), "")
    for metric in all_metrics():
        family, _, rest = metric.name.partition("/")
        if family == "stop":
            assert rest in list(Stop)
        elif family == "time":
            assert f'timed("{rest}")' in source or f'seconds["{rest}"]' in source
        elif family in ("eval", "guard", "warm_start") or "*" in metric.name:
            assert f'f"{family}/{{' in source or 'f"{name}/' in source
            assert rest in ("*", "*/*") or rest in source
        else:
            assert f'"{metric.name}"' in source, metric.name
