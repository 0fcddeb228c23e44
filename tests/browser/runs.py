"""Small real runs for the browser to show."""

from tests.support.training import ECHO, trained

TINY = ECHO | {
    "env": {
        "name": "babyai",
        "options": {
            "levels": ["GoToObj", "OpenDoorColor"],
            "style": "compact",
            "category": "level",
        },
    },
    "agent": {"format": "plain", "context_tokens": 512, "reply_tokens": 6},
    "rollout": {"tasks": 6, "group": 4},
    "horizon": {"kind": "stages", "turns": [4, 6], "every": 2},
    "model": {"width": 64, "layers": 2, "heads": 2},
    "warm_start": {
        "episodes": 200,
        "updates": 90,
        "batch": 16,
        "check_every": 90,
        "check_tasks": 10,
        "target": 0.9,
        "lr": 4e-3,
    },
    "eval": {"tasks": 12},
    "optim": {"lr": 3e-4, "minibatches": 2},
    "steps": 4,
}


def trained_runs(folder):
    kinds = {"small-0": {}, "small-1": {"seed": 1}, "other": {"algo.name": "rloo"}}
    return [trained(folder / name, TINY, **settings).folder for name, settings in kinds.items()]
