"""Episodes: what the agent is shown, why it stops, and that nothing but sampled tokens is masked as
such.
"""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.algos.batch import pack
from palestra.core.action_formats import Plain, ReAct
from palestra.core.types import Example, Generation, Sampling, Stop, Task
from palestra.engines.base import NoEngine
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.envs.serving.handles import InlinePool
from palestra.models.tiny import tiny_model
from palestra.rollout.episode import EnvBinding, EpisodeSpec, RolloutContext
from palestra.rollout.groups import rollout_episodes
from tests.support.agents import Says
from tests.support.environments import Echo

RED = Task("echo", "train", "train-0", "red")


class HasOwnLimit(Echo):
    """Ends of its own accord after two moves, whatever they are."""

    def step(self, action):
        step = super().step(action)
        return replace(step, truncated=self.left == self.rounds - 2, success=False)


def play(
    tokenizer,
    *lines,
    format=Plain(),
    rounds=1,
    horizon=5,
    reply_tokens=40,
    prompt=None,
    env=Echo,
    **changes,
):
    renderer = Renderer(tokenizer)
    prompt = prompt or PromptConfig(renderer, format, **changes)
    pool = InlinePool(lambda: env(rounds=rounds), 5.0)
    sampling = Sampling(max_tokens=reply_tokens, stop_ids=renderer.stop_ids)
    context = RolloutContext(
        {"echo": EnvBinding(prompt, pool)},
        NoEngine(),
        sampling,
        partial(Says, lines=list(lines)),
    )
    (trajectory,), _ = asyncio.run(rollout_episodes(context, [EpisodeSpec("e", RED, horizon, 0)]))
    return trajectory


def test_a_won_episode(words):
    trajectory = play(words, "red", "red", rounds=2)
    assert (trajectory.stop, trajectory.success, trajectory.reward) == (Stop.DONE, True, 1.0)
    assert [(t.observation, t.action, t.reward) for t in trajectory.turns] == [
        ("say red", "red", 0.5),
        ("right", "red", 0.5),
    ]
    assert trajectory.final_observation == "right"
    (segment,) = trajectory.segments
    text = words.convert_ids_to_tokens(segment.ids)
    assert text == ["say", "red", "<act>", "red", "<end>", "right", "<act>", "red", "<end>"]
    assert segment.mask == [0, 0, 0, 1, 1, 0, 0, 1, 1]
    assert [segment.ids[slice(*turn.span)] for turn in trajectory.turns] == [
        segment.ids[3:5],
        segment.ids[7:9],
    ]
    assert segment.versions == [-1, -1, -1, 0, 0, -1, -1, 0, 0]


def test_the_horizon_truncates(words):
    trajectory = play(words, "red", "red", rounds=9, horizon=2)
    assert (trajectory.stop, trajectory.success, len(trajectory.turns)) == (Stop.HORIZON, False, 2)
    assert trajectory.horizon == 2
    (segment,) = (
        trajectory.segments
    )  # ends with what the agent would have acted on next: a critic looks at that
    assert words.convert_ids_to_tokens(segment.ids)[-4:] == ["red", "<end>", "right", "<act>"]
    assert segment.mask[-4:] == [1, 1, 0, 0]


def test_an_environments_own_time_limit_truncates_like_the_horizon(words):
    trajectory = play(words, "red", "red", rounds=9, horizon=5, env=HasOwnLimit)
    assert (trajectory.stop, trajectory.success, len(trajectory.turns)) == (
        Stop.TRUNCATED,
        False,
        2,
    )
    assert trajectory.stop.is_time_limit
    (segment,) = trajectory.segments  # with the last observation, as at the horizon
    assert words.convert_ids_to_tokens(segment.ids)[-4:] == ["red", "<end>", "right", "<act>"]
    assert pack([[trajectory]]).truncated_N.tolist() == [True]


def test_the_last_observation_needs_no_room_for_a_reply(words):
    """3 shown + 2 said + 2 shown + 2 said + 2 shown = 11; a reply of 4 after that would not fit
    into 12, and none is asked for.
    """
    trajectory = play(words, "red", "red", rounds=9, horizon=2, reply_tokens=4, context_tokens=12)
    assert (trajectory.stop, len(trajectory.segments[0].ids)) == (Stop.HORIZON, 11)
    short = play(words, "red", "red", rounds=9, horizon=2, reply_tokens=3, context_tokens=10)
    assert (short.stop, len(short.segments[0].ids)) == (
        Stop.HORIZON,
        9,
    )  # here it does not fit: the reply has the last word
    assert pack([[trajectory], [short]], keep_tail=True).ends_with_observation_N.tolist() == [
        True,
        False,
    ]


def test_a_reply_that_was_cut_ends_the_episode_without_an_end_token(words):
    trajectory = play(words, "red red red red", reply_tokens=3)
    assert trajectory.stop is Stop.LENGTH
    assert words.convert_ids_to_tokens(trajectory.segments[0].ids)[-3:] == ["red", "red", "red"]


def test_a_full_context_ends_the_episode(words):
    trajectory = play(words, "red", "red", "red", rounds=9, reply_tokens=2, context_tokens=10)
    # 3 shown + 2 said + 2 shown + 2 said = 9; the next 2 + 2 exceed 10
    assert (trajectory.stop, len(trajectory.turns)) == (Stop.CONTEXT, 2)


def test_what_was_written_wrongly_comes_back_as_an_observation(byte_level):
    trajectory = play(byte_level, "I say red", "Thought: again\nAction: red", format=ReAct())
    first, second = trajectory.turns
    assert (first.action, first.invalid, first.reward) == (None, True, 0.0)
    assert "There was no line that begins with 'Action:'" in second.observation
    assert (second.action, second.invalid, trajectory.success) == ("red", False, True)


def test_the_prompt_holds_instructions_format_and_example(byte_level):
    prompt = PromptConfig(
        Renderer(byte_level), ReAct(), "Do as told.", [Example("say blue", "It says blue.", "blue")]
    )
    shown = [(m.role, m.content) for m in prompt.opening("say red")]
    assert shown == [
        ("system", f"Do as told.\n\n{ReAct.instructions}"),
        ("user", "say blue"),
        ("assistant", "Thought: It says blue.\nAction: blue"),
        ("user", "say red"),
    ]


def test_tokens_are_stored_as_the_engine_returned_them(words):
    """A reply whose text would be encoded differently keeps its own ids and log-probs."""
    odd = [words.convert_tokens_to_ids("red"), words.unk_token_id, words.eos_token_id]

    class Odd:
        async def generate(self, ids, sampling, session):
            return Generation(odd, [-1.5, -2.5, -0.5], "stop", 7)

        def release(self, session): ...

    renderer = Renderer(words)
    pool = InlinePool(Echo, 5.0)
    context = RolloutContext(
        {"echo": EnvBinding(PromptConfig(renderer, Plain()), pool)}, Odd(), Sampling(max_tokens=8)
    )
    (trajectory,), _ = asyncio.run(rollout_episodes(context, [EpisodeSpec("e", RED, 1, 0)]))
    segment = trajectory.segments[0]
    assert [segment.ids[-3:], segment.logprobs[-3:], segment.versions[-3:]] == [
        odd,
        [-1.5, -2.5, -0.5],
        [7, 7, 7],
    ]


@pytest.mark.parametrize("concurrency", [1, 5])
def test_a_model_plays_many_episodes_at_once(words, concurrency):
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
    renderer = Renderer(words)
    engine = TorchEngineSettings(slots=3).build(model, 64)
    pool = InlinePool(Echo, 5.0)
    bindings = {"echo": EnvBinding(PromptConfig(renderer, Plain()), pool)}
    context = RolloutContext(
        bindings,
        engine,
        Sampling(max_tokens=4, stop_ids=renderer.stop_ids),
        concurrency=concurrency,
    )
    episodes = [EpisodeSpec(str(n), RED, 3, seed=n) for n in range(12)]
    trajectories, _ = asyncio.run(rollout_episodes(context, episodes))
    assert [t.id for t in trajectories] == [e.id for e in episodes]
    assert (
        len({tuple(t.segments[0].ids) for t in trajectories}) > 3
    )  # every episode has noise of its own
