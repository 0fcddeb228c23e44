"""What an environment looked like in a stored episode: its actions are played again, in a worker
process and up to a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from palestra.core.types import Step, Task, Trajectory
from palestra.envs import envs, label_of
from palestra.envs.serving.handles import EnvFault, EnvTimeout
from palestra.envs.serving.worker_pool import EnvSlot, Workers, WorkerSettings
from palestra.rollout.retrace import Check, CheckedTurn, retrace
from palestra.runs.reader import RunFolder, environments

log = logging.getLogger(__name__)

REPLAY_S = 60.0
"""For all turns of an episode."""
MOST_TURNS = 1000
AT_ONCE = 4
"""So many episodes are played at a time."""
MOST_POOLS = 4
"""So many kinds of environments are kept for the next episode; each holds a few processes."""
MOST_TIMEOUTS = 3
"""So many episodes of a kind may take too long; the others are not tried."""
NOT_PLAYED = ("agentgym", "webarena", "search")
"""Registered, but they would call servers, or open files, that the run folder names."""


class NoScenes(Exception):
    """One line: why there are none."""


class Scenes:
    """Environments that wait to play stored episodes again, on an event loop of their own: it is
    asked from any thread.
    """

    def __init__(self, *, deadline_s: float = REPLAY_S) -> None:
        self.deadline_s = deadline_s
        self._pools: dict[bytes, Workers] = {}
        self._timeouts: dict[bytes, int] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scenes", daemon=True)
        self._thread.start()

    def of(self, folder: Path, recorded: Trajectory) -> dict[str, Any]:
        """`{"scenes": [...]}`, one before each turn and one after the last, or `{"scenes": None,
        "why": ...}`.

        `folder` is a run's, which may be anybody's: environments are only made by a name that is
        registered here.
        """
        try:
            return {
                "scenes": asyncio.run_coroutine_threadsafe(
                    self._played(folder, recorded), self._loop
                ).result()
            }
        except TimeoutError:
            why = f"playing it again took longer than {self.deadline_s:g} s"
        except EnvFault as fault:
            why = f"the environment broke: {fault}"
        except NoScenes as reason:
            why = str(reason)
        except (
            Exception
        ) as error:  # whatever an environment makes of a stranger's options and actions
            log.exception("playing an episode again failed")
            why = f"playing it again failed: {type(error).__name__}"
        return {"scenes": None, "why": why}

    def close(self) -> None:
        """May be called twice."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _played(self, folder: Path, recorded: Trajectory) -> list[dict[str, Any]]:
        if len(recorded.turns) > MOST_TURNS:
            raise NoScenes(
                f"the episode has {len(recorded.turns)} turns; up to {MOST_TURNS} are played again"
            )
        if not recorded.turns and recorded.stop.is_fault:
            raise NoScenes("the environment broke before the episode began")
        name, options = _environment(folder, recorded.task.env)
        key = msgspec.json.encode([name, options], order="deterministic")
        if self._timeouts.get(key, 0) >= MOST_TIMEOUTS:
            raise NoScenes(
                f"{MOST_TIMEOUTS} episodes of this environment took longer than "
                f"{self.deadline_s:g} s; no more are played again"
            )
        try:
            async with self._gate, asyncio.timeout(self.deadline_s):
                return await _play(await self._pool(name, options, key), recorded)
        except (TimeoutError, EnvTimeout):
            self._timeouts[key] = self._timeouts.get(key, 0) + 1
            raise

    async def _pool(self, name: str, options: dict[str, Any], key: bytes) -> Workers:
        """The environments of this kind; those that were not asked for longest make room."""
        pool = self._pools.pop(key, None) or Workers(
            name, options, WorkerSettings(deadline_s=self.deadline_s)
        )
        self._pools[key] = pool
        idle = [
            old
            for old, other in self._pools.items()
            if other is not pool and not other.stats().sessions
        ]
        for old in idle[: max(len(self._pools) - MOST_POOLS, 0)]:
            await self._pools.pop(old).close()
        return pool

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for pool in self._pools.values():
            await pool.close()


def _environment(folder: Path, label: str) -> tuple[str, dict[str, Any]]:
    """What the run calls `label`: the name and the options of an environment that is registered
    here.
    """
    _, config, damages = RunFolder(folder).config()
    if damages:
        raise NoScenes(f"config.toml cannot be read: {damages[0]['why']}")
    for own in environments(config):
        if own.name not in envs or own.name in NOT_PLAYED:
            if label in (own.label, own.name) or not own.label:
                raise NoScenes(
                    "only environments that are installed here under a name are played "
                    f"again, not {own.name[:100]!r}"
                )
        elif label == (own.label or label_of(own.name)):
            if _names_something_outside(own.options):
                raise NoScenes(
                    "environments whose options name files or addresses are not played again"
                )
            return own.name, own.options
    raise NoScenes(f"the run has no environment called {label[:100]!r}")


def _names_something_outside(option: Any) -> bool:
    """Whether an option, or anything in it, may be a path or a URL: the run folder may be
    anybody's.
    """
    if isinstance(option, dict):
        return any(map(_names_something_outside, option.values()))
    if isinstance(option, list):
        return any(map(_names_something_outside, option))
    return isinstance(option, str) and ("/" in option or "\\" in option)


async def _play(pool: Workers, recorded: Trajectory) -> list[dict[str, Any]]:
    """The scene before each turn and after the last one.

    A reply that was no action never reached the environment: nothing changed.
    """
    seat = await pool.open()
    try:
        watched, own = _Watched(seat), replace(recorded.task, env=envs[pool.name].name)
        checked: list[CheckedTurn] = []
        await retrace(watched, own, recorded, len(recorded.turns), checked)
    finally:
        await seat.close()
    if differing := Check(recorded, checked).differing:
        raise NoScenes(f"turn {differing[0]} is answered differently by this version")
    if None in watched.scenes:
        raise NoScenes(f"{pool.name} has no scenes")
    changes = iter(watched.scenes)
    shown = [next(changes)]
    for turn in recorded.turns:
        shown.append(shown[-1] if turn.action is None else next(changes))
    return [scene for scene in shown if scene is not None]


class _Watched:
    """Notes the scene after each answer."""

    def __init__(self, seat: EnvSlot) -> None:
        self.scenes: list[dict[str, Any] | None] = []
        self._seat = seat

    async def reset(self, task: Task) -> str:
        observation = await self._seat.reset(task)
        self.scenes.append(await self._seat.scene())
        return observation

    async def step(self, action: str) -> Step:
        step = await self._seat.step(action)
        self.scenes.append(await self._seat.scene())
        return step
