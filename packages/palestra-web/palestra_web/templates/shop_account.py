"""What customers write in the shop: reviews, votes, wish lists, addresses and names."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, rows
from palestra.envs.web.template import Slots
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import quoted
from palestra_web.templates.shop import PRODUCTS, open_account, open_product, spread
from palestra_web.templates.shop_buying import (
    PLACES,
    Changing,
    available,
    fill_address,
    users_without_cart,
)

LOOKED = ("basket_basket",)
"""Changes when a customer merely looks: they get an empty cart."""
REVIEWS = (
    ("A keeper", 5, "I would buy it again at once."),
    ("Not for me", 2, "It is well made, but it does not suit me."),
    ("Solid choice", 4, "Does what it should, and looks good."),
    ("Came broken", 1, "It arrived with a crack in it."),
    ("Fair enough", 3, "Nothing special, nothing wrong."),
)


class WriteReview(Changing):
    id, split = "shop-write-review", "train"
    intent = (
        'Write a review of the product {product} with the title "{title}", the score {score} and '
        'the text "{text}"'
    )

    def instances(self) -> Sequence[Slots]:
        """Only products without reviews: another review cannot be confused with the agent's."""
        found = []
        for number, (user, row) in enumerate(
            zip(users_without_cart(), spread(available("reviews = 0"), 10), strict=False)
        ):
            title, score, text = REVIEWS[number % len(REVIEWS)]
            found.append(
                {
                    "user": user,
                    "product": row["product"],
                    "title": title,
                    "score": score,
                    "text": text,
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT r.title, r.score, r.body, u.email FROM reviews_productreview r "
            "JOIN auth_user u ON u.id = r.user_id "
            "JOIN catalogue_product p ON p.id = r.product_id "
            f"WHERE p.title = {quoted(slots['product'])}"
        )
        written = [slots["title"], slots["score"], slots["text"], slots["user"]]
        return rows(
            "shop",
            query,
            [written],
            changed=(*LOOKED, "reviews_productreview", "catalogue_product"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("link", "Write a review")
        yield page.type("textbox", "Title *", slots["title"])
        yield page.select("combobox", "Score *", str(slots["score"]))
        yield page.type("textbox", "Body *", slots["text"])
        yield page.click("button", "Save review")
        yield stop()


class Vote(Changing):
    id, split = "shop-vote", "test"
    intent = "Say that the review that {name} wrote of the product {product} is {opinion}."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT r.id AS review, r.title, p.title AS product, "
            "u.first_name || ' ' || u.last_name AS name, u.email "
            "FROM reviews_productreview r JOIN catalogue_product p ON p.id = r.product_id "
            "JOIN auth_user u ON u.id = r.user_id "
            "WHERE (SELECT count(*) FROM reviews_productreview o WHERE o.product_id = p.id) "
            "IN (2, 3) ORDER BY r.id"
        )
        users = users_without_cart()
        found = []
        for number, row in enumerate(spread(seed_rows("shop", query), 10)):
            user = next(user for user in users[number:] if user != row["email"])
            opinion, delta = (("helpful", 1), ("not helpful", -1))[number % 2]
            found.append(
                {
                    "user": user,
                    "name": row["name"],
                    "product": row["product"],
                    "review": row["review"],
                    "opinion": opinion,
                    "delta": delta,
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT v.review_id, v.delta, u.email FROM reviews_vote v "
            "JOIN auth_user u ON u.id = v.user_id"
        )
        voted = [slots["review"], slots["delta"], slots["user"]]
        return rows(
            "shop",
            query,
            [voted],
            changed=(*LOOKED, "reviews_vote", "reviews_productreview", "catalogue_product"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click(
            "button", "Yes" if slots["delta"] == 1 else "No", after=f"Reviewed by {slots['name']}"
        )
        yield stop()


WISHES = """SELECT p.title FROM wishlists_line l JOIN wishlists_wishlist w ON w.id = l.wishlist_id
JOIN auth_user u ON u.id = w.owner_id JOIN catalogue_product p ON p.id = l.product_id \
WHERE u.email = '{user}' ORDER BY l.id"""
WISH_TABLES = (*LOOKED, "wishlists_line", "wishlists_wishlist")


class Wish(Changing):
    id, split = "shop-wish", "train"
    intent = "Add the product {product} to my wish list."

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": user, "product": row["product"]}
            for user, row in zip(
                users_without_cart(), spread(available("p.id % 6 = 5"), 10), strict=False
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "shop", WISHES.format(user=slots["user"]), [[slots["product"]]], changed=WISH_TABLES
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("button", "Add to wish list")
        yield stop()


class Unwish(Changing):
    id, split = "shop-unwish", "train"
    intent = "Remove the product {product} from my wish list {list}."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT u.email AS user, w.name AS list FROM wishlists_wishlist w "
            "JOIN auth_user u ON u.id = w.owner_id ORDER BY w.id"
        )
        found = []
        for number, row in enumerate(seed_rows("shop", query)):
            wished = [line["title"] for line in seed_rows("shop", WISHES.format(user=row["user"]))]
            found.append({**row, "product": wished[number % 3], "wished": wished})
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        left = [[title] for title in slots["wished"] if title != slots["product"]]
        return rows("shop", WISHES.format(user=slots["user"]), left, changed=WISH_TABLES)

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Wish Lists")
        yield page.click("link", slots["list"])
        yield page.click("button", "", after=slots["product"])
        yield page.click("link", re.compile("Remove"))
        yield page.click("button", re.compile("Delete|Remove"))
        yield stop()


class Alert(Changing):
    id, split = "shop-alert", "test"
    intent = "The product {product} is out of stock. Have the shop notify me when it is back."

    def instances(self) -> Sequence[Slots]:
        gone = spread(seed_rows("shop", PRODUCTS + " WHERE s.num_in_stock = 0 ORDER BY p.id"), 10)
        return [
            {"user": user, "product": row["product"]}
            for user, row in zip(users_without_cart(), gone, strict=False)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT p.title, u.email, a.status FROM customer_productalert a "
            "JOIN auth_user u ON u.id = a.user_id"
        )
        query += " JOIN catalogue_product p ON p.id = a.product_id"
        return rows(
            "shop",
            query,
            [[slots["product"], slots["user"], "Active"]],
            changed=(*LOOKED, "customer_productalert"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("button", re.compile("Notify me"))
        yield stop()


ADDRESSES = """SELECT a.line1, a.line4, a.postcode, a.country_id FROM address_useraddress a \
JOIN auth_user u ON u.id = a.user_id
WHERE u.email = '{user}' ORDER BY a.id"""


def addresses(user: str) -> list[list[Any]]:
    return [list(row.values()) for row in seed_rows("shop", ADDRESSES.format(user=user))]


def place(number: int) -> dict[str, str]:
    return dict(
        zip(
            ("line1", "town", "postcode", "country", "short"),
            PLACES[number % len(PLACES)],
            strict=True,
        )
    )


class NewAddress(Changing):
    id, split = "shop-new-address", "train"
    intent = (
        "Add an address to my address book: {first} {last}, {line1}, {town}, {postcode}, {country}."
    )

    def instances(self) -> Sequence[Slots]:
        people = seed_rows(
            "shop",
            "SELECT email AS user, first_name AS first, last_name AS last FROM auth_user "
            "WHERE is_staff = 0",
        )
        return [
            {**person, **place(number), "had": addresses(person["user"])}
            for number, person in enumerate(spread(people, 10))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        new = [slots["line1"], slots["town"], slots["postcode"], slots["short"]]
        return rows(
            "shop",
            ADDRESSES.format(user=slots["user"]),
            [*slots["had"], new],
            changed=(*LOOKED, "address_useraddress"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Address Book")
        yield page.click("link", "Add a new address")
        yield page.type("textbox", "First name *", slots["first"])
        yield page.type("textbox", "Last name *", slots["last"])
        yield from fill_address(page, slots)
        yield page.click("button", "Save")
        yield stop()


class Moved(Changing):
    id, split = "shop-moved", "test"
    intent = (
        "I have moved. Change my address at {old} in the address book to {line1}, {town}, "
        "{postcode}, {country}."
    )

    def instances(self) -> Sequence[Slots]:
        people = seed_rows(
            "shop", "SELECT email AS user FROM auth_user WHERE is_staff = 0 AND id % 3 = 1"
        )
        found = []
        for number, person in enumerate(spread(people, 10)):
            had = addresses(person["user"])
            found.append({**person, **place(number + 3), "had": had, "old": had[-1][0]})
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        new = [slots["line1"], slots["town"], slots["postcode"], slots["short"]]
        return rows(
            "shop",
            ADDRESSES.format(user=slots["user"]),
            [*slots["had"][:-1], new],
            changed=(*LOOKED, "address_useraddress"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Address Book")
        yield page.click("link", "Edit", after=slots["old"])
        yield from fill_address(page, slots)
        yield page.click("button", "Save")
        yield stop()


class Rename(Changing):
    id, split = "shop-rename", "train"
    intent = "I have married: change my last name in my profile to {last}."
    NAMES = (
        "Ashford",
        "Calder",
        "Ellery",
        "Fenwick",
        "Garland",
        "Hawthorne",
        "Ingram",
        "Kingsley",
        "Lockwood",
        "Mercer",
    )

    def instances(self) -> Sequence[Slots]:
        people = seed_rows(
            "shop",
            "SELECT email AS user, first_name AS first FROM auth_user "
            "WHERE is_staff = 0 AND id % 4 = 2",
        )
        return [
            {**person, "last": name}
            for person, name in zip(spread(people, 10), self.NAMES, strict=False)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = f"SELECT first_name, last_name FROM auth_user WHERE email = '{slots['user']}'"
        return rows(
            "shop", query, [[slots["first"], slots["last"]]], changed=(*LOOKED, "auth_user")
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Account")
        yield page.click("link", "Edit profile")
        yield page.type("textbox", re.compile("^Last name"), slots["last"])
        yield page.click("button", re.compile("^Save"))
        yield stop()


TEMPLATES = (WriteReview(), Vote(), Wish(), Unwish(), Alert(), NewAddress(), Moved(), Rename())
