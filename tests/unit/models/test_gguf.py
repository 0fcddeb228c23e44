"""A GGUF file becomes a directory that computes the same."""

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from palestra.cli.main import main
from palestra.models.loading import load_model
from palestra.models.tokenizers import byte_tokenizer

gguf = pytest.importorskip("gguf")

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def gguf_name(name):
    if "layers." not in name:
        return {
            "model.embed_tokens.weight": "token_embd.weight",
            "model.norm.weight": "output_norm.weight",
        }[name]
    _, _, layer, *rest = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(rest[:-1])]}.{rest[-1]}"


def written(path, model, tokenizer, pre="qwen2"):
    """A file as llama.cpp's converter writes it."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    vocabulary = [*sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get), "ab"]
    writer.add_token_list(vocabulary)
    writer.add_token_types(
        [3 if token.startswith("<") and len(token) > 1 else 1 for token in vocabulary]
    )
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(gguf_name(name), value.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def original():
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 1, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen2ForCausalLM(config), tokenizer


def test_it_computes_the_same(tmp_path, capsys, original):
    model, tokenizer = original
    written(tmp_path / "model.gguf", model, tokenizer)
    main(["model", "import", str(tmp_path / "model.gguf"), str(tmp_path / "out")])
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in capsys.readouterr().out
    loaded = load_model(tmp_path / "out", device=torch.device("cpu"), dtype=torch.float32)
    assert (loaded.config.rms_norm_eps, loaded.config.eos_token_id) == (
        1e-5,
        tokenizer.eos_token_id,
    )
    ids = torch.tensor([[5, 9, 33, 70]])
    expected, found = model(ids).logits, loaded(ids).logits
    assert (found - expected).norm() < 0.01 * expected.norm()  # bfloat16
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == tokenizer.chat_template


@pytest.mark.parametrize("content", [None, b"not a model"])
def test_what_is_no_gguf_file_is_refused(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(["model", "import", str(tmp_path / "model.gguf"), str(tmp_path / "out")])
    assert stop.value.code == 2
    assert "expected a GGUF file" in capsys.readouterr().err
