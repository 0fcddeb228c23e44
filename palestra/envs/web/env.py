"""The base of environments on web sites: a real browser observed through its accessibility tree,
WebArena's actions, and an evaluation when the agent stops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, get_args

from palestra.core.registry import nearest
from palestra.core.types import Example, Step, Task
from palestra.envs.base import Environment
from palestra.envs.web.actions import Action, ActionError, parse, usage
from palestra.envs.web.browsing import Browsing, offered
from palestra.envs.web.evaluators import solved
from palestra.envs.web.hosting import Hosting
from palestra.envs.web.session import Observation
from palestra.envs.web.solutions import Expert
from palestra.envs.web.tab import Look, Shown
from palestra.envs.web.tasks import WebTask
from palestra.envs.web.template import Template

INSTRUCTIONS = """\
You do a task on web sites with a browser. Each turn you see the page: its URL, the open tabs, and \
a line for each element. What you can \
act on has a number in front, which actions call its id. A long page is shown by the screenful: \
scroll to see more.

Each turn you take one action:
{actions}

When the task is done, or when you know the answer, take the action stop. If it cannot be done, \
answer N/A."""

EXAMPLE = (
    Example(
        observation="Task: What does the red mug cost?\nURL: http://shop.example/\n[1] searchbox "
        '"Search"\n[2] button "Search"',
        thought="I have to find the red mug first.",
        action="type [1] [red mug] [1]",
    ),
    Example(
        observation='URL: http://shop.example/search?q=red+mug\n[1] searchbox "Search" value="red '
        'mug"\n[3] link "Red mug"\n12.50',
        thought="The price of the red mug is 12.50.",
        action="stop [12.50]",
    ),
)


class Ending:
    """The state that an evaluation inspects at the end of an episode."""

    def __init__(self, answer: str, url: str, browsing: Browsing, hosting: Hosting) -> None:
        self.answer, self.url = answer, url
        self._browsing, self._hosting = browsing, hosting

    def text(self, url: str, locator: str) -> str:
        return str(self._browsing.run(self._browsing.session.text(url, locator)))

    def query(self, site: str, sql: str) -> list[list[Any]]:
        return self._hosting.query(site, sql)

    def changed_tables(self, site: str) -> Sequence[str]:
        return self._hosting.changed_tables(site)


class WebEnvironment(Environment):
    """Tasks on web sites. A subclass provides the tasks and the addresses of their sites."""

    per_process: ClassVar[int] = 8
    example: Sequence[Example] = EXAMPLE

    def __init__(
        self,
        *,
        sites: Sequence[str] | None = None,
        templates: Sequence[str] | None = None,
        changes: bool | None = None,
        shown: Shown = "auto",
        max_chars: int = 8000,
        max_turns: int = 30,
    ) -> None:
        """`sites`, `templates`: only tasks on these sites, and of these templates. `changes`: only
        tasks that change data (True), or only tasks that do not (False).

        `shown`: "page", "viewport", or "auto", which shows the whole page unless it is longer than
        `max_chars`.
        """
        self._sites = _names("sites", sites)
        self._templates = _names("templates", templates)
        self._changes = changes
        if shown not in get_args(Shown):
            raise ValueError(f"shown = {shown!r}: {nearest(shown, get_args(Shown))}")
        for option, value, least in (("max_chars", max_chars, 500), ("max_turns", max_turns, 1)):
            if value < least:
                raise ValueError(f"{option} = {value}: it must be at least {least}")
        self.max_turns = max_turns
        self.instructions = INSTRUCTIONS.format(actions=usage())
        self._browsing = Browsing(Look(shown=shown, max_chars=max_chars))
        self._hosting = self._hosted()
        self._task: WebTask | None = None
        self._ending: Step | None = None
        self._expert: Expert | None = None

    @abstractmethod
    def _hosted(self) -> Hosting:
        """Where the sites are."""

    @abstractmethod
    def _known(self, split: str) -> Mapping[str, WebTask]:
        """All tasks of a split, by id."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; {nearest(split, self.splits)}")
        known = self._known(split)
        chosen = [
            Task(self.name, split, id, str(task.intent_template_id))
            for id, task in known.items()
            if self._is_chosen(task)
        ]
        if known and not chosen:
            there = sorted(set(chain.from_iterable(task.sites for task in known.values())))
            raise ValueError(
                f"{self.name}: no task of {split} fits these options; its sites are: "
                f"{', '.join(there)}"
            )
        return chosen

    def _is_chosen(self, task: WebTask) -> bool:
        return (
            (self._sites is None or {*task.sites} <= {*self._sites})
            and (self._templates is None or task.intent_template_id in self._templates)
            and (self._changes is None or task.require_reset == self._changes)
        )

    def reset(self, task: Task) -> str:
        found = self._known(task.split).get(task.id)
        if found is None:
            raise ValueError(
                f"{self.name} has no task {task.id!r} in {task.split}; "
                f"{nearest(task.id, self._known(task.split))}"
            )
        self.close()
        beginning = self._hosting.begin(found)
        seen = self._browsing.begin(self._hosting.reach, beginning)
        self._task, self._ending = found, None
        self._expert = self._solving(found, seen)
        return f"Task: {found.intent}\n{seen.text}"

    def _template(self, task: WebTask) -> Template | None:
        """The task's template, whose solution is the expert. By default there is none."""
        return None

    def _solving(self, task: WebTask, seen: Observation) -> Expert | None:
        template = self._template(task)
        if template is None:
            return None
        return Expert(lambda page: template.solve(page, task.instantiation_dict), seen)

    def step(self, action: str) -> Step:
        if self._ending is not None:
            return self._ending
        if self._task is None:
            raise RuntimeError(f"{self.name}: call reset(task) before this")
        try:
            wanted = parse(action)
            if wanted.kind == "stop":
                step = self._stop(wanted)
            else:
                step = _step(self._browsing.act(wanted))
        except ActionError as error:
            step = Step(f"{error}\n{self._browsing.observation.text}", invalid=True)
        if self._expert is not None:
            self._expert.done(action, self._browsing.observation)
        return step

    def _stop(self, action: Action) -> Step:
        success = self._is_solved(action.text)
        self._ending = Step("The task is over.", terminated=True, success=success)
        return Step(
            "The task is over.",
            reward=float(success),
            terminated=True,
            success=success,
            info={"answer": action.text},
        )

    def _is_solved(self, answer: str) -> bool:
        assert self._task is not None
        ending = Ending(answer, self._browsing.observation.url, self._browsing, self._hosting)
        return solved(self._hosting.placed(self._task.eval), ending)

    def actions(self) -> list[str]:
        """Clicks, choices, scrolling, and stopping without an answer."""
        if self._ending is not None:
            return []
        return [*offered(self._browsing.observation), "stop []"]

    def expert(self) -> str | None:
        """The next action of the task's scripted solution, as long as the episode follows it."""
        if self._expert is None or self._ending is not None:
            return None
        return self._expert.action()

    def scene(self) -> dict[str, Any]:
        return self._browsing.scene()

    def close(self) -> None:
        self._browsing.end()
        self._hosting.end()


def _step(seen: Observation) -> Step:
    return Step(seen.text, info={"marks": list(seen.marks)} if seen.marks else {})


def _names(option: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise ValueError(f"{option} = {names!r}: it must be a list of names")
    return None if names is None else tuple(names)
