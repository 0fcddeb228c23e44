"""A process in which strangers' work is tried: whatever it does there costs one answer."""

import os
import threading
import time

import pytest

from palestra.core.confined import Confined, Overran, Refused, in_one_line

LIMITS = {"seconds": 20, "memory_mb": 500}


@pytest.fixture(scope="module")
def confined():
    made = Confined("tests.hostile.confined_targets:answer")
    yield made
    made.close()


def test_questions_are_answered_in_one_process(confined):
    question = {"a": [1, 2.5, None, "ü\ud800"]}
    assert confined.ask(["echo", question], **LIMITS) == question
    child = confined._child.pid
    assert confined.ask(["echo", "x" * 1_000_000], **LIMITS) == "x" * 1_000_000
    assert confined._child.pid == child != os.getpid()


def test_what_hangs_is_ended(confined):
    began = time.monotonic()
    with pytest.raises(Overran, match="it took more than 0.5 s"):
        confined.ask(["hang", None], seconds=0.5, memory_mb=500)
    assert time.monotonic() - began < 15
    assert confined.ask(["echo", 1], **LIMITS) == 1


def test_what_dies_is_begun_anew(confined):
    with pytest.raises(Overran, match="exit code 7"):
        confined.ask(["die", None], **LIMITS)
    assert confined.ask(["echo", 1], **LIMITS) == 1


@pytest.mark.parametrize(
    ("question", "because"),
    [("fill", "it needs more than 500 MB"), ("stop", "KeyboardInterrupt: not for it")],
)
def test_what_raises_is_refused(confined, question, because):
    with pytest.raises(Refused, match=because):
        confined.ask([question, None], **LIMITS)
    assert confined.ask(["echo", 1], **LIMITS) == 1


def test_nothing_is_written(confined, tmp_path):
    with pytest.raises(Refused, match="File too large"):
        confined.ask(["write", str(tmp_path / "x")], **LIMITS)
    assert not (tmp_path / "x").exists() or not (tmp_path / "x").read_bytes()


def test_threads_get_their_own_answers(confined):
    answers = {}

    def ask(number):
        answers[number] = confined.ask(["echo", number], **LIMITS)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(16)}


class Mute(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n\n first \n second"), "first"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(""), "ValueError"),
        (ValueError("\x1b[31mred\x07"), "\ufffd[31mred\ufffd"),
        (ValueError("x" * 999), "x" * 300 + "..."),
        (Mute(), "Mute"),
    ],
)
def test_errors_in_one_line(error, line):
    assert in_one_line(error) == line
