"""The environment `webarena`: WebArena's 812 tasks (arXiv:2307.13854) on sites that the user hosts,
from the package `libwebarena`.

Of the package its list of tasks is read, and the questions that it puts to a language model.
Answers and pages are compared as its own evaluators compare them (`webarena_matching`).
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import msgspec

from palestra.core.registry import nearest
from palestra.envs import is_url
from palestra.envs.web.browser import Beginning
from palestra.envs.web.browsing import Browsing
from palestra.envs.web.env import WebEnvironment
from palestra.envs.web.hosting import FixedSites, Hosting
from palestra.envs.web.session import Session
from palestra.envs.web.tab import Shown
from palestra.envs.web.tasks import Evaluation, WebTask
from palestra.envs.web.webarena_judge import judge_at
from palestra.envs.web.webarena_matching import solved
from palestra.envs.web.webarena_tasks import (
    WebArenaCheck,
    WebArenaEvaluation,
    WebArenaTask,
    webarena_tasks,
)

log = logging.getLogger(__name__)

Reset = Literal["all", "pages", "none"]

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map", "homepage")
HELD_OUT = 5
"""One of this many templates is held out."""
RESET_S = 600.0
ASK_S = 30.0
LOAD_S = 30.0
REST_S = 3.0
"""The wait after opening a page for a check, as in WebArena: content may appear after loading."""
CALL = re.compile(r"func:(\w+)\((.*)\)", re.DOTALL)
MEMBER_ROLE = """(() => {
  const names = Array.from(document.querySelectorAll("td[data-label='Account'] \
span.gl-avatar-labeled-sublabel"), cell => cell.outerText);
  const role = document.querySelectorAll("td.col-max-role span")[names.indexOf(%s)];
  return role ? role.outerText : '';
})()"""


class WebArena(WebEnvironment):
    """WebArena's 812 tasks, on sites that you host.

    All of them are in `test`; `train` and `held-out` share no template.
    """

    name: ClassVar[str] = "webarena"
    splits: ClassVar[tuple[str, ...]] = ("test", "train", "held-out")

    def __init__(
        self,
        *,
        urls: Mapping[str, str],
        auth: str = "",
        reset_url: str = "",
        reset: Reset = "all",
        judge_url: str = "",
        judge_model: str = "gpt-4-1106-preview",
        shop_admin: str = "admin:admin1234",
        sites: Sequence[str] | None = None,
        shown: Shown = "viewport",
        max_chars: int = 8000,
        max_turns: int = 30,
    ) -> None:
        """`urls`: the address of each site, such as {"shopping": "http://10.0.0.1:7770"}. Tasks on
        other sites are omitted.

        `auth`: the folder of cookies that WebArena's `auto_login.py` writes. `reset_url`: receives
        {"task": ..., "sites": [...]} before a task, and answers when the sites are reset. `reset`:
        before "all" tasks, before those whose evaluation reads "pages", which are the ones that
        change data, or before "none". `judge_url`: an OpenAI-compatible API whose model
        `judge_model` judges answers that no rule can compare. `shop_admin`: user and password for
        the shop's REST API, which some evaluations use.
        """
        for site, url in urls.items():
            if site not in SITES:
                raise ValueError(f"urls: there is no site {site!r}; {nearest(site, SITES)}")
            if not is_url(url):
                raise ValueError(
                    f"urls.{site} = {url!r}: expected an address such as http://10.0.0.1:7770"
                )
        for option, url, example in (
            ("reset_url", reset_url, "7565/reset"),
            ("judge_url", judge_url, "8000/v1"),
        ):
            if url and not is_url(url):
                raise ValueError(
                    f"{option} = {url!r}: expected an address such as http://10.0.0.1:{example}"
                )
        if reset not in get_args(Reset):
            raise ValueError(f"reset = {reset!r}: {nearest(reset, get_args(Reset))}")
        if reset == "pages" and not reset_url:
            raise ValueError("reset = 'pages': reset_url must say who resets the sites")
        if auth and not Path(auth).is_dir():
            raise ValueError(
                f"auth = {auth!r}: there is no such folder; WebArena's auto_login.py writes it"
            )
        self._urls = dict(urls)
        self._auth, self._reset_url, self._shop_admin = auth, reset_url, shop_admin
        self._reset: Reset = reset
        self._judge = judge_at(judge_url, judge_model)
        super().__init__(sites=sites, shown=shown, max_chars=max_chars, max_turns=max_turns)

    def _hosted(self) -> Hosting:
        return _UserSites(self._urls, self._auth, self._reset_url, self._reset)

    def _known(self, split: str) -> dict[str, WebTask]:
        return {
            id: task
            for id, task in webarena_tasks().items()
            if {*task.sites} <= {*self._urls} and _is_in(task, split)
        }

    def _is_solved(self, answer: str) -> bool:
        assert isinstance(self._task, WebArenaTask)
        ending = WebArenaEnding(
            answer,
            self._browsing.observation.url,
            self._browsing,
            Shop(self._urls.get("shopping", ""), self._shop_admin),
        )
        evaluation = self._hosting.placed(self._task.eval)
        assert isinstance(evaluation, WebArenaEvaluation)
        return solved(evaluation, ending, self._judge, self._task.intent)


class _UserSites(FixedSites):
    """Logged in by WebArena's own files of cookies, and reset by whatever the user has for it."""

    def __init__(self, urls: Mapping[str, str], auth: str, reset_url: str, reset: Reset) -> None:
        super().__init__(urls)
        self._auth, self._reset_url, self._reset = auth, reset_url, reset

    def begin(self, task: WebTask) -> Beginning:
        assert isinstance(task, WebArenaTask)
        # The task's own `require_reset` is useless: it is false in all 812 tasks.
        if self._reset == "all" or (self._reset == "pages" and task.eval.reads_pages):
            self._ask_for_reset(task)
        beginning = super().begin(task)
        if not self._auth or not task.storage_state:
            return replace(beginning, storage_state="")
        file = Path(self._auth) / Path(task.storage_state).name
        if not file.is_file():
            raise ValueError(
                f"auth: there is no {file.name} in it; WebArena's auto_login.py writes it"
            )
        return replace(beginning, storage_state=str(file))

    def _ask_for_reset(self, task: WebTask) -> None:
        if not self._reset_url:
            _tell_once_that_nobody_resets()
            return
        asked = json.dumps({"task": task.task_id, "sites": task.sites}).encode()
        try:
            with urlopen(  # noqa: S310
                Request(self._reset_url, asked, {"Content-Type": "application/json"}),  # noqa: S310
                timeout=RESET_S,
            ):
                pass
        except HTTPError as error:
            raise RuntimeError(
                f"reset_url: {self._reset_url} answered {error.code} {error.reason}; the "
                "sites are not reset"
            ) from None
        except OSError as error:
            raise RuntimeError(
                f"reset_url: {self._reset_url} did not answer ({error}); the sites are not reset"
            ) from None

    def placed(self, evaluation: Evaluation) -> Evaluation:
        """Replace the names of sites with their addresses, including in required contents."""
        return msgspec.json.decode(
            self._placed(msgspec.json.encode(evaluation).decode()), type=WebArenaEvaluation
        )


@cache
def _tell_once_that_nobody_resets() -> None:
    log.warning(
        "webarena: reset_url is not set, so that each task finds the sites as the one "
        "before left them; reset = 'none' accepts that"
    )


class Shop:
    """The shop's own interface (Magento), which knows about orders and reviews."""

    def __init__(self, url: str, admin: str) -> None:
        self.url, self.admin = url.rstrip("/"), admin

    def latest_order_url(self) -> str:
        newest = {
            "searchCriteria[sortOrders][0][field]": "created_at",
            "searchCriteria[sortOrders][0][direction]": "DESC",
            "searchCriteria[pageSize]": "1",
        }
        order = self._ask(f"/rest/V1/orders?{urlencode(newest)}", self._token())["items"][0]
        return f"{self.url}/sales/order/view/order_id/{int(order['increment_id'])}/"

    def latest_review(self, sku: str) -> Any:
        reviews = self._ask(f"/rest/V1/products/{sku}/reviews", self._token())
        return reviews[-1] if reviews else None

    def _token(self) -> str:
        user, _, password = self.admin.partition(":")
        return str(
            self._ask(
                "/rest/default/V1/integration/admin/token",
                "",
                {"username": user, "password": password},
            )
        )

    def _ask(self, path: str, token: str, content: dict[str, str] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = None if content is None else json.dumps(content).encode()
        request = Request(f"{self.url}{path}", body, headers)  # noqa: S310
        with urlopen(request, timeout=ASK_S) as answer:  # noqa: S310
            return json.loads(answer.read())


class WebArenaEnding:
    """The end of an episode, as its evaluation sees it."""

    def __init__(self, answer: str, url: str, browsing: Browsing, shop: Shop) -> None:
        self.answer, self.url = answer, url
        self._browsing, self._shop = browsing, shop

    def element(self, check: WebArenaCheck) -> str:
        """The text of the checked element; empty on a wrong page.

        Some checks call functions by name.
        """
        url = self._page(*read_call(check.url)) if check.url.startswith("func:") else check.url
        if not check.locator.startswith("func:"):
            return self._seen(url, check.locator, check.prep_actions)
        name, arguments = read_call(check.locator)
        match name:
            case "gitlab_get_project_memeber_role":
                return self._seen(url, MEMBER_ROLE % json.dumps(f"@{arguments[-1]}"))
            case "shopping_get_sku_latest_review_author":
                review = self._shop.latest_review(arguments[0])
                return str(review["nickname"]) if review else ""
            case "shopping_get_sku_latest_review_rating":
                review = self._shop.latest_review(arguments[0])
                return str(review["ratings"][0]["percent"]) if review else ""
        raise ValueError(f"WebArena's {check.locator!r} is not known here")

    def _seen(self, url: str, locator: str, prep_actions: Sequence[str] = ()) -> str:
        return str(
            self._browsing.run(element_text(self._browsing.session, url, locator, prep_actions))
        )

    def _page(self, name: str, arguments: Sequence[str]) -> str:
        match name:
            case "shopping_get_latest_order_url":
                return self._shop.latest_order_url()
            case "reddit_get_post_url":
                return post_url(arguments[0].replace("__last_url__", self.url))
        raise ValueError(f"WebArena's {name!r} is not known here")


async def element_text(
    session: Session, url: str, locator: str, prep_actions: Sequence[str] = ()
) -> str:
    """The value of a locator on a page, after its preparing actions; the page's HTML without a
    locator.
    """
    from playwright.async_api import Error

    async with session.page_at(url, LOAD_S) as page:
        if url != "last":
            await asyncio.sleep(REST_S)
        if not locator.strip():
            return await page.content()
        with suppress(Error):  # WebArena goes on without them, too
            for action in prep_actions:
                await page.evaluate(f"() => {action}")
        try:
            return str(await page.evaluate(f"() => {locator}"))
        except Error:
            _ = session.tab  # raises where the browser is gone, which is a fault and no wrong page
            return ""


def read_call(text: str) -> tuple[str, list[str]]:
    """The name and the arguments of "func:name('a', 'b')". It is read, never run."""
    found = CALL.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected func:name(...), got {text!r}")
    arguments = ast.literal_eval(f"[{found[2].replace('__page__', 'None')}]")
    return found[1], [str(argument) for argument in arguments]


def post_url(url: str) -> str:
    """The URL of the post to which a comment's URL belongs: http://host/f/forum/id/..."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    if len(path) > 3 and path[1] == "f":
        return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"
    return url


def _is_in(task: WebTask, split: str) -> bool:
    if split == "test":
        return True
    number = int(hashlib.sha256(str(task.intent_template_id).encode()).hexdigest(), 16)
    return (number % HELD_OUT == 0) == (split == "held-out")
