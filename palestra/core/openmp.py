"""How the threads of torch wait for each other on a CPU."""

from __future__ import annotations

import os

POLICY = "OMP_WAIT_POLICY"
BUSY = 0.5
"""Load average for each core from which on cores count as shared."""


def wait_politely() -> None:
    """Let torch's threads sleep while they wait for each other, where cores are shared.

    Called before torch is imported: OpenMP reads the variable once. Its default is to spin, which
    takes the core from the thread that is waited for. 20 warm-start updates of the quickstart on 2
    cores under a load of 13 took 16 s with PASSIVE and more than 200 s without. On a machine of
    one's own PASSIVE is a third slower, so it is not set there. A user's own value is kept.
    """
    if POLICY not in os.environ and os.getloadavg()[0] > BUSY * (os.cpu_count() or 1):
        os.environ[POLICY] = "PASSIVE"
