"""A model may be a directory, a file, or a name on the hub; what is none of them is refused in one
line.
"""

import json

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import save_file

from palestra.core.errors import ConfigError
from palestra.learner.checkpoint import export
from palestra.models.folder import (
    FILES,
    NOT_THESE,
    check_model,
    find_model,
    load_pretrained,
    tokenizer_folder,
)
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer
from tests.unit.models.test_gguf import original, written  # noqa: F401  a fixture

CPU = torch.device("cpu")


def small_model():
    return tiny_model(
        vocabulary=300, width=16, layers=1, heads=2, context=64, stop_id=1, seed=0, device=CPU
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub's cache, with one model in it as the hub's own program lays it out."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    commit = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    export(repository / "snapshots" / commit, small_model(), byte_tokenizer())
    return repository / "snapshots" / commit


def test_a_name_on_the_hub_is_taken_from_its_cache(cache):
    assert find_model("some/model") == cache
    model, tokenizer = load_pretrained("some/model", device=CPU, dtype=torch.float32)
    assert torch.equal(
        model.get_input_embeddings().weight, small_model().get_input_embeddings().weight
    )
    assert len(tokenizer) == len(byte_tokenizer())


@pytest.mark.parametrize("lost", ["model.safetensors", "config.json", "a shard"])
def test_a_snapshot_that_is_not_whole_is_fetched_again(cache, lost):
    if lost == "a shard":
        weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        (cache / "model.safetensors").rename(cache / weights["a"])
        (cache / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    else:
        (cache / lost).unlink()
    with pytest.raises(ConfigError, match="not whole in its cache, not fetched"):
        load_pretrained("some/model", device=CPU, dtype=torch.float32)


def test_a_name_that_is_nowhere_says_how_to_get_it(cache):
    check_model("other/model")  # it may well exist: nothing is asked yet
    with pytest.raises(ConfigError) as error:
        find_model("other/model")
    assert "\n" not in str(error.value)
    assert "model.path = 'other/model'" in str(error.value)
    assert "hf download other/model" in str(error.value)


def test_of_a_repository_only_what_is_needed_is_fetched():
    needed = [
        "config.json",
        "generation_config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "merges.txt",
    ]
    needed += [
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "chat_template.jinja",
        "vocab.json",
        "added_tokens.json",
    ]
    others = [
        "consolidated.safetensors",
        "original/consolidated.00.pth",
        "onnx/model.onnx",
        "pytorch_model.bin",
        "README.md",
        "x/y.json",
    ]
    assert (
        list(
            filter_repo_objects(
                [*others, *needed], allow_patterns=list(FILES), ignore_patterns=list(NOT_THESE)
            )
        )
        == needed
    )


def test_a_gguf_file_is_imported_once(tmp_path, monkeypatch, original):  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, tokenizer = original
    file = tmp_path / "tiny.gguf"
    written(file, model, tokenizer)
    folder = find_model(str(file))
    assert folder.is_relative_to(tmp_path / "cache" / "palestra")
    (folder / "mark").touch()
    assert (find_model(str(file)) / "mark").exists()
    loaded, own = load_pretrained(str(file), device=CPU, dtype=torch.float32)
    ids = torch.tensor([[5, 9, 33, 70]])
    expected = model(ids).logits
    assert (loaded(ids).logits - expected).norm() < 0.01 * expected.norm()  # bfloat16
    assert own.chat_template == tokenizer.chat_template
    written(file, model, tokenizer, pre="smollm")
    assert find_model(str(file)) != folder


@pytest.mark.parametrize(
    "path", ["no/such/folder", "./no-such", "../no", "/no/such", "nothing", "a b/c", ""]
)
def test_what_is_no_model_is_refused(path):
    with pytest.raises(
        ConfigError,
        match="expected a Hugging Face directory with a config.json, a GGUF file, or a name on "
        "the hub",
    ):
        check_model(path)


def test_another_file_and_an_empty_folder_are_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"weights")
    with pytest.raises(ConfigError, match="expected a GGUF file"):
        check_model(str(tmp_path / "model.bin"))
    with pytest.raises(ConfigError, match="expected a Hugging Face directory"):
        check_model(str(tmp_path))


def test_an_adapter_needs_to_say_what_it_belongs_to(tmp_path):
    pytest.importorskip("peft")
    export(tmp_path / "base", small_model(), byte_tokenizer())
    (tmp_path / "adapter").mkdir()
    config = tmp_path / "adapter" / "adapter_config.json"
    config.write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "base")}))
    with pytest.raises(ConfigError, match="an adapter without adapter_model.safetensors"):
        check_model(str(tmp_path / "adapter"))
    up, down = torch.ones(16, 4), torch.ones(4, 16)
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    save_file(
        {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up},
        tmp_path / "adapter" / "adapter_model.safetensors",
    )
    assert tokenizer_folder(str(tmp_path / "adapter")) == tmp_path / "base"
    config.write_text(json.dumps({"base_model_name_or_path": None}))
    with pytest.raises(ConfigError, match="does not say what model"):
        check_model(str(tmp_path / "adapter"))
    config.write_text(json.dumps({"base_model_name_or_path": "/no/such"}))
    with pytest.raises(ConfigError, match="model.path = '/no/such'"):
        check_model(str(tmp_path / "adapter"))
