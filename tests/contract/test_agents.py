"""Every agent records its episode as training reads it; scripted ones say what they should."""

import asyncio

import pytest

from palestra.agents import agents
from palestra.agents.base import ContextFull, EpisodeContext, PromptConfig
from palestra.agents.renderer import Renderer
from palestra.agents.scripted import ExpertAgent
from palestra.core.action_formats import Plain
from palestra.core.types import Sampling
from palestra.engines.base import EngineFailed, NoEngine, Session
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.models.tiny import tiny_model
from tests.support.agents import Says


class Hints:
    async def expert(self):
        return "say red"

    async def actions(self):
        return ["say red", "say blue"]


def engine_for(words):
    model = tiny_model(
        vocabulary=len(words),
        width=16,
        layers=1,
        heads=2,
        context=64,
        stop_id=words.eos_token_id,
        seed=0,
        device="cpu",
    )
    return TorchEngineSettings().build(model, 64)


def given(words, engine=None, *, max_tokens=8, context_tokens=64, seed=0):
    renderer = Renderer(words)
    prompt = PromptConfig(renderer, Plain(), context_tokens=context_tokens)
    sampling = Sampling(max_tokens=max_tokens, stop_ids=renderer.stop_ids, seed=seed)
    return EpisodeContext(prompt, engine or NoEngine(), Session("x"), sampling, Hints())


@pytest.mark.parametrize("name", agents.names())
def test_the_record_is_what_was_shown_and_said(words, name):
    async def episode():
        context = given(words, engine_for(words))
        agent = agents[name](context)
        assert agent.segments == []
        actions = [await agent.act("red"), await agent.act("blue")]
        agent.observe("red")
        agent.close()
        return context.prompt.renderer, actions, agent.segments

    renderer, actions, segments = asyncio.run(episode())
    for action in actions:
        own, (start, end) = segments[action.segment], action.span
        assert renderer.reply_text(own.ids[start:end]) == action.reply
        assert own.mask[start - 1 : end + 1] == [0, *[1] * (end - start), 0]
    for segment in segments:
        lengths = {len(segment.ids), len(segment.mask), len(segment.logprobs)}
        assert lengths == {len(segment.versions)}
    sampled = sum(sum(segment.mask) for segment in segments)
    assert sampled == sum(end - start for start, end in (action.span for action in actions))


@pytest.mark.parametrize("name", agents.names())
def test_what_does_not_fit_is_refused(words, name):
    agent = agents[name](given(words, engine_for(words), context_tokens=8))
    with pytest.raises(ContextFull):
        asyncio.run(agent.act("red"))


def test_a_chat_needs_a_model(words):
    with pytest.raises(EngineFailed, match="no model is loaded"):
        asyncio.run(agents["chat"](given(words)).act("red"))


def test_a_scripted_agent_says_its_lines_within_its_budget(words):
    whole = asyncio.run(Says(given(words), ["say red"]).act("red"))
    assert (whole.reply, whole.text, whole.was_cut) == ("say red", "say red", False)
    cut = Says(given(words, max_tokens=2), ["say red"])
    assert asyncio.run(cut.act("red")).was_cut
    assert cut.segments[0].mask[-2:] == [1, 1]
    assert cut.segments[0].logprobs[-2:] == [0.0, 0.0]


def test_a_noisy_expert_takes_any_valid_action_every_so_often(words):
    async def replies(noise):
        agent = ExpertAgent(given(words), noise)
        return [await agent.reply(Sampling(seed=seed)) for seed in range(400)]

    assert set(asyncio.run(replies(0.0))) == {"say red"}
    assert set(asyncio.run(replies(1.0))) == {"say red", "say blue"}
    # 400 draws at 0.5, half of them blue: 100 expected; 3 standard deviations are
    # 3 * sqrt(400 * .25 * .75) = 26
    assert 74 <= asyncio.run(replies(0.5)).count("say blue") <= 126
