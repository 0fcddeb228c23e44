"""Kernels that stand in for a model's modules compute what the modules compute, forwards and
backwards.
"""

import copy
from importlib.util import find_spec

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("liger_kernel") is None,
        reason="needs CUDA and the extra gpu",
    ),
]


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_a_fused_model_computes_what_it_did(family):
    import transformers

    from palestra.models.fused_layers import fuse_layers

    config = getattr(transformers, f"{family}Config")(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    plain = getattr(transformers, f"{family}ForCausalLM")(config).cuda()
    fused = copy.deepcopy(plain)
    assert fuse_layers(fused) >= 2 * 3 + 1  # two norms and a gate in each layer, and the last norm
    assert "forward" not in vars(plain.model.norm)  # other models of its class are as they were

    ids = torch.randint(0, 97, (2, 33), device="cuda")
    weights = torch.linspace(-1, 1, 97, device="cuda")
    outputs = []
    for model in (plain, fused):
        logits = model(ids).logits
        (logits.log_softmax(-1) * weights).sum().backward()
        outputs.append((logits, [parameter.grad for parameter in model.parameters()]))
    (logits, gradients), (fused_logits, fused_gradients) = outputs
    assert torch.allclose(fused_logits, logits, atol=1e-4, rtol=1e-4)
    for found, expected in zip(fused_gradients, gradients, strict=True):
        scale = expected.abs().max()
        assert (found - expected).abs().max() < 1e-4 * scale
