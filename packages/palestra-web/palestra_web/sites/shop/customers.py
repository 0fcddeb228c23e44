"""The customers: accounts, addresses, orders of the past, carts and wish lists."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django_common.clock import NOW
from django_common.seeding import Clock
from oscar.core.loading import get_class, get_model
from shop.places import COUNTRIES, STREETS, TOWNS
from shop.shipping.repository import Express, Pickup, Standard

ORDERS = 150
STATUSES = ("Pending", "Processing", "Shipped", "Delivered", "Cancelled")


def fill_accounts(clock: Clock, chance: random.Random) -> list[Any]:
    for position, (short, long, number, name) in enumerate(COUNTRIES):
        get_model("address", "Country").objects.create(
            iso_3166_1_a2=short,
            iso_3166_1_a3=long,
            iso_3166_1_numeric=number,
            name=name,
            printable_name=name,
            display_order=len(COUNTRIES) - position,
            is_shipping_country=True,
        )
    clock.set(NOW - timedelta(days=420))
    customers = []
    for email, user in json.loads((Path(__file__).parent / "users.json").read_text()).items():
        first, last = user["name"].split()
        is_staff = "role" in user
        account = get_user_model().objects.create_user(
            email,
            email,
            user["password"],
            first_name=first,
            last_name=last,
            is_staff=is_staff,
            is_superuser=is_staff,
        )
        if is_staff:
            continue
        customers.append(account)
        for number in range(chance.choice((1, 1, 2))):
            _address(account, chance, is_default=number == 0)
        clock.set(NOW - timedelta(days=400 - 7 * len(customers)))
    return customers


def _address(customer: Any, chance: random.Random, is_default: bool) -> None:
    town, postcode, country = chance.choice(TOWNS)
    get_model("address", "UserAddress").objects.create(
        user=customer,
        first_name=customer.first_name,
        last_name=customer.last_name,
        line1=f"{chance.randint(1, 180)} {chance.choice(STREETS)}",
        line4=town,
        postcode=postcode,
        country_id=country,
        is_default_for_shipping=is_default,
        is_default_for_billing=is_default,
    )


def fill_orders(customers: list[Any], clock: Clock, chance: random.Random) -> None:
    products = list(
        get_model("catalogue", "Product")
        .objects.filter(stockrecords__num_in_stock__gt=7)
        .order_by("pk")
    )
    recent = ORDERS // 3  # much is still under way
    days = [chance.uniform(0.5, 18) for _ in range(recent)]
    days += [chance.uniform(18, 300) for _ in range(ORDERS - recent)]
    days.sort(reverse=True)
    for day in days:
        clock.set(NOW - timedelta(days=day))
        customer = chance.choice(customers)
        basket = _basket(customer, chance.sample(products, chance.choice((1, 1, 2, 3, 4))), chance)
        order = _place(basket, customer, chance)
        age = (day > 4) + (day > 9) + (day > 20)
        if chance.random() < 0.08:
            status = "Cancelled"
        else:
            status = STATUSES[max(0, age - (chance.random() < 0.25))]
        _bring_to(order, status)


def _basket(customer: Any, products: list[Any], chance: random.Random) -> Any:
    basket = get_model("basket", "Basket").objects.create(owner=customer)
    basket.strategy = get_class("partner.strategy", "Selector")().strategy()
    for product in products:
        basket.add_product(product, quantity=chance.choice((1, 1, 1, 2, 3)))
    return basket


def _place(basket: Any, customer: Any, chance: random.Random) -> Any:
    method = chance.choice((Standard(), Standard(), Express(), Pickup()))
    home = customer.addresses.order_by("pk").first()
    shipping = get_model("order", "ShippingAddress")()
    home.populate_alternative_model(shipping)
    shipping.save()
    charge = method.calculate(basket)
    total = get_class("checkout.calculators", "OrderTotalCalculator")().calculate(basket, charge)
    order = get_class("order.utils", "OrderCreator")().place_order(
        basket=basket,
        total=total,
        shipping_method=method,
        shipping_charge=charge,
        user=customer,
        shipping_address=shipping,
    )
    basket.submit()
    return order


def _bring_to(order: Any, status: str) -> None:
    """Along the shop's own pipeline, and with the stock following it."""
    path = (
        ["Cancelled"] if status == "Cancelled" else list(STATUSES[1 : STATUSES.index(status) + 1])
    )
    for step in path:
        order.set_status(step)
    for line in order.lines.all():
        if status == "Cancelled":
            line.stockrecord.cancel_allocation(line.quantity)
        elif status in ("Shipped", "Delivered"):
            line.stockrecord.consume_allocation(line.quantity)


def fill_carts(customers: list[Any], clock: Clock, chance: random.Random) -> None:
    """Some customers left something in their cart, some keep a wish list."""
    clock.set(NOW - timedelta(hours=20))
    products = list(
        get_model("catalogue", "Product")
        .objects.filter(stockrecords__num_in_stock__gt=20)
        .order_by("pk")
    )
    for customer in customers[:10]:
        _basket(customer, chance.sample(products, 3), chance)
    for customer in customers[10:20]:
        wishes = get_model("wishlists", "WishList").objects.create(
            owner=customer, name="Birthday ideas"
        )
        for product in chance.sample(products, 3):
            wishes.add(product)
