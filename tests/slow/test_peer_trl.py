"""The comparison with TRL, end to end on a CPU, where TRL is installed (a venv of its own: it is no
dependency).
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from palestra.agents.renderer import CHATML
from palestra.envs.textcraft.env import TextCraft
from palestra.learner.checkpoint import export
from palestra.models.tiny import tiny_model

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("trl") is None, reason="needs trl")]


@pytest.fixture
def model_folder(tmp_path):
    """A random model of few words: every so often one of its replies ends before it is cut, so that
    episodes have several turns.
    """
    env = TextCraft()
    texts = [
        env.instructions,
        *(text for turn in env.example for text in turn),
        *map(env.reset, env.tasks("train")[:50]),
    ]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    specials = ["<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=300, special_tokens=specials, initial_alphabet=alphabet),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = CHATML
    shape = {"width": 64, "layers": 2, "heads": 2, "context": 4096}
    model = tiny_model(
        **shape,
        vocabulary=len(tokenizer),
        stop_id=tokenizer.eos_token_id,
        seed=0,
        device=torch.device("cpu"),
    )
    export(tmp_path / "model", model, tokenizer)
    return tmp_path / "model"


def compare(folder, *arguments):
    sizes = [
        "--tasks",
        "2",
        "--group",
        "4",
        "--horizon",
        "3",
        "--reply",
        "200",
        "--steps",
        "2",
        "--micro",
        "4",
        "--no-vllm",
    ]
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "peer_trl.py"),
        str(folder),
        *sizes,
        *arguments,
    ]
    settings = [
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--threads",
        "1",
        "--json",
        str(folder / "peer.json"),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *settings], capture_output=True, text=True, timeout=300, env=environment
    )


@pytest.mark.timeout(400)
def test_both_sides_do_the_same_work(model_folder):
    done = compare(model_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((model_folder / "peer.json").read_text())
    ours, theirs = result["Palestra"], result["TRL"]
    assert len(ours["steps"]) == len(theirs["steps"]) == 3
    for row, other in zip(ours["steps"], theirs["steps"], strict=True):
        assert row["episodes"] == other["episodes"] == 8
        assert row["longest_prompt"] == other["longest_prompt"]  # the same tasks, rendered alike
        assert other["turns"] > 8  # some replies were answered
        parts = other["seconds"]
        assert parts["total"] == pytest.approx(
            parts["generation"] + parts["training"] + parts["rest"]
        )
    assert "TRL/Palestra" in done.stdout


@pytest.mark.timeout(400)
def test_a_side_that_fails_is_shown_and_the_other_still_counts(model_folder):
    done = compare(model_folder, "--micro", "3")  # does not divide the batch
    assert done.returncode == 1
    assert "Traceback" in done.stdout
    result = json.loads((model_folder / "peer.json").read_text())
    assert list(result["compared"]) == ["Palestra"]
