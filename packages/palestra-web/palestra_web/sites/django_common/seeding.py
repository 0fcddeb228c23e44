"""Builds a Django site's base folder, byte-identical on every machine."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import time_machine
from django_common.clock import NOW
from wsgi_common import instance


class Clock:
    """The simulated time while a site is seeded. Advanced explicitly."""

    def __init__(self, moves: Any) -> None:
        self._moves = moves

    def set(self, moment: datetime) -> None:
        self._moves.move_to(moment, tick=False)


def seed_site(settings: str, fill: Callable[[Clock, random.Random], None]) -> None:
    """Migrate, `fill`, and collect static files into the folder `$SITE_BASE`, with the clock and
    all chance in our hands.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("a seed is reproducible with PYTHONHASHSEED=0 only")
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    base = Path(os.environ["SITE_BASE"])
    draft = base / "draft.sqlite3"
    instance.current.set(draft)
    chance = random.Random(0)
    with ExitStack() as stack:
        # salts, keys and UUIDs come from these two
        stack.enter_context(patch("random._urandom", chance.randbytes))
        stack.enter_context(patch("os.urandom", chance.randbytes))
        moves = stack.enter_context(time_machine.travel(NOW, tick=False))

        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections, transaction

        call_command("migrate", verbosity=0)
        with transaction.atomic():
            fill(Clock(moves), random.Random(1))
        connections.close_all()
    call_command("collectstatic", verbosity=0, interactive=False)
    _compact(draft, base / "base.sqlite3")


def _compact(draft: Path, finished: Path) -> None:
    """Remove leftovers of deleted rows and grown tables."""
    with sqlite3.connect(draft) as connection:
        connection.execute("DELETE FROM django_session")
    with sqlite3.connect(draft) as connection:
        connection.execute("VACUUM INTO ?", (str(finished),))
    connection.close()
    draft.unlink()
