"""The scenes of a stored episode: its actions are played again, in a worker process and with a
deadline.
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
"""Episodes that are played at the same time."""
MOST_POOLS = 4
"""Kinds of environments whose pools are kept for the next episode. Each has a few processes."""
MOST_TIMEOUTS = 3
"""After this many timeouts, no more episodes of an environment are played."""
NOT_PLAYED = ("agentgym", "webarena", "search")
"""Registered, but they would call servers, or open files, that the run folder names."""


class NoScenes(Exception):
    """There are no scenes; the message says why in one line."""


class Scenes:
    """Environments that play stored episodes again. They have an event loop of their own, so that
    any thread may ask.
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

        The run folder may be a stranger's: only environments that are registered by name are
        created.
        """
        playing = asyncio.run_coroutine_threadsafe(self._played(folder, recorded), self._loop)
        try:
            return {"scenes": playing.result()}
        except TimeoutError:
            why = f"playing it again took longer than {self.deadline_s:g} s"
        except EnvFault as fault:
            why = f"the environment broke: {fault}"
        except NoScenes as reason:
            why = str(reason)
        # An environment may raise anything when it gets a stranger's options and actions.
        except Exception as error:
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
        """The pool of this kind of environment. Closes the least recently used ones."""
        # Removed and inserted again: the dict's order is that of the last use.
        pool = self._pools.pop(key, None)
        if pool is None:
            pool = Workers(name, options, WorkerSettings(deadline_s=self.deadline_s))
        self._pools[key] = pool
        others = {old: other for old, other in self._pools.items() if other is not pool}
        idle = [old for old, other in others.items() if not other.stats().sessions]
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
    """The name and the options of the run's environment with this label. It must be registered."""
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
    """Whether an option, or anything in it, may be a path or a URL. The run folder may be a
    stranger's.
    """
    if isinstance(option, dict):
        return any(map(_names_something_outside, option.values()))
    if isinstance(option, list):
        return any(map(_names_something_outside, option))
    return isinstance(option, str) and ("/" in option or "\\" in option)


async def _play(pool: Workers, recorded: Trajectory) -> list[dict[str, Any]]:
    """The scene before each turn and after the last one."""
    slot = await pool.open()
    try:
        watched, own = _Watched(slot), replace(recorded.task, env=envs[pool.name].name)
        checked: list[CheckedTurn] = []
        await retrace(watched, own, recorded, len(recorded.turns), checked)
    finally:
        await slot.close()
    if differing := Check(recorded, checked).differing:
        raise NoScenes(f"turn {differing[0]} is answered differently by this version")
    if None in watched.scenes:
        raise NoScenes(f"{pool.name} has no scenes")
    changes = iter(watched.scenes)
    shown = [next(changes)]
    for turn in recorded.turns:
        # A reply without an action never reached the environment, so the scene is the same.
        shown.append(shown[-1] if turn.action is None else next(changes))
    return [scene for scene in shown if scene is not None]


class _Watched:
    """An environment whose scene is recorded after each answer."""

    def __init__(self, slot: EnvSlot) -> None:
        self.scenes: list[dict[str, Any] | None] = []
        self._slot = slot

    async def reset(self, task: Task) -> str:
        observation = await self._slot.reset(task)
        self.scenes.append(await self._slot.scene())
        return observation

    async def step(self, action: str) -> Step:
        step = await self._slot.step(action)
        self.scenes.append(await self._slot.scene())
        return step
