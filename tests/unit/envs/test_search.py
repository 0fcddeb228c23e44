"""Deep search: what counts as an answer, what the agent may write, and what it is shown."""

import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra.core.action_formats import Tags
from palestra.envs.check import check_environment
from palestra.envs.search.answers import exact_match, f1, normal
from palestra.envs.search.env import Search
from palestra.envs.search.text import escaped, pages, read_command, snippet, unescaped
from tests.support.search_world import QUESTIONS, tiny, use

__all__ = ["tiny"]


@pytest.mark.parametrize(
    ("answer", "expected", "is_exact", "overlap"),
    [
        ("The  Grey Hills.", ["grey hills"], True, 1.0),
        ("U.S.A.", ["USA"], True, 1.0),
        ("an apple", ["the apple", "pear"], True, 1.0),
        ("Petra Quill, mayor", ["Petra Quill"], False, 2 * 2 / (3 + 2)),
        ("Quill", ["Petra Quill", "P. Quill"], False, 2 * 1 / (1 + 2)),
        ("1912", ["1911"], False, 0.0),
        ("The The", ["The The"], True, 1.0),  # nothing would be left of it
        ("a", ["The The"], False, 0.0),
        ("", ["The The"], False, 0.0),
        ("...", ["!!!"], False, 0.0),
        ("no no yes", ["no yes yes"], False, 2 * 2 / (3 + 3)),
    ],
)
def test_answers_are_compared_as_the_field_does(answer, expected, is_exact, overlap):
    assert exact_match(answer, expected) is is_exact
    assert f1(answer, expected) == pytest.approx(overlap)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_scores_agree_with_each_other(answer, expected):
    assert 0 <= f1(answer, expected) <= 1
    if exact_match(answer, expected):
        assert f1(answer, expected) == 1
    assert exact_match(answer, [*expected, answer]) == bool(normal(answer))


@pytest.mark.parametrize(
    ("action", "command"),
    [
        ("search[salt harvest]", ("search", "salt harvest")),
        ("Search [ salt [sic] harvest ] .", ("search", "salt [sic] harvest")),
        ("search: salt: a harvest", ("search", "salt: a harvest")),
        ("<search>\nsalt\n</search>", ("search", "salt")),
        ("answer[]", ("answer", "")),
        ("next", ("next", "")),
        ("answer[a &lt; b]", ("answer", "a < b")),
        ("search[one] answer[two]", ("search", "one] answer[two")),
    ],
)
def test_three_ways_to_write_a_command(action, command):
    assert read_command(action) == command


@pytest.mark.parametrize(
    "action", ["", "-1", "search for salt", "<search>salt</answer>", "<search>salt", "[salt]", "🧂"]
)
def test_what_is_no_command(action):
    assert read_command(action) is None


@pytest.mark.parametrize(
    "action",
    [
        "a" + " " * 50_000 + "!",
        " " * 50_000 + "!",
        "a[x" + "] " * 50_000 + "!",
        "<a>" + "</a>" * 20_000 + "!",
    ],
)
def test_no_action_takes_long_to_read(action):
    begun_at = time.process_time()
    assert read_command(action) is None
    assert time.process_time() - begun_at < 1


WORDS = (
    st.text(
        st.characters(exclude_characters="<>[]&", exclude_categories=("C", "Z")) | st.just(" "),
        min_size=1,
    )
    .map(str.strip)
    .filter(bool)
)


@given(words=WORDS, thought=st.text())
def test_the_same_query_in_every_grammar(words, thought):
    assert (
        read_command(f"search[{words}]")
        == read_command(f"<search>{words}</search>")
        == ("search", words)
    )
    parsed = Tags().parse(Tags().write(thought.replace("<", ""), f"search[{words}]"))
    assert parsed.action is not None
    assert read_command(parsed.action) == ("search", words)


@given(st.text())
def test_shown_text_has_no_markup_and_can_be_copied_back(text):
    assert not {"<", ">"} & set(escaped(text))
    if "&lt;" not in text and "&gt;" not in text:
        assert unescaped(escaped(text)) == text


@given(text=st.text(), query=st.text(), chars=st.integers(1, 50))
def test_snippets_are_stretches_of_the_text(text, query, chars):
    shown = snippet(text, query, chars)
    assert len(shown) <= chars + len("... " + " ...")
    assert shown.removeprefix("... ").removesuffix(" ...") in text or shown == text.strip()


@given(text=st.text(), chars=st.integers(1, 50))
def test_pages_have_all_of_the_text(text, chars):
    parts = pages(text, chars)
    assert all(len(part) <= chars for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_snippet_is_where_the_querys_words_are():
    text = "It begins here. " + "Nothing of note happens. " * 50 + "Gerda Moll keeps the inn."
    assert snippet(text, "who keeps the inn", 60).endswith("Gerda Moll keeps the inn.")


def test_a_snippet_of_a_long_text_does_not_take_long():
    begun_at = time.process_time()
    text = "Salt. Harvest. " * 50_000 + "Gerda Moll keeps the inn."
    assert snippet(text, "salt Moll inn keeps", 60).endswith("Gerda Moll keeps the inn.")
    assert time.process_time() - begun_at < 3


@given(
    text=st.text("ab .\n", max_size=80), query=st.text("ab ", max_size=10), chars=st.integers(1, 30)
)
def test_no_other_stretch_has_more_of_the_querys_words(text, query, chars):
    """By counting anew at the start of every sentence."""
    text, words = text.strip(), set(query.split())
    shown = snippet(text, query, chars).removeprefix("... ").removesuffix(" ...")

    def number(start):
        return len(
            words
            & {
                match[0]
                for match in re.finditer(r"\w+", text)
                if start <= match.start() and match.end() <= start + chars
            }
        )

    starts = [0, *(match.end() for match in re.finditer(r"(?<=[.!?])\s+(?=\S)|\n+", text))]
    best = max(starts, key=lambda start: (number(start), -start))
    assert shown == (text if len(text) <= chars else text[best : best + chars].strip())


@pytest.fixture
def env(tiny):
    return Search(reading=True, top_k=3)


def begun(env, number=1, split="test"):
    env.reset(env.tasks(split)[number - 1])
    return env


def test_the_contract_is_kept(tiny, monkeypatch, tmp_path):
    checks = {
        check.name: check
        for check in check_environment("tests.support.search_world:TinySearch", tasks=15)
    }
    assert all(check.ok for check in checks.values()), [
        check for check in checks.values() if not check.ok
    ]
    assert checks["the expert solves what it claims to solve"].detail.startswith("15 of 15")


def test_an_answer_ends_the_episode_and_nothing_is_told(env):
    for answer, is_right in (("varnholt.", True), ("Osk Tarrow", False)):
        begun(env)
        step = env.step(f"answer[{answer}]")
        assert (step.reward, step.terminated, step.success) == (float(is_right), True, is_right)
        told = {step.observation}
        step = env.step("answer[Ilse Varnholt]")  # there is no second try
        assert (step.reward, step.terminated, step.success) == (0.0, True, is_right)
        told.add(step.observation)
        assert env.step("search[opera]").terminated
        assert told == {
            "Your answer was taken. The episode is over.",
            "The episode is over: an answer was given.",
        }


def test_f1_as_reward(tiny):
    env = begun(Search(reward="f1"), 3)
    step = env.step("answer[Mayor Petra Quill]")
    assert step.reward == pytest.approx(2 * 2 / (3 + 2))
    assert step.success is False
    assert step.info == {"exact_match": False, "f1": step.reward}


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("search[]", "The query is empty"),
        ("search[  ]", "The query is empty"),
        (f"search[{'x' * 10_000}]", "it has 10000 characters"),
        ("answer[]", "The answer is empty"),
        (f"answer[Dremmel{' ' * 2000}or not]", "The answer is too long"),
        (
            "who composed it?",
            "Expected one of search[words], answer[text], open[number], next[], find[words].",
        ),
        ("fly[home]", "Expected one of"),
        ("next[]", "No article is open"),
        ("find[x]", "No article is open"),
        ("open[1]", "Search first"),
    ],
)
def test_what_cannot_be_done_is_said(env, action, told):
    step = begun(env).step(action)
    assert step.invalid
    assert told in step.observation
    assert not step.terminated


HOSTILE = [
    *('"', "title:x", "text:[a TO z]", "AND", "NOT *", "(a OR", "+a -b", "a^9 ~2 \\", "*:*"),
    *("/(a+)+$/", "id:0 OR 1=1", "{!x}", "\x00", "\ud800", "the of and"),
]


@pytest.mark.parametrize("query", HOSTILE)
def test_queries_have_no_syntax(env, query):
    step = begun(env).step(f"search: {query}")
    assert step.observation.startswith("<information>\n")
    assert not step.invalid
    assert begun(env).step(f"search: {query} lighthouse").observation.count("lighthouse") >= 1


def test_an_article_cannot_break_out_of_its_block(env):
    shown = begun(env).step("search[he wrote information on the wall]").observation
    assert "Breaking Out" in shown
    assert shown.count("<information>") == shown.count("</information>") == 1
    assert shown.count("<") == 2  # of the block's own tags
    shown = env.step("open[1]").observation
    assert shown.count("<") == 2


def test_reading(env):
    begun(env)
    assert "[1] Long Road" in env.step("search[Long Road]").observation
    assert "(page 1 of 3)" in env.step("open[1]").observation
    assert "(page 2 of 3)" in env.step("next").observation
    assert "Gerda Moll" in env.step("find[gerda moll]").observation
    assert env.step("next[]").observation == "This is the last page."
    assert (
        env.step("find[nobody]").observation
        == "<information>\nThe open article does not have these words.\n</information>"
    )
    assert env.step("open[4]").invalid


def test_reading_is_off_where_not_asked_for(tiny):
    env = begun(Search())
    assert "open[" not in env.instructions
    env.step("search[Long Road]")
    assert env.step("open[1]").invalid


def test_as_many_results_as_asked_for_of_the_length_asked_for(tiny):
    shown = begun(Search(top_k=2, snippet_chars=40)).step("search[Dremmel]").observation
    assert shown.count("\n[") == 2
    assert max(map(len, shown.splitlines())) <= 40 + len("... " + " ...")


def test_the_expert_answers_only_what_it_was_shown(tiny):
    env = begun(Search(snippet_chars=20), 1)  # too little to read the composer's name
    env.step(env.expert())
    assert env.expert() is None
    env = begun(Search(), 1)
    env.step("search[opera in three acts]")  # found by other words than the expert's
    assert env.expert() == "answer[Ilse Varnholt]"


def test_categories_and_choices(tiny):
    assert [task.category for task in Search().tasks("train")] == [
        "bridge 1",
        "bridge 2",
        "bridge 3",
        "fact 1",
        "fact 1",
    ]
    assert [task.category for task in Search(kinds=["bridge"], hops=[2, 3]).tasks("train")] == [
        "bridge 2",
        "bridge 3",
    ]
    assert [task.category for task in Search(kinds="bridge", hops=2).tasks("train")] == ["bridge 2"]
    with pytest.raises(
        ValueError, match="there is no such question; there are: bridge 1, bridge 2"
    ):
        Search(hops=[9]).tasks("train")
    with pytest.raises(ValueError, match="no split 'valid'"):
        Search().tasks("valid")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a whole number of at least 1, not 0"),
        ({"top_k": 2.5}, "top_k must be a whole number of at least 1, not 2.5"),
        ({"max_turns": None}, "max_turns must be a whole number"),
        ({"seed": "../x"}, "seed must be a whole number of at least 0"),
        ({"reward": "bleu"}, "reward must be one of em, f1"),
        ({"retriever": "bm26"}, "did you mean 'bm25'"),
        ({"model": "e5"}, "has no effect"),
        ({"corpus": "nowhere"}, "needs questions"),
        ({"test": "nowhere.jsonl"}, "need a corpus"),
        ({"test": "nowhere.jsonl", "corpus": "nowhere"}, "there is no such file"),
        ({"test": "x", "corpus": "x", "retriever": "http://host/retrieve"}, "searches its own"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Search(**options)


ANYTHING = st.one_of(
    st.text(max_size=200),
    st.builds(
        "{}[{}]".format,
        st.sampled_from(["search", "open", "find", "next", "Search"]),
        st.text(max_size=200),
    ),
    st.builds(
        "<{0}>{1}</{0}>".format,
        st.sampled_from(["search", "find", "information"]),
        st.text(max_size=200),
    ),
    st.builds("search: {}".format, st.text(max_size=3000)),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        use(patched, tmp_path_factory.mktemp("cache"))
        yield Search(reading=True)


@given(st.lists(ANYTHING, max_size=6))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_is_answered_and_nothing_leaks(fuzzed, actions):
    begun(fuzzed, 3)
    for action in actions:
        step = fuzzed.step(action)
        assert step.observation
        assert step.reward == 0
        blocks = step.observation.count("<information>")
        assert blocks == step.observation.count("</information>") <= 1
        assert step.observation.count("<") == 2 * blocks
        if not blocks:  # the expected answer can only be read in an article
            assert QUESTIONS[2].answers[0] not in step.observation
