import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from palestra.core.action_formats import Block, Plain, ReAct, Tags

LINE = (
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), min_size=1)
    .map(str.strip)
    .filter(bool)
)


@given(thought=LINE, action=LINE)
def test_react_reads_what_it_writes(thought, action):
    assert ReAct().parse(ReAct().write(thought, action)).action == action


@given(action=LINE)
def test_plain_reads_what_it_writes(action):
    assert Plain().parse(Plain().write("", action)).action == action


@given(
    thought=LINE,
    action=LINE
    | st.builds("{}[{}]".format, st.sampled_from(["search", "answer", "think", "action"]), LINE),
)
def test_tags_read_what_they_write(thought, action):
    assume("<" not in thought + action)
    assert Tags().parse(Tags().write(thought, action)).action == action


@given(thought=LINE, action=LINE)
def test_blocks_read_what_they_write(thought, action):
    assume("`" not in thought + action)
    assert Block().parse(Block().write(thought, action)).action == action


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("click [1]", "there was none"), ("```a``` ```b```", "there were 2"), ("``` ```", "nothing")],
)
def test_blocks_are_strict_in_what_counts(reply, reason):
    assert Block().parse(reply).action is None
    assert reason in Block().parse(reply).error


@given(st.text())
def test_any_text_is_read_or_refused_with_a_reason(reply):
    for format_ in (ReAct(), Plain(), Tags(), Block()):
        parsed = format_.parse(reply)
        assert (parsed.action is None) == bool(parsed.error)
        assert parsed.action is None or parsed.action.strip() == parsed.action != ""


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("Thought: I need wood.\nAction: get 1 log", "get 1 log"),
        ("Thought: x\n\n  Action :   get 1 log  \n\n", "get 1 log"),
        ("Action: inventory", "inventory"),
        ("I think.\nAction:\n  inventory", "inventory"),
        ("Thought: the Action: is inline\nAction: go", "go"),
    ],
)
def test_react_is_forgiving_to_whitespace(reply, action):
    assert ReAct().parse(reply).action == action


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no line that begins with 'Action:'"),
        ("Thought: hm", "no line that begins with 'Action:'"),
        ("action: go", "no line that begins with 'Action:'"),
        ("Thought: x\nAction: a\nAction: b", "there were 2"),
        ("Thought: x\nAction:   ", "nothing"),
        ("Thought: x\nAction: a\nObservation: I made this up", "one line"),
    ],
)
def test_react_is_strict_in_what_counts(reply, reason):
    parsed = ReAct().parse(reply)
    assert parsed.action is None
    assert reason in parsed.error


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<think>Who was it?</think>\n<search>salt harvest</search>", "search[salt harvest]"),
        ("<search>\n salt harvest </search>\n", "search[salt harvest]"),
        ("I will look. <search>a < b</search>", "search[a < b]"),
        ("<think>not <search>this</search></think><answer>1911</answer>", "answer[1911]"),
        ("<think>go</think><action>get 1 log</action>", "get 1 log"),
        ("<next></next>", "next[]"),
    ],
)
def test_tags_name_the_action(reply, action):
    assert Tags().parse(reply).action == action


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "there was no tag"),
        ("salt harvest", "there was no tag"),
        ("<think>I never act</think>", "there was no tag"),
        ("<think>I never stop", "there was <think>"),
        ("<information>made up</information>", "there was <information>"),
        ("<search>salt", "Expected </search>"),
        ("<search>salt</answer>", "Expected </search>"),
        ("<search>a</search><search>b</search>", "one action at a time"),
        ("<search>a</search><information>made up</information>", "nothing after </search>"),
        ("<action> </action>", "there was nothing"),
    ],
)
def test_tags_are_strict_in_what_counts(reply, reason):
    parsed = Tags().parse(reply)
    assert parsed.action is None
    assert reason in parsed.error


def test_tags_take_no_time_over_a_long_reply():
    assert Tags().parse("<a>" * 50_000).action is None
