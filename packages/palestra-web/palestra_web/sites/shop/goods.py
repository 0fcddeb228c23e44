"""The catalog: departments, categories, products with stock, and reviews."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django_common.clock import NOW
from django_common.seeding import Clock
from oscar.core.loading import get_model
from shop.wares import COLORS, DEPARTMENTS, PER_KIND, Department, Kind

ATTRIBUTES = (
    ("brand", "Brand", "text"),
    ("colour", "Colour", "text"),
    ("material", "Material", "text"),
    ("weight", "Weight", "text"),
    ("warranty", "Warranty (years)", "integer"),
)
CENTS = (Decimal("0.00"), Decimal("0.50"), Decimal("0.90"), Decimal("0.95"), Decimal("0.99"))
TITLES = {
    1: ("Sent it back", "Very disappointed", "Would not buy again"),
    2: ("Expected more", "Not convinced", "Has its flaws"),
    3: ("Does the job", "Mixed feelings", "All right for the price"),
    4: ("Good buy", "Happy with it", "Nearly perfect"),
    5: ("Could not be happier", "Exactly what I wanted", "Highly recommended"),
}
OPENINGS = (
    "I bought it {when}.",
    "A present from my {who}.",
    "I have used it for {time} now.",
    "It arrived in three days.",
    "My second one of these.",
)


def fill_catalogue(clock: Clock, chance: random.Random) -> None:
    clock.set(NOW - timedelta(days=400))
    partners = [
        get_model("partner", "Partner").objects.create(name=name)
        for name in ("Fernhill Warehouse", "Northgate Supply")
    ]
    number = 0
    for department in DEPARTMENTS:
        product_class = _product_class(department.name)
        above = get_model("catalogue", "Category").add_root(
            name=department.name, description=department.about
        )
        for kind in department.kinds:
            category = above.add_child(name=kind.name, description=f"{kind.name} for every day.")
            names = list(itertools.product(department.brands, department.lines))
            prices: set[Decimal] = set()
            for brand, line in chance.sample(names, PER_KIND):
                number += 1
                clock.set(NOW - timedelta(days=400 - number, minutes=chance.randrange(600)))
                product = _product(department, kind, brand, line, number, prices, chance)
                product.product_class = product_class
                _save(product, category, partners[chance.random() < 0.3], number, chance)


def _product_class(name: str) -> Any:
    made = get_model("catalogue", "ProductClass").objects.create(
        name=name, requires_shipping=True, track_stock=True
    )
    for code, label, kind in ATTRIBUTES:
        get_model("catalogue", "ProductAttribute").objects.create(
            product_class=made, code=code, name=label, type=kind, required=False
        )
    return made


def _product(
    department: Department,
    kind: Kind,
    brand: str,
    line: str,
    number: int,
    prices: set[Decimal],
    chance: random.Random,
) -> Any:
    """Not saved yet. Its price is drawn until no other of its kind has it: the cheapest of a
    category is one.
    """
    noun, size = chance.choice(kind.nouns), chance.randrange(len(kind.sizes))
    low, high = kind.price
    while True:
        share = (size + chance.random()) / len(kind.sizes) * chance.uniform(0.7, 1.0)
        price = int(low + (high - low) * share) + chance.choice(CENTS)
        if price not in prices:
            break
    prices.add(price)
    colour, material = chance.choice(COLORS), chance.choice(kind.materials)
    grams = round(
        kind.grams[0]
        + (kind.grams[1] - kind.grams[0]) * (size + chance.random()) / len(kind.sizes),
        -1,
    )
    weight = f"{grams} g" if grams < 1000 else f"{grams / 1000:.1f} kg"
    features = " ".join(chance.sample(kind.features, 3))
    warranty = chance.choice((1, 2, 2, 3, 5, 10))
    years = "one year" if warranty == 1 else f"{warranty} years"
    article = "An" if noun[0] in "AEIOU" else "A"
    description = (
        f"<p>{article} {noun.lower()} in {colour}, made of {material}. {features} Under warranty "
        f"for {years}.</p>"
    )
    product = get_model("catalogue", "Product")(
        title=f"{brand} {line} {noun} {kind.sizes[size]}",
        upc=f"{department.name[:3].upper()}-{10000 + number * 7}",
        description=description,
    )
    product.facts = {
        "brand": brand,
        "colour": colour,
        "material": material,
        "weight": weight,
        "warranty": warranty,
    }
    product.price = price
    return product


def _save(product: Any, category: Any, partner: Any, number: int, chance: random.Random) -> None:
    facts, price = product.facts, product.price
    product.save()
    for code, value in facts.items():
        setattr(product.attr, code, value)
    product.attr.save()
    product.categories.add(category)
    stock = chance.choice((0, *[chance.randint(1, 6)] * 2, *[chance.randint(8, 120)] * 13))
    get_model("partner", "StockRecord").objects.create(
        product=product,
        partner=partner,
        partner_sku=f"{'NG' if partner.pk == 2 else 'FH'}{20000 + number}",
        price_currency="USD",
        price=price,
        num_in_stock=stock,
        low_stock_threshold=5,
    )


def fill_reviews(customers: list[Any], clock: Clock, chance: random.Random) -> None:
    kinds: dict[str, Kind] = {}
    for department in DEPARTMENTS:
        kinds |= {kind.name: kind for kind in department.kinds}
    for product in get_model("catalogue", "Product").objects.order_by("pk"):
        kind = kinds[product.categories.get().name]
        quality = chance.uniform(2.2, 5.2)
        count = chance.choice((0, 1, 2, 2, 3, 4, 5, 7))
        days = sorted(chance.sample(range(3, 380), count), reverse=True)
        said: set[str] = set()
        for customer, day in zip(chance.sample(customers, count), days, strict=True):
            clock.set(NOW - timedelta(days=day, minutes=chance.randrange(700)))
            score = min(5, max(1, round(chance.gauss(quality, 1.0))))
            title, body = _review(kind, score, said, chance)
            get_model("reviews", "ProductReview").objects.create(
                product=product, user=customer, score=score, title=title, body=body
            )


def _review(kind: Kind, score: int, said: set[str], chance: random.Random) -> tuple[str, str]:
    """Praise and complaints by the score, and no sentence twice of one product while there are
    others.
    """
    opening = chance.choice(OPENINGS).format(
        when=chance.choice(("in spring", "last autumn", "for our move", "on a friend's advice")),
        who=chance.choice(("sister", "parents", "partner", "colleagues")),
        time=chance.choice(("two weeks", "a month", "half a year", "a year")),
    )
    good, bad = {1: (0, 2), 2: (1, 1), 3: (1, 1), 4: (2, 0), 5: (2, 0)}[score]
    sentences: list[str] = []
    for count, source in ((good, kind.praise), (bad, kind.complaints)):
        fresh = [sentence for sentence in source if sentence not in said]
        sentences += chance.sample(fresh if len(fresh) >= count else source, count)
    said.update(sentences)
    return chance.choice(TITLES[score]), " ".join([opening, *sentences])
