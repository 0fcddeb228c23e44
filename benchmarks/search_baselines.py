"""What the generated questions take: a guesser that never searches, a perfect reader after one
search, and the expert.

    python benchmarks/search_baselines.py [--split test] [--limit N] [--top-k 5] [--retriever bm25]
    [--json FILE]

guesser        knows the questions and answers of the train world. In each category it answers in
the way that did best there: the commonest
               answer of the category, or the first, or the last name in the question
single search  searches for the question as it stands, once, and reads perfectly: it is right where
all that the answer rests on was shown expert         searches step by step for what the question's
chain names; it answers once all of it was shown, and else gives up

All of them play through the environment and its search engine. Prints one table, by category.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from palestra.core.types import Task
from palestra.envs import make_env
from palestra.envs.base import Environment

NAME = re.compile(r"[A-Z][\w'.-]*(?: (?:(?:of|the|de|and|in) )?[A-Z][\w'.-]*)*")
Strategy = Callable[[str, str], str]
"""From a category and a question to a guess."""


def names_in(question: str) -> list[str]:
    """What is written like a name, the question's first word aside."""
    _, _, rest = question.removeprefix("Question: ").partition(" ")
    return NAME.findall(rest) or ["nobody"]


def succeeds(env: Environment, task: Task, guess: str) -> bool:
    env.reset(task)
    return bool(env.step(f"answer[{guess}]").success)


def expert_answer(env: Environment, task: Task) -> str:
    """What the expert says in the end; nothing where it gives up."""
    env.reset(task)
    while (action := env.expert()) is not None:
        if action.startswith("answer["):
            return action.removeprefix("answer[").removesuffix("]")
        env.step(action)
    return ""


def fitted_guesser(env: Environment, tasks: Sequence[Task]) -> Strategy:
    """The best way to guess in each category, as far as the train world can tell."""
    said: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        said[task.category][expert_answer(env, task)] += 1
    ways: dict[str, Strategy] = {
        "commonest": lambda category, question: (
            said[category].most_common(1)[0][0] if said[category] else "nobody"
        ),
        "first name": lambda category, question: names_in(question)[0],
        "last name": lambda category, question: names_in(question)[-1],
    }
    won: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        for way, guess in ways.items():
            won[task.category][way] += succeeds(env, task, guess(task.category, env.reset(task)))
    best = {
        category: max(ways, key=lambda way, counts=counts: counts[way])
        for category, counts in won.items()
    }
    return lambda category, question: ways[best.get(category, "commonest")](category, question)


def single_search(env: Environment, task: Task) -> bool:
    question = env.reset(task).removeprefix("Question: ")
    env.step(f"search[{question}]")
    return (env.expert() or "").startswith("answer[")


def expert(env: Environment, task: Task) -> tuple[bool, int]:
    """Whether it succeeds within the environment's turns, and the turns that it takes."""
    env.reset(task)
    for turn in range(1, env.max_turns + 1):
        action = env.expert()
        if action is None:
            return False, turn
        step = env.step(action)
        if step.terminated:
            return bool(step.success), turn
    return False, env.max_turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="questions of each split (default: all)")
    parser.add_argument("--top-k", type=int, default=5)
    parser.add_argument("--retriever", default="bm25")
    parser.add_argument("--json", type=Path)
    known = parser.parse_args()
    env = make_env("search", {"top_k": known.top_k, "retriever": known.retriever})
    guess = fitted_guesser(env, spread(env.tasks("train"), known.limit))
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    began = time.monotonic()
    for task in spread(env.tasks(known.split), known.limit):
        solved, turns = expert(env, task)
        outcome = {
            "questions": 1,
            "guesser": succeeds(env, task, guess(task.category, env.reset(task))),
            "single": single_search(env, task),
            "expert": solved,
            "turns": turns,
        }
        for group in (task.category, f"{task.category.rsplit(' ', 1)[-1]} hops", "all"):
            rows[group].update(outcome)
    print(f"{'':<24}{'questions':>10}{'guesser':>10}{'single':>10}{'expert':>10}{'turns':>8}")
    for group in sorted(rows, key=lambda name: (name == "all", name.endswith("hops"), name)):
        row = rows[group]
        shares = "".join(
            f"{row[name] / row['questions']:>10.1%}" for name in ("guesser", "single", "expert")
        )
        print(f"{group:<24}{row['questions']:>10}{shares}{row['turns'] / row['questions']:>8.1f}")
    print(f"{time.monotonic() - began:.0f} s")
    if known.json:
        known.json.write_text(json.dumps(rows, indent=2))


def spread(tasks: Sequence[Task], limit: int | None) -> Sequence[Task]:
    """As many as wanted, from all over the list."""
    return (
        tasks
        if limit is None or limit >= len(tasks)
        else [tasks[n * len(tasks) // limit] for n in range(limit)]
    )


if __name__ == "__main__":
    main()
