"""Names and texts from outside are printed letter by letter, whatever rich would make of them."""

import io
import re
import subprocess
import sys

import pytest

from palestra.cli.main import main
from palestra.core.printing import plain_console, print_table
from palestra.core.tables import Table
from palestra.core.types import Step, Task
from palestra.envs.base import Environment
from palestra.training.display import LineDisplay, LiveDisplay

TEXTS = ["[/b] shop", "'palestra[search]'", "[red]x[/red]", ":dog: toy", "[link=x] y", "a[b] c"]


class Marked(Environment):
    """Its texts are markup of rich's, and orders to a terminal."""

    name = "marked"
    max_turns = 2
    instructions = "[/b] press the button\x1b[2J"
    splits = ("train", "test")

    def tasks(self, split):
        return [Task(self.name, split, f"{split}-{text}", text) for text in TEXTS]

    def reset(self, task):
        return f"[/i] {task.category}\n\tin two lines"

    def step(self, action):
        return Step("[/u] done \x1b]0;title\x07", reward=1.0, terminated=True)

    def actions(self):
        return ["[/b] press"]

    def expert(self):
        return "[/b] press"


NAME = f"{__name__}:Marked"


@pytest.mark.parametrize("text", TEXTS)
def test_a_table(text, capsys):
    print_table(Table([text, "tasks"], [[text, "3"]]))
    for line in capsys.readouterr().out.splitlines():
        assert line.partition("  ")[0] == text


def test_a_table_has_no_control_characters(capsys):
    print_table(Table(["name"], [["\x1b[31mred\x1b[0m"], ["a\nb"]]))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3


def test_categories_in_the_result_of_an_evaluation(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["eval", "--agent", "random", "--env", NAME, "--split", "test"])
    out = capsys.readouterr().out
    for text in TEXTS:
        assert text in out


def test_the_texts_of_an_environment_that_is_played(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(":actions\n:expert\n"))
    main(["env", "play", NAME, "--task", f"train-{TEXTS[0]}"])
    out = capsys.readouterr().out
    for said in (f"train-{TEXTS[0]} ({TEXTS[0]})", "[/b] press the", f"[/i] {TEXTS[0]}", "[/u] d"):
        assert said in out
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out)


@pytest.mark.parametrize("kind", [LineDisplay, LiveDisplay])
def test_the_display_of_a_run(kind):
    out = io.StringIO()
    console = plain_console(soft_wrap=True)
    console.file = out
    display = kind(3, console) if kind is LineDisplay else kind(3, 8, console)
    for text in TEXTS:
        display.note(f"run folder: {text}")
        display.phase(f"warm start: {text}")
    display.close()
    for text in TEXTS:
        assert f"run folder: {text}" in out.getvalue()


def test_a_list_of_environments_names_the_extra_of_one_that_lacks_its_package():
    code = "import sys; sys.modules['minigrid'] = None\n"
    code += "from palestra.cli.main import main; main(['env', 'list'])"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install 'palestra[babyai]'" in " ".join(ended.stdout.split())
