"""Causal language models: loading, making small ones on the spot, and running them without padding.

Engine and learner run the same module through one attention function. How its tokens are laid out (segments end to end, or
requests over cache slots) is a `Layout` that travels with the call.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.modeling_utils import AttentionInterface
from transformers.utils import logging as transformers_logging

from palestra.core.confined import Overran, Refused
from palestra.core.untrusted import terminal_safe
from palestra.models.chat_templates import TRYING, WORD_TEMPLATE, foreign
from palestra.models.files import CONFIG, BadModel, Stored, check_entries, check_folder, told_in_one_line

if TYPE_CHECKING:
    from palestra.algos.batch import Sharing

log = logging.getLogger(__name__)
transformers_logging.disable_progress_bar()  # a bar per checkpoint would break the display

ATTENTION = "palestra"
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is fetched, no code of a model's is run, and nobody is asked whether it may be."""
MOST_PACKED = 16
"""Parameters in an element of a quantised checkpoint."""
MOST_BUFFERS = 4 << 30
"""Bytes of a model's tables, such as masks over all positions."""


class Layout(Protocol):
    """Which of the tokens in a call may see each other."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int) -> Tensor:
        """All [1, heads, tokens, dim]; the result like `query`."""


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Transformers calls this in every layer. Without a layout it is plain attention under the given mask."""
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise NotImplementedError("models with soft-capped attention or attention sinks are not supported")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if layout is not None:
        out = layout.attend(query, key, value, scale=scale, layer=int(module.layer_idx))  # type: ignore[arg-type]
    else:
        is_causal = attention_mask is None and query.shape[2] > 1
        out = sdpa(query, key, value, scale=scale, mask=attention_mask, is_causal=is_causal)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)


@cache  # a second one would be another function to a compiler, which would begin anew
def keep_attention_eager() -> None:
    """Let compilers leave attention out: a layout is a Python object with other lengths in every call."""
    AttentionInterface.register(ATTENTION, torch.compiler.disable(_attention))


def sdpa(query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Scaled dot-product attention, with fewer key heads than query heads where the model has it so.

    Of one token each, the query heads that have a key head in common look at it together: on a CPU that is ten times as fast in bfloat16.
    """
    rows, heads, tokens, dim = query.shape
    if tokens == 1 and heads != key.shape[1]:
        together = query.reshape(rows, key.shape[1], -1, dim)
        return functional.scaled_dot_product_attention(together, key, value, attn_mask=mask, scale=scale).reshape(query.shape)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )


class PackedLayout:
    """Segments end to end: each token sees its own segment, up to itself. What segments share is there once."""

    def __init__(self, lengths: list[int], shared: Sharing | None = None) -> None:
        self.lengths = lengths
        self.new = lengths if shared is None else shared.new_S
        self.places = None if shared is None or shared.new_S == lengths else shared.place_T
        self._bounds: tuple[Tensor, Tensor] | None = None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float, layer: int) -> Tensor:
        if self.places is not None:
            key, value = (Spread.apply(x, self.places) for x in (key, value))
        if query.device.type == "cuda" and query.dtype != torch.float32:
            return self._attend_at_once(query, key, value, scale)
        pieces = zip(query.split(self.new, dim=2), *(x.split(self.lengths, dim=2) for x in (key, value)), strict=True)
        return torch.cat([_attend_piece(q, k, v, scale) for q, k, v in pieces], dim=2)

    def _attend_at_once(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """By flash attention over sequences of any lengths, which takes half precision only."""
        if self._bounds is None:
            new, whole = (torch.tensor([0, *accumulate(n)], dtype=torch.int32, device=query.device) for n in (self.new, self.lengths))
            self._bounds = (new, whole)
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        longest = (max(self.new), max(self.lengths))
        out = varlen_attn(q, k, v, *self._bounds, *longest, scale=scale, window_size=(-1, 0), **_GROUPED)
        assert isinstance(out, Tensor)
        return out.transpose(0, 1)[None]


def _attend_piece(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The last tokens of a segment, or all of them, against all of it."""
    new, whole = query.shape[2], key.shape[2]
    if new == whole:
        return sdpa(query, key, value, scale=scale, is_causal=True)
    mask = torch.ones(new, whole, dtype=torch.bool, device=query.device).tril_(whole - new)
    return sdpa(query, key, value, scale=scale, mask=mask)


class Spread(torch.autograd.Function):
    """Tokens to all places that have them in common; backwards their gradients are added up in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.tokens = x.shape[2]
        return x.index_select(2, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        (places,) = ctx.saved_tensors
        heads, dim = gradient.shape[1], gradient.shape[3]
        exact = exact_type(gradient.dtype)
        total = torch.zeros(1, heads, ctx.tokens, dim, device=gradient.device, dtype=exact)
        return total.index_add_(2, places, gradient.to(exact)).to(gradient.dtype), None


_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
"""Newer versions of torch want to be told that there may be fewer key heads than query heads."""


def hidden_states(model: PreTrainedModel, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The last layer's output, before the head. `ids` and `positions` are [rows, tokens]."""
    return trunk_states(model.base_model, ids, positions, **extra)


def trunk_states(trunk: torch.nn.Module, ids: Tensor, positions: Tensor, **extra: Any) -> Tensor:
    """The same of a network without a head."""
    states: Tensor = trunk(input_ids=ids, position_ids=positions, use_cache=False, **extra).last_hidden_state
    return states


def exact_type(dtype: torch.dtype) -> torch.dtype:
    """Of what is kept, and added up, where a model computes in `dtype`: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def whole(weight: Tensor) -> Tensor:
    """All of a weight of which this process has a share (FSDP2): all ranks must ask for it. Others are whole already."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def logits_of(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """What the head makes of hidden states, in float32: rounded to bfloat16, a logit of 20 would be off by 0.06."""
    head = model.get_output_embeddings()
    if hidden.device.type != "cuda" or hidden.dtype == torch.float32 or head.bias is not None or torch.is_grad_enabled():
        return head(hidden).float()
    return torch.mm(hidden, head.weight.t(), out_dtype=torch.float32)


def load_model(path: Path | str, *, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A Hugging Face directory as a model that uses our attention, proven to compute what the original does.

    Only safetensors are read and no code of the directory's own is run; `BadModel` where that is not enough.
    """
    stored = check_folder(Path(path))
    with told_in_one_line(path), quiet():
        config = AutoConfig.from_pretrained(path, **LOCAL)
        _check_size(path, config, stored)
        others: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
        loaded: Any = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=dtype, **others, **LOCAL)
        model, told = loaded
        check_loading(path, told)
        return prepare_model(model.to(device, dtype))


def check_loading(path: Path | str, told: dict[str, Any]) -> None:
    """Refuse weights that transformers made up, because they were not there or had other shapes."""
    for name, stored, expected in sorted(told["mismatched_keys"]):
        shapes = f"{list(stored)}; {CONFIG} describes {list(expected)}"
        raise BadModel(f"{terminal_safe(str(path))}: its files hold {terminal_safe(name)} with the shape {shapes}")
    if missing := sorted(told["missing_keys"]):
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise BadModel(f"{terminal_safe(str(path))}: its files hold no {terminal_safe(missing[0])}{more}")


def _check_size(path: Path | str, config: PreTrainedConfig, stored: Stored) -> None:
    """Refuse a configuration of a larger model than its files hold: the rest would be made up, at any size."""
    with torch.device("meta"):
        described = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    place = terminal_safe(str(Path(path) / CONFIG))
    tables = sum(buffer.nbytes for buffer in described.buffers())
    if tables > MOST_BUFFERS:
        raise BadModel(f"{place}: describes tables of {tables:,} bytes, expected at most {MOST_BUFFERS:,}")
    parameters = sum(parameter.numel() for parameter in described.parameters())
    packed = 1 if getattr(config, "quantization_config", None) is None else MOST_PACKED
    if parameters > stored.elements * packed:
        raise BadModel(f"{place}: describes {parameters:,} parameters, and the files hold {stored.elements:,}")


@contextmanager
def quiet() -> Iterator[None]:
    """Transformers prints tables of what is wrong with a model; what counts of it is in the error."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)


def prepare_model(model: PreTrainedModel) -> PreTrainedModel:
    """Switch to our attention, and refuse a model whose results that would change."""
    model.eval()
    if "position_ids" not in inspect.signature(model.base_model.forward).parameters:
        raise ValueError(f"{type(model).__name__} takes no position_ids; only models with explicit positions are supported")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (1, 12), generator=generator).to(model.device)
    with torch.no_grad():
        expected = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], dim=1)
        model.set_attn_implementation(ATTENTION)
        if model.dtype == torch.float64:
            _norms_in_float64(model)
        elif model.device.type == "cuda" and find_spec("triton") is not None:
            from palestra.models.fused_kernels import fuse

            log.debug("%d modules run by kernels of ours", fuse(model))
        positions = torch.tensor([[*range(5), *range(7)]], device=model.device)
        hidden = hidden_states(model, ids, positions, layout=PackedLayout([5, 7]))
        found = model.get_output_embeddings()(hidden)
    if not expected.isfinite().all():
        raise ValueError(f"{type(model).__name__}: its weights give logits that are no finite numbers")
    tolerance = 0.05 if model.dtype == torch.bfloat16 else 1e-3
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    if not error < tolerance:
        raise ValueError(
            f"{type(model).__name__} gives other results with packed attention (relative difference {error:.2g}); "
            "it may use sliding windows, soft caps or scaled logits, which are not supported"
        )
    return model


def _norms_in_float64(model: PreTrainedModel) -> None:
    """Hugging Face's compute in float32, whatever the model computes in."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = MethodType(_norm, module)


def _norm(module: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.variance_epsilon)


def largest_context(model: PreTrainedModel) -> int:
    """The most tokens a segment may have: the model's positions, and its sliding window where it has one."""
    config = model.config
    limits = [config.max_position_embeddings]
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        limits.append(config.sliding_window)
    return min(limits)


def load_tokenizer(path: Path | str) -> PreTrainedTokenizerBase:
    """Of a directory. It is tried in a process of its own first, where it may hang or crash."""
    check_entries(Path(path))
    try:
        foreign.ask({"tokenizer": str(path)}, **TRYING)
    except (Refused, Overran) as error:
        raise BadModel(f"{path}: its tokenizer cannot be used: {error}") from error
    with told_in_one_line(path), quiet():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **LOCAL)
        return tokenizer


def new_model(
    *,
    vocabulary: int,
    width: int,
    layers: int,
    heads: int,
    context: int,
    stop_id: int,
    seed: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    """A small model in Llama's layout with random weights, the same for the same seed."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width * 2 // 3 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=stop_id,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    return prepare_model(model.to(device, dtype))  # type: ignore[arg-type]


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerBase:
    """One token per word, for environments that list their words. Words are parted by blanks."""
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<end>", "<act>", *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", additional_special_tokens=["<act>"], clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = WORD_TEMPLATE
    return tokenizer


SPECIALS = ["<end>", "<act>"]


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte: any text, no training, no files."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate([*SPECIALS, *alphabet])}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _of_bytes(core)


def piece_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerBase:
    """`size` pieces of words, learnt from texts by byte-pair encoding; what they do not cover is written byte by byte.

    The same texts give the same tokenizer. A word has the same pieces wherever a blank stands before it, so that it can be copied.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(texts, trainer)
    return _of_bytes(core)


def _of_bytes(core: Tokenizer) -> PreTrainedTokenizerBase:
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<end>", additional_special_tokens=["<act>"], clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = WORD_TEMPLATE
    return tokenizer
