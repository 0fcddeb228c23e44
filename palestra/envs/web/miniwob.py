"""MiniWoB++ (arXiv:1802.08802) from the package `miniwob`: small tasks on small offline pages, with
seeds and the package's own rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from palestra.core.registry import nearest
from palestra.core.types import Example, Step, Task
from palestra.envs.base import Environment
from palestra.envs.web.actions import ActionError, parse, usage
from palestra.envs.web.browser import Beginning, Reach
from palestra.envs.web.browsing import Browsing, offered
from palestra.envs.web.files import serve_folder
from palestra.envs.web.miniwob_experts import SOLUTIONS
from palestra.envs.web.miniwob_tasks import CATEGORIES, FEW_WORDS, OWN_WORDS, TASKS
from palestra.envs.web.session import Observation
from palestra.envs.web.solutions import Expert
from palestra.envs.web.tab import Look

Reward = Literal["positive", "raw"]

HOST = "miniwob.test"
"""A name for the package's pages, which this process serves."""
FIRST_TEST_SEED = 1_000_000
NOT_HERE = (
    "new_tab",
    "tab_focus",
    "close_tab",
    "goto",
    "go_back",
    "go_forward",
    "accept",
    "dismiss",
    "stop",
)

BEGIN = """async () => {
  const started = Date.now(), Clock = Date;
  Date = class extends Clock {
    constructor(...given) { if (given.length) super(...given); else super(Date.now()); }
    static now() { return Clock.now() - started + 1.5e12; }
  };
  const named = 'input, textarea, select, option, button, button *, [role=menuitem] *, br, hr, \
img, canvas, svg, svg *, [aria-label]';
  const nameless = `:not(:has(*), ${named})`;
  const label = () => document.querySelectorAll('#area ' + nameless + ', .ui-dialog ' + \
nameless).forEach(element => {
    const name = (element.className || element.id).split(' ')[0].replace('ui-slider-', 'slider-');
    const isDrawn = element.offsetWidth || getComputedStyle(element).content !== 'normal';
    if (name && isDrawn && !name.startsWith('ui-') && !element.textContent.trim()) \
element.setAttribute('aria-label', name);
  });
  core.EPISODE_MAX_TIME = 1e9;
  core.setDataMode('%s');
  if (window.jQuery) jQuery.fx.off = true;
  Math.seedrandom(%d);
  core.startEpisodeReal();
  for (const id of ['query', 'reward-display', 'click-canvas', 'sync-task-cover']) {
    const element = document.getElementById(id);
    if (element) element.setAttribute('aria-hidden', 'true');
  }
  new MutationObserver(label).observe(document.body, {subtree: true, childList: true});
  label();
  while (typeof WOB_TASK_READY !== 'undefined' && !WOB_TASK_READY) await new Promise(done => \
setTimeout(done, 5));
}"""
"""Starts an episode at a fixed time.

Icons have no text: they are called by their class, as there is nothing else to call them by.
"""
STATE = "({is_done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, task: core.getUtterance()})"
LOOK = Look(
    max_chars=4000,
    number_all=True,
    width=320,
    height=320,
    quiet_ms=10,
    load_s=4.0,
    probe=STATE,
    is_one_page=True,
)

INSTRUCTIONS = """\
You do a small task on a web page. Each turn you see a line for each element of the page, with a \
number in front, which actions call its id.

Each turn you take one action:
{actions}

The task ends by itself, as soon as it is done or gone wrong."""

EXAMPLE = (
    Example(
        observation=(
            'Task: Enter "Ann" into the text field and press Submit.\n[1] textbox\n[2] '
            'button "Submit"'
        ),
        thought="First the text, then the button.",
        action="type [1] [Ann] [0]",
    ),
    Example(
        observation='[1] textbox value="Ann" focused\n[2] button "Submit"',
        thought="Now the button.",
        action="click [2]",
    ),
)


class MiniWob(Environment):
    """MiniWoB++: click, type and choose on small pages."""

    name: ClassVar[str] = "miniwob"
    per_process: ClassVar[int] = 16
    example: Sequence[Example] = EXAMPLE

    def __init__(
        self,
        *,
        tasks: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        train_seeds: int = 100,
        test_seeds: int = 10,
        reward: Reward = "positive",
        max_chars: int = LOOK.max_chars,
        max_turns: int = 15,
    ) -> None:
        """`tasks`: such as "click-button". `categories`: only tasks of these. Default: all tasks
        that can be solved with text.

        `train_seeds`, `test_seeds`: variants of each task in a split; no seed is in both. `reward`:
        "raw" is the package's, from -1 to 1; "positive" replaces negative rewards with 0.
        """
        self._tasks = _chosen(tasks, categories)
        self._seeds = {
            "train": range(train_seeds),
            "test": range(FIRST_TEST_SEED, FIRST_TEST_SEED + test_seeds),
        }
        if reward not in get_args(Reward):
            raise ValueError(f"reward = {reward!r}: {nearest(reward, get_args(Reward))}")
        counts = {"train_seeds": train_seeds, "test_seeds": test_seeds, "max_turns": max_turns}
        for option, value in counts.items():
            if value < 1 or value >= FIRST_TEST_SEED:
                raise ValueError(f"{option} = {value}: it must be from 1 to {FIRST_TEST_SEED - 1}")
        self._reward, self.max_turns = reward, max_turns
        self.instructions = INSTRUCTIONS.format(actions=usage(without=NOT_HERE))
        self._browsing = Browsing(replace(LOOK, max_chars=max_chars))
        self._ending: Step | None = None
        self._expert: Expert | None = None
        self._goal = ""

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ValueError(f"miniwob has no split {split!r}; {nearest(split, self.splits)}")
        tasks: list[Task] = []
        for name in self._tasks:
            tasks += [Task(self.name, split, f"{name}/{seed}", name) for seed in self._seeds[split]]
        return tasks

    def reset(self, task: Task) -> str:
        name, seed = _parsed(task)
        self._ending = None
        beginning = Beginning(f"http://{HOST}/miniwob/{name}.html", (), script=begin_script(seed))
        reach = Reach(((HOST, serve_folder(pages_folder())),))
        seen = self._browsing.begin(reach, beginning, is_fresh=False)
        self._goal = _said(_state(seen)["task"])
        solution = SOLUTIONS.get(name)
        goal = self._goal
        self._expert = None if solution is None else Expert(lambda page: solution(page, goal), seen)
        return f"Task: {self._goal}\n{_tree(seen)}"

    def step(self, action: str) -> Step:
        if self._ending is not None:
            return self._ending
        try:
            wanted = parse(action)
            if wanted.kind in NOT_HERE:
                raise ActionError(f"{wanted.kind} is not done here: all is on one page.")
            seen = self._browsing.act(wanted)
        except ActionError as error:
            return Step(f"{error}\n{_tree(self._browsing.observation)}", invalid=True)
        if self._expert is not None:
            self._expert.done(action, seen)
        state = _state(seen)
        if not state["is_done"]:
            return Step(_tree(seen), info={"marks": list(seen.marks)} if seen.marks else {})
        raw = float(state["reward"])
        self._ending = Step(
            "The task is over.", terminated=True, success=raw > 0, info={"raw_reward": raw}
        )
        return Step(
            "The task is over.",
            reward=raw if self._reward == "raw" else max(raw, 0.0),
            terminated=True,
            success=raw > 0,
            info={"raw_reward": raw},
        )

    def actions(self) -> list[str]:
        """Clicks, choices and scrolling."""
        return [] if self._ending is not None else offered(self._browsing.observation)

    def expert(self) -> str | None:
        """The next action of the task's script. Only some simple tasks have one."""
        if self._expert is None or self._ending is not None:
            return None
        return self._expert.action()

    def scene(self) -> dict[str, Any]:
        return {**self._browsing.scene(), "goal": self._goal}

    def vocabulary(self) -> list[str] | None:
        """The words of tasks that have few, without the filler text on their pages."""
        if not {*self._tasks} <= {*FEW_WORDS}:
            return None
        words: set[str] = set()
        for name in self._tasks:
            words.update(FEW_WORDS[name].split())
        numbers = [f"[{number}]" for number in range(1, 21)]
        return [*OWN_WORDS.split(), *numbers, *sorted(words - {*OWN_WORDS.split()})]

    def close(self) -> None:
        self._browsing.end()


def _said(utterance: Any) -> str:
    """The task's text. Some tasks return it together with its fields."""
    return str(utterance["utterance"] if isinstance(utterance, dict) else utterance)


def _state(seen: Observation) -> dict[str, Any]:
    """The task's state in the page. Unknown while a dialog is open.

    A page without a state otherwise is broken, which is a fault and not a failed episode.
    """
    if seen.probed is None and "dialog" not in seen.marks:
        raise RuntimeError("the page does not say how its task stands")
    return seen.probed or {"is_done": False, "reward": 0.0, "task": ""}


def _tree(seen: Observation) -> str:
    """The page's content, without its URL."""
    return seen.body or "The page is empty."


@cache
def pages_folder() -> Path:
    """Found without importing the package, which would import Selenium."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise RuntimeError("needs the package miniwob; pip install 'palestra[web]'")
    return Path(spec.origin).parent.resolve() / "html"


def begin_script(seed: int) -> str:
    """The script that starts an episode.

    The seed is passed as a number, as in the package: `Math.seedrandom` samples other tasks for the
    same digits in quotes.
    """
    return BEGIN % (_mode(seed), seed)


def _mode(seed: int) -> str:
    """Some tasks have other texts for tests."""
    return "test" if seed >= FIRST_TEST_SEED else "train"


def _parsed(task: Task) -> tuple[str, int]:
    name, _, seed = task.id.partition("/")
    if name not in TASKS:
        raise ValueError(
            f"miniwob has no task {task.id!r}: expected <task>/<seed>; {nearest(name, TASKS)}"
        )
    if not (seed.isascii() and seed.isdecimal() and len(seed) < 10):
        raise ValueError(f"miniwob has no task {task.id!r}: the seed must be a number")
    return name, int(seed)


def _chosen(tasks: Sequence[str] | None, categories: Sequence[str] | None) -> tuple[str, ...]:
    for option, names, known in (("tasks", tasks, TASKS), ("categories", categories, CATEGORIES)):
        if isinstance(names, str) or (names is not None and not names):
            raise ValueError(f"{option} = {names!r}: it must be a list of names")
        for name in names or ():
            if name not in known:
                raise ValueError(f"{option}: miniwob has no {name!r}; {nearest(name, known)}")
    chosen = list(TASKS)
    if tasks is not None:
        chosen = [name for name in chosen if name in tasks]
    if categories is not None:
        chosen = [name for name in chosen if TASKS[name] in categories]
    return tuple(chosen)
