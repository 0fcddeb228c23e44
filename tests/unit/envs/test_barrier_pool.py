"""An engine can wait for all environments' answers, and does not wait for what will never come."""

import asyncio
import logging

from palestra.envs.serving.barrier_pool import BarrierPool
from tests.support.environments import Echo


class Seats:
    """A pool with one seat, whose environments answer when they are told to."""

    def __init__(self):
        self.answer, self.seat = asyncio.Event(), asyncio.Semaphore(1)

    async def open(self):
        await self.seat.acquire()
        return self

    async def step(self, action):
        await self.answer.wait()
        return Echo().step(action)

    async def close(self):
        self.seat.release()


def test_it_is_settled_when_all_have_answered():
    async def scenario():
        seats = Seats()
        pool = BarrierPool(seats, timeout_s=30)
        await pool.quiesce()
        handle = await pool.open()
        assert not pool.is_busy
        step = asyncio.create_task(handle.step("red"))
        await asyncio.sleep(0)
        assert pool.is_busy
        quiesce = asyncio.create_task(pool.quiesce())
        await asyncio.sleep(0.05)
        assert not quiesce.done()
        seats.answer.set()
        await quiesce
        assert step.done()
        assert not pool.is_busy

    asyncio.run(scenario())


def test_who_waits_for_a_seat_is_not_waited_for_for_ever(caplog):
    async def scenario():
        pool = BarrierPool(Seats(), timeout_s=0.1)
        first = await pool.open()
        second = asyncio.create_task(pool.open())
        await asyncio.sleep(0)
        with caplog.at_level(logging.WARNING):
            await pool.quiesce()
        assert "1 episodes wait for an environment" in caplog.text
        assert "rollout.concurrency" in caplog.text
        assert not pool.is_busy
        await first.close()
        await second

    asyncio.run(scenario())
