"""Reading a run folder runs nothing: no command that only reads imports, calls or connects to what
its configuration names.
"""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import tomli_w

from palestra.cli.main import main
from palestra.config import config as configs
from palestra.config.config import Config, build, dump, load
from palestra.core.errors import ConfigError
from palestra.core.registry import Registry, UnknownName
from palestra.envs import make_env
from palestra.training.preflight import preflight
from tests.support.environments import Echo
from tests.support.training import ECHO
from tests.support.viewed import trained_copy

ROOT = Path(__file__).parents[2]
EVIL = """
import os, pathlib
pathlib.Path(os.environ["MARK"]).joinpath("imported-" + __name__).touch()

class Thing:
    def __init__(self, *args, **kwargs):
        pathlib.Path(os.environ["MARK"]).joinpath("called").touch()
"""
MEMBER = {"name": "tests.support.environments:Echo"}


def touching(mark):
    return {"args": ["touch", str(mark / "started")]}


ATTACKS = {
    "a process as environment": lambda mark, url: {
        "env": {"name": "subprocess:Popen", "options": touching(mark)}
    },
    "a module as environment": lambda mark, url: {"env": {"name": "evil:Thing"}},
    "a server as environment": lambda mark, url: {"env": {"name": f"{url}/echo"}},
    "more servers": lambda mark, url: {"env": {"name": f"{url}/echo", "urls": [f"{url}/echo"]}},
    "a process in a mixture": lambda mark, url: {
        "env": None,
        "mixture": [MEMBER, {"name": "subprocess:Popen", "label": "b", "options": touching(mark)}],
    },
    "a server in a mixture": lambda mark, url: {
        "env": None,
        "mixture": [MEMBER, {"name": f"{url}/other"}],
    },
    "an algorithm": lambda mark, url: {"algo": {"name": "evil:Thing", "x": 1}},
    "a function as algorithm": lambda mark, url: {"algo": {"name": "os:system"}},
    "an engine": lambda mark, url: {"engine": {"name": "evil:Thing"}},
    "a horizon": lambda mark, url: {"horizon": {"kind": "evil:Thing", "turns": 3}},
    "a horizon in a mixture": lambda mark, url: {
        "env": None,
        "mixture": [{**MEMBER, "horizon": {"kind": "evil:Thing"}}],
    },
    "a model": lambda mark, url: {"model": {"kind": "evil:Thing"}},
    "a format": lambda mark, url: {
        "agent": {"format": "evil:Thing", "context_tokens": 64, "reply_tokens": 4}
    },
    "a tracker": lambda mark, url: {"track": {"names": ["evil:Thing"]}},
    "a search server": lambda mark, url: {
        "env": {"name": "search", "options": {"retriever": "server", "url": url}}
    },
    "somebody's AgentGym server": lambda mark, url: {
        "env": {"name": "agentgym", "options": {"url": url, "kind": "textcraft"}}
    },
    "vLLM servers": lambda mark, url: {
        "engine": {"name": "vllm-server", "urls": [url.rpartition("/")[0]], "api_key_env": "HOME"}
    },
    "a Ray cluster": lambda mark, url: {
        "launch": {"kind": "ray", "address": url.rpartition("/")[0].replace("http", "ray")}
    },
    "a judge": lambda mark, url: {"env": {"name": "webarena", "options": {"judge_url": url}}},
    "data elsewhere": lambda mark, url: {
        "algo": {"name": "sft", "data": [f"{url}/data"]},
        "rollout": None,
        "horizon": {"kind": "fixed", "turns": 3},
    },
    "an agent": lambda mark, url: {"agent": {"name": "evil:Thing", "reply_tokens": 4}},
    "a model elsewhere": lambda mark, url: {
        "model": {"kind": "pretrained", "path": f"{url}/model"}
    },
}
FEW = ("a process as environment", "a server as environment", "an algorithm")


class Listener:
    """Counts who connects."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.calls = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.calls.append(connection.recv(10_000))
            connection.close()


def attacked(folder, change):
    """A run whose configuration was changed by whoever sent it, with modules beside it that leave
    marks.
    """
    run = trained_copy(folder)
    tree = tomllib.loads((folder / "config.toml").read_text()) | change
    (folder / "config.toml").write_text(
        tomli_w.dumps({name: value for name, value in tree.items() if value is not None})
    )
    if "Popen" in str(change.get("env")) or "algo" in change:
        (
            folder / "objective.txt"
            # as in runs of older versions: it is worked out from the configuration, which takes
            # seconds
        ).unlink()
    for name in ("evil", "rich", "sitecustomize", "wandb", "tensorboard", "tantivy"):
        (folder / f"{name}.py").write_text(EVIL)
    return run


def bounded():
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))


@lru_cache
def read_all(attacks):
    """What all commands said of each run, what marks were left, and who was connected to: one
    process, for its imports take long.
    """
    folder, listener = Path(mkdtemp(prefix="palestra-attacked-")), Listener()
    for number, attack in enumerate(attacks):
        (folder / str(number) / "mark").mkdir(parents=True)
        attacked(
            folder / str(number) / "run",
            ATTACKS[attack](folder / str(number) / "mark", f"{listener.url}/{number}"),
        )
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PALESTRA_ENV_TOKEN": "t" * 24,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", "-m", "tests.hostile.reads", str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        preexec_fn=bounded,
    )
    listener.socket.close()
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    marks = [
        [mark.name for mark in (folder / str(number) / "mark").iterdir()]
        for number in range(len(attacks))
    ]
    shutil.rmtree(folder)
    return dict(zip(attacks, zip(told, marks, strict=True), strict=True)), listener.calls


@pytest.mark.hostile
@pytest.mark.timeout(450)
@pytest.mark.parametrize(
    "attack",
    [pytest.param(name, marks=pytest.mark.short if name in FEW else ()) for name in ATTACKS],
)
def test_commands_that_read_run_nothing(attack):
    found, calls = read_all(
        FEW if attack in FEW else tuple(name for name in ATTACKS if name not in FEW)
    )
    told, marks = found[attack]
    assert {one["command"] for one in told} == {
        "explain",
        "plan",
        "train",
        "report",
        "view",
        "model",
    }
    assert not [one for one in told if one["code"] not in (0, 1, 2)], told
    for one in told:
        assert one["code"] == 0 or one["said"].count("\n") == 1, one  # a refusal is one line
    by_command = {one["command"]: one["code"] for one in told}
    assert by_command["view"] == by_command["report"] == by_command["model"] == 0, told
    assert marks == []
    assert calls == []


@pytest.mark.parametrize(
    "base", ["/dev/zero", "folder", "pipe", "large.toml", "deep.toml", "missing.toml"]
)
def test_what_a_recipe_is_based_on_is_a_file(tmp_path, base):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.toml").write_text("#" * 1_100_000)
    (tmp_path / "deep.toml").write_text("x = " + "[" * 100_000)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'base = "{base}"\n')
    with pytest.raises(ConfigError) as refused:
        load(recipe)
    assert base.removeprefix("/") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_configuration_makes_no_environment(monkeypatch):
    """Not even one of ours, whose options or packages may be missing: that is found out where it is
    needed.
    """
    monkeypatch.setattr("palestra.envs.make_env", None)
    config = build({"env": {"name": "sciworld", "options": {"no_such": 1}}})
    assert [place.label for place in config.env_specs] == ["sciworld"]
    assert (
        Config.model_validate({"env": {"name": "http://127.0.0.1:9/textcraft"}}).env_specs[0].label
        == "textcraft"
    )


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"env": {"name": "subprocess:Popen", "options": {"args": ["true"]}}},
            "'subprocess:Popen' is no subclass of palestra.envs.base.Environment",
        ),
        ({"env": {"name": "os:system"}}, "is no subclass of palestra.envs.base.Environment"),
        ({"env": {"name": "no_such_module:Env"}}, "cannot be imported"),
        ({"env": {"name": ":"}}, "cannot be imported"),
        (
            {"env": {"name": "tests.support.environments:Echo", "options": {"nothing": 1}}},
            "env.options.nothing = 1: tests.support.environments:Echo has no such option",
        ),
        (
            {"env": {"name": "tests.support.environments:Echo"}, "eval": {"split": "dev"}},
            "eval.split = 'dev': echo has no such split",
        ),
        (
            {"env": {"name": "tests.support.environments:Echo"}, "agent": {"format": "os:system"}},
            "is no subclass of palestra.core.action_formats.Format",
        ),
    ],
)
def test_what_is_imported_to_train_must_be_of_its_kind(tree, said):
    with pytest.raises(ConfigError) as refused:
        preflight(build(tree, imports=True))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("setting", ["algo.name", "engine.name", "horizon.kind", "model.kind"])
def test_settings_are_of_classes_of_their_kind(setting):
    table, key = setting.split(".")
    with pytest.raises(ConfigError, match="is no subclass of"):
        build({table: {key: "os:system"}}, imports=True)
    config = build({table: {key: "os:system", "command": "true"}})
    assert config.unresolved == f"{setting} = 'os:system'"
    with pytest.raises(ConfigError, match=r"explain imports nothing that a configuration names"):
        config.refuse_unresolved("explain")
    assert (
        build(tomllib.loads(tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))))
        == config
    )


AT_IMPORT = {
    "exits": ("import sys\nsys.exit(0)", "it raised SystemExit: 0"),
    "ends the process": ("import os\nos._exit(0)", r"it raised Exited: .* os\._exit\(0\)"),
    "is not Python": ("def (", "it raised SyntaxError: invalid syntax"),
    "breaks": ("raise RuntimeError('two\\nlines')", "it raised RuntimeError: two lines"),
    "hangs": ("import time\nwhile True:\n    time.sleep(0.01)", "gave no answer within 0.5 s"),
}


@pytest.mark.parametrize("kind", AT_IMPORT)
@pytest.mark.parametrize(
    "setting",
    ["algo.name", "engine.name", "horizon.kind", "model.kind", "agent.name", "agent.format"],
)
def test_a_module_that_breaks_when_it_is_imported_is_one_line(tmp_path, monkeypatch, setting, kind):
    content, said = AT_IMPORT[kind]
    module = f"breaks_at_import_{len(setting)}_{len(kind)}"
    (tmp_path / f"{module}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(configs, "IMPORT_S", 0.5)
    with pytest.raises(ConfigError, match=said) as refused:
        preflight(build(ECHO, {setting: f"{module}:Thing"}, imports=True))
    assert "\n" not in str(refused.value)


def test_a_tracker_that_breaks_when_it_is_imported_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "breaks_as_tracker.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"track\.names: .* it raised SystemExit: 0"):
        preflight(build(ECHO, {"track.names": ["breaks_as_tracker:Thing"]}, imports=True))


def test_a_registry_calls_nothing_that_is_not_of_its_kind():
    registry = Registry("things", {}, base="collections:OrderedDict")
    with pytest.raises(UnknownName, match=r"no subclass of collections.OrderedDict"):
        registry["collections:Counter"]
    assert registry["collections:OrderedDict"].__name__ == "OrderedDict"
    with pytest.raises(ValueError, match="no subclass"):
        make_env("os:getcwd", {})


@pytest.mark.parametrize("command", ["train", "eval"])
def test_an_environment_is_made_once_to_be_asked_and_once_to_be_played(
    tmp_path, monkeypatch, command
):
    """With one episode at a time. Before, it was made three times before the first step."""
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "recipe.toml"
    small = {
        "steps": 1,
        "rollout.tasks": 1,
        "rollout.group": 2,
        "rollout.concurrency": 1,
        "eval.tasks": 2,
        "save.every": 0,
    }
    recipe.write_text(
        dump(
            build(
                ECHO,
                {**small, "env.name": "tests.hostile.test_configurations:Numbered"},
                imports=True,
            )
        )
    )
    commands = {
        "train": ["train", str(recipe), "--out", str(tmp_path / "run")],
        "eval": ["eval", str(recipe), "--agent", "expert"],
    }
    Numbered.made = []
    main(commands[command])
    assert Numbered.made == ["asked", "played"]


BAD = [
    "Raises",
    "Exits",
    "Hangs",
    "TurnsOfText",
    "NoTurns",
    "NegativeTurns",
    "TrueTurns",
    "SplitsOfText",
    "NoTasks",
    "WordsRaise",
]


@pytest.mark.parametrize("kind", BAD)
def test_an_environment_that_breaks_before_play_is_one_line(kind):
    tree = {
        "env": {"name": f"tests.hostile.test_configurations:{kind}", "deadline_s": 0.3},
        "model": {"tokenizer": "words"},
    }
    with pytest.raises(ConfigError) as refused:
        preflight(build(tree, imports=True))
    assert kind.lower() in str(refused.value).lower()
    assert "\n" not in str(refused.value)


class Raises(Echo):
    def __init__(self):
        raise RuntimeError("no simulator")


class Exits(Echo):
    def __init__(self):
        sys.exit(0)


class Hangs(Echo):
    def __init__(self):
        while True:
            pass


class TurnsOfText(Echo):
    max_turns = "x"


class NoTurns(Echo):
    max_turns = None


class NegativeTurns(Echo):
    max_turns = -1


class TrueTurns(Echo):
    max_turns = True


class SplitsOfText(Echo):
    splits = "train"


class NoTasks(Echo):
    def vocabulary(self):
        raise SystemExit(0)


class WordsRaise(Echo):
    def vocabulary(self):
        raise KeyError("words")


class Numbered(Echo):
    """Notes what each of its instances was made for: to be asked for its tasks, or to be played."""

    made = []

    def __init__(self):
        super().__init__()
        self.number = len(Numbered.made)
        Numbered.made.append("for nothing")

    def tasks(self, split):
        Numbered.made[self.number] = "asked"
        return super().tasks(split)

    def reset(self, task):
        Numbered.made[self.number] = "played"
        return super().reset(task)
