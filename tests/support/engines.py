"""Small models behind an engine, and episodes of tokens through it."""

import asyncio
import random

import pytest
import torch

from palestra.core.types import Sampling, Segment, Stop, Task, Trajectory, Turn
from palestra.engines.base import Session
from palestra.engines.torch.settings import TorchEngineSettings

STOP = 1


def native(model, slots=4, deterministic=True):
    return TorchEngineSettings(slots=slots, deterministic=deterministic).build(model, 1024)


async def episode(engine, number, *, turns=8, temperature=1.0, max_tokens=12, shown=10):
    """A made-up episode: random observations, sampled replies. Returns it as a trajectory."""
    rng = random.Random(number)
    session = Session(f"episode {number}")
    stream = Segment([], [], [], [])
    spans = []
    for turn in range(turns):
        new = [rng.randrange(2, 97) for _ in range(rng.randint(1, shown))]
        stream.ids.extend(new)
        stream.mask.extend([0] * len(new))
        stream.logprobs.extend([0.0] * len(new))
        sampling = Sampling(
            temperature=temperature,
            max_tokens=max_tokens,
            stop_ids=(STOP,),
            seed=1000 * number + turn,
        )
        generation = await engine.generate(stream.ids, sampling, session)
        spans.append((len(stream.ids), len(stream.ids) + len(generation.ids)))
        stream.ids.extend(generation.ids)
        stream.mask.extend([1] * len(generation.ids))
        stream.logprobs.extend(generation.logprobs)
        await asyncio.sleep(0)
    engine.release(session)
    stream.versions.extend([0] * len(stream.ids))
    turns_ = [Turn("", "", "", 0.0, span) for span in spans]
    return Trajectory(str(number), Task("e", "train", "t"), [stream], turns_, Stop.DONE, None, 9, 0)


async def episodes(engine, count, **settings):
    return await asyncio.gather(*(episode(engine, number, **settings) for number in range(count)))


def computed_once(engine):
    """Two tasks with the same instructions, three episodes each: what follows is as if each had
    computed everything itself.
    """

    async def begun(number):
        session = Session(str(number))
        ids = [*range(5, 75), *([80 + number % 2] * 6)]
        first = await engine.generate(
            ids, Sampling(temperature=0.0, max_tokens=1, stop_ids=(STOP,)), session
        )
        return session, [*ids, *first.ids], first.logprobs

    async def gone_on(session, ids, logprobs):
        ids = [*ids, 9, 10 + int(session.id)]
        second = await engine.generate(
            ids, Sampling(temperature=0.0, max_tokens=4, stop_ids=(STOP,)), session
        )
        engine.release(session)
        return [*ids, *second.ids], [*logprobs, *second.logprobs]

    async def all_of():
        openings = await asyncio.gather(*map(begun, range(6)))
        # 70 + 6 of the first task, 6 of the other, and of each further episode the last token,
        # which must be new to have logits
        assert engine.computed_tokens == 70 + 6 + 6 + 4
        return await asyncio.gather(*(gone_on(*opening) for opening in openings))

    for ids, logprobs in asyncio.run(all_of()):
        with torch.no_grad():
            logp = (
                engine.model(torch.tensor([ids], device=engine.model.device))
                .logits[0]
                .log_softmax(-1)
            )
        # After the opening, and after the observation that follows the first reply.
        sampled = [76, *range(79, len(ids))]
        assert [int(logp[place - 1].argmax()) for place in sampled] == [
            ids[place] for place in sampled
        ]
        assert logprobs == pytest.approx(
            [float(logp[place - 1, ids[place]]) for place in sampled], abs=1e-4
        )
