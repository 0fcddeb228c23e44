"""Every example runs from any folder, and says what it should. The notebooks are executed afresh,
in a real kernel.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

import palestra

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
NUMBERED = sorted(EXAMPLES.glob("[0-9]*.py"))
INTERVAL = r"(\d+\.\d)% \[\d+\.\d%, \d+\.\d%\]"


def run_example(folder, name, *arguments, timeout=280):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def success(printed, label):
    """The last success rate that is printed after `label`, in percent."""
    return float(re.findall(rf"^{label}\s.*?{INTERVAL}", printed, re.MULTILINE)[-1])


def test_examples_are_short_and_listed():
    readme = (EXAMPLES / "README.md").read_text()
    assert [path.name[:2] for path in NUMBERED] == [f"{number:02d}" for number in range(1, 9)]
    for path in NUMBERED:
        text = path.read_text()
        assert len(text.splitlines()) < 80, path.name
        assert re.match(r'"""[A-Z].*\.\n', text), f"{path.name} begins with what it shows"
    assert len((EXAMPLES / "minimal_loop.py").read_text().splitlines()) <= 200
    for path in [*EXAMPLES.glob("*.py"), *NOTEBOOKS.glob("*.ipynb")]:
        assert path.name in readme


def test_examples_use_the_public_api_alone():
    imports = re.compile(r"^\s*(?:from|import) (palestra\.[\w.]+)", re.MULTILINE)
    for path in [*EXAMPLES.glob("*.py"), *NOTEBOOKS.glob("*.ipynb")]:
        assert imports.findall(path.read_text().replace('"', " ")) == [], path.name


@pytest.mark.timeout(300)
def test_an_own_environment_keeps_the_contract_and_is_learned(tmp_path):
    printed = run_example(tmp_path, "01_own_environment.py")
    assert "FAILED" not in printed
    assert success(printed, "raw") < 20
    assert success(printed, "final") > 70
    assert "the end: " in printed
    assert [path.name.split("-")[0] for path in (tmp_path / "runs").iterdir()] == ["buttons"]


@pytest.mark.timeout(300)
def test_horizons_are_compared(tmp_path):
    printed = run_example(tmp_path, "02_horizons_compared.py", "--steps", "4")
    few, many, stages = (success(printed, name) for name in ("few turns", "many turns", "stages"))
    assert min(few, many, stages) > 5
    tokens = [int(line.split()[-1].replace(",", "")) for line in printed.splitlines()[-3:]]
    assert tokens[0] < tokens[2] < tokens[1]


@pytest.mark.timeout(300)
def test_an_own_algorithm_learns_as_it_explains(tmp_path):
    printed = run_example(tmp_path, "03_own_algorithm.py")
    assert "A_i = mean_others(sign(R_i - R_j))" in printed
    assert success(printed, "final") > success(printed, "warm start") + 10


@pytest.mark.timeout(300)
def test_an_own_agent_has_shorter_contexts(tmp_path):
    printed = run_example(tmp_path, "04_own_agent.py", "--steps", "4")
    longest = dict(re.findall(r"^(\w+) .*longest context: (\d+) tokens$", printed, re.MULTILINE))
    assert 0 < 2 * int(longest["forgetful"]) < int(longest["chat"])
    assert success(printed, "forgetful") > 5


@pytest.mark.timeout(300)
def test_rl_begins_where_sft_ended(tmp_path):
    printed = run_example(tmp_path, "05_sft_then_rl.py")
    names = ("random weights", "after SFT", "after RL")
    random, sft, rl = (success(printed, name) for name in names)
    assert random < 10 < sft < rl


@pytest.mark.timeout(300)
def test_baselines_and_a_model_are_evaluated(tmp_path):
    printed = run_example(tmp_path, "06_evaluate.py", "--steps", "4")
    assert success(printed, "the expert") == 100
    assert success(printed, "random actions") < 40
    assert success(printed, "the model, 4 turns") <= success(printed, "the model")


@pytest.mark.timeout(300)
def test_episodes_become_a_data_frame(tmp_path):
    printed = run_example(tmp_path, "07_episodes_as_data_frame.py", "--steps", "4")
    (folder,) = (tmp_path / "runs").iterdir()
    stops = [str(episode.stop) for episode in palestra.load_run(folder).episodes()]
    assert set(re.findall(r"^stop (.*)$", printed, re.MULTILINE)[0].split()) == set(stops)
    again = run_example(tmp_path, "07_episodes_as_data_frame.py", "--run", str(folder))
    assert again.splitlines()[-4:] == printed.splitlines()[-4:]


@pytest.mark.timeout(300)
def test_a_server_gives_the_same_numbers(tmp_path):
    printed = run_example(tmp_path, "08_environments_behind_a_server.py", "--steps", "3")
    assert success(printed, "behind") == success(printed, "in this process:")
    assert printed.endswith("the last loss is the same, bit for bit\n")


@pytest.mark.timeout(300)
def test_the_minimal_loop_learns(tmp_path):
    printed = run_example(tmp_path, "minimal_loop.py")
    (rates,) = re.findall(r"success: (\d+)% after imitation, (\d+)% after RL", printed)
    imitation, rl = map(int, rates)
    assert rl > imitation + 15


def executed(path, folder):
    """The notebook with fresh outputs. Its runs are written into `folder`, and not beside it."""
    notebook = nbformat.read(path, as_version=4)
    setup = f"import os, sys; os.chdir({str(folder)!r}); sys.path.append({str(EXAMPLES)!r})"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(setup))
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=250, kernel_name="python3", resources=resources).execute()
    del notebook.cells[0]
    return notebook


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def kinds(notebook):
    """The kinds of outputs of every cell. What is printed in several goes counts once."""
    found = []
    for cell in notebook.cells:
        shown = []
        for output in cell.get("outputs", ()):
            kind = sorted(output.get("data", {})) or output.output_type
            if kind not in shown[-1:]:
                shown.append(kind)
        found.append(shown)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_was_committed(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    committed = nbformat.read(path, as_version=4)
    notebook = executed(path, tmp_path)
    assert kinds(notebook) == kinds(committed)
    assert path.stat().st_size < 200_000
    assert not re.search(r"/(home|root|tmp|work)/", path.read_text())
    images = [o for o in outputs_of(notebook) if "image/png" in o.get("data", {})]
    assert images
    (folder,) = (tmp_path / "runs").iterdir()
    last = palestra.load_run(folder).result
    assert last.phase == "final"
    assert last.success > 0.5


TRAIN_FOR_LONG = """
import sys
sys.path.append({examples!r})
import palestra
from treasure import SETTINGS, Treasure
palestra.train(Treasure, steps=10_000, out={out!r}, **SETTINGS)
"""
GO_ON = """
run = palestra.load_run({out!r})
last = run.metrics("loss")[-1]["step"]
palestra.train(Treasure, out=run.folder, resume=True, steps=last + 2, display="none")
"""


@pytest.mark.timeout(300)
def test_an_interrupt_of_a_cell_saves_and_the_next_cell_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = str(tmp_path / "run")
    manager, client = start_new_kernel(cwd=str(tmp_path))
    is_interrupted = False

    def interrupt_after_a_step(message):
        nonlocal is_interrupted
        shown = message["content"].get("data", {}).get("text/html", "")
        if "<td>3/10000</td>" in shown and not is_interrupted:
            is_interrupted = True
            manager.interrupt_kernel()

    try:
        code = TRAIN_FOR_LONG.format(examples=str(EXAMPLES), out=out)
        reply = client.execute_interactive(
            code, timeout=250, output_hook=interrupt_after_a_step, stop_on_error=False
        )
        assert is_interrupted
        assert reply["content"]["status"] == "error"
        assert reply["content"]["ename"] in ("Interrupted", "KeyboardInterrupt")
        run = palestra.load_run(out)
        steps = [row["step"] for row in run.metrics("loss")]
        assert not run.is_complete
        assert run.checkpoint.name.endswith(str(steps[-1]))

        reply = client.execute_interactive(
            GO_ON.format(out=out), timeout=100, output_hook=lambda message: None
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        assert run.is_complete
        steps += [steps[-1] + 1, steps[-1] + 2]
        assert [row["step"] for row in run.metrics("loss")] == steps
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
