"""Counts and durations of calls, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BOUNDS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)
HELP = {
    "palestra_calls_total": ("counter", "Calls by kind and outcome."),
    "palestra_call_seconds": ("histogram", "Seconds from a call's arrival to its answer."),
    "palestra_sessions": ("gauge", "Open sessions."),
    "palestra_capacity": ("gauge", "Seats."),
    "palestra_free": ("gauge", "Seats that are free."),
    "palestra_streams": ("gauge", "Open WebSocket connections."),
    "palestra_connections": ("gauge", "Open connections, within the limit."),
    "palestra_connections_refused_total": (
        "counter",
        "Connections beyond the limit, answered at /health alone.",
    ),
    "palestra_connections_late_total": (
        "counter",
        "Connections that were cut off because they took too long.",
    ),
    "palestra_expired_total": ("counter", "Sessions whose lease ran out."),
    "palestra_workers": ("gauge", "Worker processes of an environment."),
    "palestra_worker_bytes": (
        "gauge",
        "Memory that the worker processes of an environment hold, with their children.",
    ),
    "palestra_worker_open_files": ("gauge", "Files that they have open."),
    "palestra_worker_restarts_total": ("counter", "Workers that were replaced."),
}


class Measure:
    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def call(self, name: str, code: str, seconds: float) -> None:
        self._calls[name, code] += 1
        buckets = self._buckets.get(name)
        if buckets is None:
            buckets = self._buckets[name] = [0] * (len(BOUNDS_S) + 1)
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[name] += seconds  # type: ignore[assignment]

    def samples(self) -> dict[str, float]:
        """Sample -> value. Those of several processes can be added up."""
        found: dict[str, float] = {}
        for (name, code), count in self._calls.items():
            found[f'palestra_calls_total{{call="{name}",code="{code}"}}'] = count
        for name, buckets in self._buckets.items():
            label = f'call="{name}"'
            total = 0
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
                total += count
                found[f'palestra_call_seconds_bucket{{{label},le="{bound}"}}'] = total
            found[f"palestra_call_seconds_sum{{{label}}}"] = self._seconds[name]
            found[f"palestra_call_seconds_count{{{label}}}"] = total
        return found

    @staticmethod
    def text(samples: dict[str, float]) -> str:
        lines = []
        for family, (kind, meaning) in HELP.items():
            lines += [f"# HELP {family} {meaning}", f"# TYPE {family} {kind}"]
            parts = {family, f"{family}_bucket", f"{family}_sum", f"{family}_count"}
            lines += [
                f"{name} {value:g}"
                for name, value in samples.items()
                if name.partition("{")[0] in parts
            ]
        return "\n".join(lines) + "\n"
