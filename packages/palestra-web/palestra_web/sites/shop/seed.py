"""Fill the shop: `python -m shop.seed`."""

from __future__ import annotations

import random

from django_common.seeding import Clock, seed_site


def fill(clock: Clock, chance: random.Random) -> None:
    from shop.customers import fill_accounts, fill_carts, fill_orders
    from shop.goods import fill_catalogue, fill_reviews

    customers = fill_accounts(clock, chance)
    fill_catalogue(clock, chance)
    fill_reviews(customers, clock, chance)
    fill_orders(customers, clock, chance)
    fill_carts(customers, clock, chance)


if __name__ == "__main__":
    seed_site("shop.settings", fill)
