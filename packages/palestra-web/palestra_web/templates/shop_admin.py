"""What the shop's manager does in the dashboard."""

# The queries are put together from parts, of our own seed's data alone.
# ruff: noqa: S608

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from palestra.envs.web.solutions import Solution, View, stop
from palestra.envs.web.tasks import Evaluation, answer, answer_with, rows
from palestra.envs.web.template import Slots
from palestra_web.seeds import seed_rows
from palestra_web.templates.common import only, quoted, unchanged
from palestra_web.templates.shop import ORDERS, PRODUCTS, Shop, fact, read, spread

MANAGER = "manager@fernhill.test"
LOOKED = ("basket_basket",)
CUSTOMERS = (
    "SELECT id, email, first_name || ' ' || last_name AS name FROM auth_user WHERE is_staff = 0"
)


def open_order(page: View, number: str) -> Solution:
    yield page.click("button", "Fulfilment")
    yield page.click("link", "Orders")
    yield page.type("textbox", re.compile("^Order number:"), number, enter=True)


def open_customer(page: View, email: str) -> Solution:
    yield page.click("button", "Customers")
    yield page.click("link", "Customers")
    yield page.type("textbox", "Email:", email, enter=True)
    yield page.click("link", email)


def edit_product(page: View, title: str) -> Solution:
    yield page.click("button", "Catalog")
    yield page.click("link", "Products")
    yield page.type("textbox", "Product title:", title, enter=True)
    yield page.click("link", title)


def edit_stock(page: View, title: str) -> Solution:
    yield from edit_product(page, title)
    yield page.click("link", "Stock and pricing")


class Admin(Shop):
    """The manager, in the dashboard."""

    start = "http://shop.test/dashboard/"

    def logged_in(self, slots: Slots) -> Mapping[str, str]:
        return {"shop": MANAGER}


class WhoOrdered(Admin):
    id, split = "admin-who-ordered", "train"
    intent = "What is the e-mail address of the customer who placed order {number}?"

    def instances(self) -> Sequence[Slots]:
        return [
            {"number": row["number"], "email": row["user"]}
            for row in spread(seed_rows("shop", ORDERS + " WHERE o.id % 4 = 1"), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["email"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_order(page, slots["number"])
        yield stop(read(page, r'cell "([\w.]+@example\.com)"'))


class OrderContents(Admin):
    id, split = "admin-order-contents", "train"
    intent = "Which two products did order {number} consist of? Answer with their full names."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT o.number, min(l.title) AS one, max(l.title) AS other FROM order_order o "
            "JOIN order_line l ON l.order_id = o.id"
        )
        return spread(
            seed_rows("shop", query + " GROUP BY o.id HAVING count(*) = 2 ORDER BY o.id"), 10
        )

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["one"], slots["other"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_order(page, slots["number"])
        titles = [
            line.name
            for line in page.all("link", after="Items ordered")
            if line.name in (slots["one"], slots["other"])
        ]
        yield stop(" and ".join(titles))


class CustomersOrders(Admin):
    id, split = "admin-customers-orders", "train"
    intent = "How many orders has the customer {name} placed? Answer with the number."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT name, email, (SELECT count(*) FROM order_order o "
            f"WHERE o.user_id = c.id) AS count FROM ({CUSTOMERS}) c"
        )
        return [
            {**row, "count": str(row["count"])}
            for row in spread(seed_rows("shop", f"{query} WHERE count > 0"), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["count"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_customer(page, slots["email"])
        yield stop(fact(page, "Number of orders"))


class OrderWithStatus(Admin):
    id, split = "admin-order-with-status", "test"
    intent = "Which order of the customer {name} has the status {status}? Answer with its number."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT customer AS name, user AS email, status, number, count(*) AS n "
            f"FROM ({ORDERS}) WHERE status <> 'Delivered'"
        )
        found = seed_rows("shop", query + " GROUP BY user, status HAVING n = 1 ORDER BY number")
        return [only(row, "name", "email", "status", "number") for row in spread(found, 10)]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer(slots["number"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_customer(page, slots["email"])
        yield stop(
            read(page, rf'link "(\d{{6}})"\n(?:\s*cell "[^"]*"\n){{3}}\s*cell "{slots["status"]}"')
        )


class TotalSpent(Admin):
    id, split = "admin-total-spent", "test"
    intent = "How much has the customer {name} spent in the shop in all? Answer with the amount."

    def instances(self) -> Sequence[Slots]:
        query = (
            f"SELECT customer AS name, user AS email, sum(total) AS total FROM ({ORDERS}) "
            "GROUP BY user ORDER BY user"
        )
        return [
            {**row, "total": f"{row['total']:,.2f}"} for row in spread(seed_rows("shop", query), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(f"{slots['total']} |OR| {slots['total'].replace(',', '')}")

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_customer(page, slots["email"])
        yield stop(fact(page, "Total spent"))


class Sku(Admin):
    id, split = "admin-sku", "train"
    intent = "Under which SKU does the partner deliver the product {product}?"

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT p.title AS product, s.partner_sku AS sku FROM catalogue_product p "
            "JOIN partner_stockrecord s ON s.product_id = p.id"
        )
        return spread(seed_rows("shop", query + " WHERE p.id % 9 = 4 ORDER BY p.id"), 10)

    def evaluation(self, slots: Slots) -> Evaluation:
        return answer_with(slots["sku"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit_stock(page, slots["product"])
        yield stop(read(page, r'textbox value="([A-Z]{2}\d+)"'))


class ChangingAdmin(Admin):
    changes = True


class _Stock(ChangingAdmin):
    """One figure of a product's stock record. The form has them in this order."""

    column = "num_in_stock"
    FIELDS = ("num_in_stock", "low_stock_threshold", "price")

    def evaluation(self, slots: Slots) -> Evaluation:
        records = "FROM partner_stockrecord s JOIN catalogue_product p ON p.id = s.product_id"
        figures = (
            "total(num_in_stock) AS pieces, total(low_stock_threshold) AS thresholds, "
            "printf('%.2f', total(price)) AS prices"
        )
        tables = (*LOOKED, "partner_stockrecord", "partner_stockalert", "catalogue_product")
        own = rows(
            "shop",
            f"SELECT s.{self.column} {records} WHERE p.title = {quoted(slots['product'])}",
            [[slots["new"]]],
            changed=tables,
        )
        return own & unchanged(
            "shop", f"SELECT {figures} {records} WHERE p.title <> {quoted(slots['product'])}"
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit_stock(page, slots["product"])
        field = self.FIELDS.index(self.column)
        yield page.type(
            "spinbutton", re.compile(""), str(slots["new"]), after="Num in stock", nth=field
        )
        yield page.click("button", "Save")
        yield stop()


class SetPrice(_Stock):
    id, split, column = "admin-set-price", "train", "price"
    intent = "Set the price of the product {product} to {new}."

    def instances(self) -> Sequence[Slots]:
        return [
            {"product": row["product"], "new": round(row["price"]) + 3.25}
            for row in spread(seed_rows("shop", PRODUCTS), 11)[1:]
        ]


class Restock(_Stock):
    id, split = "admin-restock", "test"
    intent = (
        "{more} more pieces of the product {product} have arrived. Add them to the number in stock."
    )

    def instances(self) -> Sequence[Slots]:
        found = spread(
            seed_rows("shop", PRODUCTS + " WHERE s.num_in_stock BETWEEN 1 AND 60 AND p.id % 4 = 3"),
            10,
        )
        return [
            {"product": row["product"], "more": 10 + 5 * n, "new": row["stock"] + 10 + 5 * n}
            for n, row in enumerate(found)
        ]


class Threshold(_Stock):
    id, split, column = "admin-threshold", "train", "low_stock_threshold"
    intent = "Set the low stock threshold of the product {product} to {new}."

    def instances(self) -> Sequence[Slots]:
        found = spread(
            seed_rows("shop", PRODUCTS + " WHERE s.num_in_stock > 30 AND p.id % 4 = 2"), 10
        )
        return [{"product": row["product"], "new": 8 + n} for n, row in enumerate(found)]


class Hide(ChangingAdmin):
    id, split = "admin-hide", "train"
    intent = "Take the product {product} off the public catalogue, without deleting it."

    def instances(self) -> Sequence[Slots]:
        return [
            {"product": row["product"]}
            for row in spread(seed_rows("shop", PRODUCTS + " WHERE p.id % 10 = 8"), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "shop",
            "SELECT title FROM catalogue_product WHERE NOT is_public",
            [[slots["product"]]],
            changed=(*LOOKED, "catalogue_product", "partner_stockrecord"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from edit_product(page, slots["product"])
        yield f"uncheck [{page.find('checkbox', 'Is public').id}]"
        yield page.click("button", "Save")
        yield stop()


class Retitle(ChangingAdmin):
    id, split = "admin-retitle", "test"
    intent = 'The product with the UPC {upc} is now called "{new}". Change its title.'

    def instances(self) -> Sequence[Slots]:
        found = spread(seed_rows("shop", PRODUCTS + " WHERE p.id % 10 = 6"), 10)
        return [
            {"upc": row["upc"], "product": row["product"], "new": f"{row['product']} Mark II"}
            for row in found
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "shop",
            f"SELECT title FROM catalogue_product WHERE upc = '{slots['upc']}'",
            [[slots["new"]]],
            changed=(*LOOKED, "catalogue_product", "partner_stockrecord"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Catalog")
        yield page.click("link", "Products")
        yield page.type("textbox", "UPC:", slots["upc"], enter=True)
        yield page.click("link", slots["product"])
        yield page.type("textbox", "Title", slots["new"])
        yield page.click("button", "Save")
        yield stop()


ORDER_TABLES = (
    *LOOKED,
    "order_order",
    "order_line",
    "order_orderstatuschange",
    "order_ordernote",
    "partner_stockrecord",
)


def order_is(number: str, status: str) -> Evaluation:
    own = rows(
        "shop",
        f"SELECT status FROM order_order WHERE number = '{number}'",
        [[status]],
        changed=ORDER_TABLES,
    )
    return own & unchanged(
        "shop",
        f"SELECT status, count(*) AS orders FROM order_order WHERE number <> '{number}' "
        "GROUP BY status",
    )


class SetStatus(ChangingAdmin):
    id, split = "admin-set-status", "train"
    intent = "Change the status of order {number} to {status}."
    NEXT: Mapping[str, Sequence[str]] = {
        "Pending": ("Processing", "Cancelled"),
        "Processing": ("Shipped", "Cancelled"),
        "Shipped": ("Delivered",),
    }

    def instances(self) -> Sequence[Slots]:
        open_orders = spread(
            seed_rows(
                "shop",
                ORDERS + " WHERE o.status IN ('Pending', 'Processing', 'Shipped') ORDER BY o.id",
            ),
            12,
        )
        steps = [(row, self.NEXT[row["status"]]) for row in open_orders]
        return [
            {"number": row["number"], "status": after[n % len(after)]}
            for n, (row, after) in enumerate(steps)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return order_is(slots["number"], slots["status"])

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_order(page, slots["number"])
        yield from page.reach("button", "Change status")
        yield page.select("combobox", "New order status *", slots["status"])
        yield page.click("button", "Change status")
        yield stop()


class CancelFor(ChangingAdmin):
    id, split = "admin-cancel-for", "test"
    intent = "The customer {name} has called: cancel the order of theirs that is still {status}."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT customer AS name, user AS email, lower(status) AS status, number, "
            f"count(*) AS n FROM ({ORDERS})"
        )
        found = seed_rows(
            "shop",
            f"{query} WHERE status IN ('Pending', 'Processing') GROUP BY user, status "
            "HAVING n = 1 ORDER BY number",
        )
        return [only(row, "name", "email", "status", "number") for row in spread(found, 10)]

    def evaluation(self, slots: Slots) -> Evaluation:
        return order_is(slots["number"], "Cancelled")

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_customer(page, slots["email"])
        yield page.click("link", slots["number"])
        yield from page.reach("button", "Change status")
        yield page.select("combobox", "New order status *", "Cancelled")
        yield page.click("button", "Change status")
        yield stop()


class Note(ChangingAdmin):
    id, split = "admin-note", "train"
    intent = 'Add a note to order {number} that says "{note}"'
    NOTES = (
        "Leave it with the neighbour.",
        "Please gift-wrap.",
        "Ring twice.",
        "Invoice goes to the office.",
        "Customer will collect it.",
    )

    def instances(self) -> Sequence[Slots]:
        found = spread(seed_rows("shop", ORDERS + " WHERE o.id % 5 = 3 ORDER BY o.id"), 10)
        return [{"number": row["number"], "note": self.NOTES[n % 5]} for n, row in enumerate(found)]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = (
            "SELECT o.number, n.message FROM order_ordernote n "
            "JOIN order_order o ON o.id = n.order_id"
        )
        return rows(
            "shop", query, [[slots["number"], slots["note"]]], changed=(*LOOKED, "order_ordernote")
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield from open_order(page, slots["number"])
        yield page.click("link", "Notes")
        yield page.type("textbox", "Message *", slots["note"])
        yield page.click("button", "Save note")
        yield stop()


class RejectReview(ChangingAdmin):
    id, split = "admin-reject-review", "test"
    intent = "Reject the review that {name} wrote of the product {product}."

    def instances(self) -> Sequence[Slots]:
        query = (
            "SELECT r.id AS review, p.title AS product, u.first_name || ' ' || u.last_name AS name "
            "FROM reviews_productreview r "
            "JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id "
            "WHERE r.score < 3 ORDER BY r.id DESC"
        )
        return spread(seed_rows("shop", query), 10)

    def evaluation(self, slots: Slots) -> Evaluation:
        query = "SELECT id FROM reviews_productreview WHERE status = 2"
        return rows(
            "shop",
            query,
            [[slots["review"]]],
            changed=(*LOOKED, "reviews_productreview", "catalogue_product"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Content")
        yield page.click("link", "Reviews")
        yield page.type("textbox", "Customer name:", slots["name"], enter=True)
        while not page.has("link", slots["product"]):
            yield page.click("link", "next")
        boxes = [
            line
            for line in page.observation.elements
            if line.role == "checkbox" or line.name == slots["product"]
        ]
        box = boxes[[line.name for line in boxes].index(slots["product"]) - 1]
        yield f"check [{box.id}]"
        yield page.select("combobox", "", "Rejected", after="Update status of selected reviews")
        yield page.click("button", "Update")
        yield stop()


class NewPartner(ChangingAdmin):
    id, split = "admin-new-partner", "train"
    intent = "Create a new partner called {partner}."
    NAMES = (
        "Harbourside Trading",
        "Alder and Sons",
        "Polar Goods",
        "Redwood Imports",
        "Sunfield Depot",
        "Tidewater Supply",
        "Umber Works",
        "Westbrook Wholesale",
    )

    def instances(self) -> Sequence[Slots]:
        return [{"partner": name} for name in self.NAMES]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = "SELECT name FROM partner_partner ORDER BY id"
        expected = [["Fernhill Warehouse"], ["Northgate Supply"], [slots["partner"]]]
        return rows("shop", query, expected, changed=(*LOOKED, "partner_partner"))

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Fulfilment")
        yield page.click("link", "Partners")
        yield page.click("link", re.compile("Create new partner"))
        yield page.type("textbox", re.compile("^Name"), slots["partner"])
        yield page.click("button", "Save")
        yield stop()


class NewCategory(ChangingAdmin):
    id, split = "admin-new-category", "test"
    intent = "Create a new category called {category} in the department {department}."
    NAMES = (
        ("Bakeware", "Kitchen"),
        ("Rugs", "Home"),
        ("Hammocks", "Outdoors"),
        ("Swimming", "Sports"),
        ("Chargers", "Electronics"),
        ("Envelopes", "Office"),
        ("Bird Houses", "Garden"),
        ("Kites", "Toys and Games"),
    )

    def instances(self) -> Sequence[Slots]:
        return [{"category": name, "department": department} for name, department in self.NAMES]

    def evaluation(self, slots: Slots) -> Evaluation:
        query = "SELECT c.name AS category, p.name AS department FROM catalogue_category c"
        query += " JOIN catalogue_category p ON p.path = substr(c.path, 1, 4)"
        query += " WHERE c.depth = 2 AND c.id > (SELECT count(*) FROM catalogue_productclass) * 4"
        return rows(
            "shop",
            query,
            [[slots["category"], slots["department"]]],
            changed=(*LOOKED, "catalogue_category"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Catalog")
        yield page.click("link", "Categories")
        yield page.click("link", "Create new category")
        yield page.type("textbox", re.compile("^Name"), slots["category"])
        yield page.select("combobox", "Position *", "First child of")
        yield page.select("combobox", "Relative to", slots["department"])
        yield page.click("button", "Save")
        yield stop()


class Deactivate(ChangingAdmin):
    id, split = "admin-deactivate", "train"
    intent = "Make the account of the customer {name} inactive."

    def instances(self) -> Sequence[Slots]:
        return [
            {"name": row["name"], "email": row["email"]}
            for row in spread(seed_rows("shop", CUSTOMERS + " AND id % 4 = 3"), 10)
        ]

    def evaluation(self, slots: Slots) -> Evaluation:
        return rows(
            "shop",
            "SELECT email FROM auth_user WHERE NOT is_active",
            [[slots["email"]]],
            changed=(*LOOKED, "auth_user"),
        )

    def solve(self, page: View, slots: Slots) -> Solution:
        yield page.click("button", "Customers")
        yield page.click("link", "Customers")
        yield page.type("textbox", "Name:", slots["name"], enter=True)
        yield page.check("checkbox", "", after="Number of Orders")
        yield page.check("radio", "Make inactive")
        yield page.click("button", "Go!")
        yield stop()


TEMPLATES = (
    WhoOrdered(),
    OrderContents(),
    CustomersOrders(),
    OrderWithStatus(),
    TotalSpent(),
    Sku(),
    SetPrice(),
    Restock(),
    Threshold(),
    Hide(),
    Retitle(),
    SetStatus(),
    CancelFor(),
    Note(),
    RejectReview(),
    NewPartner(),
    NewCategory(),
    Deactivate(),
)
