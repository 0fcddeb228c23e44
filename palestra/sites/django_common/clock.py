"""The sites' present is one moment, the same in every episode on every day: pages that say "two days ago" stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

NOW = datetime(2026, 6, 15, 10, 0, tzinfo=UTC)


def stand_still() -> None:
    """Before `django.setup()`, so that nobody has got hold of the real clock. Sockets and cookies keep to real time."""
    timezone.now = lambda: NOW
