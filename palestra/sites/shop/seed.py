"""Fill the shop."""

from __future__ import annotations

import random

from django_common.seeding import Clock, seed_site


def fill(clock: Clock, chance: random.Random) -> None:
    from django.contrib.auth import get_user_model

    get_user_model().objects.create_user("clara", "clara@example.com", "clara-clara")


if __name__ == "__main__":
    seed_site("shop.settings", fill)
