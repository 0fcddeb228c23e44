"""What a person gets wrong is answered in one line, before anything heavy is imported."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

import palestra
from palestra.cli.main import main
from palestra.core.errors import ConfigError
from tests.support.forked_commands import Commands

QUICKSTART = str(Path(__file__).parents[3] / "palestra" / "recipes" / "quickstart.toml")
HEAVY = {"torch", "transformers", "numpy", "gymnasium", "aiohttp", "palestra.learner.learner"}


TRAIN = "train quickstart"
MISTAKES = {
    # words
    "": ("Missing command", "palestra --help"),
    "train empty.py": ("is a Python file", "empty:ClassName"),
    "trian": ("Did you mean 'train'?",),
    "frobnicate": ("No such command 'frobnicate'", "palestra --help"),
    "--verison": ("No such option: --verison", "--version"),
    "env": ("Missing command", "palestra env --help"),
    "env chekc": ("Did you mean 'check'?", "palestra env --help"),
    "env list --jsn": ("--jsn", "palestra env list --help"),
    "env list extra": ("unexpected extra argument", "extra"),
    "model exprot run out": ("Did you mean 'export'?",),
    "view": ("Missing argument", "palestra view --help"),
    "replay run": ("--episode", "palestra replay --help"),
    f"{TRAIN} --out": ("--out", "requires an argument"),
    f"{TRAIN} extra": ("unexpected extra argument", "extra"),
    # recipes and other files
    "train": ("expected a recipe",),
    "train no/such.toml": ("no such recipe",),
    "train quickstrat": ("quickstrat: no such recipe", "did you mean 'quickstart'"),
    "train folder": ("folder: is a folder", "expected a recipe"),
    "train run": ("run: is a folder", "expected a recipe"),
    "train empty.toml": ("empty.toml: the recipe is empty", "palestra init"),
    "train broken.toml": ("broken.toml: not TOML", "line 2"),
    "train binary.toml": ("binary.toml: not TOML",),
    "train notes.txt": ("notes.txt: not TOML",),
    "train quickstart --resume run": ("expected a recipe, or --resume",),
    "train --resume folder": ("no run in this folder",),
    "train --resume run --out x": ("a resumed run stays in its folder",),
    f"{TRAIN} --out notes.txt": ("notes.txt: is a file", "expected a new folder"),
    f"{TRAIN} --out run": ("run: there is a run in this folder already", "--resume run"),
    "explain no/such.toml": ("no such recipe",),
    "explain folder": ("folder: is a folder", "expected a recipe"),
    "plan empty.toml": ("the recipe is empty",),
    "doctor no/such.toml": ("no such recipe",),
    "recipes textcraf": ("did you mean 'textcraft'",),
    "init notes.txt": ("notes.txt",),
    # settings: names
    f"{TRAIN} --optim.lrr 1": ("optim.lrr = 1", "did you mean 'lr'"),
    f"{TRAIN} --optim.learning_rate 1e-5": ("optim.learning_rate", "did you mean 'optim.lr'"),
    f"{TRAIN} --lr 1e-5": ("lr = 1e-05", "did you mean 'optim.lr'"),
    f"{TRAIN} --batch_size 16": ("batch_size = 16", "did you mean 'rollout.tasks'"),
    f"{TRAIN} --num_generations 8": ("did you mean 'rollout.group'",),
    f"{TRAIN} --max_steps 10": ("did you mean 'steps'",),
    f"{TRAIN} --use_vllm": ("use_vllm", "did you mean 'engine.name'"),
    f"{TRAIN} --env.nme guess": ("env.nme = 'guess'", "did you mean 'name'"),
    f"{TRAIN} --rollout.ahead 1": ("now called rollout.prefetch",),
    f"{TRAIN} --no-such": ("no_such = True: there is no such setting",),
    "doctor quickstart --optim.lrr 1": ("did you mean 'lr'",),
    # settings: values
    f"{TRAIN} --steps ten": ("steps = 'ten'", "expected a whole number"),
    f"{TRAIN} --steps 1.5": ("steps = 1.5", "expected a whole number"),
    f"{TRAIN} --steps 0": ("steps = 0", "greater than 0"),
    f"{TRAIN} --seed -1": ("seed = -1", "greater than or equal to 0"),
    f"{TRAIN} --optim.lr fast": ("optim.lr = 'fast'", "expected a number"),
    f"{TRAIN} --optim.lr": ("optim.lr = true", "expected a number"),
    f"{TRAIN} --optim 3": ("optim = 3", "expected a table"),
    f"{TRAIN} --rollout.group many": ("rollout.group = 'many'",),
    f"{TRAIN} --horizon.turns ten": ("horizon.turns", "'ten'", "whole number"),
    f"{TRAIN} --horizon 10": ("horizon = 10", "expected a table", "fixed"),
    f"{TRAIN} --horizon.kind staged": ("horizon.kind = 'staged'", "did you mean 'stages'"),
    f"{TRAIN} --warm_start false": ("warm_start = False", "or 'none'"),
    f"{TRAIN} --dtype=float23": ("did you mean 'float32'",),
    f"{TRAIN} --device gpu": ("device = 'gpu'", "expected one of auto, cpu, cuda"),
    f"{TRAIN} --algo.name grp": ("algo.name = 'grp'", "did you mean 'grpo'"),
    f"{TRAIN} --engine.name vlm": ("engine.name = 'vlm'", "did you mean 'vllm'"),
    f"{TRAIN} --agent.format xml": ("agent.format = 'xml'", "there are: block"),
    f"{TRAIN} --track.names wandbb": ("did you mean 'wandb'",),
    f"{TRAIN} --env.isolation thread": ("expected one of inline, process",),
    f"{TRAIN} --eval.split tset": ("eval.split = 'tset'", "did you mean 'test'"),
    # settings: conflicts
    f"{TRAIN} --lora.rank 8": ("lora: an adapter needs a model", "set model.path"),
    f"{TRAIN} --dtype bfloat16": ("a tiny model is too small", "use 'float32'"),
    f"{TRAIN} --rollout.group 1": ("rollout.group = 1", "needs at least 2"),
    f"{TRAIN} --rollout.max_staleness 2": ("set algo.recompute_logprobs = true",),
    f"{TRAIN} --guard.action stop": ("no bound is set", "set one of"),
    f"{TRAIN} --algo.name sft": ("horizon.kind = 'stages'", "set horizon.kind = 'fixed'"),
    f"{TRAIN} --agent.name expert": ("nothing to train on", "palestra eval --agent"),
    # what is not there
    f"{TRAIN} --model no/such/folder/here": ("model.path", "expected a Hugging Face directory"),
    f"{TRAIN} --model notes.txt": ("notes.txt: expected a GGUF file",),
    f"{TRAIN} --env.name http://127.0.0.1:9/guess": ("no environment server answers",),
    "train http://127.0.0.1:9": ("expected the URL of a served environment",),
    "train sft --algo.data x.jsonl": ("x.jsonl: there is no such file",),
    "train sft --algo.data broken.jsonl": ("broken.jsonl: line 1: expected JSON",),
    "train sft --algo.data empty.jsonl": ("empty.jsonl: the file is empty",),
    "train sft --algo.data folder": ("folder: expected *.json or *.jsonl",),
    # environments
    "train mine:Thing": ("'mine:Thing' is no subclass of palestra", "Environment"),
    "train mine:Nothing": ("cannot be imported", "no attribute 'Nothing'"),
    "train nomodule:Env": ("cannot be imported", "No module named 'nomodule'"),
    "train mine:broken": ("cannot be imported",),
    "env check textcraf": ("did you mean 'textcraft'",),
    "env check mine:Thing": ("is no subclass of palestra",),
    "env check guess --tasks 0": ("--tasks", "greater than or equal to 1"),
    "env check guess --hgih 10": ("guess has no such option", "there are: size"),
    "env play guess --split tran": ("did you mean 'train'",),
    "env play guess --task nope": ("no such task", "and 970 more"),
    "env serve guess --port 99999": ("--port", "65535"),
    "env serve guess --port http": ("--port", "integer"),
    "env serve guess --host 0.0.0.0": ("needs a token",),
    "env serve textcraf": ("did you mean 'textcraft'",),
    "play": ("expected an environment",),
    "play --max_turns 3": ("there is no such flag",),
    "play textcraf": ("did you mean 'textcraft'",),
    "play --run folder": ("no run in this folder",),
    "web up --only shpo": ("no such site", "shop"),
    # evaluations
    "eval": ("expected a run folder",),
    "eval --agent expert": ("--env is needed",),
    "eval quickstart --agent expert --model x": ("exclude each other",),
    "eval quickstart --agent human": ("'human' is not one of 'expert', 'random'",),
    "eval no/such.toml --agent expert": ("no such recipe",),
    "eval no/such/run": ("expected a run folder, or a recipe",),
    "eval guess --agent expert": ("expected a run folder", "--env guess"),
    "eval run": ("run: the run has no checkpoint yet", "--resume run"),
    "eval --agent exprt --env guess": ("exprt",),
    "eval --agent expert --env guess --k 0": ("greater than or equal to 1",),
    "eval --agent expert --env guess --split tset": ("did you mean 'test'",),
    "eval --agent expert --env guess --temperature -1": ("eval.temperature", "equal to 0"),
    "eval --agent expert --env guess --ids none.txt": ("--ids none.txt: cannot be read",),
    "eval --agent expert --env guess --ids notes.txt": ("line 1", "no task 'hello'"),
    "eval --agent expert --env guess --out folder": ("--out folder: is a folder",),
    "eval --agent expert --env guess --keep run": ("there is a run in this folder already",),
    "eval --model folder --env guess": ("expected a Hugging Face directory",),
    # runs
    "replay no/such/run --episode x": ("no run in this folder",),
    "replay no/such/run --episode x --seed 1": ("only together with --from",),
    "view no/such/run": ("no such folder",),
    "view folder": ("no run in this folder",),
    "view run --port 99999": ("--port", "65535"),
    "view run --bundle run": ("--bundle run", "expected a new or empty folder"),
    "view run --episodes 3": ("only with --bundle",),
    "report no/such/run": ("no such folder",),
    "report folder": ("no run in this folder",),
    "model export no/such/run x": ("no run in this folder",),
    "model export run x": ("there is no checkpoint in this run",),
    "model export run folder": ("folder: exists already",),
    "model import none.gguf x": ("none.gguf: there is no such file",),
    "model import notes.txt x": ("notes.txt: expected a GGUF file",),
    # plans and indexes
    "plan quickstart --gpus 0": ("--gpus 0", "expected a positive number"),
    "plan quickstart --gpu a100": ("'a100' is not one of 'h100', 'h200'",),
    "plan quickstart --model no/such": ("model.path", "a model of a known shape"),
    "search index no/such.jsonl --out x --dense": ("no such file",),
    "search index empty.jsonl --out x": ("has no article",),
    "search index broken.jsonl --out x": ("broken.jsonl, line 1", "expected a JSON object"),
}
"""A command -> the phrases of its answer that matter: what was given, expected, or can be done."""

MISSING = {
    "env play miniwob": ("playwright", "pip install 'palestra[web]'"),
    "env play babyai": ("minigrid", "pip install 'palestra[babyai]'"),
    "env check sciworld": ("scienceworld", "pip install 'palestra[sciworld]'"),
    "train guess": ("torch", "pip install 'palestra[train]'"),
    f"{TRAIN} --engine.name vllm": ("vllm", "pip install 'palestra[vllm]'"),
    f"{TRAIN} --launch.kind ray": ("ray", "pip install 'palestra[ray]'"),
    f"{TRAIN} --track.names wandb": ("wandb", "pip install 'palestra[track]'"),
    f"{TRAIN} --model no/such --lora.rank 8": ("peft", "pip install 'palestra[lora]'"),
    "search index articles.jsonl --out x": ("tantivy", "pip install 'palestra[search]'"),
}
"""The same for a package that is not installed: the first phrase is its name."""


@pytest.fixture(scope="module")
def commands():
    running = Commands()
    yield running
    running.close()


@pytest.fixture(scope="module")
def seconds():
    """Processor time by command, for a summary (`pytest -s`). Nothing asserts on it."""
    found: dict[str, float] = {}
    yield found
    worst = max(found, key=found.__getitem__, default="")
    if found:
        print(
            f"\n{len(found)} mistakes: median {median(found.values()):.2f} s of processor time, "
            f"worst {found[worst]:.2f} s (palestra {worst})"
        )


@pytest.fixture
def place(tmp_path):
    """A folder with files of the wrong kinds."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("# palestra run, format 2\nsteps = 3\n")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "broken.toml").write_text("steps = 3\nseed = = 1\n")
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "broken.jsonl").write_text("{not json}\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "articles.jsonl").write_text('{"id": "0", "contents": "Title\\nText"}\n')
    (tmp_path / "mine.py").write_text(
        "class Thing: ...\ndef __getattr__(name): raise AttributeError(f'no attribute {name!r}')\n"
    )
    return tmp_path


def check(answer, phrases):
    assert answer.code == 2, answer.err or answer.out
    assert answer.err.startswith("palestra: ")
    assert answer.err.count("\n") == 1, answer.err
    assert answer.out == ""
    for phrase in phrases:
        assert phrase in answer.err
    assert answer.left == []
    assert answer.heavy == []


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_exits_2_with_one_line_and_without_torch(words, commands, seconds, place):
    answer = commands.run(words.split(), place)
    seconds[words] = answer.cpu
    check(answer, MISTAKES[words])


@pytest.mark.parametrize("words", MISSING)
def test_a_package_that_is_not_installed_is_named_with_its_extra(words, commands, place):
    package, extra = MISSING[words]
    answer = commands.run(words.split(), place, missing=(package,))
    check(answer, (extra,))


@pytest.mark.parametrize("words", ["view run --no-open", "play guess --no-open"])
def test_a_port_in_use_is_one_line(words, commands, place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = commands.run([*words.split(), "--port", str(port)], place)
    check(answer, (f"--port {port}", "in use"))


def test_there_are_enough_mistakes():
    assert len(MISTAKES) + len(MISSING) >= 60


def test_the_quickstart_without_any_extra_names_the_one_that_it_needs(commands, place):
    answer = commands.run(["train", "quickstart"], place, missing=("torch", "minigrid"))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "pip install 'palestra[train]'" in answer.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", QUICKSTART, "--optim.lrr", "1"], "did you mean 'lr'"),
        (["eval", "no/such/run"], "expected a run folder, or a recipe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_in_a_process_of_its_own(arguments, named):
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
