"""Tasks that use data of the shop on another site."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.envs.web.solutions import Solution, View, goto, stop
from palestra.envs.web.tasks import Evaluation, answer, rows
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows
from palestra_web.sites.map.geo import distance_km
from palestra_web.templates.common import number, only
from palestra_web.templates.forum import READERS, new_comments, open_topic, topics
from palestra_web.templates.map import search
from palestra_web.templates.map_own import ITEMS, last
from palestra_web.templates.shop import (
    ORDERS,
    PRODUCTS,
    fact,
    open_account,
    open_product,
    read,
    spread,
)
from palestra_web.templates.shop_admin import MANAGER, open_order

SENT_TO = f"""SELECT r.number, r.user, a.line4 AS town, c.printable_name AS country \
FROM ({ORDERS}) r
JOIN order_order o ON o.number = r.number \
JOIN order_shippingaddress a ON a.id = o.shipping_address_id
JOIN address_country c ON c.iso_3166_1_a2 = a.country_id"""
MAP, FORUM = "http://map.test/", "http://forum.test/"


def orders_sent(skip: int, count: int) -> list[dict[str, Any]]:
    """Orders to towns whose names no other town on the map has."""
    known = {
        row["name"]
        for row in seed_rows("map", "SELECT name FROM place GROUP BY folded HAVING count(*) = 1")
    }
    return spread(
        [
            row
            for row in seed_rows("shop", f"{SENT_TO} ORDER BY r.number")[skip:]
            if row["town"] in known
        ],
        count,
    )


class Distance(Template):
    id, sites, split, start = "shop-map-distance", ("shop", "map"), "test", "http://shop.test/"
    intent = (
        "How many kilometres is it in a straight line from {start} to the town that my order "
        "{number} in the shop was sent to? The map is at http://map.test/. Answer with the whole "
        "number that it shows."
    )
    STARTS = ("Prague", "Vienna", "Oslo", "Chicago", "Nairobi", "Warsaw", "Lisbon", "Osaka")

    def instances(self) -> Sequence[Slots]:
        found = []
        for order, name in zip(orders_sent(3, 8), self.STARTS, strict=True):
            ends = [
                seed_rows(
                    "map",
                    "SELECT latitude, longitude FROM place WHERE name = ? ORDER BY population DESC",
                    town,
                )[0]
                for town in (name, order["town"])
            ]
            km = round(distance_km(*((end["latitude"], end["longitude"]) for end in ends)))
            found.append(
                {
                    "start": name,
                    "number": order["number"],
                    "user": order["user"],
                    "town": order["town"],
                    "km": km,
                }
            )
        return found

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"shop": slots["user"]}

    def evaluation(self, slots: Slots) -> Evaluation:
        return number(slots["km"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Order History")
        yield page.click("link", slots["number"])
        town = read(page, rf'cell "[^"]* ({re.escape(slots["town"])}) [^"]*"')
        yield goto(MAP)
        yield page.type("textbox", "From", slots["start"])
        yield page.type("textbox", "To", town)
        yield page.click("button", "Get directions")
        yield stop(page.find("cell", after="Total distance").name)


class _OfTheManager(Template):
    """Starts in the shop's dashboard and continues on the map."""

    sites, start = ("shop", "map"), "http://shop.test/dashboard/"

    def look_up(self, page: View, slots: Slots) -> Solution:
        """The order's town, and then its page on the map."""
        yield from open_order(page, slots["number"])
        yield page.click("link", "Shipping")
        town = read(page, rf"({re.escape(slots['town'])})")
        yield goto(MAP)
        yield from search(page, town, slots["country"])


class TimeZone(_OfTheManager):
    id, split = "shop-map-time-zone", "train"
    intent = (
        "Order {number} in the shop has to be announced by phone: in which time zone is the town "
        "that it was sent to? The map is at http://map.test/. Answer with the zone's name, such "
        "as Europe/Paris."
    )

    def instances(self) -> Sequence[Slots]:
        zone = (
            "SELECT timezone FROM place JOIN country ON country.code = place.country "
            "WHERE place.name = ? AND country.name = ?"
        )
        found: list[Slots] = []
        for order in orders_sent(5, 12):
            towns = seed_rows("map", zone, order["town"], order["country"])
            if towns:
                slots = only(order, "number", "town", "country")
                found.append(slots | {"zone": towns[0]["timezone"]})
        return found[:10]

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"shop": MANAGER}

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["zone"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from self.look_up(page, slots)
        yield stop(page.find("cell", after="Time zone").name)


class SaveTown(_OfTheManager):
    id, split, changes = "shop-map-save-town", "test", True
    intent = (
        "On the map at http://map.test/, save the town that order {number} in the shop was sent "
        'to. Put it on my list "{list}", with the number of the order as the note.'
    )

    def instances(self) -> Sequence[Slots]:
        lists = seed_rows(
            "map",
            "SELECT user.login AS user, list.name AS list FROM list "
            "JOIN user ON user.id = list.user ORDER BY list.id",
        )
        known = {row["name"] for row in seed_rows("map", "SELECT name FROM country")}
        taken = {(row["user"], row["town"]) for row in seed_rows("map", ITEMS)}
        found = []
        for turn, order in enumerate(
            order for order in orders_sent(7, 14) if order["country"] in known
        ):
            own = lists[turn % len(lists)]
            if (own["user"], order["town"]) not in taken:
                found.append({**own, **{key: order[key] for key in ("number", "town", "country")}})
        return found[:10]

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"shop": MANAGER, "map": slots["user"]}

    def evaluation(self, slots: Slots) -> Evaluation:
        expected = [[slots["user"], slots["list"], slots["town"], slots["number"]]]
        return rows(
            "map",
            f"{ITEMS} WHERE list_item.id > {last('list_item')}",
            expected,
            changed=["list_item"],
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from self.look_up(page, slots)
        yield page.select("combobox", "List", slots["list"])
        yield page.type("textbox", "Note", slots["number"])
        yield page.click("button", "Save to list")
        yield stop()


class _OnTheForum(Template):
    """Starts in the shop without a login, and ends with an answer in a topic of the forum."""

    sites, start, changes = ("shop", "forum"), "http://shop.test/", True

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"forum": slots["user"]}

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows("forum", new_comments(), [[slots["user"], slots["topic"], slots["text"]]])

    def reply(self, page: View, slots: Slots, text: str) -> Solution:
        yield goto(FORUM)
        yield from open_topic(page, slots["topic"])
        yield page.type("textbox", "Write comment...", text)
        yield page.click("button", "Publish")
        yield stop()


class RecommendCheapest(_OnTheForum):
    id, split = "shop-forum-cheapest", "test"
    intent = (
        'Answer in the topic "{topic}" on the forum at http://forum.test/ with the full name of '
        "the cheapest product in the shop's category {category}, and with nothing else."
    )
    CATEGORIES = ("Hand Tools", "Pots and Planters", "Watering", "Storage")

    def instances(self) -> Sequence[Slots]:
        best = f"SELECT product AS text, min(price) AS price FROM ({PRODUCTS}) WHERE category = ?"
        found = []
        for turn, (user, topic) in enumerate(
            zip(READERS, topics("category.title = 'Tools and sheds'"), strict=True)
        ):
            category = self.CATEGORIES[turn % len(self.CATEGORIES)]
            text = seed_rows("shop", best, category)[0]["text"]
            found.append(
                {"user": user, "topic": topic["topic"], "category": category, "text": text}
            )
        return found

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", slots["category"], after="Show results for")
        yield page.select("combobox", "Sort by", "Price low to high")
        yield from self.reply(page, slots, page.all("link", after="Sort by")[0].name)


class TellPrice(_OnTheForum):
    id, split = "shop-forum-price", "train"
    intent = (
        "Look up what the product {product} costs in the shop, and answer in the topic "
        '"{topic}" on the forum at http://forum.test/ with: "It costs $12.34 at Fernhill." '
        "(with the right price)"
    )

    def instances(self) -> Sequence[Slots]:
        goods = spread(
            seed_rows(
                "shop",
                f"{PRODUCTS} WHERE c.name IN ('Hand Tools', 'Watering', 'Pots and Planters')",
            ),
            8,
        )
        return [
            {
                "user": user,
                "topic": topic["topic"],
                "product": row["product"],
                "text": f"It costs ${row['price']:.2f} at Fernhill.",
            }
            for user, topic, row in zip(
                READERS, topics("category.title = 'Swap and share'"), goods, strict=True
            )
        ]

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield from self.reply(
            page, slots, f"It costs {fact(page, 'Price (incl. tax)')} at Fernhill."
        )


TEMPLATES: tuple[Template, ...] = (
    Distance(),
    TimeZone(),
    SaveTown(),
    RecommendCheapest(),
    TellPrice(),
)
