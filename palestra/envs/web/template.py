"""Templates of tasks: an intent with slots, what fills them, when it is done, and how.

class OpenProduct(Template):
    id, sites, split, start = "shop-open-product", ("shop",), "train", "http://shop.test/"
    intent = "Open the page of the product {product}."

    def instances(self) -> list[Slots]:
        return [{"product": "Red mug", "url": "http://shop.test/catalogue/red-mug_3/"}]

    def evaluation(self, slots: Slots) -> Evaluation:
        return ends_at(slots["url"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.type("searchbox", "Search", slots["product"], enter=True)
        yield page.click("link", slots["product"])
        yield stop()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from palestra.envs.web.solutions import Solution, View
from palestra.envs.web.tasks import Evaluation, Split, WebTask

Slots = Mapping[str, Any]
"""The values of an intent's slots, and other data for the evaluation or the solution. JSON."""


class Template(ABC):
    """Tasks that differ only in the values of their slots."""

    id: ClassVar[str]
    """Unique, with the site in front: shop-open-product."""
    sites: ClassVar[tuple[str, ...]]
    split: ClassVar[Split]
    intent: ClassVar[str]
    """The task's text, with slots in braces."""
    start: ClassVar[str]
    users: ClassVar[Mapping[str, str]] = {}
    """By site: who the agent is logged in as."""
    changes: ClassVar[bool] = False
    """Solving it changes something."""

    @abstractmethod
    def instances(self) -> Sequence[Slots]:
        """From the seed's data; the same each time."""

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        """The logged-in users, if they depend on the slots. Default: `users`."""
        return self.users

    @abstractmethod
    def evaluation(self, slots: Slots) -> Evaluation: ...

    @abstractmethod
    def solve(self, page: View, slots: Slots) -> Solution:
        """Yields actions, the last being `stop`. `page` shows the result of the previous one."""

    def tasks(self) -> list[WebTask]:
        return [
            WebTask(
                task_id=f"{self.id}/{number}",
                sites=list(self.sites),
                start_url=self.start,
                intent=self.intent.format(**slots),
                eval=self.evaluation(slots),
                intent_template=self.intent,
                intent_template_id=self.id,
                instantiation_dict=dict(slots),
                require_login=bool(self.logged_in(slots)),
                require_reset=self.changes,
                users=dict(self.logged_in(slots)),
                split=self.split,
            )
            for number, slots in enumerate(self.instances())
        ]
