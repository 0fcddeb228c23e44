"""From a GGUF file to a Hugging Face directory: weights out of their quantization, and what
transformers loses on the way put right.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from palestra.core.errors import ConfigError
from palestra.core.lazy import torch
from palestra.models.files import told_in_one_line
from palestra.models.gguf_header import check_numbers, read_header

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DIGIT_BY_DIGIT = ("smollm", "refact", "starcoder", "command-r", "exaone")
"""Kinds of tokenizers that split numbers into digits; as GGUF names them (`tokenizer.ggml.pre`)."""


def import_gguf(file: Path, out: Path) -> int:
    """Write `file` as a directory in bfloat16.

    Returns the number of parameters. The weights are as exact as the file has them.
    """
    check_gguf(file)
    if out.exists():
        raise ConfigError(f"{out}: exists already")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with told_in_one_line(file):
            parameters = _convert(file, draft)
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return parameters


def _convert(file: Path, out: Path) -> int:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from palestra.models.loading import LOCAL, check_loading, load_model, quiet
    from palestra.models.tokenizers import load_tokenizer

    fields = _fields(file)
    # In an empty folder: transformers would read an untrusted configuration next to the file.
    with TemporaryDirectory() as alone:
        link = Path(alone) / "model.gguf"
        link.symlink_to(file.resolve())
        # The progress bar of the conversion has no switch in transformers.
        with quiet(), redirect_stderr(StringIO()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                alone, gguf_file=link.name, dtype=torch.bfloat16, output_loading_info=True, **LOCAL
            )
            tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file=link.name, **LOCAL)
    weights, told = loaded
    check_loading(file, told)
    model = _mended(weights, fields)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    if fields.get("tokenizer.ggml.pre") in DIGIT_BY_DIGIT:
        _split_digits(out / "tokenizer.json")
    # Verifies that the result can be read, and that Palestra's attention supports the model.
    load_model(out, device=torch.device("cpu"), dtype=torch.bfloat16)
    load_tokenizer(out)
    return sum(parameter.numel() for parameter in model.parameters())


def check_gguf(file: Path) -> None:
    """Refuse what cannot be imported."""
    if not file.exists():
        raise ConfigError(f"{file}: there is no such file; expected a GGUF file")
    if not file.is_file() or not _is_gguf(file):
        raise ConfigError(f"{file}: expected a GGUF file")
    if find_spec("gguf") is None:
        raise ConfigError(
            f"{file}: reading GGUF files needs the package gguf; pip install 'palestra[gguf]'"
        )
    check_numbers(file, *read_header(file))


def _is_gguf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"GGUF"


def _fields(file: Path) -> dict[str, Any]:
    """The file's own description of itself, without its lists of tokens."""
    from gguf import GGUFReader

    reader = GGUFReader(str(file))
    described = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("tokenizer.ggml.token")
    }
    return described | {
        "has_head": any(tensor.name == "output.weight" for tensor in reader.tensors)
    }


def _mended(loaded: PreTrainedModel, fields: dict[str, Any]) -> PreTrainedModel:
    """A plain model with the loaded weights: no trace of quantization, and the file's own constants
    in its configuration.
    """
    config = loaded.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(name, None)
    architecture = fields["general.architecture"]
    constants = {
        "rms_norm_eps": fields.get(f"{architecture}.attention.layer_norm_rms_epsilon"),
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id"),
    }
    config |= {name: _rounded(value) for name, value in constants.items() if value is not None}
    # Without a head in the file, it is tied to the embedding. A head in the file is often the same
    # matrix quantized to more bits: then tying them loses nothing.
    state = loaded.state_dict()
    embedding, head = state["model.embed_tokens.weight"].float(), state["lm_head.weight"].float()
    is_tied = not fields["has_head"] or bool((embedding - head).norm() < 0.2 * head.norm())
    if is_tied and fields["has_head"]:
        state["model.embed_tokens.weight"] = state["lm_head.weight"]
    with torch.device("meta"):  # else random weights would be drawn first, for minutes
        model: PreTrainedModel = type(loaded)(
            type(loaded.config)(**config | {"tie_word_embeddings": is_tied, "dtype": "bfloat16"})
        )
    weights = {name: weight.to(torch.bfloat16) for name, weight in state.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    if unexpected or set(missing) - set(model.all_tied_weights_keys):
        raise ConfigError(
            f"the file's weights do not fit {type(loaded).__name__}: missing {missing}, "
            f"unexpected {unexpected}"
        )
    model.tie_weights()
    return model


def _rounded(value: Any) -> Any:
    """1e-5 was kept in 32 bits as 9.999999747378752e-06."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _split_digits(path: Path) -> None:
    tree = json.loads(path.read_text())
    digits = {"type": "Digits", "individual_digits": True}
    before = tree["pre_tokenizer"]
    parts = before["pretokenizers"] if before["type"] == "Sequence" else [before]
    if not any(part["type"] == "Digits" for part in parts):
        tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, *parts]}
        path.write_text(json.dumps(tree))
