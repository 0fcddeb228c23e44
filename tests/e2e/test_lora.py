"""Whole runs that train an adapter: it learns, resumes bit for bit, evaluates, and is exported
merged or alone.
"""

import json
import subprocess
import sys

import pytest
import torch

from palestra.algos.evol import AgentEvol
from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.learner import checkpoint
from palestra.models.loading import load_model
from palestra.models.lora import adapter_of
from palestra.models.tokenizers import load_tokenizer
from palestra.runs.run import Run
from palestra.tools.export import export_run
from palestra.training.display import Display
from palestra.training.loop import run_training
from tests.support.training import records, trained, weights

peft = pytest.importorskip("peft")

GUESS = {
    "device": "cpu",
    "threads": 1,
    "env": {"name": "guess", "options": {"size": 2}},
    "agent": {"format": "plain", "context_tokens": 64, "reply_tokens": 2},
    "engine": {"slots": 32},
    "horizon": {"kind": "fixed", "turns": 2},
    "eval": {"tasks": 100},
}
NEW = {"model": {"width": 32, "layers": 2, "heads": 2}}
ALGO = {"rollout": {"tasks": 8, "group": 8}, "optim": {"lr": 3e-3}, "lora": {"rank": 8}}


def success(run):
    return {row["phase"]: row["eval/success"] for row in run.metrics() if "eval/success" in row}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A model that has learned the task, with noise on its layers: it knows the words, and not any
    more when to say them.
    """
    folder = tmp_path_factory.mktemp("model")
    torch.set_num_threads(1)
    run = trained(
        folder / "run",
        GUESS | NEW | {"optim": {"lr": 1e-2}, "algo": {"name": "sft", "episodes": 200}},
        steps=120,
    )
    assert success(run)["final"] > 0.9
    model = load_model(
        checkpoint.newest(run.checkpoints), device=torch.device("cpu"), dtype=torch.float32
    )
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name:
                parameter.add_(3 * parameter.std() * torch.randn(parameter.shape, generator=chance))
    model.generation_config.temperature = 0.6
    model.generation_config.do_sample = True
    checkpoint.export(folder / "damaged", model, load_tokenizer(checkpoint.newest(run.checkpoints)))
    return folder / "damaged"


@pytest.fixture(scope="module")
def healed(damaged, tmp_path_factory):
    return trained(
        tmp_path_factory.mktemp("run") / "run", GUESS | ALGO | {"model": str(damaged)}, steps=40
    )


def test_an_adapter_learns_by_reinforcement(healed):
    assert success(healed)["raw"] < 0.5
    assert success(healed)["final"] > 0.85
    files = {path.name for path in checkpoint.newest(healed.checkpoints).iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"} <= files
    assert not any(name.startswith("model") for name in files)


def test_a_run_with_an_adapter_is_evaluated_and_exported(healed, damaged, tmp_path, capsys):
    main(["eval", str(healed.folder), "--json", "--out", str(tmp_path / "eval.json")])
    result = json.loads(capsys.readouterr().out)
    assert (result["step"], result["all"]["success"]) == (
        40,
        pytest.approx(success(healed)["final"], abs=0.05),
    )
    main(["model", "export", str(healed.folder), str(tmp_path / "merged")])
    main(["model", "export", str(healed.folder), str(tmp_path / "adapter"), "--adapter"])
    files = {path.name for path in (tmp_path / "merged").iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    } <= files
    assert {path.name for path in (tmp_path / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert not (tmp_path / "adapter" / "state.json").exists()
    code = (
        "import sys, json, torch; from transformers import AutoModelForCausalLM as M; "
        "from peft import PeftModel;"
        "x = torch.arange(9)[None];"
        "a = M.from_pretrained(sys.argv[1]); b = "
        "PeftModel.from_pretrained(M.from_pretrained(sys.argv[2]), sys.argv[3]);"
        "print(json.dumps([a(x).logits.tolist(), b(x).logits.tolist(), "
        "a.generation_config.temperature]))"
    )
    folders = [str(tmp_path / "merged"), str(damaged), str(tmp_path / "adapter")]
    done = subprocess.run(
        [sys.executable, "-c", code, *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    merged, beside, temperature = json.loads(done.stdout)
    assert torch.allclose(torch.tensor(merged), torch.tensor(beside), atol=1e-3)
    assert temperature == 0.6
    base = load_model(damaged, device=torch.device("cpu"), dtype=torch.float32)
    assert not torch.allclose(torch.tensor(merged), base(torch.arange(9)[None]).logits, atol=0.1)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {
            "warm_start": {"episodes": 20, "updates": 3, "check_every": 3, "check_tasks": 8},
            "algo.kl": 0.1,
        },
        {"algo.name": "ppo"},
        {"algo.name": "evol", "algo.round": 2, "algo.best": 8, "algo.min_reward": 0.01},
        {"dtype": "bfloat16", "optim.activation_checkpointing": True},
    ],
    ids=["plain", "warm start and KL", "ppo with a head", "evol", "bfloat16, computed again"],
)
def test_four_steps_equal_two_and_two_more_bit_for_bit(damaged, tmp_path, overrides):
    tree = GUESS | ALGO | {"model": str(damaged), "save": {"every": 2}, "eval": {"tasks": 8}}
    whole = trained(tmp_path / "whole", tree, steps=4, **overrides)
    run = Run.create(tmp_path / "halves", build(tree, {"steps": 4, **overrides}))

    class Killed(Exception):
        pass

    class Killer(Display):
        def end_step(self, row):
            if row["step"] == 3:
                raise Killed

    with pytest.raises(Killed):
        run_training(run, Killer())
    assert checkpoint.newest(run.checkpoints).name == "step-000002"
    resumed = Run.open(run.folder)
    run_training(resumed, Display())
    assert records(resumed) == records(whole)
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(resumed).items())
    if isinstance(run.config.algo, AgentEvol) or "algo.kl" in overrides:
        assert (whole.folder / "reference" / "adapter_model.safetensors").is_file()


def test_a_run_cannot_change_its_adapter_and_says_what_it_has(damaged, healed, tmp_path):
    with pytest.raises(ConfigError, match="cannot be changed when it is resumed"):
        Run.open(healed.folder, {"lora.rank": 4})
    with pytest.raises(
        ConfigError,
        match=r"lora.targets = \['q_porj'\]: no linear module below the head is called 'q_porj'",
    ):
        trained(
            tmp_path / "run",
            GUESS | ALGO | {"model": str(damaged), "lora": {"targets": "q_porj"}},
            steps=1,
        )
    full = trained(
        tmp_path / "full",
        GUESS | {"model": str(damaged), "rollout": {"tasks": 2, "group": 2}},
        steps=1,
    )
    with pytest.raises(ConfigError, match="it has no adapter"):
        export_run(full.folder, tmp_path / "out", adapter=True)


def test_training_can_begin_from_an_adapter(healed, tmp_path):
    """Its directory is a model like any other: the adapter is merged, and all weights learn."""
    folder = checkpoint.newest(healed.checkpoints)
    run = trained(
        tmp_path / "run",
        GUESS | {"model": str(folder), "rollout": {"tasks": 2, "group": 2}},
        steps=1,
    )
    assert success(run)["raw"] > 0.85
    model = load_model(
        checkpoint.newest(run.checkpoints), device=torch.device("cpu"), dtype=torch.float32
    )
    assert not adapter_of(model)


def test_the_doctor_examines_a_run_with_an_adapter(damaged, tmp_path, capsys):
    recipe = tmp_path / "lora.toml"
    recipe.write_text(
        '[env]\nname = "guess"\noptions = {size = 2}\n[lora]\nrank = 8\n[agent]\nformat = '
        '"plain"\ncontext_tokens = 64\n'
    )
    main(["doctor", str(recipe), "--model", str(damaged), "--agent.reply_tokens", "4", "--algo.kl",
    "0.1", "--device", "cpu", "--json",
          "--optim.activation_checkpointing"])  # fmt: skip
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert all(finding["ok"] for finding in findings.values())
    assert "an adapter's" in findings["the run can be put together"]["detail"]
    model = load_model(damaged, device=torch.device("cpu"), dtype=torch.float32)
    whole = sum(p.nbytes for p in model.parameters())
    assert (
        findings["disk has room for checkpoints"]["number"] < 3 * 3 * whole
    )  # weights and moments of all would be that
