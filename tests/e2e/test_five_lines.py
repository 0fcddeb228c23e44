"""The README's five-line program, word for word: as a script, in a running event loop, and in a
notebook with a real kernel.
"""

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import palestra

ROOT = Path(__file__).parents[2]

ENVIRONMENT = '''
import random
import palestra

class Guess(palestra.Environment):
    """Find a number from 1 to 8; every guess is answered with higher or lower."""

    name = "guess8"
    max_turns = 8
    instructions = "Find the secret number from 1 to 8."

    def tasks(self, split):
        ids = {"train": range(1000), "test": range(1000, 1100)}[split]
        return [palestra.Task(self.name, split, str(i)) for i in ids]

    def reset(self, task):
        self.low, self.high = 1, 8
        self.secret = random.Random(int(task.id)).randint(1, 8)
        return "Guess."

    def step(self, action):
        if action not in self.actions():
            return palestra.Step("Expected a number.", invalid=True)
        guess = int(action)
        if guess == self.secret:
            return palestra.Step("Right.", reward=1.0, terminated=True, success=True)
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
            return palestra.Step("Higher.")
        self.high = min(self.high, guess - 1)
        return palestra.Step("Lower.")

    def actions(self):
        return [str(number) for number in range(1, 9)]

    def expert(self):
        return str((self.low + self.high) // 2)

    def vocabulary(self):
        texts = "Guess. Expected a number. Right. Higher. Lower."
        return sorted({*self.instructions.split(), *texts.split(), *self.actions()})
'''
TRAIN = (
    "run = palestra.train(Guess, steps=50, horizon=palestra.Stages(turns=[4, 8], every=25), "
    "algo=palestra.GRPO(clip_high=0.28))"
)
PROGRAM = f"""
{TRAIN}
print(run.evaluate().success)
run.metrics()
for episode in run.episodes(step=50, success=False): print(episode.transcript())
run.view()
"""
IN_A_LOOP = "import asyncio\n\nasync def main():\n{program}\nasyncio.run(main())\n"


@pytest.fixture
def alone(monkeypatch):
    """As a stranger's shell is, apart from the number of threads; no browser is opened."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("BROWSER", "true")


def check_run(folder, printed):
    """It trained 50 steps, learned, and printed what it should."""
    (run,) = [palestra.load_run(path) for path in (folder / "runs").iterdir()]
    assert [row["horizon"] for row in run.metrics("horizon")] == [4] * 25 + [8] * 25
    assert run.is_complete
    first, *_, last = run.evaluations()
    assert (first.phase, last.phase) == ("raw", "final")
    assert last.success > first.success + 0.3
    assert re.search(r"^\d+\.\d% \[\d+\.\d%, \d+\.\d%\]$", printed, re.MULTILINE)
    failures = list(run.episodes(step=50, success=False))
    for episode in failures:
        assert episode.transcript() in printed
    return run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("runner", ["script", "event loop"])
def test_as_a_script_which_shows_the_run_until_ctrl_c(tmp_path, alone, runner):
    program = PROGRAM
    if runner == "event loop":
        program = IN_A_LOOP.format(program=textwrap.indent(PROGRAM, "    "))
    (tmp_path / "five_lines.py").write_text(ENVIRONMENT + program)
    with (tmp_path / "printed").open("w+") as printed:
        command = [sys.executable, "five_lines.py"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=printed, stderr=subprocess.STDOUT)
        try:
            url = viewer_address(process, tmp_path / "printed")
            with urllib.request.urlopen(f"{url}api/runs.json", timeout=20) as answer:
                (shown,) = json.load(answer)["runs"]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    run = check_run(tmp_path, (tmp_path / "printed").read_text())
    assert shown["name"] == run.folder.name


def viewer_address(process, printed):
    while process.poll() is None:
        if found := re.search(r"^viewer at (http://\S+)$", printed.read_text(), re.MULTILINE):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(printed.read_text())


@pytest.mark.timeout(300)
def test_in_a_notebook(tmp_path, alone):
    cells = [ENVIRONMENT, *PROGRAM.strip().splitlines()]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=250, kernel_name="python3", resources=resources).execute()

    outputs = [cell.outputs for cell in notebook.cells]
    printed = ""
    for cell_outputs in outputs:
        printed += "".join(output.get("text", "") for output in cell_outputs)
    run = check_run(tmp_path, printed)

    # Progress is one small table, and not a line for each of 50 steps.
    progress, result = [output for output in outputs[1] if output.output_type == "display_data"]
    html = progress.data["text/html"]
    assert html.count("<tr>") <= 9
    assert "50/50" in html
    assert "held-out success, final" in html
    assert "guess (8 turns)" in result.data["text/plain"]
    assert "".join(output.get("text", "") for output in outputs[1]).strip() == ""

    link = outputs[5][-1].data["text/html"]
    assert re.search(r'href="http://127\.0\.0\.1:\d+/"', link)
    assert run.folder.name in html
