"""Tokenizers: those of models, and those that are made from an environment's words and texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from palestra.core.confined import Overran, Refused
from palestra.models.chat_templates import TRYING, WORD_TEMPLATE, foreign
from palestra.models.files import BadModel, check_entries, told_in_one_line
from palestra.models.loading import LOCAL, quiet


def load_tokenizer(path: Path | str) -> PreTrainedTokenizerBase:
    """Of a directory. It is tried in a process of its own first, where it may hang or crash."""
    check_entries(Path(path))
    try:
        # Absolute: the child stays in the folder that was current when it started.
        foreign.ask({"tokenizer": str(Path(path).absolute())}, **TRYING)
    except (Refused, Overran) as error:
        raise BadModel(f"{path}: its tokenizer cannot be used: {error}") from error
    with told_in_one_line(path), quiet():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **LOCAL)
        return tokenizer


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerBase:
    """One token per word, for environments that list their words. Words are parted by blanks."""
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<end>", "<act>", *words])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<act>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = WORD_TEMPLATE
    return tokenizer


SPECIALS = ["<end>", "<act>"]


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte: any text, no training, no files."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(
        models.BPE({token: i for i, token in enumerate([*SPECIALS, *alphabet])}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _of_bytes(core)


def bpe_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerBase:
    """`size` pieces of words, learned from texts by byte-pair encoding; what they do not cover is
    written byte by byte.

    The same texts give the same tokenizer. A word has the same pieces wherever a blank stands
    before it, so that it can be copied.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    return _of_bytes(core)


def _of_bytes(core: Tokenizer) -> PreTrainedTokenizerBase:
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<end>",
        additional_special_tokens=["<act>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = WORD_TEMPLATE
    return tokenizer
