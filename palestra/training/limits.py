"""When a run is over: after its steps, or at a limit on tokens or time."""

from __future__ import annotations

import time

from palestra.config.config import Config
from palestra.core.process_group import ProcessGroup
from palestra.runs.run import Run
from palestra.runs.state import State


def is_over(run: Run, state: State, world: ProcessGroup) -> bool:
    """Whether the run ends after this state. All ranks agree: the first one's clock counts."""
    limit = run.config.limit
    if state.step >= run.config.steps:
        return True
    if limit.tokens is not None and state.tokens >= limit.tokens:
        return True
    if limit.minutes is None:
        return False
    is_late = time.monotonic() - run.began >= 60 * limit.minutes
    return world.all_gather_bytes(b"%d" % is_late)[0] == b"1"


def expected_steps(config: Config, state: State) -> int:
    """The number of steps the run will have, extrapolated from the tokens of its steps so far."""
    if config.limit.tokens is None or not state.tokens:
        return config.steps
    return min(config.steps, max(state.step, state.step * config.limit.tokens // state.tokens))
