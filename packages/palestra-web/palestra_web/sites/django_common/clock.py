"""The sites' current time is fixed for all episodes, so that pages with "two days ago" never
change.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django.utils import timesince, timezone

NOW = datetime(2026, 6, 15, 10, 0, tzinfo=UTC)


def stand_still() -> None:
    """Call before `django.setup()`, so that no module keeps a reference to the real clock. Sockets
    and cookies use real time.
    """
    timezone.now = lambda: NOW
    since = timesince.timesince

    def since_then(moment: date, now: date | None = None, *arguments: Any, **options: Any) -> str:
        """It does not ask `timezone.now`."""
        is_aware = isinstance(moment, datetime) and moment.tzinfo is not None
        return str(
            since(
                moment,
                now or (NOW if is_aware else NOW.replace(tzinfo=None)),
                *arguments,
                **options,
            )
        )

    timesince.timesince = since_then
