"""Stored conversations as tokens: small files worked out by hand.

Words: <unk> 0, <end> 1, <act> 2, red 3, blue 4, green 5, say 6, right 7, wrong 8. Bytes: <end> 0,
<act> 1, and ASCII c is c - 31.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from palestra.agents.renderer import CHATML, Renderer
from palestra.core.types import Message, Segment, Stop, Task, Trajectory, Turn
from palestra.models.tokenizers import byte_tokenizer, word_tokenizer
from palestra.runs.trajectories import encode_trajectory
from palestra.training.offline_data import DataError, read

ROOM = 1000


@pytest.fixture(scope="module")
def by_word(words):
    return Renderer(words)


@pytest.fixture(scope="module")
def by_byte(byte_level):
    return Renderer(byte_level)


@pytest.fixture(scope="module")
def by_piece():
    """A trained byte-pair tokenizer with ChatML, as real models have."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    specials = ["<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(["say red and say blue, user system assistant go north"] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", additional_special_tokens=specials[:1]
    )
    tokenizer.chat_template = CHATML
    return Renderer(tokenizer, template="model")


def chat(*said, **more):
    """Of (role, content) or (role, content, weight)."""
    names = ("role", "content", "weight")
    return {"messages": [dict(zip(names, message, strict=False)) for message in said], **more}


def gym(*said, item_id="webshop_6"):
    """Of (from, value, loss)."""
    return {
        "item_id": item_id,
        "conversations": [{"from": who, "loss": loss, "value": value} for who, value, loss in said],
    }


def lines(path, *items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def array(path, *items):
    path.write_text(json.dumps(items, indent=1))
    return path


def learned(renderer, found):
    """The text of the tokens with mask 1."""
    (segment,) = found.segments
    return renderer.tokenizer.decode(
        [i for i, chosen in zip(segment.ids, segment.mask, strict=True) if chosen],
        skip_special_tokens=False,
    )


def played(renderer, *turns, system="right wrong", stop=Stop.DONE, name="000001-0000"):
    """An episode as a run stores it: of (observation, sampled ids), with log-probs and versions
    that no rendering would give.
    """
    segment, recorded = Segment([], [], [], []), []
    for observation, sampled in turns:
        opening = [Message("system", system), Message("user", observation)]
        shown = (
            renderer.bridge(observation, reply_ended=True)
            if segment.ids
            else renderer.prompt(opening)
        )
        start = len(segment.ids) + len(shown)
        segment.ids.extend([*shown, *sampled])
        segment.mask.extend([0] * len(shown) + [1] * len(sampled))
        segment.logprobs.extend([0.0] * len(shown) + [-0.25] * len(sampled))
        segment.versions.extend([-1] * len(shown) + [7] * len(sampled))
        recorded.append(
            Turn(
                observation,
                renderer.reply_text(sampled),
                "act",
                0.5,
                (start, start + len(sampled)),
                info={"score": 1},
            )
        )
    task = Task("echo", "train", "train-3", "red")
    return Trajectory(
        name,
        task,
        [segment],
        recorded,
        stop,
        stop is Stop.DONE,
        horizon=5,
        seed=11,
        step=1,
        final_observation="right",
    )


def store(path, *trajectories):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(encode_trajectory(one) + b"\n" for one in trajectories))
    return path


# OpenAI's chats


def test_chat_in_words(tmp_path, by_word):
    conversation = chat(
        ("system", "right"),
        ("user", "say red"),
        ("assistant", "red"),
        ("tool", "say blue"),
        ("assistant", "blue blue"),
    )
    (found,) = read([lines(tmp_path / "a.txt", conversation)], by_word, context_tokens=ROOM)
    # right <act> say red <act> | red <end> | say blue <act> | blue blue <end>
    assert found.segments[0].ids == [7, 2, 6, 3, 2, 3, 1, 6, 4, 2, 4, 4, 1]
    assert found.segments[0].mask == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    assert found.segments[0].versions == [-1, -1, -1, -1, -1, 0, 0, -1, -1, -1, 0, 0, 0]
    assert found.segments[0].logprobs == [0.0] * 13
    assert [(t.observation, t.reply, t.action, t.reward, t.span) for t in found.turns] == [
        ("say red", "red", "red", 0.0, (5, 7)),
        ("say blue", "blue blue", "blue blue", 1.0, (10, 13)),
    ]
    assert (found.task, found.id, found.reward, found.success, found.stop) == (
        Task("chat", "data", "1"),
        "a.txt:1",
        1.0,
        True,
        Stop.DONE,
    )
    assert found.final_observation == ""


def test_chat_in_bytes(tmp_path, by_byte):
    (found,) = read(
        [str(lines(tmp_path / "a.jsonl", chat(("user", "ab"), ("assistant", "c"))))],
        by_byte,
        context_tokens=ROOM,
    )
    # a = 97 - 31 = 66, b = 67, <act> 1, c = 68, <end> 0
    assert (found.segments[0].ids, found.segments[0].mask) == ([66, 67, 1, 68, 0], [0, 0, 0, 1, 1])
    assert learned(by_byte, found) == "c<end>"


def test_weight_0_is_shown_and_not_learned(tmp_path, by_word):
    said = (
        ("user", "say red"),
        ("assistant", "wrong", 0),
        ("user", "say blue"),
        ("assistant", "blue", 1),
        ("user", "right"),
    )
    (found,) = read([lines(tmp_path / "a.jsonl", chat(*said))], by_word, context_tokens=ROOM)
    # say red <act> | wrong <end> | say blue <act> | blue <end>; the last observation is not in the
    # stream
    assert found.segments[0].ids == [6, 3, 2, 8, 1, 6, 4, 2, 4, 1]
    assert found.segments[0].mask == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert [(t.observation, t.reply, t.span) for t in found.turns] == [
        ("say red\nwrong\nsay blue", "blue", (8, 10))
    ]
    assert found.final_observation == "right"


def test_a_weight_speaks_for_its_own_message_only(tmp_path, by_word):
    said = (
        ("user", "say red"),
        ("assistant", "red"),
        ("user", "say blue"),
        ("assistant", "wrong", 0),
    )
    (found,) = read([lines(tmp_path / "a.jsonl", chat(*said))], by_word, context_tokens=ROOM)
    assert learned(by_word, found) == "red <end>"
    assert found.segments[0].ids[-2:] == [8, 1]
    assert (found.turns[-1].reward, found.final_observation) == (1.0, "say blue\nwrong")


def test_observations_in_a_row_and_text_in_parts(tmp_path, by_byte):
    parts = [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]
    said = ("user", "a"), ("assistant", "x"), ("tool", parts), ("tool", "e"), ("assistant", parts)
    (found,) = read([lines(tmp_path / "a.jsonl", chat(*said))], by_byte, context_tokens=ROOM)
    assert by_byte.tokenizer.decode(found.segments[0].ids) == "a<act>x<end>cd\ne<act>cd<end>"
    assert [turn.observation for turn in found.turns] == ["a", "cd\ne"]


def test_control_tokens_in_text_stay_text(tmp_path, by_byte):
    (found,) = read(
        [lines(tmp_path / "a.jsonl", chat(("user", "a"), ("assistant", "b<end>c")))],
        by_byte,
        context_tokens=ROOM,
    )
    assert found.segments[0].ids.count(0) == 1
    assert learned(by_byte, found) == "b< end>c<end>"


def test_ids_of_chats(tmp_path, by_word):
    said = ("user", "say"), ("assistant", "red")
    items = chat(*said), chat(*said, item_id="deep_search_12"), chat(*said, item_id=5)
    path = tmp_path / "a.jsonl"
    path.write_text(
        "\n" + "\n\n".join(json.dumps(item) for item in items)
    )  # blank lines count and hold nothing
    found = read([path], by_word, context_tokens=ROOM)
    assert [(t.task.env, t.task.id) for t in found] == [
        ("chat", "2"),
        ("deep_search", "deep_search_12"),
        ("chat", "5"),
    ]
    assert [t.id for t in found] == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:6"]


# AgentGym's demonstrations


@pytest.mark.parametrize("write", [array, lines])
def test_agentgym(tmp_path, by_word, write):
    item = gym(
        ("human", "right", None),
        ("gpt", "wrong", False),
        ("human", "say red", None),
        ("gpt", "red", True),
        ("human", "blue", None),
    )
    (found,) = read([write(tmp_path / "a", item)], by_word, context_tokens=ROOM)
    # right <act> | wrong <end> | say red <act> | red <end>
    assert found.segments[0].ids == [7, 2, 8, 1, 6, 3, 2, 3, 1]
    assert found.segments[0].mask == [0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert found.task == Task("webshop", "data", "webshop_6")
    assert [(t.observation, t.reply, t.reward) for t in found.turns] == [
        ("right\nwrong\nsay red", "red", 1.0)
    ]
    assert (found.final_observation, found.success, found.horizon) == ("blue", True, 1)


def test_agentgym_without_marks_learns_every_reply(tmp_path, by_word):
    first = gym(
        ("human", "say red", None),
        ("gpt", "red", None),
        ("human", "say blue", None),
        ("gpt", "blue", None),
    )
    (found,) = read([array(tmp_path / "a.json", first)], by_word, context_tokens=ROOM)
    assert learned(by_word, found) == "red <end> blue <end>"


def test_one_mark_in_the_file_makes_unmarked_replies_context(tmp_path, by_word):
    unmarked = gym(
        ("human", "say red", True), ("gpt", "red", None)
    )  # the mark of an observation is none
    marked = gym(
        ("human", "say blue", None),
        ("gpt", "blue", True),
        ("human", "say red", None),
        ("gpt", "red", None),
    )
    found = read([array(tmp_path / "both.json", unmarked, marked)], by_word, context_tokens=ROOM)
    assert [learned(by_word, one) for one in found] == [
        "blue <end>"
    ]  # nothing is learned from the first: it is left out
    (alone,) = read([array(tmp_path / "one.json", unmarked)], by_word, context_tokens=ROOM)
    assert learned(by_word, alone) == "red <end>"


def test_a_greeting_belongs_to_the_prompt(tmp_path, by_word):
    item = gym(("gpt", "right", None), ("human", "say red", None), ("gpt", "red", None))
    (found,) = read([array(tmp_path / "a.json", item)], by_word, context_tokens=ROOM)
    # right <end> | say red <act> | red <end>
    assert (found.segments[0].ids, found.segments[0].mask) == (
        [7, 1, 6, 3, 2, 3, 1],
        [0, 0, 0, 0, 0, 1, 1],
    )
    assert [turn.observation for turn in found.turns] == ["right\nsay red"]


def test_real_templates_render_what_the_template_would(tmp_path, by_piece):
    said = (
        ("system", "go"),
        ("user", "say red"),
        ("assistant", "red and blue"),
        ("user", "go north"),
        ("assistant", "north"),
    )
    (found,) = read([lines(tmp_path / "a.jsonl", chat(*said))], by_piece, context_tokens=ROOM)
    whole = by_piece.tokenizer.apply_chat_template(
        [{"role": r, "content": c} for r, c in said], tokenize=False
    )
    assert found.segments[0].ids == by_piece.tokenizer.encode(whole.removesuffix("\n"))
    assert learned(by_piece, found) == "red and blue<|im_end|>north<|im_end|>"


# Anything at all

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=8)
ROUNDS = st.lists(
    st.tuples(st.lists(TEXT, min_size=1, max_size=3), TEXT, st.sampled_from([None, 0, 1])),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=100)
@given(system=st.none() | TEXT, rounds=ROUNDS, tail=st.lists(TEXT, max_size=2))
def test_the_learned_tokens_are_the_learned_replies(
    tmp_path_factory, by_byte, by_piece, system, rounds, tail
):
    said = [] if system is None else [("system", system)]
    for observations, reply, weight in rounds:
        said += [("user", text) for text in observations] + [("assistant", reply, weight)]
    said += [("user", text) for text in tail]
    replies = [reply for _, reply, weight in rounds if weight != 0]
    path = lines(tmp_path_factory.mktemp("any") / "a.jsonl", chat(*said))
    for renderer, end in ((by_byte, "<end>"), (by_piece, "<|im_end|>")):
        found = read([path], renderer, context_tokens=ROOM * 10)
        assert len(found) == bool(replies)
        for one in found:
            (segment,) = one.segments
            assert learned(renderer, one) == "".join(reply + end for reply in replies)
            assert [
                renderer.reply_text(segment.ids[slice(*turn.span)]) for turn in one.turns
            ] == replies
            assert sum(segment.mask) == sum(
                end - start for start, end in (turn.span for turn in one.turns)
            )
            assert one.final_observation.endswith("\n".join(tail))


# Our own episodes


def test_own_tokens_are_kept_exactly(tmp_path, by_word, caplog):
    # <act> inside a reply: its text "red <act> blue" would never be encoded to these tokens again
    one = played(by_word, ("say red", [3, 2, 4, 1]), ("say purple", [4, 1]))
    assert one.turns[0].reply == "red <act> blue"
    assert by_word.reply_ids(one.turns[0].reply) != [3, 2, 4, 1]
    assert read([store(tmp_path / "a.jsonl", one)], by_word, context_tokens=ROOM) == [one]
    assert not caplog.records


@pytest.mark.parametrize("name", ["by_byte", "by_piece"])
def test_own_tokens_of_any_tokenizer_are_kept(tmp_path, request, caplog, name):
    renderer = request.getfixturevalue(name)
    cut = renderer.reply_ids("red  and é")[:-1]
    text = "say  red\n\n<end> <|im_end|> é  "
    ended = played(
        renderer,
        (text, renderer.reply_ids(" north ")),
        ("", renderer.reply_ids("blue")),
        system="go\nnorth",
    )
    cut = played(renderer, ("say red", cut), stop=Stop.LENGTH)
    assert read([store(tmp_path / "a.jsonl", ended, cut)], renderer, context_tokens=ROOM) == [
        ended,
        cut,
    ]
    assert not caplog.records


def test_own_tokens_over_several_segments_are_kept(tmp_path, by_word):
    first, second = played(by_word, ("say red", [3, 1])), played(by_word, ("say blue", [4, 1]))
    both = replace(
        first,
        segments=first.segments + second.segments,
        turns=[*first.turns, replace(second.turns[0], segment=1)],
    )
    assert read([store(tmp_path / "a.jsonl", both)], by_word, context_tokens=ROOM) == [both]


def test_episodes_of_another_tokenizer_are_rendered_anew(tmp_path, by_word, by_byte, caplog):
    ours = played(by_word, ("say red", [3, 1]))
    theirs = played(
        by_byte, ("say blue", by_byte.reply_ids("blue")), ("say red", by_byte.reply_ids("red"))
    )
    kept, anew = read([store(tmp_path / "a.jsonl", ours, theirs)], by_word, context_tokens=ROOM)
    assert kept == ours
    # say blue <act> | blue <end> | say red <act> | red <end>; the system text was not stored as
    # text
    assert (anew.segments[0].ids, anew.segments[0].mask) == (
        [6, 4, 2, 4, 1, 6, 3, 2, 3, 1],
        [0, 0, 0, 1, 1, 0, 0, 0, 1, 1],
    )
    assert (anew.segments[0].versions, anew.segments[0].logprobs) == (
        [-1, -1, -1, 0, 0, -1, -1, -1, 0, 0],
        [0.0] * 10,
    )
    assert [turn.span for turn in anew.turns] == [(3, 5), (8, 10)]
    without_tokens = [replace(turn, span=(0, 0)) for turn in anew.turns]
    assert replace(anew, segments=[], turns=without_tokens) == replace(
        theirs, segments=[], turns=[replace(turn, span=(0, 0)) for turn in theirs.turns]
    )
    (warning,) = caplog.messages
    assert "1 of 2 episodes" in warning


def test_same_replies_do_not_make_the_same_tokenizer(tmp_path, by_word, caplog):
    """Both read id 3 as "red" and all ids are known; only what was shown reads differently."""
    other = Renderer(word_tokenizer(["red", "blue", "green", "wrong", "right", "say"]))
    theirs = played(other, ("say red", [3, 1]))
    assert by_word.reply_text([3, 1]) == theirs.turns[0].reply
    (anew,) = read([store(tmp_path / "a.jsonl", theirs)], by_word, context_tokens=ROOM)
    assert anew.segments[0].ids == [6, 3, 2, 3, 1]
    assert len(caplog.messages) == 1


def test_same_observations_do_not_make_the_same_tokenizer(tmp_path, by_word):
    other = Renderer(word_tokenizer(["blue", "red", "green", "say", "right", "wrong"]))
    theirs = played(other, ("say green", other.reply_ids("red")))  # 4 there, which is "blue" here
    (anew,) = read([store(tmp_path / "a.jsonl", theirs)], by_word, context_tokens=ROOM)
    assert anew.segments[0].ids == [6, 5, 2, 3, 1]


def test_an_observation_is_looked_for_where_it_was_shown(tmp_path, by_word):
    """right and wrong change places: the second observation reads as "right", but the opening reads
    as "wrong".
    """
    other = Renderer(word_tokenizer(["red", "blue", "green", "say", "wrong", "right"]))
    theirs = played(other, ("say red", [3, 1]), ("wrong", [3, 1]), system="right")
    (anew,) = read([store(tmp_path / "a.jsonl", theirs)], by_word, context_tokens=ROOM)
    assert anew.segments[0].ids == [6, 3, 2, 3, 1, 8, 2, 3, 1]


def test_unknown_ids_are_rendered_anew(tmp_path, by_word):
    larger = Renderer(word_tokenizer(["red", "blue", "green", "say", "right", "wrong", "purple"]))
    theirs = played(larger, ("say red", [3, 1]), system="purple")
    assert max(theirs.segments[0].ids) == len(by_word.tokenizer)
    (anew,) = read([store(tmp_path / "a.jsonl", theirs)], by_word, context_tokens=ROOM)
    assert anew.segments[0].ids == [6, 3, 2, 3, 1]


def test_a_cut_reply_is_rendered_without_an_end(tmp_path, by_word, by_byte):
    theirs = played(
        by_byte,
        ("say blue", by_byte.reply_ids("blue")),
        ("say", by_byte.reply_ids("red red")[:-1]),
        stop=Stop.LENGTH,
    )
    (anew,) = read([store(tmp_path / "a.jsonl", theirs)], by_word, context_tokens=ROOM)
    assert learned(by_word, anew) == "blue <end> red red"
    assert anew.turns[-1].span == (7, 9)


def test_faults_and_episodes_without_replies_are_left_out(tmp_path, by_word):
    good = played(by_word, ("say red", [3, 1]))
    faults = [replace(good, stop=stop) for stop in (Stop.ENV_FAULT, Stop.TIMEOUT, Stop.CANCELLED)]
    silent = replace(good, segments=[], turns=[], stop=Stop.CONTEXT)
    assert read(
        [store(tmp_path / "a.jsonl", *faults, silent, good)], by_word, context_tokens=ROOM
    ) == [good]


def test_a_run_folder_gives_its_training_episodes_in_order(tmp_path, by_word):
    first, second, held_out = (
        played(by_word, ("say red", [3, 1]), name=name) for name in ("first", "second", "held out")
    )
    (tmp_path / "config.toml").write_text("")
    folder = tmp_path / "trajectories"
    store(folder / "step-000010.jsonl", second)
    store(folder / "step-000002.jsonl", first)
    held = store(folder / "eval-final.jsonl", held_out)
    assert [t.id for t in read([tmp_path], by_word, context_tokens=ROOM)] == ["first", "second"]
    assert [t.id for t in read([folder], by_word, context_tokens=ROOM)] == ["first", "second"]
    assert [
        t.id for t in read([held, folder / "step-000010.jsonl"], by_word, context_tokens=ROOM)
    ] == ["held out", "second"]


def test_a_line_that_a_crash_cut_is_passed_over(tmp_path, by_word):
    one = played(by_word, ("say red", [3, 1]))
    path = store(tmp_path / "a.jsonl", one, one)
    path.write_bytes(path.read_bytes()[:-20])
    assert read([path], by_word, context_tokens=ROOM) == [one]


def test_what_is_too_long_is_dropped_and_counted(tmp_path, by_word, caplog):
    short, long = (
        chat(("user", "say"), ("assistant", "red")),
        chat(("user", "say"), ("assistant", "red red")),
    )
    path = lines(tmp_path / "a.jsonl", long, short, long)
    # say <act> red <end> is 4 tokens, say <act> red red <end> is 5
    assert len(read([path], by_word, context_tokens=5)) == 3
    assert not caplog.records
    assert [t.task.id for t in read([path], by_word, context_tokens=4)] == ["2"]
    assert caplog.messages == [f"{path}: dropped 2 of 3 conversations: longer than 4 tokens"]
    own = store(tmp_path / "own.jsonl", played(by_word, ("say red", [3, 1])))
    with pytest.raises(DataError, match="none of 1 conversations fits"):
        read([own], by_word, context_tokens=6)  # right wrong <act> say red <act> red <end>: 8


# What is refused


@pytest.mark.parametrize(
    ("content", "place", "reason"),
    [
        ("", "", "the file is empty; expected a run folder"),
        (" \n\n", "", "the file is empty"),
        ("[]", "", "the file is empty"),
        (
            "hello",
            "line 1: ",
            'expected JSON: .*AgentGym items with "conversations", or OpenAI chats with '
            '"messages"; .*malformed',
        ),
        ("[{]", "", "expected JSON"),
        ('{"messages": [}', "line 1: ", "expected JSON"),
        (
            '{"prompt": "a", "answer": "b"}',
            "line 1: ",
            "expected a run folder, .*; came an object with prompt, answer$",
        ),
        ("{}", "line 1: ", "came an object with nothing in it"),
        ("[3]", "item 1: ", "came int"),
        ('{"messages": 3}', "line 1: ", r"Expected `array`, got `int` - at `\$.messages`"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, by_word, content, place, reason):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=f"^{path}: {place}.*{reason}") as caught:
        read([path], by_word, context_tokens=ROOM)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path, by_word):
    (tmp_path / "a").write_bytes(b'{"messages": "\xff"}')
    with pytest.raises(DataError, match="a: line 1: expected JSON"):
        read([tmp_path / "a"], by_word, context_tokens=ROOM)


GOOD = chat(("user", "say"), ("assistant", "red"))
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
IMAGE = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (chat(("user", "say")), "expected at least one reply .* there is none in 1 messages"),
        (chat(), "there is none in 0 messages"),
        (
            chat(("user", "a"), ("system", "b"), ("assistant", "c")),
            "message 2: .*system message only at the start.* after .* 'user'",
        ),
        (
            chat(("system", "a"), ("system", "b"), ("user", "c"), ("assistant", "d")),
            "message 2: .*system message only at the start",
        ),
        (
            chat(("user", "a"), ("assistant", "b"), ("assistant", "c")),
            "message 3: .*two replies in a row",
        ),
        (
            chat(("user", "a"), ("critic", "b")),
            r"Invalid enum value 'critic' - at `\$.messages\[1\].role`",
        ),
        (chat(("user", "a"), ("assistant", "b", 2)), r"Invalid enum value 2 .*weight"),
        (
            chat(("user", IMAGE), ("assistant", "b")),
            "expected only text in content, came parts of type image_url",
        ),
        (
            chat(("user", None), ("assistant", "b")),
            "expected content, came a message of role 'user' without it",
        ),
        (
            {"messages": [{"role": "user", "content": "a"}, CALL]},
            "expected actions written out in content, came tool_calls",
        ),
        (
            {"messages": [{"role": "user", "content": "a"}, CALL | {"content": "b"}]},
            "came tool_calls",
        ),
        (gym(("human", "a", None), ("gpt", "b", True)), "missing required field `messages`"),
    ],
)
def test_conversations_that_cannot_be_rendered(tmp_path, by_word, item, reason):
    path = lines(tmp_path / "a.jsonl", GOOD, item)
    with pytest.raises(DataError, match=f"^{path}: line 2: .*{reason}") as caught:
        read([path], by_word, context_tokens=ROOM)
    assert "\n" not in str(caught.value)


def test_agentgym_errors_name_the_item(tmp_path, by_word):
    good = gym(("human", "say", None), ("gpt", "red", True))
    path = array(tmp_path / "a.json", good, gym(("human", "say", None), ("robot", "red", True)))
    with pytest.raises(DataError, match=f"^{path}: item 2: Invalid enum value 'robot'"):
        read([path], by_word, context_tokens=ROOM)


def test_a_template_that_refuses_a_greeting(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('a user must "
        "begin') }}{% endif %}" + tokenizer.chat_template
    )
    path = lines(
        tmp_path / "a.jsonl", chat(("assistant", "hello"), ("user", "a"), ("assistant", "b"))
    )
    with pytest.raises(DataError, match=f"^{path}: line 1: a user must begin"):
        read([path], Renderer(tokenizer, template="model"), context_tokens=ROOM)


def test_places_that_hold_nothing(tmp_path, by_word):
    with pytest.raises(
        DataError, match=f"^{tmp_path}/none: there is no such file or folder; expected a run folder"
    ):
        read([tmp_path / "none"], by_word, context_tokens=ROOM)
    store(tmp_path / "eval-final.jsonl", played(by_word, ("say red", [3, 1])))
    with pytest.raises(
        DataError,
        match=r"expected \*.json or \*.jsonl, there are no such files \(eval-\* are held out "
        r"unless named\)",
    ):
        read([tmp_path], by_word, context_tokens=ROOM)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(DataError, match=f"^{tmp_path}/trajectories: expected step-\\*.jsonl"):
        read([tmp_path], by_word, context_tokens=ROOM)


def test_trajectory_files_that_cannot_be_read(tmp_path, by_word):
    path = store(tmp_path / "a.jsonl", played(by_word, ("say red", [3, 1])))
    good = path.read_text()
    path.write_text(good + good.replace('"format":1', '"format":2'))
    with pytest.raises(
        DataError,
        match=f"^{path}: line 2: expected a Palestra trajectory; trajectory format 2; this "
        "version reads format 1",
    ):
        read([path], by_word, context_tokens=ROOM)
    path.write_text(good + '{"format": 1}\n')
    with pytest.raises(DataError, match=f"^{path}: line 2: .*missing required field"):
        read([path], by_word, context_tokens=ROOM)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t["segments"][0]["mask"].pop(), "equally long"),
        (lambda t: t["segments"][0]["mask"].__setitem__(0, 7), "a mask of 0 and 1"),
        (lambda t: t["segments"][0]["ids"].__setitem__(0, -1), "no negative ids"),
        (lambda t: t["turns"][0].__setitem__("span", [0, 1]), "not where its mask is 1"),
        (lambda t: t["turns"].clear(), "not where its mask is 1"),
        (
            lambda t: t["turns"].append(t["turns"][0] | {"segment": 5}),
            "a segment that is not there",
        ),
    ],
)
def test_episodes_whose_parts_disagree_are_refused(tmp_path, by_word, change, reason):
    path = store(
        tmp_path / "own.jsonl",
        played(by_word, ("say red", [3, 1])),
        played(by_word, ("say red", [3, 1])),
    )
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    change(second)
    path.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    with pytest.raises(DataError, match=f"own.jsonl: line 2: .*{reason}"):
        read([path], by_word, context_tokens=ROOM)
