"""What a model made on the spot is taught before it imitates."""

import torch

from palestra.algos.batch import pack
from palestra.config.config import WarmStart
from palestra.training.warm_start import PASSAGE, twice_over
from tests.support.batches import trajectory


def test_a_passage_is_repeated_and_only_what_can_be_known_is_learned():
    whole = trajectory(("see", list(range(100, 100 + PASSAGE + 20))), ("say", [7, 8]))
    for seed in range(5):
        lesson = twice_over(whole, torch.Generator().manual_seed(seed))
        (segment,) = lesson.segments
        passage = segment.ids[:PASSAGE]
        assert segment.ids == passage * 2
        start = whole.segments[0].ids.index(passage[0])
        assert whole.segments[0].ids[start : start + PASSAGE] == passage
        assert segment.mask == [0] * (PASSAGE + 1) + [1] * (PASSAGE - 1)
        assert len(pack([[lesson]]).trajectory_C) == PASSAGE - 1


def test_a_short_episode_is_repeated_whole():
    lesson = twice_over(trajectory(("see", [3, 4, 5]), ("say", [6])), torch.Generator())
    assert lesson.segments[0].ids == [3, 4, 5, 6, 3, 4, 5, 6]


def test_the_learning_rate_falls_over_both_parts():
    settings = WarmStart(lr=1.0, copying=100, updates=100)
    assert [round(settings.lr_at(update), 3) for update in (0, 50, 100, 200)] == [
        0.1,
        0.775,
        0.55,
        0.1,
    ]
