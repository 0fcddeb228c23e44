"""Play an environment in a browser: games in worker processes, with hints from the expert and a
trained agent.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from palestra.core.registry import nearest
from palestra.core.types import Step, Task
from palestra.envs.serving.catalogue import Catalogue, Served
from palestra.envs.serving.handles import EnvFault, EnvTimeout
from palestra.envs.serving.wire import WireError
from palestra.envs.serving.worker_pool import EnvSlot, Workers
from palestra.view.agent import CannotReply, Exchange, Reply, RunAgent

MOST_GAMES = 16
IDLE_S = 30 * 60.0
LOOK_EVERY_S = 30.0
"""How often abandoned games are looked for."""
TASKS_LISTED = 1000
DEADLINE_S = 60.0

T = TypeVar("T")


class Start(msgspec.Struct, forbid_unknown_fields=True):
    env: str
    split: str
    task: str | None = None
    """Its id; None for a random task."""
    options: dict[str, Any] = {}


class InGame(msgspec.Struct, forbid_unknown_fields=True):
    session: str


class Act(InGame):
    action: str


@dataclass(eq=False)
class Game:
    env: str
    task: Task
    slot: EnvSlot
    observation: str
    last_call: float
    past: list[Exchange] = field(default_factory=list)
    proposed: Reply | None = None
    """The agent's reply to this observation, if it was asked."""
    asked: int = 0
    is_over: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Games:
    """All games in progress. A session's name, which is random, gives access to its game.

    Raises ValueError if an environment cannot be created.
    """

    def __init__(
        self,
        served: list[Served],
        agent: RunAgent | None = None,
        *,
        idle_s: float = IDLE_S,
        most: int = MOST_GAMES,
    ) -> None:
        self.catalogue = Catalogue(served)
        self.served = dict(zip(self.catalogue.about, served, strict=True))
        self._pools: dict[str, Workers] = {}
        for name, one in self.served.items():
            # A process for each game, so that one that hangs does not stop others.
            limits = replace(one.limits, per_worker=1)
            self._pools[name] = Workers(one.name, one.options, limits)
        self.agent, self.idle_s, self.most = agent, idle_s, most
        self._games: dict[str, Game] = {}

    def about(self) -> dict[str, Any]:
        envs = []
        for one in self.catalogue.about.values():
            envs.append({"name": one.name, "splits": one.splits, "max_turns": one.max_turns})
        return {"envs": envs, "agent": str(self.agent.run) if self.agent else None}

    def tasks(self, env: str, split: str) -> dict[str, Any]:
        page = self.catalogue.page(env, split, 0, TASKS_LISTED)
        return {"tasks": [task.id for task in page.tasks]}

    async def start(self, asked: Start) -> dict[str, Any]:
        if asked.options:
            raise WireError(
                "bad_request", "options: those of an environment are given on the command line"
            )
        about, task = self.catalogue.describe(asked.env), self._task(asked)
        while len(self._games) >= self.most:
            await self._end(min(self._games, key=lambda name: self._games[name].last_call))
        slot = None
        try:
            slot = await self._pools[about.name].open()
            observation = await slot.reset(task)
            actions, scene = await slot.actions(), await slot.scene()
        except EnvFault as fault:
            if slot is not None:
                await slot.close()
            raise _refusal(fault) from fault
        session = secrets.token_urlsafe(24)
        self._games[session] = Game(about.name, task, slot, observation, time.monotonic())
        return {
            "session": session,
            "task": task.id,
            "category": task.category,
            "observation": observation,
            "instructions": about.instructions,
            "max_turns": about.max_turns,
            "actions": actions,
            "scene": scene,
        }

    async def step(self, asked: Act) -> dict[str, Any]:
        async with self._turn(asked.session) as game:
            if game.is_over:
                raise WireError("out_of_order", "the episode is over; start another")
            step = await game.slot.step(asked.action)
            ids = None
            if game.proposed is not None and game.proposed.action == asked.action:
                ids = game.proposed.ids  # the agent's reply was taken: it sees its own tokens
            game.past.append(Exchange(game.observation, asked.action, ids))
            game.observation, game.proposed = step.observation, None
            game.is_over = step.terminated or step.truncated
            actions = [] if game.is_over else await game.slot.actions()
            return {**_as_dict(step), "actions": actions, "scene": await game.slot.scene()}

    async def expert(self, asked: InGame) -> dict[str, Any]:
        async with self._turn(asked.session) as game:
            return {"action": None if game.is_over else await game.slot.expert()}

    async def reply(self, asked: InGame) -> dict[str, Any]:
        if self.agent is None:
            raise WireError(
                "not_found", "there is no agent to ask; palestra play --run RUN brings one"
            )
        async with self._turn(asked.session) as game:
            served, seed = self.served[game.env], game.asked
            game.asked += 1
            try:
                said = await self.agent.reply(
                    served.name, served.options, game.past, game.observation, seed=seed
                )
            except CannotReply as error:
                raise WireError("out_of_order", f"the agent cannot reply: {error}") from error
            # The model cannot be loaded, or its engine failed.
            except (ValueError, OSError, RuntimeError) as error:
                raise WireError("internal", f"the agent cannot be asked: {error}") from error
            game.proposed = said
            return {
                "reply": said.reply,
                "action": said.action,
                "tokens": said.tokens,
                "logprobs": said.logprobs,
            }

    async def end_idle(self) -> None:
        now = time.monotonic()
        for name, game in list(self._games.items()):
            if now - game.last_call > self.idle_s and not game.turn.locked():
                await self._end(name)

    async def close(self) -> None:
        for name in list(self._games):
            await self._end(name)
        for pool in self._pools.values():
            await pool.close()
        if self.agent is not None:
            await self.agent.close()

    def _task(self, asked: Start) -> Task:
        some = self.tasks(asked.env, asked.split)["tasks"]
        known = self.catalogue.tasks[asked.env]
        if asked.task is None:
            return secrets.choice([task for task in known.values() if task.split == asked.split])
        if (asked.split, asked.task) not in known:
            raise WireError(
                "not_found",
                f"{asked.env} has no task {asked.task[:100]!r} in {asked.split}; "
                f"{nearest(asked.task[:100], some)}",
            )
        return known[asked.split, asked.task]

    async def _end(self, name: str) -> None:
        game = self._games.pop(name, None)
        if game is not None:
            await game.slot.close()

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[Game]:
        """Around a call of a game: one at a time. A broken environment ends the game."""
        game = self._games.get(name)
        if game is None:
            raise WireError(
                "not_found", "this game is over or was left alone for too long; start another"
            )
        async with game.turn:
            game.last_call = time.monotonic()
            try:
                yield game
            except EnvFault as fault:
                await self._end(name)
                raise _refusal(fault) from fault
            finally:
                game.last_call = time.monotonic()


def _refusal(fault: EnvFault) -> WireError:
    return WireError(
        "timeout" if isinstance(fault, EnvTimeout) else "env_fault",
        f"the environment broke: {fault}",
    )


def _as_dict(step: Step) -> dict[str, Any]:
    names = ("observation", "reward", "terminated", "truncated", "success", "invalid")
    return {name: getattr(step, name) for name in names}


def add_play_routes(app: web.Application, games: Games) -> None:
    """Add the routes under /api/play/. The server checks that a POST comes from our page."""

    async def about(request: web.Request) -> web.Response:
        return _answer(games.about())

    async def tasks(request: web.Request) -> web.Response:
        return _answer(games.tasks(request.query.get("env", ""), request.query.get("split", "")))

    async def living(app: web.Application) -> AsyncIterator[None]:
        looking = asyncio.create_task(_look(games))
        yield
        looking.cancel()
        await games.close()

    app.router.add_get("/api/play/about.json", about)
    app.router.add_get("/api/play/tasks.json", tasks)
    app.router.add_post("/api/play/start", _call(Start, games.start))
    app.router.add_post("/api/play/step", _call(Act, games.step))
    app.router.add_post("/api/play/expert", _call(InGame, games.expert))
    app.router.add_post("/api/play/agent", _call(InGame, games.reply))
    app.cleanup_ctx.append(living)


async def _look(games: Games) -> None:
    while True:
        await asyncio.sleep(min(LOOK_EVERY_S, games.idle_s))
        await games.end_idle()


def _call(
    kind: type[T], answer: Callable[[T], Awaitable[dict[str, Any]]]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError("bad_request", str(error)) from error
        return _answer(await answer(asked))

    return handle


def _answer(value: dict[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
