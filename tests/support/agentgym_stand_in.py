"""A small server that speaks as AgentGym's do, row by row of their field tables, and that can be
made to fail.
"""

import asyncio
import re
import threading
from contextlib import contextmanager

from aiohttp import web

WORDS = ("red", "blue", "green")
BY_ID = ("textcraft", "babyai", "sciworld", "alfworld", "maze", "wordle")
BY_ENV_IDX = (
    "webarena",
    "searchqa",
    "webshop",
    "sqlgym",
    "weather",
    "movie",
    "academia",
    "todo",
    "sheet",
)
TOOLS = ("weather", "movie", "academia", "todo", "sheet")
TASK_FIELD = {
    **{
        "textcraft": "data_idx",
        "babyai": "data_idx",
        "sciworld": "data_idx",
        "alfworld": "game",
        "maze": "game",
        "wordle": "seed",
    },
    **{
        "webarena": "idx",
        "webshop": "session_id",
        "sqlgym": "item_id",
        "searchqa": "id",
        **dict.fromkeys(TOOLS, "id"),
    },
}


class Game:
    """Say the word of the task: once, in sciworld twice."""

    def __init__(self, env):
        self.env = env
        self.begin(0)

    def begin(self, number):
        self.word, self.turns, self.reward, self.score, self.done = (
            WORDS[number % 3],
            0,
            0,
            0,
            False,
        )

    def observe(self):
        return f"say {self.word}"

    def act(self, action):
        self.turns += 1
        right = action == self.word
        if self.env == "sciworld":
            before = self.score
            if right:
                self.score += 50
            elif action == "focus on rat":
                self.score = -100
            self.reward, self.done = self.score - before, self.score in (100, -100)
        elif self.env == "babyai":
            if action in WORDS:
                self.reward = 1 - 0.9 * self.turns / 20 if right else 0
                self.done = self.reward > 0.5  # a late success is no end, as with theirs
            self.score += self.reward  # again on every later call, as with theirs
        else:
            self.reward, self.done = (1, True) if right else (0, False)
        return "right" if right else "wrong"


class Wordle(Game):
    """LMRL-Gym's game pays -1 for a guess and 0 for the word, and ends with the sixth guess;
    AgentGym's server adds 1.
    """

    def act(self, action):
        self.turns += 1
        right = action.replace(" ", "") == self.word
        self.reward, self.done = (0 if right else -1) + 1, right or self.turns == 6
        return "g g g g" if right else "b b b b"


class Maze(Game):
    """AgentGym's server pays 1 at the goal and 0 elsewhere; LMRL-Gym's ends a game of 50 moves at
    the next one, for -1.
    """

    def act(self, action):
        if self.turns >= 50:
            self.reward, self.done = -1.0, True
            return "Failure\n"
        self.turns += 1
        right = action == self.word
        self.reward, self.done = (1.0, True) if right else (0, False)
        return "Success\n" if right else "There is a wall above you."


class Page(Game):
    """WebArena's browser pays 1 for every action that it could do; at `stop` the reward is whether
    the task is solved.
    """

    def observe(self):
        return f"OBSERVATION:\n[1] button\nOBJECTIVE: say {self.word}"

    def act(self, reply):
        block = re.search(r"```((.|\n)*?)```", reply)
        self.reward = 0
        if block is None:
            return f"Cannot parse action from response {reply}"
        answer = re.fullmatch(r"stop \[(.*)\]", block[1].strip())
        self.done = answer is not None
        self.reward = float(answer[1] == self.word) if answer else 1.0
        return self.observe()


class Tool(Game):
    """The highest share of the goal so far is told with every answer, and weather tells any as 1.
    `finish` ends the task; todo then compares its lists, too, which `spoil` has changed."""

    def begin(self, number):
        super().begin(number)
        self.spoiled = False

    def act(self, reply):
        assert reply.startswith("Action: ")
        action = reply.removeprefix("Action: ")
        share = 0.5 if action == "half" else float(action == self.word)
        self.reward = max(self.reward, 1.0 if share and self.env == "weather" else share)
        self.spoiled = self.spoiled or action == "spoil"
        self.done = action == "finish"
        if self.done and self.env == "todo":
            self.reward = float(self.reward == 1.0 and not self.spoiled)
        return "Observation: done\nGive me one action."


GAMES = {"wordle": Wordle, "maze": Maze, "webarena": Page, **dict.fromkeys(TOOLS, Tool)}


class StandIn:
    """One environment, as their servers serve it: sequential numbers, errors as 200."""

    def __init__(self, env, *, can_close=True):
        self.env = env
        self.key = "id" if env in BY_ID else "env_idx"
        self.games: dict[int, Game] = {}
        self.closed: list[int] = []
        self.paths: list[str] = []
        self.fault = ""
        """error | 500 | hang | nonsense | no fields | number as text: for /reset and /step. hang at
        close: for /close. timeout: webarena's /reset."""
        self.app = web.Application()
        for path in ("/create", "/reset", "/step", *(["/close"] if can_close else [])):
            self.app.router.add_post(path, self.answer)
        self.app.router.add_get("/observation", self.show)

    async def show(self, request):
        return web.json_response(self.games[int(request.query[self.key])].observe())

    async def answer(self, request):
        self.paths.append(request.path)
        body = await request.json() if request.can_read_body else {}
        if self.fault not in ("", "timeout") and request.path in ("/reset", "/step"):
            return await self.fail()
        if self.fault == "hang at close":
            await asyncio.sleep(20)
        try:
            return web.json_response(getattr(self, request.path[1:])(body))
        except Exception as error:
            return web.json_response({"error": str(error)})

    async def fail(self):
        if self.fault == "hang":
            await asyncio.sleep(20)
        if self.fault == "nonsense":
            return web.Response(text="<html>hello</html>")
        if self.fault == "500":
            return web.Response(text="Internal Server Error", status=500)
        odd = {"observation": "hello", "reward": "a lot", "done": False}
        return web.json_response(
            {"error": {"error": "the simulator\nbroke"}, "no fields": {}, "number as text": odd}[
                self.fault
            ]
        )

    def create(self, body):
        number = len(self.games)
        self.games[number] = GAMES.get(self.env, Game)(self.env)
        if self.env == "textcraft":
            return {
                "id": number,
                "observation": self.games[number].observe(),
                "done": False,
                "reward": 0,
            }
        if self.env in BY_ID:
            return {"id": number}
        if self.env == "webarena":
            return {"env_idx": number}
        if self.env in ("searchqa", *TOOLS):
            assert type(body["id"]) is int
        return number

    def reset(self, body):
        game, task = self.games[body[self.key]], body[TASK_FIELD[self.env]]
        assert type(task) is int
        game.begin(task)
        observation = game.observe()
        if self.env == "textcraft":
            return {"id": body["id"], "observation": observation, "done": False, "reward": 0}
        if self.env == "babyai":
            return {
                "observation": observation,
                "reward": 0,
                "score": 0,
                "deleted": False,
                "done": False,
            }
        if self.env == "sciworld":
            names = {
                "task_name": "say",
                "var_num": task,
                "task_description": "Your task is to say the word twice.",
            }
            return {
                **names,
                "observation": observation,
                "reward": 0,
                "score": 0,
                "deleted": False,
                "done": False,
            }
        if self.env == "alfworld":
            assert body["world_type"] == "Text"
            return {
                "id": body["id"],
                "observation": observation,
                "available_actions": list(WORDS),
                "task_type": "say",
            }
        if self.env == "webarena":
            assert body["seed"] == 0
            page = (
                "TimeoutError"
                if self.fault == "timeout"
                else observation.partition("\nOBJECTIVE")[0]
            )
            # Without the goal, which comes with /observation.
            return {"observation": page, "sites": [], "object": None}
        if self.env in ("webshop", "sqlgym"):
            return [observation, None]
        return (
            {"observation": observation, "reward": 0, "done": False}
            if self.env in BY_ID
            else observation
        )

    def step(self, body):
        game, action = self.games[body[self.key]], body["action"]
        if game.done and self.env in ("babyai", "sciworld", "alfworld", "maze", "wordle"):
            raise ValueError(f"The task with environment {body[self.key]} has finished.")
        said = game.act(action)
        if self.env == "webarena":
            return {
                "observation": said,
                "reward": game.reward,
                "terminated": game.done,
                "truncated": False,
                "info": {},
            }
        answer = {
            "state" if self.env in ("webshop", "sqlgym") else "observation": said,
            "reward": game.reward,
            "done": game.done,
        }
        if self.env in ("babyai", "sciworld"):
            answer["score"] = game.score
        if self.env == "alfworld":
            answer["available_actions"] = list(WORDS)
        return answer | ({"info": None} if self.env in ("searchqa", "webshop", "sqlgym") else {})

    def close(self, body):
        self.closed.append(body[self.key])
        return {"closed": True}


@contextmanager
def running(app):
    """The address of `app`, served by a thread."""
    started, stop, address = threading.Event(), threading.Event(), []

    async def serve():
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        while not stop.is_set():
            await asyncio.sleep(0.01)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield address[0]
    finally:
        stop.set()
        thread.join(10)
