"""What a person gets wrong is answered in one line, before anything heavy is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import palestra
from palestra.cli.main import main
from palestra.core.errors import ConfigError

QUICKSTART = str(Path(__file__).parents[3] / "palestra" / "recipes" / "quickstart.toml")
HEAVY = {"torch", "transformers", "numpy", "gymnasium", "aiohttp", "palestra.learner.learner"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "Missing command"),
        (["trian"], "Did you mean 'train'?"),
        (["env", "chekc"], "Did you mean 'check'?"),
        (["env", "list", "--jsn"], "--jsn"),
        (["view"], "Missing argument"),
        (["train"], "expected a recipe"),
        (["train", "no/such.toml"], "no such recipe"),
        (["train", QUICKSTART, "--resume", "x"], "expected a recipe, or --resume"),
        (["train", "--resume", "no/such/run"], "no run in this folder"),
        (["train", QUICKSTART, "--optim.lrr", "1"], "did you mean 'lr'"),
        (["train", QUICKSTART, "--rollout.group", "many"], "rollout.group = 'many'"),
        (["train", QUICKSTART, "--dtype=float23"], "did you mean 'float32'"),
        (["train", QUICKSTART, "--rollout.ahead", "1"], "now called rollout.prefetch"),
        (["train", QUICKSTART, "--no-such"], "no_such = True: there is no such setting"),
        (["train", QUICKSTART, "--out"], "--out"),
        (["eval"], "expected a run folder"),
        (["eval", "--agent", "expert"], "--env is needed"),
        (["eval", QUICKSTART, "--agent", "expert", "--model", "x"], "exclude each other"),
        (["eval", "no/such.toml", "--agent", "expert"], "no such recipe"),
        (["eval", "--agent", "exprt", "--env", "guess"], "exprt"),
        (["eval", "--agent", "expert", "--env", "guess", "--k", "0"], "Invalid value for '--k'"),
        (["eval", "no/such/run"], "no run in this folder"),
        (["explain", "no/such.toml"], "no such recipe"),
        (["plan", "no/such.toml"], "no such recipe"),
        (["doctor", "no/such.toml"], "no such recipe"),
        (["doctor", QUICKSTART, "--optim.lrr", "1"], "did you mean 'lr'"),
        (["replay", "no/such/run", "--episode", "x"], "no run in this folder"),
        (["replay", "no/such/run", "--episode", "x", "--seed", "1"], "only together with --from"),
        (["model", "export", "no/such/run", "x"], "no run in this folder"),
        (["view", "no/such/run"], "no such folder"),
        (["report", "no/such/run"], "no run in this folder"),
        (["search", "index", "no/such.jsonl", "--out", "x", "--dense"], "no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_exits_2_with_one_line_and_without_torch(arguments, named):
    code = (
        "import json, sys\nfrom palestra.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("palestra: ")
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert not HEAVY & set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["env", "check", "textcraf"], "did you mean 'textcraft'"),
        (["env", "play", "guess", "--split", "tran"], "did you mean 'train'"),
        (["env", "play", "guess", "--task", "nope"], "no such task"),
        (["play"], "expected an environment"),
        (["play", "--max_turns", "3"], "there is no such flag"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_about_an_environment_exits_2_with_one_line(arguments, named, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert named in error


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["train", QUICKSTART, "-h"]]
)
def test_help_imports_no_torch(arguments):
    code = (
        "import sys\nfrom palestra.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: palestra")
    assert done.stdout.splitlines()[-1] == "[]"


def test_nothing_is_imported_from_a_folder_that_is_only_looked_at(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    code = "import sys\nfrom palestra.cli.main import main\nmain(sys.argv[1:])"
    for command in (["explain"], ["plan"], ["train", "--dry-run"]):
        arguments = [command[0], QUICKSTART, *command[1:], "--algo.name", "mine:Algorithm"]
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert "imported" not in done.stdout + done.stderr


def test_python_refuses_a_run_folder_of_an_older_format_too(tmp_path):
    (tmp_path / "config.toml").write_text('# palestra run, format 1\n[model]\nkind = "new"\n')
    with pytest.raises(ConfigError, match="a run folder of format 1, and this version reads"):
        palestra.load_run(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--resume", "RUN"],
        ["train", "RUN/config.toml", "--dry-run"],
        ["eval", "RUN"],
        ["replay", "RUN", "--episode", "000001-0000"],
        ["model", "export", "RUN", "model"],
        ["explain", "RUN/config.toml"],
        ["view", "RUN"],
        ["view", "RUN", "--bundle", "out"],
        ["play", "--run", "RUN"],
        ["report", "RUN"],
    ],
    ids=lambda value: " ".join(value),
)
def test_a_run_folder_of_an_older_format_is_refused_in_one_line(arguments, tmp_path, capsys):
    run = tmp_path / "old"
    run.mkdir()
    (run / "config.toml").write_text('# palestra run, format 1\n[model]\nkind = "new"\n')
    (run / "metrics.jsonl").write_text('{"step":1,"groups/dead":0.5}\n')
    with pytest.raises(SystemExit) as exit_:
        main([word.replace("RUN", str(run)) for word in arguments])
    assert exit_.value.code == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert "a run folder of format 1, and this version reads format 2" in error
    assert {path.name for path in run.iterdir()} == {"config.toml", "metrics.jsonl"}
