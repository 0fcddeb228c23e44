"""When a run is over: after its steps, or when it has used up what it may use."""

from __future__ import annotations

import time

from palestra.config.config import Config
from palestra.core.process_group import ProcessGroup
from palestra.runs.run import Run
from palestra.runs.state import State


def is_over(run: Run, state: State, world: ProcessGroup) -> bool:
    """The same on all ranks: it is the first one's clock that counts."""
    limit = run.config.limit
    if state.step >= run.config.steps or (
        limit.tokens is not None and state.tokens >= limit.tokens
    ):
        return True
    if limit.minutes is None:
        return False
    is_late = time.monotonic() - run.began >= 60 * limit.minutes
    return world.all_gather_bytes(b"%d" % is_late)[0] == b"1"


def expected_steps(config: Config, state: State) -> int:
    """How many steps the run will have, as far as the tokens of its steps so far tell."""
    if config.limit.tokens is None or not state.tokens:
        return config.steps
    return min(config.steps, max(state.step, state.step * config.limit.tokens // state.tokens))
