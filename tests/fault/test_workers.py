"""Many environments in few processes: whatever one of them does, the others end typed, nothing
leaks and nothing is made up.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.agents.scripted import ExpertAgent
from palestra.core.action_formats import Plain
from palestra.core.types import Sampling, Stop, Task
from palestra.engines.base import NoEngine
from palestra.envs.serving import worker_pool as workers
from palestra.envs.serving.handles import CollateralFault, EnvFault, EnvTimeout, PoolExhausted
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.rollout.episode import EnvBinding, EpisodeSpec, RolloutContext
from palestra.rollout.groups import rollout_episodes
from tests.fault.environments import NAME
from tests.support.environments import is_running

TASK = Task("obedient", "train", "0")


def with_pool(scenario, *, name=NAME, options=None, **settings):
    """What the scenario returns, played in a pool of one worker unless it says otherwise."""

    async def run():
        pool = Workers(name, options or {}, WorkerSettings(**{"workers": 1, **settings}))
        try:
            return await scenario(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


async def seats(pool, count):
    opened = [await pool.open() for _ in range(count)]
    for seat in opened:
        await seat.reset(TASK)
    return opened


async def said(seat, action):
    return (await seat.step(action)).observation


async def eventually(condition):
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it never came true")


# hanging


@pytest.mark.parametrize(
    "order", ["sleep 600", "hold_the_interpreter", "backtrack", "ignore_signals"]
)
def test_a_call_that_hangs_ends_in_time_and_only_its_own_session_timed_out(order):
    async def scenario(pool):
        hanging, other, idle = await seats(pool, 3)
        (before,) = pool.stats().workers
        began = time.monotonic()
        hung = asyncio.create_task(hanging.step(order))
        queued = asyncio.create_task(other.step("count"))
        with pytest.raises(EnvTimeout, match="step gave no answer within 1 s"):
            await hung
        assert (
            1.0 <= time.monotonic() - began < 6
        )  # not the 600 s of the call; a busy machine needs some room
        for lost in (queued, idle.step("count")):
            with pytest.raises(EnvFault, match="because another session's call hung") as raised:
                await lost
            assert raised.value.stop is Stop.ENV_FAULT
        for seat in (hanging, other, idle):
            await seat.close()
        await eventually(lambda: not is_running(before.pid))
        (again,) = await seats(pool, 1)
        assert await said(again, "count") == "1"
        assert pool.stats().restarts == 1

    with_pool(scenario, deadline_s=1.0)


def test_an_environment_that_cannot_be_closed_is_not_waited_for():
    async def scenario(pool):
        (broken,) = await seats(pool, 1)
        await broken.step("cling")
        with pytest.raises(EnvFault):
            await broken.step("raise")
        await broken.close()
        await eventually(lambda: pool.stats().restarts == 1)
        (sound,) = await seats(pool, 1)
        await sound.step("cling")
        return [worker.pid for worker in pool.stats().workers]

    began = time.monotonic()
    assert not any(map(is_running, with_pool(scenario, deadline_s=1.0)))
    assert time.monotonic() - began < 60


def test_a_deadline_counts_from_when_a_call_begins():
    async def scenario(pool):
        answers = await asyncio.gather(*(seat.step("sleep 0.4") for seat in await seats(pool, 8)))
        assert len(answers) == 8

    with_pool(scenario, deadline_s=2.0)  # the last one waits for 2.8 s


def test_a_loop_that_rests_makes_nobody_late():
    """Between two steps of a run nobody runs the event loop."""
    with asyncio.Runner() as loop:
        pool = Workers(NAME, {}, WorkerSettings(workers=1, deadline_s=1.0))
        (seat,) = loop.run(seats(pool, 1))
        before, after = (loop.get_loop().create_task(seat.step("sleep 0.1")) for _ in range(2))
        loop.run(asyncio.sleep(0.05))
        time.sleep(1.5)
        loop.run(asyncio.wait_for(asyncio.gather(before, after), 5))
        task = loop.get_loop().create_task(seat.step("count"))
        time.sleep(1.5)
        loop.run(asyncio.wait_for(task, 5))
        loop.run(pool.close())


def test_starting_counts_apart():
    async def scenario(pool):
        return await said((await seats(pool, 1))[0], "count")

    assert with_pool(scenario, options={"start_s": 1.5}, deadline_s=1.0) == "1"
    with pytest.raises(EnvTimeout, match="make gave no answer within 4 s"):
        with_pool(scenario, options={"start_s": 60}, boot_s=4)


def test_a_worker_that_never_starts(tmp_path, monkeypatch):
    (tmp_path / "sleepy.py").write_text("import time\nprint('zzz')\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvTimeout, match="did not start within 5 s: zzz"):
        with_pool(lambda pool: pool.open(), name="sleepy:Env", boot_s=5, per_worker=1)


# dying


@pytest.mark.parametrize(
    ("order", "how"),
    [("exit 7", "with exit code 7"), ("segfault", "by signal 11"), ("kill", "by signal 9")],
)
def test_a_worker_that_dies_says_how_and_is_back(order, how):
    async def scenario(pool):
        dying, other = await seats(pool, 2)
        await dying.step("print last words")
        outcomes = await asyncio.gather(
            dying.step(order), other.step("count"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [EnvFault, CollateralFault]
        for outcome in outcomes:
            assert f"the worker died {how}" in str(outcome)
        assert order == "segfault" or "last words | last words again | from C" in str(outcomes[0])
        await eventually(lambda: any(worker.memory_mb > 0 for worker in pool.stats().workers))
        (again,) = await seats(pool, 1)
        assert await said(again, "count") == "1"
        assert pool.stats().restarts == 1

    with_pool(scenario)


@pytest.mark.parametrize(
    ("order", "reason"),
    [("raise", "RuntimeError: the simulator broke"), ("leave", "SystemExit: no more")],
)
def test_an_environment_that_raises_is_nobody_elses_concern(order, reason):
    async def scenario(pool):
        broken, other = await seats(pool, 2)
        with pytest.raises(EnvFault, match=reason):
            await broken.step(order)
        await broken.close()
        assert await said(other, "count") == "1"
        assert pool.stats().restarts == 0

    with_pool(scenario)


def test_a_worker_takes_along_what_it_has_started():
    async def scenario(pool):
        (seat,) = await seats(pool, 1)
        children = [int(await said(seat, order)) for order in ("spawn", "spawn apart")]
        assert all(map(is_running, children))
        with pytest.raises(EnvTimeout):
            await seat.step("sleep 600")
        await eventually(lambda: not any(map(is_running, children)))

    with_pool(scenario, deadline_s=1.0)


def test_episodes_go_on_while_workers_are_killed(words):
    """100 of the attempts at 1,000 episodes are hit.

    Each episode ends well or in a fault; none has a score that nobody gave.
    """
    renderer = Renderer(words)
    prompt = PromptConfig(renderer, Plain())

    async def scenario(pool):
        context = RolloutContext(
            {"obedient": EnvBinding(prompt, pool)},
            NoEngine(),
            Sampling(max_tokens=8),
            ExpertAgent,
            retries=2,
        )
        playing = asyncio.create_task(
            rollout_episodes(context, [EpisodeSpec(str(n), TASK, 3, seed=n) for n in range(1000)])
        )
        while pool.stats().faults < 100 and not playing.done():
            for worker in pool.stats().workers:
                if worker.queue > 20:
                    os.kill(worker.pid, signal.SIGKILL)
                    break
            await asyncio.sleep(0.02)
        return await playing

    played, faulted = with_pool(scenario, name="tests.fault.environments:Judged", workers=2)
    assert len(played) == 1000
    sound = [t for t in played if not t.stop.is_fault]
    hit = faulted + [t for t in played if t.stop.is_fault]
    assert len(hit) >= 100
    assert len(sound) > 500
    assert all(
        (t.stop, t.success, t.reward, len(t.turns)) == (Stop.DONE, True, 1.0, 1) for t in sound
    )
    assert all(
        (t.stop, t.success, t.reward) == (Stop.ENV_FAULT, None, 0.0) and "signal 9" in t.fault
        for t in hit
    )


@pytest.mark.parametrize("order", ["sleep 600", "hold_the_interpreter"])
def test_workers_die_with_their_parent(order):
    code = f"""
import asyncio, os
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.core.types import Task
from tests.fault.environments import NAME

async def main():
    pool = Workers(NAME, {{}}, WorkerSettings())
    seats = [await pool.open() for _ in range(2)]
    for seat in seats:
        await seat.reset(Task("obedient", "train", "0"))
        asyncio.ensure_future(seat.step({order!r}))
    await asyncio.sleep(0.3)
    print(*(worker.pid for worker in pool.stats().workers), flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pids = list(map(int, done.stdout.split()))
    assert pids, done.stderr
    asyncio.run(eventually(lambda: not any(map(is_running, pids))))


def test_workers_outlive_the_thread_that_asked_for_them():
    """Collecting ahead runs the event loop in a thread for each step."""
    loop = asyncio.new_event_loop()
    pool = Workers(NAME, {}, WorkerSettings(workers=1))
    opened = []
    thread = threading.Thread(target=lambda: opened.extend(loop.run_until_complete(seats(pool, 1))))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert loop.run_until_complete(said(opened[0], "count")) == "1"
    loop.run_until_complete(pool.close())
    loop.close()


# bounds


def test_what_is_printed_is_kept_short():
    async def scenario(pool):
        (seat,) = await seats(pool, 1)
        await seat.step("flood 3")
        (process,) = pool._workers
        await eventually(lambda: os.fstat(process._log.file.fileno()).st_size < 2**16)
        await seat.step("print the end")
        with pytest.raises(EnvFault, match=r"the end \| the end again \| from C"):
            await seat.step("exit 1")

    with_pool(scenario)


def test_a_worker_that_has_grown_gets_no_new_sessions_and_ends_with_its_last():
    async def scenario(pool):
        first, *others = await seats(pool, 4)
        pids = [int((await said(seat, "who")).split()[0]) for seat in (first, *others)]
        (mate,) = [seat for seat, pid in zip(others, pids[1:], strict=True) if pid == pids[0]]
        elsewhere = [seat for seat in others if seat is not mate]
        await first.step("hold 130")
        await eventually(lambda: any(worker.is_draining for worker in pool.stats().workers))
        (grown,) = [worker for worker in pool.stats().workers if worker.is_draining]
        assert grown.pid == pids[0]
        assert grown.memory_mb > 150
        await first.close()
        with pytest.raises(PoolExhausted):
            await pool.open()
        assert await said(mate, "count") == "2"  # those that were there go on
        await mate.close()
        await eventually(lambda: not is_running(grown.pid))
        (again,) = await seats(pool, 1)
        assert int((await said(again, "who")).split()[0]) not in pids
        assert [await said(seat, "count") for seat in elsewhere] == ["2", "2"]

    with_pool(scenario, workers=2, per_worker=2, memory_mb=150)


def test_a_worker_that_is_far_too_large_is_killed():
    async def scenario(pool):
        (seat,) = await seats(pool, 1)
        with pytest.raises(EnvFault, match=r"it held \d\d\d MB, with memory_mb = 150"):
            await asyncio.gather(seat.step("hold 400"), seat.step("sleep 50"))
        assert pool.stats().restarts == 1

    with_pool(scenario, memory_mb=150)


def test_workers_that_nobody_uses_any_more_end_but_for_one_per_core(monkeypatch):
    monkeypatch.setattr(workers, "IDLE_S", 0.5)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)

    async def scenario(pool):
        opened = await seats(pool, 3)
        pids = {worker.pid for worker in pool.stats().workers}
        assert len(pids) == 3
        await opened[0].close()
        await opened[1].close()
        await eventually(lambda: sum(map(is_running, pids)) == 1)
        assert await said(opened[2], "count") == "1"  # the one that is in use is left alone
        assert pool.stats().restarts == 0
        await opened[2].close()
        await asyncio.sleep(1.5)
        assert len(pool.stats().workers) == 1

    with_pool(scenario, workers=3, per_worker=1)


def test_open_files_are_bounded_and_counted():
    async def scenario(pool):
        (seat,) = await seats(pool, 1)
        before = pool.stats().open_files
        await seat.step("open 20")
        assert pool.stats().open_files == before + 20
        with pytest.raises(EnvFault, match="Too many open files"):
            await seat.step("open 100")

    with_pool(scenario, open_files=64)


# seats


def test_nobody_shares_an_environment():
    async def scenario(pool):
        opened = await seats(pool, 6)
        assert len({await said(seat, "who") for seat in opened}) == 6
        assert sorted(worker.sessions for worker in pool.stats().workers) == [3, 3]
        with pytest.raises(PoolExhausted, match="all 6 seats are taken"):
            await pool.open()
        await opened[0].close()
        await opened[0].close()
        await pool.open()
        with pytest.raises(PoolExhausted):
            await pool.open()
        with pytest.raises(EnvFault, match="closed"):
            await opened[0].step("count")

    with_pool(scenario, workers=2, per_worker=3)


def test_only_a_few_are_started_at_once(monkeypatch):
    monkeypatch.setattr("palestra.envs.serving.worker_pool.MADE_AT_ONCE", 2)
    opened, starting = [], []

    async def one(pool):
        opened.append(await pool.open())
        starting.append(len(pool.stats().workers) - len(opened))

    async def scenario(pool):
        await asyncio.gather(*(one(pool) for _ in range(6)))
        for seat in opened:
            await seat.close()
        await asyncio.gather(*(one(pool) for _ in range(6)))  # those that wait are had at once
        with pytest.raises(PoolExhausted):
            await pool.open()
        assert len(pool.stats().workers) == 6

    with_pool(scenario, workers=6, per_worker=1)
    assert max(starting) <= 2


def test_those_who_wait_for_a_pool_that_is_closed_are_told(monkeypatch):
    monkeypatch.setattr("palestra.envs.serving.worker_pool.MADE_AT_ONCE", 1)

    async def scenario(pool):
        opening = [asyncio.create_task(pool.open()) for _ in range(2)]
        await asyncio.sleep(0)  # both have asked, and no worker can have started yet
        await pool.close()
        for outcome in await asyncio.gather(*opening, return_exceptions=True):
            assert type(outcome) is EnvFault
            assert "the pool was closed" in str(outcome)
        assert pool.stats().workers == []

    with_pool(scenario)


def test_an_environment_is_used_again_unless_it_broke():
    async def scenario(pool):
        (first,) = await seats(pool, 1)
        await first.close()
        (second,) = await seats(pool, 1)
        assert (await said(second, "who")).split()[2] == "2"  # its second episode
        with pytest.raises(EnvFault):
            await second.step("raise")
        await second.close()
        (third,) = await seats(pool, 1)
        assert (await said(third, "who")).split()[2] == "1"

    with_pool(scenario)


def test_a_cancelled_call_leaves_nothing_behind():
    async def scenario(pool):
        (seat,) = await seats(pool, 1)
        call = asyncio.create_task(seat.step("sleep 0.5"))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await seat.close()
        with pytest.raises(PoolExhausted):  # it is still at it
            await pool.open()
        await eventually(lambda: pool.stats().sessions == 0)
        opening = asyncio.create_task(pool.open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await eventually(lambda: pool.stats().sessions == 0)
        (fresh,) = await seats(pool, 1)
        assert await said(fresh, "count") == "1"
        assert await said(fresh, "alive") == "1"
        assert (pool.stats().queue, pool.stats().restarts) == (0, 0)

    with_pool(scenario, per_worker=1)


def test_calls_of_a_session_are_played_in_order():
    async def scenario(pool):
        opened = await seats(pool, 4)
        rounds = await asyncio.gather(*(said(seat, "count") for _ in range(50) for seat in opened))
        for number in range(4):
            assert rounds[number::4] == [str(n + 1) for n in range(50)]

    with_pool(scenario, workers=2)


FEW = 3
"""Files and threads that others in this process may have opened meanwhile: what runs the tests, and
what earlier ones left behind.
"""


def test_nothing_grows_over_many_sessions():
    def ours():
        return len(os.listdir("/proc/self/fd")), len(threading.enumerate())

    async def scenario(pool):
        (held,) = await seats(pool, 1)
        before, theirs, pids = (
            ours(),
            pool.stats().open_files,
            [worker.pid for worker in pool.stats().workers],
        )
        for number in range(2000):
            seat = await pool.open()
            await seat.reset(TASK)
            if number % 10 == 0:
                with pytest.raises(EnvFault):
                    await seat.step("raise")
            await seat.close()
        await eventually(lambda: pool.stats().sessions == 1)
        files, threads = ours()
        assert files <= before[0] + FEW  # 2,000 sessions came and went
        assert threads <= before[1] + FEW
        assert (pool.stats().open_files, [worker.pid for worker in pool.stats().workers]) == (
            theirs,
            pids,
        )
        assert int(await said(held, "alive")) <= 4
        return pids

    before = len(os.listdir("/proc/self/fd"))
    pids = with_pool(scenario, per_worker=4)
    assert not any(map(is_running, pids))
    assert len(os.listdir("/proc/self/fd")) <= before + FEW


def test_a_pool_that_is_closed_closes_its_environments(tmp_path):
    async def scenario(pool):
        for seat in (await seats(pool, 3))[:2]:
            await seat.close()

    with_pool(scenario, options={"farewell": str(tmp_path / "farewell")})
    assert (tmp_path / "farewell").read_text() == "closed\n" * 3


def test_stats():
    async def scenario(pool):
        (seat, _) = await seats(pool, 2)
        slow = asyncio.create_task(seat.step("sleep 0.3"))
        await asyncio.sleep(0.1)
        stats = pool.stats()
        assert (stats.sessions, stats.queue, stats.calls, stats.faults, stats.restarts) == (
            2,
            1,
            5,
            0,
            0,
        )
        assert stats.memory_mb > 10
        assert stats.open_files >= 4
        await slow
        with pytest.raises(EnvFault):
            await seat.step("exit 3")
        assert (pool.stats().sessions, pool.stats().faults, pool.stats().restarts) == (0, 1, 1)

    with_pool(scenario)
