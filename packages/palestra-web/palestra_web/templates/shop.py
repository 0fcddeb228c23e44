"""Finding things out in the shop. Nothing is changed."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer, answer_with
from palestra.envs.web.template import Slots, Template
from palestra_web.seeds import seed_rows

PRODUCTS = """
SELECT p.id, p.title AS product, p.upc, p.slug, p.rating, c.name AS category, s.price, \
s.num_in_stock AS stock,
  (SELECT count(*) FROM reviews_productreview r WHERE r.product_id = p.id) AS reviews
FROM catalogue_product p JOIN catalogue_productcategory pc ON pc.product_id = p.id \
JOIN catalogue_category c ON c.id = pc.category_id
JOIN partner_stockrecord s ON s.product_id = p.id
"""
ORDERS = """
SELECT o.number, o.status, printf('%.2f', o.total_incl_tax) AS total, \
substr(o.date_placed, 1, 7) AS month, o.date_placed,
  u.email AS user, u.first_name || ' ' || u.last_name AS customer,
  (SELECT sum(quantity) FROM order_line l WHERE l.order_id = o.id) AS items
FROM order_order o JOIN auth_user u ON u.id = o.user_id
"""


def spread(found: Sequence[Any], count: int) -> list[Any]:
    """`count` items, spread evenly over the list."""
    return [found[n * len(found) // count] for n in range(min(count, len(found)))]


def read(page: View, pattern: str) -> str:
    """What a page says."""
    found = re.search(pattern, page.text)
    if found is None:
        raise LookupError(f"{page.url}: nothing is like {pattern!r}")
    return found[1]


def fact(page: View, label: str) -> str:
    """From the table on a product's page."""
    return read(page, rf'rowheader "{re.escape(label)}"\n\s*cell "([^"]*)"')


def open_product(page: View, title: str) -> Solution:
    yield page.type("textbox", "Search", title, enter=True)
    yield page.click("link", title)


def open_account(page: View, section: str) -> Solution:
    yield page.click("link", "Account")
    yield page.click("link", section)


class Shop(Template):
    """A customer on the shop's front page. The slot `user`, if present, names the account."""

    sites = ("shop",)
    start = "http://shop.test/"

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"shop": slots["user"]} if "user" in slots else {}


class Price(Shop):
    id, split = "shop-price", "train"
    intent = "What does the product {product} cost? Answer with the price."

    def instances(self) -> Sequence[Slots]:
        return [
            {"product": row["product"], "price": f"{row['price']:.2f}"}
            for row in spread(seed_rows("shop", PRODUCTS), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["price"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield stop(fact(page, "Price (incl. tax)"))


class Fact(Shop):
    id, split = "shop-fact", "train"
    intent = "{question} {product}?"
    QUESTIONS = (
        ("Material", "What is this product made of, according to its information:"),
        ("Colour", "Which colour has the product"),
        ("Weight", "How much does this product weigh:"),
        ("Warranty (years)", "For how many years is there a warranty on the product"),
    )

    def instances(self) -> Sequence[Slots]:
        facts = (
            "SELECT coalesce(value_text, value_integer) AS fact "
            "FROM catalogue_productattributevalue v JOIN catalogue_productattribute a"
        )
        facts += " ON a.id = v.attribute_id WHERE v.product_id = ? AND a.name = ?"
        found = []
        for number, row in enumerate(
            spread(seed_rows("shop", PRODUCTS + " WHERE p.id % 7 = 3"), 12)
        ):
            label, question = self.QUESTIONS[number % 4]
            value = seed_rows("shop", facts, row["id"], label)[0]["fact"]
            found.append(
                {
                    "product": row["product"],
                    "question": question,
                    "label": label,
                    "fact": str(value),
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["fact"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield stop(fact(page, slots["label"]))


class _FirstByPrice(Shop):
    sorted_by: ClassVar[str]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["product"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", slots["category"], after="Show results for")
        yield page.select("combobox", "Sort by", self.sorted_by)
        yield stop(page.all("link", after="Sort by")[0].name)


class Cheapest(_FirstByPrice):
    id, split, sorted_by = "shop-cheapest", "train", "Price low to high"
    intent = "Which product in the category {category} is the cheapest? Answer with its full name."

    def instances(self) -> Sequence[Slots]:
        best = (
            f"SELECT category, product, min(price) FROM ({PRODUCTS}) GROUP BY category "
            "ORDER BY category"
        )
        return [
            {"category": row["category"], "product": row["product"]}
            for row in spread(seed_rows("shop", best), 10)
        ]


class DearestOfDepartment(_FirstByPrice):
    id, split, sorted_by = "shop-dearest-of-department", "test", "Price high to low"
    intent = (
        "What is the most expensive product of the whole department {category}? Answer with its "
        "full name."
    )

    def instances(self) -> Sequence[Slots]:
        found = []
        for row in seed_rows(
            "shop", "SELECT name, path FROM catalogue_category WHERE depth = 1 ORDER BY name"
        ):
            dearest = seed_rows(
                "shop",
                f"{PRODUCTS} WHERE c.path LIKE ? ORDER BY s.price DESC LIMIT 2",
                row["path"] + "%",
            )
            if dearest[0]["price"] > dearest[1]["price"]:
                found.append({"category": row["name"], "product": dearest[0]["product"]})
        return found


class ReviewCount(Shop):
    id, split = "shop-review-count", "train"
    intent = "How many customer reviews does the product {product} have? Answer with the number."

    def instances(self) -> Sequence[Slots]:
        rows = seed_rows("shop", PRODUCTS + " WHERE p.id % 5 = 2")
        return [
            {"product": row["product"], "count": str(row["reviews"])} for row in spread(rows, 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["count"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield stop(fact(page, "Number of reviews"))


class WorstReviewer(Shop):
    id, split = "shop-worst-reviewer", "test"
    intent = "Who gave the product {product} its worst rating? Answer with the customer's name."

    def instances(self) -> Sequence[Slots]:
        """Products of which one customer thinks less than all others, and which have a page of
        reviews of their own.
        """
        found = []
        reviews = (
            "SELECT r.score, u.first_name || ' ' || u.last_name AS name "
            "FROM reviews_productreview r JOIN auth_user u ON u.id = r.user_id"
        )
        for row in seed_rows("shop", PRODUCTS + " WHERE reviews > 3"):
            worst = seed_rows(
                "shop", reviews + " WHERE r.product_id = ? ORDER BY r.score LIMIT 2", row["id"]
            )
            if worst[0]["score"] < worst[1]["score"]:
                found.append(
                    {
                        "product": row["product"],
                        "name": worst[0]["name"],
                        "score": worst[0]["score"],
                    }
                )
        return spread(found, 10)

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["name"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("link", "See all reviews")
        yield stop(read(page, rf"\b{slots['score']} of 5 stars [^\n]*? Reviewed by (.+?) on "))


class WhoSaid(Shop):
    id, split = "shop-who-said", "train"
    intent = (
        'Which customer wrote in a review of the product {product}: "{sentence}" Answer with the '
        "customer's name."
    )

    def instances(self) -> Sequence[Slots]:
        found = []
        rows = seed_rows(
            "shop",
            "SELECT p.title, r.body, u.first_name || ' ' || u.last_name AS name, (SELECT "
            "group_concat(o.body, ' ') FROM reviews_productreview o "
            "WHERE o.product_id = p.id AND o.id <> r.id) AS others FROM reviews_productreview r "
            "JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id "
            "WHERE r.score <= 2 ORDER BY r.id",
        )
        for row in rows:
            sentence = row["body"].split(". ")[-1].rstrip(".") + "."
            if row["others"] and sentence not in row["others"]:
                found.append({"product": row["title"], "sentence": sentence, "name": row["name"]})
        return spread(found, 10)

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["name"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        if page.has("link", "See all reviews"):
            yield page.click("link", "See all reviews")
        yield stop(
            read(page, rf"{re.escape(slots['sentence'])}(?: [^\n]*?)? Reviewed by (.+?) on ")
        )


class Unavailable(Shop):
    id, split = "shop-unavailable", "test"
    intent = (
        "Which product in the category {category} is unavailable at the moment? Answer with its "
        "full name."
    )

    def instances(self) -> Sequence[Slots]:
        rows = seed_rows(
            "shop",
            f"SELECT category, product, count(*) AS n FROM ({PRODUCTS}) WHERE stock = 0 "
            "GROUP BY category HAVING n = 1",
        )
        return [{"category": row["category"], "product": row["product"]} for row in spread(rows, 8)]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["product"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", slots["category"], after="Show results for")
        yield stop(read(page, r'link "([^"]+)"\n[^\n]* Unavailable'))


class OrderTotal(Shop):
    id, split = "shop-order-total", "train"
    intent = "What is the total of my order {number}? Answer with the amount."

    def instances(self) -> Sequence[Slots]:
        rows = seed_rows("shop", ORDERS + " WHERE o.total_incl_tax < 1000 ORDER BY o.id")
        return [
            {"user": row["user"], "number": row["number"], "total": row["total"]}
            for row in spread(rows, 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["total"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Order History")
        yield page.click("link", slots["number"])
        yield stop(fact(page, "Order total"))


class LatestStatus(Shop):
    id, split = "shop-latest-order-status", "train"
    intent = "What is the status of my most recent order?"

    def instances(self) -> Sequence[Slots]:
        rows = seed_rows(
            "shop",
            f"SELECT user, status, number, max(date_placed) FROM ({ORDERS}) GROUP BY user "
            "ORDER BY user",
        )
        return [
            {"user": row["user"], "status": row["status"], "number": row["number"]}
            for row in spread(rows, 12)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["status"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Order History")
        yield page.click("link", re.compile(r"^\d+$"), after="Date submitted")
        yield stop(read(page, r'heading "Status"\n\s*(\w+)'))


class SpentInMonth(Shop):
    id, split = "shop-spent-in-month", "test"
    intent = (
        "How much do all the orders add up to that I placed in {month}? Answer with the amount."
    )

    def instances(self) -> Sequence[Slots]:
        rows = seed_rows(
            "shop",
            "SELECT user, month, printf('%.2f', sum(total)) AS sum, count(*) AS n "
            f"FROM ({ORDERS}) GROUP BY user, month HAVING n > 1 AND sum(total) < 1000 "
            "ORDER BY user",
        )
        return [
            {
                "user": row["user"],
                "month": date.fromisoformat(f"{row['month']}-01").strftime("%B %Y"),
                "sum": row["sum"],
            }
            for row in spread(rows, 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["sum"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Order History")
        month, year = slots["month"].split()
        short = month if len(month) <= 5 else "Sept." if month == "September" else month[:3] + "."
        totals = re.findall(
            rf'cell "\$([\d.,]+)"\n\s*cell "{re.escape(short)} \d+, {year}', page.text
        )
        yield stop(f"{sum(float(total.replace(',', '')) for total in totals):.2f}")


TEMPLATES = (
    Price(),
    Fact(),
    Cheapest(),
    DearestOfDepartment(),
    ReviewCount(),
    WorstReviewer(),
    WhoSaid(),
    Unavailable(),
    OrderTotal(),
    LatestStatus(),
    SpentInMonth(),
)
