"""An environment that raises, hangs or dies: a typed stop, one retry, and no gradient."""

import asyncio
import signal
import time

import pytest

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.agents.scripted import ExpertAgent, RandomAgent
from palestra.algos.batch import pack
from palestra.algos.grpo import GRPO
from palestra.config.env import EnvSettings
from palestra.core.action_formats import Plain
from palestra.core.types import Sampling, Stop
from palestra.engines.base import NoEngine
from palestra.envs.serving import handles as handle
from palestra.envs.serving.handles import EnvFault
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.rollout.episode import EnvBinding, EpisodeSpec, RolloutContext
from palestra.rollout.groups import GroupRequest, collect_groups, rollout_episodes
from palestra.runs.trajectories import encode_trajectory
from palestra.training.setup import make_pool
from tests.support import environments


def context_for(words, kind, *, isolation="inline", agent=ExpertAgent, deadline_s=0.4, **changes):
    renderer = Renderer(words)
    prompt = PromptConfig(renderer, Plain())
    alone = {"per_worker": 1} if isolation == "process" else {}
    settings = EnvSettings(
        name=f"tests.support.environments:{kind}",
        isolation=isolation,
        deadline_s=deadline_s,
        **alone,
    )
    bindings = {"echo": EnvBinding(prompt, make_pool(settings))}
    return RolloutContext(bindings, NoEngine(), Sampling(max_tokens=8), agent, **changes)


def episodes(count=2, horizon=3):
    tasks = environments.Echo().tasks("train")
    return [EpisodeSpec(str(n), tasks[n % len(tasks)], horizon, seed=n) for n in range(count)]


def played(context, what):
    async def scenario():
        try:
            return await rollout_episodes(context, what)
        finally:
            await context.bindings["echo"].pool.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kind", "isolation", "stop", "reason"),
    [
        ("Raises", "inline", Stop.ENV_FAULT, "RuntimeError: the simulator broke"),
        ("Raises", "process", Stop.ENV_FAULT, "RuntimeError: the simulator broke"),
        ("Hangs", "inline", Stop.TIMEOUT, "no answer within 0.4 s"),
        ("HangsCleaningUp", "inline", Stop.TIMEOUT, "no answer within 0.4 s"),
        ("Hangs", "process", Stop.TIMEOUT, "step gave no answer within 1.5 s"),
        ("Dies", "process", Stop.ENV_FAULT, "exit code 7"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an alarm that rings in a finalizer: Python drops it
def test_a_fault_is_typed_retried_once_and_kept_apart(words, kind, isolation, stop, reason):
    deadline = 0.4 if isolation == "inline" else 1.5
    trajectories, faulted = played(
        context_for(words, kind, isolation=isolation, deadline_s=deadline), episodes()
    )
    assert [t.stop for t in trajectories] == [stop, stop]
    assert [t.attempt for t in trajectories] == [1, 1]
    assert [t.attempt for t in faulted] == [0, 0]
    assert all(reason in t.fault for t in trajectories + faulted)
    assert all(t.success is None for t in trajectories)


def test_a_hiccup_costs_one_retry_and_nothing_else(words):
    environments.BreaksOnce.broken = False
    trajectories, faulted = played(context_for(words, "BreaksOnce"), episodes())
    assert [(t.stop, t.success) for t in trajectories] == [(Stop.DONE, True)] * 2
    assert len(faulted) == 1


def test_a_retry_does_not_sample_what_broke_the_environment_again(words):
    """One of three words breaks it, drawn at random: with the first attempt's seed all 30 retries
    would break again.
    """
    what = episodes(90)
    trajectories, faulted = played(context_for(words, "BreaksIfToldSo", agent=RandomAgent), what)
    retried = [t for t in trajectories if t.attempt == 1]
    assert len(retried) == len(faulted) > 15
    assert sum(t.stop.is_fault for t in retried) < len(retried) / 2
    first = {t.id: t.seed for t in faulted}
    assert first == {e.id: e.seed for e in what if e.id in first}
    assert all(t.seed != first[t.id] for t in retried)
    assert [t.seed for t in retried] == [e.seed_of(1) for e in what if e.id in first]


def test_without_retries_the_first_fault_stands(words):
    trajectories, faulted = played(context_for(words, "Raises", retries=0), episodes())
    assert [t.attempt for t in trajectories] == [0, 0]
    assert faulted == []


def test_a_worker_process_plays_like_the_environment_itself(words):
    inline, _ = played(context_for(words, "Echo"), episodes(4))
    process, _ = played(context_for(words, "Echo", isolation="process", deadline_s=20), episodes(4))
    assert [(t.segments, t.turns, t.stop, t.success) for t in inline] == [
        (t.segments, t.turns, t.stop, t.success) for t in process
    ]


def test_what_a_library_prints_is_not_an_answer(words):
    trajectories, _ = played(
        context_for(words, "Prints", isolation="process", deadline_s=20), episodes(1)
    )
    assert trajectories[0].turns[0].observation == "say red"


def test_a_worker_that_cannot_start_is_a_fault_that_says_why():
    async def scenario():
        await Workers("no_such_environment", {}, WorkerSettings(per_worker=1)).open()

    with pytest.raises(EnvFault, match="no env is called 'no_such_environment'"):
        asyncio.run(scenario())


def rollouts(context, *, tasks=3, group=4, **settings):
    all_tasks = iter(environments.Echo().tasks("train"))

    def assigned(_=None):
        return GroupRequest(next(all_tasks), group=group, horizon=2)

    return asyncio.run(
        collect_groups(
            context,
            [assigned() for _ in range(tasks)],
            seed=0,
            step=1,
            resample=assigned,
            **settings,
        )
    )


def test_groups_use_the_statistics_of_their_valid_members_only(words):
    """Red tasks always break: they have no gradient, and the other groups are as if nothing had
    happened.
    """
    healthy = rollouts(context_for(words, "Echo", agent=RandomAgent))
    broken = rollouts(context_for(words, "BreaksForRed", agent=RandomAgent))
    assert [t.stop for t in broken.groups[0].trajectories] == [Stop.ENV_FAULT] * 4
    assert broken.groups[0].valid == []
    expected, found = (pack([group.valid for group in c.groups[1:]]) for c in (healthy, broken))
    assert GRPO().advantages(found).tolist() == GRPO().advantages(expected).tolist()


def test_dynamic_sampling_replaces_groups_without_a_signal_up_to_a_bound(words):
    signal = GRPO().has_signal
    hopeless = rollouts(
        context_for(words, "Echo", agent=ExpertAgent), resample_rounds=2, has_signal=signal
    )  # the expert always wins: no signal, ever
    assert (len(hopeless.groups), len(hopeless.dropped)) == (3, 6)
    mixed = rollouts(
        context_for(words, "Echo", agent=RandomAgent),
        tasks=4,
        group=2,
        resample_rounds=8,
        has_signal=signal,
    )
    assert len(mixed.groups) == 4
    assert all(signal(group) for group in mixed.groups)
    assert not any(signal(group) for group in mixed.dropped)
    ids = [t.id for group in mixed.played for t in group.trajectories]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize(
    ("kind", "reason"), [("AnswersNothing", "must return a Step"), ("RewardsNaN", "finite reward")]
)
def test_an_environment_that_answers_nonsense_is_broken(words, kind, reason, isolation):
    trajectories, _ = played(
        context_for(words, kind, isolation=isolation, deadline_s=20), episodes(1)
    )
    assert trajectories[0].stop is Stop.ENV_FAULT
    assert reason in trajectories[0].fault


def test_numbers_of_other_libraries_are_made_storable(words):
    trajectories, _ = played(context_for(words, "NumpyRewards"), episodes(1))
    assert trajectories[0].stop is Stop.DONE
    assert encode_trajectory(trajectories[0])
    assert type(trajectories[0].turns[0].reward) is float


def test_an_interrupted_episode_leaves_no_worker_behind(words):
    context = context_for(words, "Hangs", isolation="process", deadline_s=60)
    pool = context.bindings["echo"].pool

    async def scenario():
        playing = asyncio.create_task(rollout_episodes(context, episodes(2)))
        while pool.stats().sessions < 2 or pool.stats().queue == 0:
            await asyncio.sleep(0.05)
        pids = [worker.pid for worker in pool.stats().workers]
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        await pool.close()
        return pids

    assert not any(environments.is_running(pid) for pid in asyncio.run(scenario()))


def test_an_environment_that_cannot_be_closed_does_not_fail_the_run(words):
    assert played(context_for(words, "CannotClose"), episodes(1))[0][0].success


def test_a_deadline_leaves_other_alarms_as_they_were():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    outer = signal.setitimer(signal.ITIMER_REAL, 30.0, 7.0)
    try:
        with handle.alarm(5.0, "it", "step"):
            time.sleep(0.05)
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 29 < left < 30
        assert interval == 7
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with handle.alarm(5.0, "it", "step"):
            time.sleep(0.2)
        time.sleep(0.1)
        assert rung
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)
