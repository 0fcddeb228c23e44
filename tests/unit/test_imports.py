"""Who may import whom, and what must stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import needs_sciworld

PACKAGE = Path(__file__).parents[2] / "palestra"

LAYERS = {
    "types": 0, "errors": 0, "addresses": 0, "credentials": 0, "registry": 0, "seeds": 0,
    "tables": 0, "intervals": 0,
    "run_folder": 0, "loop": 0, "files": 0, "untrusted": 0, "interrupts": 0, "early_interrupt": 0,
    "lock": 0,
    "confined": 0, "chat_templates": 0, "model_files": 0, "gguf_header": 0,
    "settings": 1, "world": 1, "sites": 1, "batch": 1, "model": 1, "fused": 1, "lora": 1,
    "envs": 2, "serve": 2, "agents": 2, "engines": 2, "algos": 2, "horizon": 2, "guard": 2,
    "rollout": 3, "retrace": 3, "learn": 3, "learned": 3, "track": 3, "trackers": 3,
    "conversations": 3,
    "group_queue": 3, "launch_settings": 3, "rollout_settings": 3, "run_settings": 3,
    "model_settings": 3, "env_settings": 3, "carry": 4, "metrics": 4, "evaluate": 4, "config": 4,
    "gguf_import": 5, "model_folder": 5, "resume_config": 5, "run": 5, "assemble": 5, "explain": 5,
    "plan": 5, "task_ids": 5,
    "data": 6, "draw": 6, "experts": 6, "export": 6, "display": 6, "baselines": 6, "plot": 6,
    "log": 6, "printing": 6, "cli_env": 6,
    "cli_plan": 6, "cli_report": 6, "cli_search": 6, "cli_web": 6, "report": 6,
    "limits": 6, "experience": 7, "warm_start": 7, "replay": 7, "transcript": 7,
    "ahead": 8, "streaming": 8, "saving": 8,
    "train": 8, "doctor": 8, "view": 8, "cli_view": 8,
    "launch": 9, "cli": 9, "__init__": 9, "__main__": 10,
}  # fmt: skip


def module_files():
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path):
    """What a file imports of ours, save for type checking."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and id(node) not in for_types
            and (node.module or "").split(".")[0] == "palestra"
        ):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]


@pytest.mark.parametrize("path", module_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    own = layer_of(path)
    if own == "__init__":
        return
    for other in imported_layers(path):
        assert LAYERS[other] <= LAYERS[own], f"{own} must not import {other}"


def test_every_module_has_a_place():
    assert {layer_of(path) for path in module_files()} <= set(LAYERS)


LIGHT = [
    *(
        "palestra",
        "palestra.cli.main",
        "palestra.config.config",
        "palestra.envs.serving.handles",
        "palestra.envs.serving.worker",
        "palestra.envs.serving.worker_pool",
        "palestra.envs",
        "palestra.envs.gym",
    ),
    *("palestra.envs.serving.client", "palestra.envs.serving.main", "palestra.envs.serving.remote"),
    *(
        "palestra.envs.check",
        "palestra.envs.textcraft.env",
        "palestra.envs.babyai.env",
        "palestra.envs.guess.env",
    ),
    *(
        "palestra.cli.view",
        "palestra.view.server",
        "palestra.view.bundle",
        "palestra.view.scenes",
        "palestra.view.play",
    ),
    *("palestra.cli.report", "palestra.tools.report.write"),
    *(
        "palestra.envs.adapters.agentgym",
        "palestra.envs.serving.agentgym_routes",
        "palestra.envs.search.env",
    ),
    "palestra.envs.search.world",
    pytest.param("palestra.envs.sciworld.env", marks=needs_sciworld),
]


@pytest.mark.parametrize("module", LIGHT)
def test_no_torch(module):
    code = (
        f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_train_fits_on_one_screen():
    tree = ast.parse((PACKAGE / "train.py").read_text())
    (train,) = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "train"
    ]
    assert train.end_lineno - train.lineno < 50


def test_files_and_functions_stay_small():
    for path in module_files():
        source = path.read_text()
        assert source.count("\n") <= 500, f"{path.name} is over 500 lines"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.body[0].lineno  # a command's flags are its signature
                assert lines <= 60, f"{path.name}: {node.name} is over 60 lines"
