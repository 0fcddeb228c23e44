"""What customers do in the shop: carts, orders, reviews, wish lists and their own accounts."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, rows
from palestra.envs.web.template import Slots
from palestra_web.seeds import seed_rows, seed_users
from palestra_web.templates.shop import ORDERS, PRODUCTS, Shop, open_account, open_product, spread

CART = """SELECT p.title, l.quantity FROM basket_line l JOIN basket_basket b ON b.id = l.basket_id \
JOIN auth_user u ON u.id = b.owner_id
JOIN catalogue_product p ON p.id = l.product_id \
WHERE b.status = '{status}' AND u.email = '{user}' ORDER BY p.title"""
CART_TABLES = ("basket_basket", "basket_line")
ORDER_TABLES = (
    *CART_TABLES,
    "address_useraddress",
    "order_line",
    "order_lineprice",
    "order_order",
    "order_shippingaddress",
    "partner_stockrecord",
    "partner_stockalert",
)
METHODS = (
    ("standard", "standard delivery"),
    ("express", "express delivery"),
    ("pickup", "pick-up in the store"),
)
OPTIONS = {
    "standard": "Standard delivery",
    "express": "Express delivery",
    "pickup": "Pick up in store",
}
PLACES = (
    ("14 Lime Street", "Leeds", "LS2 8JS", "United Kingdom", "GB"),
    ("3 Quay Road", "Hamburg", "20457", "Germany", "DE"),
    ("77 Elm Avenue", "Denver", "80203", "United States", "US"),
    ("9 Canal Row", "Utrecht", "3512 BP", "Netherlands", "NL"),
    ("21 Cathedral Lane", "Bologna", "40124", "Italy", "IT"),
    ("5 Vine Court", "Lyon", "69003", "France", "FR"),
    ("160 Ocean Parade", "Adelaide", "5006", "Australia", "AU"),
    ("48 Birch Way", "Uppsala", "753 20", "Sweden", "SE"),
    ("31 Prairie Drive", "Calgary", "T2P 3C5", "Canada", "CA"),
    ("12 Orange Street", "Valencia", "46002", "Spain", "ES"),
)
"""New addresses: in towns of the shop's customers, but in other streets."""


def users_without_cart() -> list[str]:
    """Customers whose cart is empty and who keep no wish list."""
    query = (
        "SELECT email FROM auth_user WHERE is_staff = 0 AND id NOT IN (SELECT owner_id "
        "FROM basket_basket WHERE status = 'Open')"
    )
    return [
        row["email"]
        for row in seed_rows(
            "shop", query + " AND id NOT IN (SELECT owner_id FROM wishlists_wishlist) ORDER BY id"
        )
    ]


def available(where: str = "1") -> list[dict[str, Any]]:
    return seed_rows("shop", f"{PRODUCTS} WHERE s.num_in_stock > 10 AND {where}")


def carts() -> list[dict[str, Any]]:
    """Customers with a non-empty cart, and its content as `lines`."""
    found = []
    query = (
        "SELECT u.email, u.id FROM basket_basket b JOIN auth_user u ON u.id = b.owner_id "
        "WHERE b.status = 'Open' ORDER BY b.id"
    )
    for row in seed_rows("shop", query):
        lines = [
            list(line.values())
            for line in seed_rows("shop", CART.format(status="Open", user=row["email"]))
        ]
        homes = seed_rows(
            "shop",
            "SELECT line1, line4 AS town FROM address_useraddress WHERE user_id = ? ORDER BY id",
            row["id"],
        )
        found.append({"user": row["email"], "lines": lines, "homes": homes})
    return found


def cart_is(user: str, lines: Sequence[Sequence[Any]], status: str = "Open") -> Evaluation:
    return rows(
        "shop", CART.format(status=status, user=user), sorted(map(list, lines)), changed=CART_TABLES
    )


def fill_address(page: View, place: Slots) -> Solution:
    """The form of the checkout and of the address book alike."""
    yield page.type("textbox", "First line of address *", place["line1"])
    yield page.type("textbox", "City *", place["town"])
    yield page.type("textbox", "Post/Zip-code *", place["postcode"])
    yield page.select("combobox", "Country *", place["country"])


class Changing(Shop):
    changes = True


class AddToCart(Changing):
    id, split = "shop-add-to-cart", "train"
    intent = "Put the product {product} into my cart."

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": user, "product": row["product"]}
            for user, row in zip(
                users_without_cart(), spread(available("p.id % 3 = 1"), 10), strict=False
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(slots["user"], [[slots["product"], 1]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("button", "Add to cart")
        yield stop()


class AddSeveral(Changing):
    id, split = "shop-add-several", "test"
    intent = "I need {quantity} pieces of the product {product}. Put them into my cart."

    def instances(self) -> Sequence[Slots]:
        found = spread(available("p.id % 3 = 2"), 10)
        return [
            {"user": user, "product": row["product"], "quantity": 2 + n % 5}
            for n, (user, row) in enumerate(zip(users_without_cart(), found, strict=False))
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(slots["user"], [[slots["product"], slots["quantity"]]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("button", "Add to cart")
        yield page.click("button", "View cart")
        yield page.type(
            "spinbutton", re.compile(""), str(slots["quantity"]), after=slots["product"]
        )
        yield page.click("button", "Update", after=slots["product"])
        yield stop()


class CheapestIntoCart(Changing):
    id, split = "shop-cheapest-into-cart", "test"
    intent = "Put the cheapest product of the category {category} that can be bought into my cart."

    def instances(self) -> Sequence[Slots]:
        best = (
            f"SELECT category, product, min(price) FROM ({PRODUCTS}) WHERE stock > 0 "
            "GROUP BY category ORDER BY category"
        )
        return [
            {"user": user, "category": row["category"], "product": row["product"]}
            for user, row in zip(
                users_without_cart(), spread(seed_rows("shop", best), 10), strict=False
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(slots["user"], [[slots["product"], 1]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", slots["category"], after="Show results for")
        yield page.select("combobox", "Sort by", "Price low to high")
        yield page.click("button", "Add to cart", after=slots["product"])
        yield stop()


class RemoveFromCart(Changing):
    id, split = "shop-remove-from-cart", "train"
    intent = "Take the product {product} out of my cart."

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": cart["user"], "product": cart["lines"][n % 3][0], "lines": cart["lines"]}
            for n, cart in enumerate(carts())
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(
            slots["user"], [line for line in slots["lines"] if line[0] != slots["product"]]
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "View cart")
        yield page.click("link", "Remove", after=slots["product"])
        yield stop()


class ChangeQuantity(Changing):
    id, split = "shop-change-quantity", "train"
    intent = "Change the quantity of the product {product} in my cart to {quantity}."

    def instances(self) -> Sequence[Slots]:
        return [
            {
                "user": cart["user"],
                "product": cart["lines"][n % 3][0],
                "quantity": 4 + n % 4,
                "lines": cart["lines"],
            }
            for n, cart in enumerate(carts(), 1)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        lines = [
            [title, slots["quantity"] if title == slots["product"] else count]
            for title, count in slots["lines"]
        ]
        return cart_is(slots["user"], lines)

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "View cart")
        yield page.type(
            "spinbutton", re.compile(""), str(slots["quantity"]), after=slots["product"]
        )
        yield page.click("button", "Update", after=slots["product"])
        yield stop()


class SaveForLater(Changing):
    id, split = "shop-save-for-later", "test"
    intent = "I do not want to buy the product {product} in my cart now: save it for later."

    def instances(self) -> Sequence[Slots]:
        return [
            {"user": cart["user"], "product": cart["lines"][n % 3][0], "lines": cart["lines"]}
            for n, cart in enumerate(carts(), 2)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        kept = [line for line in slots["lines"] if line[0] != slots["product"]]
        saved = [line for line in slots["lines"] if line[0] == slots["product"]]
        return cart_is(slots["user"], kept) & cart_is(slots["user"], saved, "Saved")

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "View cart")
        yield page.click("link", "Save for later", after=slots["product"])
        yield stop()


NEW_ORDERS = """SELECT o.status, o.shipping_code, a.line1, a.line4, a.country_id, \
(SELECT group_concat(t, ', ') FROM
(SELECT l.quantity || ' ' || l.title AS t FROM order_line l WHERE l.order_id = o.id \
ORDER BY l.title)) FROM order_order o
JOIN auth_user u ON u.id = o.user_id JOIN order_shippingaddress a ON a.id = o.shipping_address_id
WHERE u.email = '{user}' AND o.date_placed >= '2026-06-15 10:00:00'"""


class CheckOut(Changing):
    id, split = "shop-check-out", "train"
    intent = "Order all that is in my cart by {method}, sent to my address in {town}."

    def instances(self) -> Sequence[Slots]:
        found = []
        for number, cart in enumerate(carts()):
            code, method = METHODS[number % 3]
            home = cart["homes"][-1]
            found.append(
                {
                    "user": cart["user"],
                    "town": home["town"],
                    "line1": home["line1"],
                    "code": code,
                    "method": method,
                    "lines": ", ".join(f"{count} {title}" for title, count in cart["lines"]),
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        country = seed_rows(
            "shop", "SELECT country_id FROM address_useraddress WHERE line1 = ?", slots["line1"]
        )[0]["country_id"]
        placed = ["Pending", slots["code"], slots["line1"], slots["town"], country, slots["lines"]]
        return rows("shop", NEW_ORDERS.format(user=slots["user"]), [placed], changed=ORDER_TABLES)

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "View cart")
        yield page.click("link", "Proceed to checkout")
        yield page.click("button", re.compile("^Ship to "), after=slots["line1"])
        yield page.click("button", "Select option", after=OPTIONS[slots["code"]])
        yield page.click("link", "Continue")
        yield page.click("button", "Place order")
        yield stop()


class BuyToNewAddress(Changing):
    id, split = "shop-buy-to-new-address", "test"
    intent = (
        "Buy one {product} and have it sent by {method} to {first} {last}, {line1}, {town}, "
        "{postcode}, {country}."
    )
    NAMES = (
        ("Anna", "Blake"),
        ("Theo", "Winter"),
        ("Mira", "Sands"),
        ("Paul", "Frost"),
        ("Edda", "Linde"),
    )

    def instances(self) -> Sequence[Slots]:
        found = []
        for number, (user, row) in enumerate(
            zip(users_without_cart(), spread(available("p.id % 3 = 0"), 10), strict=False)
        ):
            line1, town, postcode, country, short = PLACES[number % len(PLACES)]
            code, method = METHODS[(number + 1) % 2]
            first, last = self.NAMES[number % 5]
            found.append(
                {
                    "user": user,
                    "product": row["product"],
                    "first": first,
                    "last": last,
                    "line1": line1,
                    "town": town,
                    "postcode": postcode,
                    "country": country,
                    "short": short,
                    "code": code,
                    "method": method,
                }
            )
        return found

    def evaluation(self, slots: Slots) -> Evaluation:
        placed = [
            "Pending",
            slots["code"],
            slots["line1"],
            slots["town"],
            slots["short"],
            f"1 {slots['product']}",
        ]
        return rows("shop", NEW_ORDERS.format(user=slots["user"]), [placed], changed=ORDER_TABLES)

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_product(page, slots["product"])
        yield page.click("button", "Add to cart")
        yield page.click("button", "View cart")
        yield page.click("link", "Proceed to checkout")
        yield page.type("textbox", "First name *", slots["first"])
        yield page.type("textbox", "Last name *", slots["last"])
        yield from fill_address(page, slots)
        yield page.click("button", "Continue")
        yield page.click("button", "Select option", after=OPTIONS[slots["code"]])
        yield page.click("link", "Continue")
        yield page.click("button", "Place order")
        yield stop()


class Reorder(Changing):
    id, split = "shop-reorder", "test"
    intent = "Put everything that was in my order {number} into my cart once more."

    def instances(self) -> Sequence[Slots]:
        """Orders of customers with an empty cart, all of whose products are still there."""
        found = []
        for user in users_without_cart():
            for order in seed_rows(
                "shop", ORDERS + " WHERE u.email = ? AND items > 1 ORDER BY o.id DESC", user
            )[:1]:
                lines = seed_rows(
                    "shop",
                    "SELECT l.title, l.quantity, s.num_in_stock AS stock FROM order_line l "
                    "JOIN order_order o ON o.id = l.order_id "
                    "JOIN partner_stockrecord s ON s.product_id = l.product_id WHERE o.number = ?",
                    order["number"],
                )
                if all(line["stock"] > line["quantity"] + 5 for line in lines):
                    wanted = [[line["title"], line["quantity"]] for line in lines]
                    found.append({"user": user, "number": order["number"], "lines": wanted})
        return found[:10]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(slots["user"], slots["lines"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_account(page, "Order History")
        yield page.click("link", slots["number"])
        yield page.click("button", "Re-order all items")
        yield stop()


class LogInAndAdd(Changing):
    id, split = "shop-log-in-and-add", "train"
    intent = (
        "Log in as {email} with the password {password}, and put the product {product} into the "
        "cart."
    )

    def instances(self) -> Sequence[Slots]:
        return [
            {
                "email": user,
                "password": seed_users("shop")[user]["password"],
                "product": row["product"],
            }
            for user, row in zip(
                users_without_cart(), spread(available("p.id % 4 = 2"), 10), strict=False
            )
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return cart_is(slots["email"], [[slots["product"], 1]])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("link", "Login or register")
        yield page.type("textbox", "Email address *", slots["email"])
        yield page.type("textbox", "Password *", slots["password"])
        yield page.click("button", "Log In")
        yield from open_product(page, slots["product"])
        yield page.click("button", "Add to cart")
        yield stop()


TEMPLATES = (
    AddToCart(),
    AddSeveral(),
    CheapestIntoCart(),
    RemoveFromCart(),
    ChangeQuantity(),
    SaveForLater(),
    CheckOut(),
    BuyToNewAddress(),
    Reorder(),
    LogInAndAdd(),
)
