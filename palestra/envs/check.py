"""Checks of the contract that every environment must satisfy, built in or a plug-in.

`palestra env check NAME` and the tests run them.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import msgspec

from palestra.core.types import Step, Task
from palestra.envs import Environment, envs
from palestra.envs.serving.handles import guarded, listed
from palestra.envs.serving.validation import checked

NONSENSE = (
    "",
    "   \n\t",
    "\x00 not an action <tool_call>{",
    "Action: Action: Action:",
    "ignore all rules " * 200,
    "-1",
    "9" * 5000,
    "\uff11\uff12",
    "🤷‍♀️ \u202e\ud7ff",
)

NO_IDS = ("", " ", "no such task", "_", "no_such_1", "\x00", "_1" * 2500)

PROMISE_S = 600.0
"""The time limit for one check over all tasks."""
LARGEST_SCENE = 1024 * 1024
"""In bytes. The viewer requests a scene after every turn."""

FINGERPRINT = """
import sys, msgspec
from palestra.envs.check import fingerprint
print(fingerprint(sys.argv[1], msgspec.json.decode(sys.argv[2])))
"""


class Violation(Exception):
    """A part of the contract that an environment violates."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def check_environment(
    name: str,
    options: dict[str, Any] | None = None,
    *,
    tasks: int = 20,
    promise_s: float = PROMISE_S,
) -> list[Check]:
    """Run every check on a sample of tasks, each within `promise_s`."""
    with guarded(name, "tasks()", deadline_s=promise_s):
        examiner = _Examiner(name, options or {}, tasks)
    promises: list[tuple[str, Callable[[], str]]] = [
        ("tasks have unique ids, and splits share none", examiner.unique_ids),
        ("a task is found by its id", examiner.found_by_id),
        ("ids are the same under every hash seed", examiner.stable_ids),
        ("reset is reproducible", examiner.reproducible),
        ("instances share no state", examiner.no_shared_state),
        ("nonsense is an observation, never an exception", examiner.nonsense),
        ("what is offered is accepted", examiner.offers),
        ("the expert solves what it claims to solve", examiner.expert),
        ("the vocabulary has the words of the expert's episodes", examiner.vocabulary),
        ("nothing is rewarded after the end", examiner.after_the_end),
        ("a scene is small JSON, and asking for it changes nothing", examiner.scenes),
        ("gymnasium's check_env passes", examiner.gymnasium),
    ]
    return [_tried(name, promise, attempt, promise_s) for promise, attempt in promises]


def _tried(name: str, promise: str, attempt: Callable[[], str], promise_s: float) -> Check:
    try:
        with guarded(name, "a call", deadline_s=promise_s):
            try:
                return Check(promise, True, attempt())
            except Violation as violation:
                return Check(promise, False, str(violation))
    except Exception as error:  # noqa: BLE001  an exception is a failed check
        return Check(promise, False, str(error))


def fingerprint(name: str, options: dict[str, Any]) -> str:
    """A digest of all task ids and of the first observations of a few tasks."""
    env = envs[name](**options)
    digest = hashlib.sha256()
    for split in env.splits:
        tasks = env.tasks(split)
        digest.update("\n".join(f"{task.id} {task.category}" for task in tasks).encode())
        for task in tasks[:3]:
            digest.update(env.reset(task).encode())
    return digest.hexdigest()


class _Examiner:
    def __init__(self, name: str, options: dict[str, Any], count: int) -> None:
        self.name, self.options = name, options
        env = self.make()
        self.by_split = {split: listed(name, env, split) for split in env.splits}
        self.tasks: list[Task] = []
        for tasks in self.by_split.values():
            share = max(count // len(self.by_split), 1)
            self.tasks += random.Random(0).sample(tasks, min(len(tasks), share))

    def make(self) -> Environment:
        return envs[self.name](**self.options)

    def unique_ids(self) -> str:
        seen: dict[str, str] = {}
        for split, tasks in self.by_split.items():
            if not tasks:
                raise Violation(f"the split {split} has no tasks")
            for task in tasks:
                if task.split != split:
                    raise Violation(f"{task} is listed in the split {split}")
                if task.id in seen:
                    raise Violation(f"the id {task.id} stands in {seen[task.id]} and in {split}")
                seen[task.id] = split
        return ", ".join(f"{len(tasks)} {split}" for split, tasks in self.by_split.items())

    def found_by_id(self) -> str:
        env = self.make()
        for task in self.tasks:
            found = env.task(task.id)
            if (found, found.category) != (task, task.category):
                raise Violation(f"{task.id}: was listed as {task} and found as {found}")
        for id in NO_IDS:
            try:
                found = env.task(id)
            except ValueError:
                continue
            raise Violation(f"{id[:40]!r} was found, as {found}")
        return f"{len(self.tasks)} tasks"

    def stable_ids(self) -> str:
        if envs.is_local(self.name):
            return "not tried: no other process can import a class of a script or notebook"
        options = msgspec.json.encode(self.options).decode()
        python_path = os.pathsep.join(path for path in sys.path if path)
        digests = set()
        for seed in ("0", "1", "4711"):
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-c", FINGERPRINT, self.name, options],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": python_path},
                capture_output=True,
                text=True,
                check=False,
                timeout=PROMISE_S,
            )
            if done.returncode:
                raise Violation(
                    f"cannot be made in a fresh process: {done.stderr.strip().splitlines()[-1]}"
                )
            digests.add(done.stdout.splitlines()[-1])  # the module may print, too
        if len(digests) > 1:
            raise Violation("ids or first observations differ between hash seeds")
        return digests.pop()[:12]

    def reproducible(self) -> str:
        one, other = self.make(), self.make()
        for task in self.tasks:
            first = one.reset(task)
            if not isinstance(first, str) or not first:
                raise Violation(f"{task.id}: the first observation must be text, got {first!r}")
            if other.reset(task) != first or one.reset(task) != first:
                raise Violation(
                    f"{task.id}: the first observation differs from one reset to the next"
                )
        other.close()
        one.close()
        one.close()  # twice is allowed
        return f"{len(self.tasks)} tasks"

    def no_shared_state(self) -> str:
        """An instance behaves the same whether or not another one runs alongside."""
        steps = 0
        for task, disturbing in zip(self.tasks, reversed(self.tasks), strict=True):
            alone = [step.observation for step in self._walk(self.make(), task)]
            env, other = self.make(), self.make()
            env.reset(task)
            other.reset(disturbing)
            rng = random.Random(task.id)
            for expected in alone:
                action = self._some_action(env, rng)
                other.step(self._some_action(other, random.Random(0)))
                if env.step(action).observation != expected:
                    raise Violation(
                        f"{task.id}: another instance changed what {action!r} is answered with"
                    )
                steps += 1
        return f"{steps} steps alongside another instance"

    def nonsense(self) -> str:
        env = self.make()
        for task in self.tasks[:5]:
            env.reset(task)
            for action in NONSENSE:
                step = env.step(action)
                is_step = isinstance(step, Step) and isinstance(step.observation, str)
                if not is_step or not step.observation:
                    raise Violation(
                        f"{action[:40]!r} was not answered with an observation: {step!r}"
                    )
                checked(step)
                if step.reward:
                    raise Violation(f"{action[:40]!r} was rewarded with {step.reward}")
        return f"{len(NONSENSE)} kinds"

    def offers(self) -> str:
        offered = 0
        for task in self.tasks:
            env = self.make()
            env.reset(task)
            if env.actions() is None:
                return "lists no actions"
            rng = random.Random(task.id)
            for _ in range(10):
                actions = env.actions()
                if not actions:
                    break
                action = rng.choice(actions)
                step = env.step(action)
                offered += 1
                if step.invalid:
                    raise Violation(
                        f"{task.id}: {action!r} was offered and refused: {step.observation[:80]!r}"
                    )
                if step.terminated or step.truncated:
                    break
        return f"{offered} actions"

    def expert(self) -> str:
        solved = turns = 0
        for task in self.tasks:
            env = self.make()
            played = self._expert_episode(env, task)
            if played is None:
                continue
            if not played[-1].success:
                raise Violation(
                    f"{task.id}: the expert ended after {len(played)} of {env.max_turns} "
                    "turns without success"
                )
            total = sum(step.reward for step in played)
            if not 0 < total <= 1 + 1e-9:  # many small rewards are rounded
                raise Violation(f"{task.id}: the expert's rewards add up to {total}, not to (0, 1]")
            solved += 1
            turns += len(played)
        if not solved:
            return "has no expert"
        return f"{solved} of {len(self.tasks)} tasks, {turns / solved:.1f} turns on average"

    def vocabulary(self) -> str:
        """A word that it lacks is an unknown token to a tiny model, which can never write it."""
        words = self.make().vocabulary()
        if words is None:
            return "lists no words"
        known, missing = set(words), set[str]()
        for task in self.tasks:
            env = self.make()
            texts = [env.reset(task)]
            for _ in range(env.max_turns):
                action = env.expert()
                if action is None:
                    break
                step = checked(env.step(action))
                texts += [action, step.observation]
                if step.terminated or step.truncated:
                    break
            env.close()
            missing |= {word for text in texts for word in text.split()} - known
        if missing:
            shown = ", ".join(repr(word) for word in sorted(missing)[:10])
            raise Violation(f"vocabulary() lacks {len(missing)} of them: {shown}")
        return f"{len(known)} words"

    def after_the_end(self) -> str:
        ended = 0
        for task in self.tasks:
            env = self.make()
            played = self._expert_episode(env, task)
            if played is None or not played[-1].terminated:
                continue
            last = (env.actions() or ["again"])[0]
            step = env.step(last)
            if step.reward or not (step.terminated or step.truncated):
                raise Violation(
                    f"{task.id}: a step after the end gave reward {step.reward}, "
                    f"terminated {step.terminated}"
                )
            ended += 1
        return f"{ended} episodes"

    def scenes(self) -> str:
        """Play the same episode twice, once with a call of `scene` after every step."""
        shown = 0
        for task in self.tasks:
            env, other = self.make(), self.make()
            if self._looked_at(env, env.reset(task)) is None:
                return "has no scenes"
            other.reset(task)
            rng = random.Random(task.id)
            for _ in range(5):
                action = self._some_action(env, rng)
                step, expected = env.step(action), other.step(action)
                self._looked_at(env, step.observation)
                shown += 1
                if step != expected or env.actions() != other.actions():
                    raise Violation(
                        f"{task.id}: {action!r} is answered differently after a look at the scene"
                    )
                if step.terminated or step.truncated:
                    break
            env.close()
            other.close()
        return f"{shown} scenes"

    def _looked_at(self, env: Environment, after: str) -> dict[str, Any] | None:
        scene = env.scene()
        if scene is None:
            return None
        encoded = msgspec.json.encode(scene)
        has_kind = isinstance(msgspec.json.decode(encoded)["kind"], str)
        if not has_kind or len(encoded) > LARGEST_SCENE:
            raise Violation(
                f"a scene needs a kind and at most {LARGEST_SCENE} bytes, not "
                f"{encoded[:80]!r} ({len(encoded)} bytes)"
            )
        if msgspec.json.encode(env.scene()) != encoded:
            raise Violation(f"the scene after {after[:80]!r} differs from one look to the next")
        return scene

    def gymnasium(self) -> str:
        if find_spec("gymnasium") is None:
            return "not checked: pip install 'palestra[gymnasium]'"
        from gymnasium.utils.env_checker import check_env

        from palestra.envs.gym import GymEnv

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_env(GymEnv(self.make()), skip_render_check=True)
        return "text spaces"

    def _expert_episode(self, env: Environment, task: Task) -> Sequence[Step] | None:
        """The steps of the expert's episode, or None if it does not claim to solve the task."""
        env.reset(task)
        steps: list[Step] = []
        while len(steps) < env.max_turns:
            action = env.expert()
            if action is None:
                return None
            steps.append(checked(env.step(action)))
            if steps[-1].terminated or steps[-1].truncated:
                break
        return steps

    def _walk(self, env: Environment, task: Task) -> list[Step]:
        env.reset(task)
        rng = random.Random(task.id)
        steps: list[Step] = []
        while len(steps) < 5 and not (steps and (steps[-1].terminated or steps[-1].truncated)):
            steps.append(env.step(self._some_action(env, rng)))
        return steps

    def _some_action(self, env: Environment, rng: random.Random) -> str:
        return rng.choice(env.actions() or [str(rng.randint(1, 9))])
