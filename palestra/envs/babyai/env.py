"""BabyAI (arXiv:1810.08272): follow an instruction in a grid world of rooms.

Observations are text. Actions are macro actions, such as walking to an object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from palestra.core.registry import nearest
from palestra.core.types import Step, Task
from palestra.envs.agenteval import agenteval_number, no_such_task
from palestra.envs.babyai import agentgym, text
from palestra.envs.babyai.agentgym import AgentGymView
from palestra.envs.babyai.expert import BOT_FAILURES, Expert
from palestra.envs.babyai.levels import LEVELS, LONG_LEVELS, make_world
from palestra.envs.babyai.view import WAIT, View, grid_cells
from palestra.envs.base import UNLISTED, Environment

Style = Literal["text", "compact"]
Category = Literal["family", "level"]
Actions = Literal["own", "agentgym"]

FIRST_TEST_SEED = 1_000_000
"""Seeds of training tasks count from 0, seeds of test tasks from here."""
LONGEST_SEED = 18
"""In digits."""


class BabyAI(Environment):
    """minigrid's BabyAI levels. A task is a level and a seed. Success is rewarded once, with
    minigrid's 1 - 0.9 t/T.

    `levels`: names such as "GoToObj", or "short" for the levels that the expert solves within 14
    turns. Default: all. `train_seeds`, `test_seeds`: tasks per level in each split. `style`: "text"
    for language models, "compact" for a word-level tokenizer built from `vocabulary()`. `category`:
    what results are grouped by. `actions`: "agentgym" uses the actions of AgentGym's server, with
    its names, numbers and paths, to replay trajectories recorded there. "own" accepts AgentGym's
    door names, such as "red closed door 1", too.
    """

    name: ClassVar[str] = "babyai"

    def __init__(
        self,
        levels: Sequence[str] | Literal["short"] | None = None,
        style: Style = "text",
        *,
        category: Category = "family",
        actions: Actions = "own",
        train_seeds: int = 100,
        test_seeds: int = 10,
        max_turns: int | None = None,
    ) -> None:
        if levels == "short":
            levels = [level for level in LEVELS if level not in LONG_LEVELS]
        if isinstance(levels, str):
            raise ValueError(
                f'babyai: levels is {levels!r}; it must be a list of levels, or "short"'
            )
        self.levels = tuple(LEVELS) if levels is None else tuple(levels)
        if max_turns is None:
            max_turns = 100 if LONG_LEVELS & {*self.levels} else 20
        self.max_turns = max_turns
        _check_options(
            self.levels, style, category, actions, train_seeds, test_seeds, self.max_turns
        )
        self.style = style
        self.has_own_actions = actions == "own"
        self.category = category
        self.seeds = {
            "train": range(train_seeds),
            "test": range(FIRST_TEST_SEED, FIRST_TEST_SEED + test_seeds),
        }
        if style == "text":
            self.instructions = text.INSTRUCTIONS if self.has_own_actions else agentgym.INSTRUCTIONS
            self.example = text.EXAMPLE if self.has_own_actions else ()
        self._worlds: dict[str, RoomGridLevel] = {}
        self._world: RoomGridLevel | None = None
        self._views: list[View] = []
        """The views of this episode so far."""
        self._over = False
        self._success: bool | None = None
        self._expert: Expert | None = None
        self._advice: str | None = None

    def vocabulary(self) -> list[str] | None:
        """Every word of the compact style, including missions and actions. Does not depend on the
        levels.
        """
        return text.vocabulary() if self.style == "compact" else None

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.seeds:
            raise ValueError(f"babyai has no split {split!r}; {nearest(split, self.seeds)}")
        tasks: list[Task] = []
        for seed in self.seeds[split]:
            tasks += [self._task(split, level, seed) for level in self.levels]
        return tasks

    def task(self, id: str) -> Task:
        """Any level and seed is accepted, and AgentEval's ids too."""
        number = agenteval_number(self.name, id)
        level, seed = _parsed(id if number is None else agentgym.task_id(number))
        if level in self.levels:
            for split, seeds in self.seeds.items():
                if seed in seeds:
                    return self._task(split, level, seed)
        return self._task(UNLISTED, level, seed)

    def _task(self, split: str, level: str, seed: int) -> Task:
        category = LEVELS[level] if self.category == "family" else level
        return Task(self.name, split, f"{level}-{seed}", category)

    def reset(self, task: Task) -> str:
        level, seed = _parsed(task.id)
        if level not in self._worlds:
            self._worlds[level] = make_world(level)
        self._world = self._worlds[level]
        self._world.reset(seed=seed)
        self._views = [
            View(self._world) if self.has_own_actions else AgentGymView.at_start(self._world)
        ]
        self._over, self._success = False, None
        self._expert = self._advice = None
        return self._observation()

    def step(self, action: str) -> Step:
        world = self._playing()
        if self._over:
            return Step(
                self._say("over", "The episode is over."),
                terminated=True,
                success=self._success,
                info=self._info(0.0),
            )
        view, words = self._read(action)
        invalid = words not in view.macros
        # An invalid action takes one time step here and none on AgentGym's server.
        primitives = view.macros.get(words, [WAIT] if self.has_own_actions else [])
        if words != self._advice:
            self._expert = None
        self._advice = None
        reward, terminated, truncated = self._run(world, primitives, view)
        self._views.append(self._look())
        if not (terminated or truncated):
            return Step(
                self._invalid() if invalid else self._observation(),
                invalid=invalid,
                info=self._info(0.0),
            )
        self._over, self._success = True, reward > 0
        # On the last allowed step minigrid reports success as terminated and truncated; here it is
        # terminated.
        return Step(
            self._ending(terminated),
            reward,
            terminated=terminated,
            truncated=not terminated,
            success=self._success,
            invalid=invalid,
            info=self._info(reward),
        )

    def actions(self) -> list[str]:
        self._playing()
        return [] if self._over else list(self._views[-1].macros)

    def expert(self) -> str | None:
        world = self._playing()
        if self._over or not self.has_own_actions:
            return None
        if self._advice is None and self._expert is not None:
            self._advice = self._ask_expert()
        # A new expert knows every cell seen so far. Objects behind doors that were closed since
        # confuse it: the second attempt knows only the current view.
        for views in (self._views, self._views[-1:]):
            if self._advice is None:
                self._expert = self._new_expert(world, views)
                self._advice = self._ask_expert()
        return self._advice

    def scene(self) -> dict[str, Any]:
        """The whole grid. The agent sees only the cells listed under `view`."""
        world, view = self._playing(), self._views[-1]
        carried = view.carried
        carrying = None if carried is None else [carried.type, carried.color]
        return {
            "kind": "grid",
            "width": world.grid.width,
            "height": world.grid.height,
            "cells": grid_cells(world),
            "agent": [view.x, view.y, view.direction],
            "view": [
                [x, y]
                for x, y in view.visible_cells
                if 0 <= x < world.grid.width and 0 <= y < world.grid.height
            ],
            "carrying": carrying,
            "mission": world.mission,
        }

    def close(self) -> None:
        self._worlds.clear()
        self._world = self._expert = None

    def _look(self) -> View:
        world = self._playing()
        return View(world) if self.has_own_actions else AgentGymView(world)

    def _read(self, action: str) -> tuple[View, str]:
        """The view whose object names an action uses, and the action in that view's spelling."""
        words = agentgym.normalize(action)
        if not self.has_own_actions:
            return self._views[-1], words
        if agentgym.names_door(words):
            return AgentGymView(self._playing()), words
        return self._views[-1], text.normalize(action)

    def _run(
        self, world: RoomGridLevel, primitives: list[int], view: View
    ) -> tuple[float, bool, bool]:
        """Take the steps of a macro action until the episode ends: reward, terminated, truncated.

        AgentGym's paths also end at the first step that leaves the view unchanged.
        """
        for primitive in primitives:
            _, reward, terminated, truncated, _ = world.step(primitive)
            if terminated or truncated:
                return float(reward), terminated, truncated
            if self._expert is not None:
                try:
                    self._expert.follow(primitive)
                except BOT_FAILURES:
                    self._expert = None
            if isinstance(view, AgentGymView):
                before, view = view.picture, AgentGymView(world)
                if view.picture == before:
                    break
        return 0.0, False, False

    def _new_expert(self, world: RoomGridLevel, views: list[View]) -> Expert | None:
        seen: list[tuple[int, int]] = []
        for view in views:
            seen += view.visible_cells
        try:
            return Expert(world, seen)
        except BOT_FAILURES:
            return None

    def _ask_expert(self) -> str | None:
        try:
            return self._expert.advise(self._views[-1]) if self._expert is not None else None
        except BOT_FAILURES:
            return None

    def _playing(self) -> RoomGridLevel:
        if self._world is None:
            raise RuntimeError("babyai: call reset(task) before this")
        return self._world

    def _observation(self) -> str:
        world, view = self._playing(), self._views[-1]
        if self.style == "text":
            return f"Your goal: {world.mission}\n{text.text_view(view)}"
        # The first observation stays in the history. Repeating its goal would fill a small context.
        if len(self._views) > 1:
            return text.compact_view(view)
        return f"{text.compact_mission(world.mission)} {text.compact_view(view)}"

    def _ending(self, terminated: bool) -> str:
        if self._success:
            return self._say("success", "The goal is reached.")
        if terminated:
            return self._say("failure", "The goal was missed: that was the wrong thing to do.")
        return self._say("over", f"Time is up: all {self._playing().max_steps} steps are used.")

    def _invalid(self) -> str:
        says = self._say(
            f"{text.INVALID} ; ",
            "That is not a valid action now. It must be one of the available actions, "
            "word for word.\n",
        )
        return says + self._observation()

    def _say(self, compact: str, sentence: str) -> str:
        return compact if self.style == "compact" else sentence

    def _info(self, reward: float) -> dict[str, Any]:
        return {"raw_reward": reward, "steps": self._playing().step_count}


def _parsed(id: str) -> tuple[str, int]:
    """The level and the seed of a task."""
    level, _, seed = id.rpartition("-")
    # The length is limited because int() of thousands of digits raises an error of its own.
    is_seed = seed.isascii() and seed.isdecimal() and len(seed) <= LONGEST_SEED
    if level not in LEVELS or not is_seed:
        raise no_such_task(
            "babyai", id, shape="<level>-<seed>", example="GoToObj-3", name=level, names=LEVELS
        )
    return level, int(seed)


def _check_options(
    levels: Sequence[str],
    style: str,
    category: str,
    actions: str,
    train_seeds: int,
    test_seeds: int,
    max_turns: int,
) -> None:
    if len(levels) != len({*levels}):
        raise ValueError(f"babyai: a level is named twice in {', '.join(levels)}")
    if not levels:
        raise ValueError("babyai: levels must name at least one level, or be None for all")
    for level in levels:
        if level not in LEVELS:
            raise ValueError(f"babyai has no level {level!r}; {nearest(level, LEVELS)}")
    chosen = (
        ("style", style, get_args(Style)),
        ("category", category, get_args(Category)),
        ("actions", actions, get_args(Actions)),
    )
    for option, value, choices in chosen:
        if value not in choices:
            raise ValueError(f"babyai: {option} is {value!r}; {nearest(value, choices)}")
    if actions == "agentgym" and style == "compact":
        raise ValueError(
            'babyai: actions = "agentgym" needs style = "text"; the compact vocabulary '
            "has not all of their words"
        )
    least_allowed = (
        ("train_seeds", train_seeds, 0),
        ("test_seeds", test_seeds, 0),
        ("max_turns", max_turns, 1),
    )
    for option, count, least in least_allowed:
        if count < least:
            raise ValueError(f"babyai: {option} is {count}; it must be at least {least}")
    if train_seeds > FIRST_TEST_SEED:
        raise ValueError(
            f"babyai: train_seeds is {train_seeds}; more than {FIRST_TEST_SEED} would run "
            "into the test seeds"
        )
