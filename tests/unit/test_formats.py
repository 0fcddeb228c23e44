import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.agents.formats import Plain, ReAct

LINE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), min_size=1).map(str.strip).filter(bool)


@given(thought=LINE, action=LINE)
def test_react_reads_what_it_writes(thought, action):
    assert ReAct().parse(ReAct().write(thought, action)).action == action


@given(action=LINE)
def test_plain_reads_what_it_writes(action):
    assert Plain().parse(Plain().write("", action)).action == action


@given(st.text())
def test_any_text_is_read_or_refused_with_a_reason(reply):
    for format_ in (ReAct(), Plain()):
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
        ("", "no 'Action:'"),
        ("Thought: hm", "no 'Action:'"),
        ("action: go", "no 'Action:'"),
        ("Thought: x\nAction: a\nAction: b", "there were 2"),
        ("Thought: x\nAction:   ", "nothing"),
        ("Thought: x\nAction: a\nObservation: I made this up", "one line"),
    ],
)
def test_react_is_strict_in_what_counts(reply, reason):
    parsed = ReAct().parse(reply)
    assert parsed.action is None
    assert reason in parsed.error
