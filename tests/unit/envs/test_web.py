"""The parts of the environment `web` that need no browser: actions, trees, evaluations, tasks."""

from dataclasses import replace

import pytest

from palestra.envs.web.actions import FORMS, Action, ActionError, parse, usage
from palestra.envs.web.browser import Reach
from palestra.envs.web.evaluators import matches, same_page, solved
from palestra.envs.web.hosting import FixedSites
from palestra.envs.web.session import Observation
from palestra.envs.web.solutions import Expert, View, goto, stop
from palestra.envs.web.tasks import (
    Evaluation,
    answer,
    answer_with,
    ends_at,
    rows,
    shows,
)
from palestra.envs.web.tree import Element, Numbers, elements, numbered, written
from palestra_web.tasks import shipped_tasks
from palestra_web.templates import all_templates


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click [12]", Action("click", element=12)),
        ("  click[12] ", Action("click", element=12)),
        ("```click [12]```", Action("click", element=12)),
        ("type [3] [red mug]", Action("type", element=3, text="red mug", enter=True)),
        ("type [3] [red mug] [0]", Action("type", element=3, text="red mug")),
        ("type [3] [a [b] c] [1]", Action("type", element=3, text="a [b] c", enter=True)),
        ("type [3] [] [0]", Action("type", element=3)),
        ("type [3] [one\\ntwo] [press_enter_after=0]", Action("type", element=3, text="one\ntwo")),
        ("select [4] [Large]", Action("select", element=4, text="Large")),
        ("press [Control+a]", Action("press", text="Control+a")),
        ("scroll [down]", Action("scroll", text="down")),
        ("scroll [direction=up]", Action("scroll", text="up")),
        ("tab_focus [1]", Action("tab_focus", tab=1)),
        ("page_focus [1]", Action("tab_focus", tab=1)),
        ("go_back", Action("go_back")),
        ("goto [http://shop.test/a?b=[1]]", Action("goto", text="http://shop.test/a?b=[1]")),
        ("stop [N/A]", Action("stop", text="N/A")),
        ("stop []", Action("stop")),
        ("accept", Action("accept")),
        ("accept [Ann]", Action("accept", text="Ann")),
    ],
)
def test_actions(text, action):
    assert parse(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click",
        "click 12",
        "click [x]",
        "tap [1]",
        "scroll [left]",
        "type [1]",
        "click [12] [13]",
        "stop",
        "x" * 9000,
    ],
)
def test_what_is_no_action_is_answered_with_what_is(text):
    with pytest.raises(ActionError, match="^Expected "):
        parse(text)


def test_usage_names_each_action():
    assert len(usage().splitlines()) == len(FORMS)
    assert "goto" not in usage(without=("goto",))


def node(number, role, name="", children=(), parent="", **rest):
    properties = [
        {"name": key, "value": {"value": value}} for key, value in rest.pop("has", {}).items()
    ]
    made = {
        "nodeId": str(number),
        "backendDOMNodeId": number,
        "role": {"value": role},
        "name": {"value": name},
        "properties": properties,
    }
    return {
        **made,
        "childIds": [str(child) for child in children],
        **({"parentId": str(parent)} if parent else {}),
        **rest,
    }


PAGE = [
    node(1, "RootWebArea", "Page", [2, 5, 8, 11, 13]),
    node(2, "heading", "Top", [3], 1),
    node(3, "link", "Top", [4], 2),
    node(4, "StaticText", "Top", [], 3),
    node(5, "generic", "", [6, 7], 1),
    node(6, "StaticText", "Name:", [], 5),
    node(
        7,
        "textbox",
        "Name:",
        [],
        5,
        value={"value": "Ann"},
        has={"focused": True, "required": True},
    ),
    node(8, "combobox", "Size", [9], 1, value={"value": "Small"}, has={"expanded": False}),
    node(9, "MenuListPopup", "", [10, 14], 8),
    node(10, "option", "Small", [], 9),
    node(14, "option", "Large", [], 9),
    node(11, "paragraph", "", [12, 15], 1),
    node(12, "StaticText", "It costs", [], 11),
    node(15, "StaticText", "\ue0013 coins", [], 11),
    node(13, "checkbox", "Agree", [], 1, has={"checked": "false"}),
    node(16, "button", "Hidden", [], 1, ignored=True),
]


def test_a_tree_is_a_line_for_each_thing():
    # a heading that is a link, a label that says what its field says, an icon, and the options of a
    # closed list
    shown = numbered(elements(PAGE), Numbers())
    text, left_out = written(shown, 1000)
    assert text.splitlines() == [
        '[1] link "Top"',
        '[2] textbox "Name:" value="Ann" required focused',
        '[3] combobox "Size" value="Small" collapsed options: "Small", "Large"',
        "It costs 3 coins",
        '[4] checkbox "Agree" unchecked',
    ]
    assert left_out == 0


def test_a_tree_is_cut_at_a_line():
    assert written(elements(PAGE), 30) == ('[-1] link "Top"', 4)


def test_a_tree_of_any_depth():
    deep = (
        [node(1, "RootWebArea", "", [2])]
        + [node(n, "generic", "", [n + 1], n - 1) for n in range(2, 20_000)]
        + [node(20_000, "button", "Deep", [], 19_999)]
    )
    assert [element.name for element in elements(deep)] == ["Deep"]


def test_numbers_are_kept_while_the_document_lives():
    numbers = Numbers()
    numbers.begin(1)
    assert [numbers.give(node) for node in (70, 80, 70)] == [1, 2, 1]
    numbers.begin(1)
    assert (numbers.give(90), numbers.give(80), numbers.node(3)) == (3, 2, 90)
    numbers.begin(2)
    assert (numbers.give(80), numbers.node(2)) == (1, None)


def test_only_named_places_can_be_reached():
    flag = Reach((("shop.test", "127.0.0.1:9101"), ("127.0.0.1:8080", "127.0.0.1:8080"))).flag
    assert (
        flag == "--host-resolver-rules=MAP shop.test:80 127.0.0.1:9101, MAP 127.0.0.1:8080 "
        "127.0.0.1:8080, MAP * ~NOTFOUND"
    )


@pytest.mark.parametrize(
    ("text", "required", "fits"),
    [
        ("12 Coins ", {"exact_match": "12 coins"}, True),
        ("'12 coins'", {"exact_match": "12 coins"}, True),
        ("12", {"exact_match": "12 coins"}, False),
        ("It is 15.", {"must_include": ["5"]}, False),
        ("It is 5.", {"must_include": ["5"]}, True),
        ("It is 5.25", {"must_include": ["5"]}, False),
        ("red and green", {"must_include": ["red", "green"]}, True),
        ("red", {"must_include": ["red", "green"]}, False),
        ("verde", {"must_include": ["green |OR| verde"]}, True),
        ("", {"must_include": ["red"]}, False),
        ("red", {"must_exclude": ["red"]}, False),
    ],
)
def test_matches(text, required, fits):
    assert matches(text, required) is fits


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("http://shop.test/a/?page=2", True),
        ("http://shop.test/a?x=1&page=2", True),
        ("http://shop.test/a", False),
        ("http://shop.test/a?page=21", False),
        ("http://shop.test/ab?page=2", False),
        ("http://forum.test/a?page=2", False),
        ("http://other.test/", True),
    ],
)
def test_same_page(url, fits):
    assert same_page(url, "http://shop.test/a/?page=2 |OR| http://other.test") is fits


class Ending:
    answer, url = "12 coins", "http://shop.test/cart/"

    def text(self, url, locator):
        return {"last": "Thank you, Ann", "http://shop.test/orders/": "one order"}[url]

    def query(self, site, sql):
        return [[1, "mug"]] if site == "shop" else []

    def changed_tables(self, site):
        return ["basket", "line"]


@pytest.mark.parametrize(
    ("evaluation", "fits"),
    [
        (answer("12 coins"), True),
        (answer_with("coins", "12"), True),
        (answer_with("12") & ends_at("http://shop.test/cart"), True),
        (replace(answer_with("12"), longest_answer=5), False),  # 12 coins has 8 characters
        (ends_at("http://shop.test/cart"), True),
        (shows("last", "thank you"), True),
        (shows("http://shop.test/orders/", "two orders"), False),
        (rows("shop", "select", [(1, "mug")]), True),
        (rows("shop", "select", [(2, "mug")]), False),
        (rows("shop", "select", [(1, "mug")], changed=["basket", "line", "order"]), True),
        (rows("shop", "select", [(1, "mug")], changed=["basket"]), False),
        (answer("12 coins") & ends_at("http://shop.test/cart") & rows("forum", "select", []), True),
        (answer("12 coins") & ends_at("http://shop.test/"), False),
        (answer("13 coins") & ends_at("http://shop.test/cart"), False),
    ],
)
def test_evaluations(evaluation, fits):
    assert solved(evaluation, Ending()) is fits


def test_an_evaluation_that_checks_nothing_is_an_error():
    for broken in (
        Evaluation([]),
        Evaluation(["guess"]),
        Evaluation(["string_match"]),
        Evaluation(["url_match"]),
    ):
        with pytest.raises(ValueError):
            solved(broken, Ending())


def seen(*lines):
    return Observation("http://shop.test/", "Shop", "", elements=tuple(lines))


def test_a_view_finds_by_role_and_name():
    page = View(
        seen(
            Element("text", "Red mug"),
            Element("button", "Add", id=1),
            Element("text", "Blue mug"),
            Element("button", "Add", id=2),
        )
    )
    assert page.click("button", "Add") == "click [1]"
    assert (
        page.click("button", "Add", after="Blue")
        == page.click("button", "Add", nth=1)
        == "click [2]"
    )
    assert page.type("button", "Add", "a\nb") == "type [1] [a\\nb] [0]"
    assert page.has("text", "Blue mug")
    with pytest.raises(LookupError, match='no button \'Buy\'.*"Add", "Add"'):
        page.find("button", "Buy")


def test_an_expert_goes_on_only_when_it_is_followed():
    def solve(page):
        yield page.click("button", "Add")
        yield goto("http://shop.test/cart/")
        yield stop("done")

    shop = seen(Element("button", "Add", id=5))
    expert = Expert(solve, shop)
    assert expert.action() == expert.action() == "click [5]"
    expert.done("click [5]", shop)
    assert expert.action() == "goto [http://shop.test/cart/]"
    expert.done("click [1]", shop)
    assert expert.action() is None
    assert "instead" in expert.lost
    assert Expert(solve, seen()).action() is None


def test_fixed_sites_put_their_own_addresses_in():
    sites = FixedSites({"shopping": "http://10.0.0.1:7770/", "reddit": "http://10.0.0.1:9999"})
    placed = sites.placed(ends_at("__SHOPPING__/cart") & shows("__REDDIT__/f/all", "x"))
    assert placed.reference_url == "http://10.0.0.1:7770/cart"
    assert placed.program_html[0].url == "http://10.0.0.1:9999/f/all"
    assert sites.hosts == ("10.0.0.1:7770", "10.0.0.1:9999")


def test_tasks_in_the_files():
    """`python -m palestra_web.generate` writes them; that they are up to date is tested where
    the sites are.
    """
    by_split = {split: shipped_tasks(split) for split in ("train", "test")}
    templates = {
        split: {task.intent_template_id for task in tasks.values()}
        for split, tasks in by_split.items()
    }
    assert not templates["train"] & templates["test"]
    assert templates["train"] | templates["test"] == {*all_templates()}
    for tasks in by_split.values():
        for task in tasks.values():
            assert task.eval.eval_types
            assert {*task.users} <= {*task.sites}
