"""SciWorld (arXiv:2203.07540): elementary science tasks in a simulated house, from boiling water to
Mendelian genetics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from palestra.core.registry import nearest
from palestra.core.types import Step, Task
from palestra.envs.agenteval import agenteval_number, no_such_task
from palestra.envs.base import UNLISTED, Environment
from palestra.envs.sciworld.examples import worked_examples
from palestra.envs.sciworld.gold import gold_path
from palestra.envs.sciworld.java import Simulator, borrow_simulator, find_java
from palestra.envs.sciworld.refusal import NOT_UNDERSTOOD, explained
from palestra.envs.sciworld.text import instructions, normal

VARIATIONS = {
    "boil": 30,
    "change-the-state-of-matter-of": 30,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "find-animal": 300,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "freeze": 30,
    "grow-fruit": 126,
    "grow-plant": 126,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "lifespan-longest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "lifespan-shortest-lived": 125,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "melt": 30,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "use-thermometer": 540,
}
"""The number of variations per kind of task, stored so that listing tasks does not start Java."""
AGENTEVAL_KINDS = (
    "boil",
    "melt",
    "freeze",
    "change-the-state-of-matter-of",
    "use-thermometer",
    "measure-melting-point-known-substance",
    "measure-melting-point-unknown-substance",
    "power-component",
    "power-component-renewable-vs-nonrenewable-energy",
    "test-conductivity",
    "test-conductivity-of-unknown-substances",
    "find-living-thing",
    "find-non-living-thing",
    "find-plant",
    "find-animal",
    "chemistry-mix",
    "chemistry-mix-paint-secondary-color",
    "chemistry-mix-paint-tertiary-color",
    "lifespan-longest-lived",
    "lifespan-shortest-lived",
    "lifespan-longest-lived-then-shortest-lived",
    "identify-life-stages-1",
    "identify-life-stages-2",
)
"""AgentGym's kinds of tasks in its order, which is the package's: its task n is the n-th of their
4,639 variations.

It leaves out the package's topics 5, 9 and 10: growing plants, inclined planes and genetics.
"""
ELECTRICAL = ("power-component", "conductivity")
"""Substrings of the names of electrical tasks."""
SIMPLIFICATIONS = (
    "easy",
    "noElectricalAction",
    "openContainers",
    "openDoors",
    "selfWateringFlowerPots",
    "teleportAction",
)

LONGEST_OBSERVATION = 4000
TEXTS_OF_A_KIND = 8
"""Training tasks per kind for the tokenizer of a randomly initialized model."""
AMBIGUOUS = "Ambiguous request"


Style = Literal["text", "compact"]


class Taken(NamedTuple):
    """An action of this episode."""

    action: str
    took_time: bool
    is_asked: bool
    """Whether the simulator now waits for the number of the intended object."""


class SciWorld(Environment):
    """ScienceWorld. The reward is the change of the score, so rewards add up to the final score.

    A task fails if the score falls below 0, which happens by focusing on a wrong object: the
    episode ends, and its rewards add up to 0. Points that a task starts with are rewarded with the
    first valid action.
    """

    name: ClassVar[str] = "sciworld"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")

    def __init__(
        self,
        *,
        kinds: Sequence[str] | None = None,
        simplifications: str = "",
        max_moves: int = 100,
        heap_mb: int = 4096,
        explain: bool = False,
        style: Style = "text",
    ) -> None:
        """`kinds`: of tasks, such as "boil". Default: all. `simplifications`: ScienceWorld's own,
        "easy" or others, separated by commas.

        `max_moves`: the limit at which an episode is truncated, on the simulator's clock; 100 is
        ScienceWorld's own limit. `heap_mb`: the heap limit of the Java process that all
        environments of a process share; the first environment's value applies. A game takes about
        11 MB. `explain`: describe what is wrong with an invalid action and where the agent is,
        instead of the simulator's fixed sentence. `style`: "compact" omits instructions and
        examples, for a small randomly initialized model that learns the format by imitation.
        """
        if isinstance(kinds, str):
            raise ValueError(f"sciworld: kinds is {kinds!r}; it must be a list of kinds of tasks")
        self.kinds = tuple(VARIATIONS) if kinds is None else tuple(kinds)
        self.simplifications = simplifications
        self.max_turns = self.max_moves = max_moves
        self.heap_mb = heap_mb
        self.explain = explain
        _check_options(self.kinds, simplifications, max_moves, heap_mb, style)
        find_java()
        if style == "text":
            self.instructions = instructions(simplifications.split(","))
            self.example = worked_examples(simplifications.split(","))
        self._simulator: Simulator | None = None
        self._task: Task | None = None
        self._ending: Step | None = None
        """The answer to every action after the end of the episode."""
        self._moves = 0
        self._paid = 0
        """Points rewarded so far."""
        self._taken: list[Taken] = []

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ValueError(f"sciworld has no split {split!r}; {nearest(split, self.splits)}")
        tasks: list[Task] = []
        for kind in self.kinds:
            for variation in _variations(VARIATIONS[kind])[split]:
                tasks.append(Task(self.name, split, f"{kind}/{variation}", kind))
        return tasks

    def task(self, id: str) -> Task:
        """Any kind is accepted, and AgentEval's ids too."""
        number = agenteval_number(self.name, id)
        kind, variation = _parsed(id) if number is None else _agenteval(number)
        if "noElectricalAction" in self.simplifications.split(",") and _is_electrical(kind):
            raise ValueError(
                f"sciworld: noElectricalAction leaves {id} ({kind}) without a solution"
            )
        places = _variations(VARIATIONS[kind]) if kind in self.kinds else {}
        split = next(
            (split for split, variations in places.items() if variation in variations), UNLISTED
        )
        return Task(self.name, split, f"{kind}/{variation}", kind)

    def reset(self, task: Task) -> str:
        kind, variation = _parsed(task.id)
        if self._simulator is None or not self._simulator.is_usable:
            self._simulator = borrow_simulator(self.heap_mb)
        description = self._simulator.load(kind, variation, self.simplifications)
        opening = self._simulator.step("look around")
        self._task, self._ending, self._taken = task, None, []
        self._moves, self._paid = opening.moves, 0
        return f"{description}\n\n{_shortened(opening.observation)}"

    def step(self, action: str) -> Step:
        simulator = self._playing()
        if self._ending is not None:
            return self._ending
        words = normal(action)
        outcome = simulator.step(words)
        invalid = outcome.observation == NOT_UNDERSTOOD
        self._taken.append(
            Taken(words, outcome.moves > self._moves, outcome.observation.startswith(AMBIGUOUS))
        )
        self._moves = outcome.moves
        points = self._paid if invalid else max(outcome.score, 0)
        reward, self._paid = (points - self._paid) / 100, points
        terminated = outcome.is_completed or outcome.score < 0
        truncated = not terminated and outcome.moves > self.max_moves
        over = terminated or truncated
        success = outcome.score == 100 if over else None
        info: dict[str, Any] = {"score": outcome.score, "moves": outcome.moves}
        observation = _shortened(outcome.observation)
        if invalid and self.explain:
            observation = explained(words, *simulator.room_and_inventory())
        if over:
            observation += f"\n{_verdict(success, terminated)}"
            self._ending = Step(
                "The episode is over.",
                terminated=terminated,
                truncated=truncated,
                success=success,
                info=info,
            )
        return Step(
            observation,
            reward,
            terminated=terminated,
            truncated=truncated,
            success=success,
            invalid=invalid,
            info=info,
        )

    def actions(self) -> list[str]:
        """All valid actions: hundreds, most of them useless. Slower than a step."""
        simulator = self._playing()
        return [] if self._ending is not None else simulator.actions()

    def expert(self) -> str | None:
        """The next action of the simulator's own solution, as long as the episode follows it. Other
        actions are allowed if they take no time.

        Also None if the solution takes more moves than are allowed.
        """
        self._playing()
        if self._ending is not None:
            return None
        assert self._task is not None
        gold = gold_path(*_parsed(self._task.id), self.simplifications, self.heap_mb)
        if gold.moves > self.max_moves or len(gold.actions) > self.max_turns:
            return None
        return _next(gold.actions, self._taken)

    def texts(self) -> Iterable[str]:
        """What the expert sees and does in some training tasks of each kind."""
        for kind in self.kinds:
            variations = _variations(VARIATIONS[kind])["train"]
            for variation in variations[:: -(-len(variations) // TEXTS_OF_A_KIND)]:
                yield from self._expert_texts(Task(self.name, "train", f"{kind}/{variation}", kind))

    def _expert_texts(self, task: Task) -> Iterator[str]:
        yield self.reset(task)
        while (action := self.expert()) is not None:
            yield action
            yield self.step(action).observation

    def scene(self) -> dict[str, Any]:
        """Where the agent is, and which of the simulator's own goals are reached."""
        progress = self._playing().progress()
        goals = [
            {"text": goal.text, "is_done": goal.is_done, "is_optional": goal.is_optional}
            for goal in progress.goals
        ]
        return {
            "kind": "sciworld",
            "score": progress.score,
            "moves": progress.moves,
            "goals": goals,
            "location": progress.location,
        }

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.give_back()
            self._simulator = None

    def _playing(self) -> Simulator:
        if self._simulator is None:
            raise RuntimeError("sciworld: call reset(task) before this")
        return self._simulator


def _next(gold: Sequence[str], taken: Sequence[Taken]) -> str | None:
    """The next action of a path. None if the game has left it, or if the simulator waits for the
    answer to an ambiguous action that is not on the path.
    """
    position, is_asked = 0, False
    for turn in taken:
        if not is_asked and position < len(gold) and turn.action == gold[position]:
            position += 1
        elif turn.took_time:
            return None
        else:
            is_asked = turn.is_asked
    return gold[position] if not is_asked and position < len(gold) else None


def _parsed(id: str) -> tuple[str, int]:
    """The kind of a task and its variation."""
    kind, _, variation = id.partition("/")
    if kind not in VARIATIONS:
        raise no_such_task(
            "sciworld",
            id,
            shape="<kind>/<variation>",
            example="boil/3",
            name=kind,
            names=VARIATIONS,
        )
    is_number = variation.isascii() and variation.isdecimal() and len(variation) < 10
    if not is_number or int(variation) >= VARIATIONS[kind]:
        raise ValueError(
            f"sciworld has no task {id[:100]!r}: the variations of {kind} go from 0 to "
            f"{VARIATIONS[kind] - 1}"
        )
    return kind, int(variation)


def _agenteval(number: int) -> tuple[str, int]:
    """The kind and the variation of AgentGym's task of that number."""
    variation = number
    for kind in AGENTEVAL_KINDS:
        if variation < VARIATIONS[kind]:
            return kind, variation
        variation -= VARIATIONS[kind]
    raise ValueError(
        f"sciworld has no task 'sciworld_{number}'; AgentEval's go from sciworld_0 to "
        f"sciworld_{number - variation - 1}"
    )


@cache
def _variations(count: int) -> dict[str, range]:
    """ScienceWorld's own splits: two quarters, one, and the rest."""
    quarter = count // 4
    return {
        "train": range(2 * quarter),
        "dev": range(2 * quarter, 3 * quarter),
        "test": range(3 * quarter, count),
    }


def _is_electrical(kind: str) -> bool:
    return any(word in kind for word in ELECTRICAL)


def _shortened(text: str) -> str:
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return text if len(text) <= LONGEST_OBSERVATION else f"{text[:LONGEST_OBSERVATION]} ..."


def _verdict(success: bool | None, terminated: bool) -> str:
    if success:
        return "The task is done."
    return "The task is failed: that was the wrong thing." if terminated else "Time is up."


def _check_options(
    kinds: Sequence[str], simplifications: str, max_moves: int, heap_mb: int, style: str
) -> None:
    if not kinds:
        raise ValueError("sciworld: kinds must name at least one kind of task, or be None for all")
    if len(kinds) != len({*kinds}):
        raise ValueError(f"sciworld: a kind is named twice in {', '.join(kinds)}")
    for kind in kinds:
        if kind not in VARIATIONS:
            raise ValueError(f"sciworld has no kind of task {kind!r}; {nearest(kind, VARIATIONS)}")
    chosen = simplifications.split(",") if simplifications else []
    for simplification in chosen:
        if simplification not in SIMPLIFICATIONS:
            raise ValueError(
                f"sciworld: simplifications is {simplifications!r}; "
                f"{nearest(simplification, SIMPLIFICATIONS)}"
            )
    if "easy" in chosen and len(chosen) > 1:
        raise ValueError(f"sciworld: simplifications is {simplifications!r}; 'easy' stands alone")
    if style not in get_args(Style):
        raise ValueError(f"sciworld: style is {style!r}; {nearest(style, get_args(Style))}")
    wired = [kind for kind in kinds if _is_electrical(kind)]
    if "noElectricalAction" in chosen and wired:
        raise ValueError(
            f"sciworld: noElectricalAction leaves {', '.join(wired)} without a solution; "
            "name other kinds"
        )
    for option, value, least in (("max_moves", max_moves, 1), ("heap_mb", heap_mb, 64)):
        if value < least:
            raise ValueError(f"sciworld: {option} is {value}; it must be at least {least}")
