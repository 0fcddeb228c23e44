"""What imitation learns from."""

from palestra.batch import pack
from palestra.types import Segment, Stop, Task, Trajectory, Turn
from palestra.warm_start import as_read


def test_what_is_shown_is_learnt_too():
    first = Segment([7, 8, 3, 1, 9, 4, 1, 6], [0, 0, 1, 1, 0, 1, 1, 0], [0.0] * 8, [-1] * 8)
    second = Segment([5, 2, 1], [0, 1, 1], [0.0] * 3, [-1] * 3)
    turns = [Turn("a", "b", "b", 0.0, (2, 4)), Turn("c", "d", "d", 0.0, (5, 7)), Turn("e", "f", "f", 1.0, (1, 3), segment=1)]
    shown = Trajectory("x", Task("guess", "train", "1"), [first, second], turns, Stop.DONE, True, 3, 0)
    read = as_read(shown)
    assert [segment.mask for segment in read.segments] == [[0, 1, 1, 1, 1, 1, 1, 0], [0, 1, 1]]
    assert [turn.span for turn in read.turns] == [(1, 4), (4, 7), (1, 3)]
    assert read.segments[0].ids == first.ids
    batch = pack([[read]])
    assert batch.chosen_T.sum() == 8
    assert batch.turn_C.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
