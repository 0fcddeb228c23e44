"""Tokens that are pieces of words, learned on the spot from an environment's texts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.agents.renderer import Renderer
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.envs import make_env
from palestra.envs.search import env as search_env
from palestra.envs.search.env import Search
from palestra.models.tokenizers import bpe_tokenizer, byte_tokenizer, load_tokenizer
from palestra.training.preflight import make_tokenizer
from tests.support.search_world import tiny, tiny_world

__all__ = ["tiny"]

TEXTS = [
    "Question: Who founded the Dremmel Expedition?",
    "The Dremmel Expedition was founded by Ilse Varnholt in 1911.",
] * 20
PIECES = bpe_tokenizer(TEXTS, 512)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_can_be_written(text):
    text = text.replace("<end>", "").replace("<act>", "")
    assert PIECES.decode(PIECES.encode(text)) == text


def test_words_that_were_read_are_few_tokens_wherever_a_blank_is_before_them():
    asked = PIECES.tokenize("the Dremmel Expedition?")
    assert asked == ["the", "ĠDremmel", "ĠExpedition", "?"]
    assert PIECES.tokenize("search: Dremmel Expedition")[-2:] == asked[1:3]
    unread = "Zweerhard Voombrecht"
    assert len(asked) < len(PIECES.tokenize(unread)) <= len(byte_tokenizer().tokenize(unread))


def test_the_same_texts_give_the_same_tokens(tmp_path):
    again = bpe_tokenizer(iter(TEXTS), 512)
    assert again.get_vocab() == PIECES.get_vocab()
    again.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).encode(TEXTS[0]) == PIECES.encode(TEXTS[0])


def test_a_chat_ends_as_with_other_tokenizers():
    renderer = Renderer(PIECES)
    assert (
        renderer.reply_text(renderer.reply_ids("answer: Ilse Varnholt")) == "answer: Ilse Varnholt"
    )
    assert PIECES.convert_ids_to_tokens(renderer.reply_ids("answer: x"))[-1] == "<end>"


def test_search_learns_them_from_the_train_world_alone(monkeypatch, tiny):
    asked = []
    monkeypatch.setattr(
        search_env, "_world", lambda split, *others: asked.append(split) or tiny_world(split)
    )
    texts = list(Search(style="compact").texts())
    assert set(asked) == {"train"}
    assert any(text.startswith("<information>\n[1] ") for text in texts)
    assert {text.partition(":")[0] for text in texts if ":" in text} >= {
        "Question",
        "search",
        "answer",
    }
    tokenizer = make_tokenizer(
        build({"model": {"tokenizer": "bpe", "vocab_size": 600}, "env": {"name": "search"}}),
        {"search": Search(style="compact")},
    )
    assert len(tokenizer) == 600


def test_where_there_are_no_texts_to_learn_from():
    with pytest.raises(ConfigError, match="model.tokenizer = 'bpe': textcraft has no texts"):
        make_tokenizer(
            build({"model": {"tokenizer": "bpe"}}), {"textcraft": make_env("textcraft", {})}
        )
    with pytest.raises(
        ConfigError, match="model.vocab_size = 600: has no effect with tokenizer = 'words'"
    ):
        build({"model": {"vocab_size": 600}})
    with pytest.raises(ConfigError, match="model.vocab_size"):
        build({"model": {"tokenizer": "bpe", "vocab_size": 100}})
