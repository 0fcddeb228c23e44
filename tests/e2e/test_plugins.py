"""What a recipe names "module:Class" works as our own does: nothing in the package is touched."""

import sys

import pytest
import tomli_w
from transformers import AutoTokenizer

from palestra.cli.main import main
from palestra.learner.checkpoint import newest
from palestra.runs.run import Run
from tests.support.training import weights

MODULE = '''
"""An environment, an agent, a horizon and two algorithms of somebody else."""

from palestra.agents.chat import ChatAgent
from palestra.algos.advantages import group_relative
from palestra.algos.base import Algorithm
from palestra.algos.losses import token_weights
from palestra.algos.sources import Offline, each_alone
from palestra.core.types import Step, Task
from palestra.envs import Environment
from palestra.horizons.base import Horizon


class Parrot(Environment):
    """Repeat the word."""

    name = "parrot"
    max_turns = 3

    def tasks(self, split):
        return [Task("parrot", split, f"{split}-{i}", "red" if i % 2 else "blue") for i in range(8)]

    def reset(self, task):
        self.word = task.category
        return self.word

    def step(self, action):
        won = action == self.word
        return Step(self.word, reward=float(won), terminated=won, success=won)

    def vocabulary(self):
        return ["red", "blue"]


class Shouting(ChatAgent):
    """Reads every observation `times` times."""

    def __init__(self, context, times=1):
        super().__init__(context)
        self.times = times

    async def act(self, observation):
        return await super().act(" ".join([observation] * self.times))


class Odd(Horizon):
    """One turn, then three, ..."""

    kind: str
    last: int = 3

    def __call__(self, progress):
        return min(2 * progress.step + 1, self.last)

    def stage(self, progress):
        return progress.step

    @property
    def full(self):
        return self.last


class Plain(Algorithm):
    """REINFORCE with the group's mean as its baseline."""

    name: str
    strength: float = 1.0

    def explain(self):
        return [f"maximize  mean_c({self.strength} * A_i * logp_c)"]

    def add_advantages(self, batch):
        advantage_N = group_relative(batch.reward_N, batch.group_N, scale=False)
        return batch.with_(advantage_C=self.strength * advantage_N[batch.trajectory_C])

    def weights(self, batch):
        return token_weights(batch.trajectory_C, len(batch), normalize="token")

    def loss(self, policy, batch):
        return -batch.advantage_C * policy.logp_C, {"plain/logp": policy.logp_C.detach()}


class Copycat(Plain):
    """Imitates what is stored, good or bad."""

    data: tuple[str, ...] = ()

    def source(self):
        return Offline(batch=4, select=each_alone, data=self.data)

    def add_advantages(self, batch):
        return batch

    def loss(self, policy, batch):
        return -policy.logp_C, {}
'''

RECIPE = {
    "steps": 2,
    "device": "cpu",
    "threads": 1,
    "model": {"width": 16, "layers": 1, "heads": 2},
    "env": {"name": "theirs:Parrot"},
    "agent": {
        "name": "theirs:Shouting",
        "options": {"times": 2},
        "format": "plain",
        "context_tokens": 64,
        "reply_tokens": 3,
    },
    "rollout": {"tasks": 4, "group": 4},
    "algo": {"name": "theirs:Plain", "strength": 0.5},
    "horizon": {"kind": "theirs:Odd", "last": 3},
    "eval": {"tasks": 4},
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with their module and a recipe that names everything in it."""
    (tmp_path / "theirs.py").write_text(MODULE)
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(RECIPE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("theirs", None)


def test_environment_agent_algorithm_and_horizon_of_one_module_train_resume_and_evaluate(here):
    main(["train", "recipe.toml", "--out", "run"])
    run = Run.open(here / "run")
    steps = [row for row in run.metrics() if "loss" in row]
    assert [row["horizon"] for row in steps] == [1, 3]
    assert all(row["plain/logp"] < 0 for row in steps)

    tokenizer = AutoTokenizer.from_pretrained(newest(run.checkpoints))
    for episode in run.kept("step-000001"):
        word = episode.task.category
        assert tokenizer.decode(episode.segments[0].ids).startswith(f"{word} {word} <act>")

    main(["train", "--resume", "run", "--steps", "3"])
    assert [row["horizon"] for row in run.metrics() if "loss" in row] == [1, 3, 3]
    main(["eval", "run", "--out", "result.json"])
    assert (here / "result.json").is_file()


def test_an_algorithm_of_theirs_learns_from_stored_data(here):
    main(["train", "recipe.toml", "--out", "run"])
    stored = RECIPE | {"algo": {"name": "theirs:Copycat", "data": ["run"]}}
    del stored["rollout"], stored["horizon"]
    (here / "stored.toml").write_text(tomli_w.dumps(stored))
    main(["train", "stored.toml", "--out", "copy", "--steps", "1"])
    before = weights(Run.open(here / "copy"))
    main(["train", "--resume", "copy", "--steps", "2"])
    copy = Run.open(here / "copy")
    losses = [row["loss"] for row in copy.metrics() if "loss" in row]
    assert len(losses) == 2
    assert min(losses) > 0  # of tokens that are not certain
    assert any((before[name] != value).any() for name, value in weights(copy).items())
    assert not list((copy.folder / "trajectories").glob("step-*"))
