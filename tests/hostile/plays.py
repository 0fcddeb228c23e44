"""Plays hostile tasks beside sound ones in one pool, and prints as JSON what each came to: `python
-m tests.hostile.plays MODE TASK...`.
"""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import msgspec

from palestra.core.types import Task
from palestra.envs import make_env
from palestra.envs.serving.handles import EnvFault, InlinePool, opened
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from tests.hostile.environments import NAME

DEADLINE_S = {"inline": 2.0, "process": 3.0}
SOUND = 30
"""Tasks with which nothing is wrong."""


async def outcome(pool, id):
    """All answers, or the fault. As in training, somebody else's fault is no outcome."""
    for _ in range(20):
        try:
            async with opened(pool) as env:
                said = [
                    await env.reset(Task("hostile", "train", id)),
                    await env.expert(),
                    await env.actions(),
                ]
                said += [msgspec.to_builtins(await env.step("yes"))]
                await asyncio.sleep(0.3 if id == "dies later" else 0)
                return {"said": [*said, msgspec.to_builtins(await env.step("yes"))]}
        except EnvFault as fault:
            if not fault.is_collateral:
                return {"stop": str(fault.stop), "fault": str(fault)}
    return {"stop": "never", "fault": ""}


async def main(mode, ids):
    limits = WorkerSettings(workers=1, deadline_s=DEADLINE_S[mode])
    pool = (
        InlinePool(partial(make_env, NAME, {}), DEADLINE_S[mode])
        if mode == "inline"
        else Workers(NAME, {}, limits)
    )
    ids = [*ids, *map(str, range(SOUND))]
    found = dict(zip(ids, await asyncio.gather(*(outcome(pool, id) for id in ids)), strict=True))
    await pool.close()
    # not ru_maxrss: that begins with what the process that started us held
    (peak,) = [
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    print(json.dumps({"outcomes": found, "peak_mb": peak / 1024}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
