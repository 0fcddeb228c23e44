"""The event loop of a run, also inside a running loop, as in a notebook."""

import asyncio
import threading

import pytest

from palestra.core.event_loop import EventLoop


async def thread_name():
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_coroutines_run_in_the_callers_thread():
    loop = EventLoop()
    assert loop.run(thread_name()) == threading.current_thread().name
    loop.close()


def test_inside_a_running_loop_coroutines_run_in_one_other_thread():
    async def cell():
        loop = EventLoop()
        names = {loop.run(thread_name()) for _ in range(3)}
        loop.close()
        return names

    (name,) = asyncio.run(cell())
    assert name.startswith("rollout")


def test_background_tasks_pause_between_calls():
    """Unfinished groups must not continue while the learner changes the weights."""
    ticks = []

    async def tick():
        while True:
            ticks.append(None)
            await asyncio.sleep(0)

    async def begin():
        return asyncio.create_task(tick())

    async def cell():
        loop = EventLoop()
        task = loop.run(begin())
        before = len(ticks)
        await asyncio.sleep(0.05)
        assert len(ticks) == before
        loop.run(asyncio.sleep(0.01))
        assert len(ticks) > before
        assert not task.done()
        loop.close()
        assert task.cancelled()

    asyncio.run(cell())


def test_errors_are_raised_in_the_caller():
    async def fails():
        raise ValueError("no")

    async def cell():
        loop = EventLoop()
        try:
            loop.run(fails())
        finally:
            loop.close()

    with pytest.raises(ValueError, match="no"):
        asyncio.run(cell())
