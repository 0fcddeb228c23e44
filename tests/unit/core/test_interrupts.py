"""Where a signal takes effect, and that several ranks leave at the same place."""

import signal

import pytest

from palestra.core.interrupts import Interrupted, Interrupts


def test_what_is_held_is_done_whole():
    interrupts, done = Interrupts(), []

    def update():
        with interrupts.held():
            interrupts._on_signal(signal.SIGTERM, None)
            done.append("all of it")

    with pytest.raises(Interrupted, match="SIGTERM") as left:
        update()
    assert done == ["all of it"]
    assert left.value.exit_code == 143


def test_what_is_allowed_is_abandoned_at_once_or_not_begun():
    interrupts, done = Interrupts(), []

    def play(comes=0):
        with interrupts.allowed():
            done.append("begun")
            if comes:
                interrupts._on_signal(comes, None)
            done.append("ended")

    def train():
        with interrupts.held():
            play()
            with pytest.raises(Interrupted, match="SIGINT"):
                play(signal.SIGINT)
            with interrupts.saving():
                done.append("saved")
            with pytest.raises(Interrupted, match="SIGINT"):
                play()

    with pytest.raises(Interrupted):
        train()
    assert done == ["begun", "ended", "begun", "saved"]


def test_a_signal_that_comes_while_ranks_ask_each_other_is_not_lost():
    """The others have not heard of it, so nobody leaves yet; the next time all do."""
    interrupts, said, played = Interrupts(), [], []

    def ask_all(asked):
        said.append(asked)
        if len(said) == 1:
            interrupts._on_signal(signal.SIGTERM, None)  # the others were told 0 by then
        return asked

    def train():
        with interrupts.held():
            for step in range(3):
                with interrupts.allowed():
                    played.append(step)

    interrupts.together = ask_all
    with pytest.raises(Interrupted, match="SIGTERM"):
        train()
    assert said == [0, signal.SIGTERM]
    assert played == [0]


def test_what_one_rank_was_sent_ends_all():
    interrupts = Interrupts()
    interrupts.together = lambda asked: max(asked, signal.SIGINT)  # which another had
    with pytest.raises(Interrupted, match="SIGINT"), interrupts.held(), interrupts.allowed():
        pytest.fail("nothing is begun any more")


def test_in_a_program_of_the_users_a_second_signal_interrupts_at_once():
    interrupts, done = Interrupts(), []
    interrupts.may_end_process = False

    def update():
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("one signal waits")
            signal.raise_signal(signal.SIGINT)
            done.append("not reached")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="SIGINT"), interrupts.installed():
        update()
    assert done == ["one signal waits"]
    assert signal.getsignal(signal.SIGINT) is before


def test_in_a_program_of_the_users_a_checkpoint_is_written_whole():
    interrupts, done = Interrupts(), []
    interrupts.may_end_process = False

    def save():
        with interrupts.saving():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("saved")

    with pytest.raises(Interrupted, match="SIGINT"), interrupts.installed():
        save()
    assert done == ["saved"]
