"""`palestra plan`: what a recipe would need and take on so many GPUs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palestra.printing import fail, print_json


def add(commands: Any) -> None:
    plan = commands.add_parser(
        "plan",
        help="what a recipe would need and take on so many GPUs, and a layout for it",
        allow_abbrev=False,
    )
    plan.add_argument(
        "recipe",
        type=Path,
        help="a TOML file; settings can follow, such as --model Qwen/Qwen2.5-7B-Instruct",
    )
    plan.add_argument("--gpus", type=int, default=8, metavar="N", help="default: 8")
    plan.add_argument("--gpu", choices=["h100", "h200"], default="h200")
    plan.add_argument(
        "--link", choices=["infiniband", "ethernet"], default="infiniband", help="between hosts"
    )
    plan.add_argument(
        "--reply",
        type=float,
        metavar="TOKENS",
        help="mean tokens of a reply (default: a quarter of agent.reply_tokens)",
    )
    plan.add_argument(
        "--episode",
        type=float,
        metavar="TOKENS",
        help="mean tokens of an episode (default: a third of agent.context_tokens)",
    )
    plan.add_argument(
        "--env-seconds",
        type=float,
        default=0.0,
        metavar="S",
        help="what the environment takes for an answer",
    )
    plan.add_argument("--json", action="store_true")
    plan.set_defaults(run=_plan, takes_settings=True)


def _plan(known: argparse.Namespace, settings: dict[str, Any]) -> None:
    from palestra.config import config as configs
    from palestra.tools.plan.layouts import best
    from palestra.tools.plan.show import as_tree, job_of, text, work_of

    for flag in ("gpus", "reply", "episode"):
        if (value := vars(known)[flag]) is not None and value <= 0:
            fail(f"--{flag} {value:g}: expected a positive number")
    config = configs.load(known.recipe, settings)
    config.refuse_unresolved("plan")
    work = work_of(config, reply=known.reply, episode=known.episode, env_s=known.env_seconds)
    found = best(job_of(config, work, gpu=known.gpu, gpus=known.gpus, link=known.link))
    if known.json:
        print_json(as_tree(found))
    else:
        print(text(found))
    if not found.fits:
        raise SystemExit(1)
