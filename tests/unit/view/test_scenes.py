"""Stored episodes are played again to see what they looked like."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import tomli_w

from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.envs import envs, make_env
from palestra.runs.trajectories import encode_trajectory
from palestra.view.scenes import MOST_POOLS, MOST_TIMEOUTS, Scenes
from tests.fault.environments import NAME as OBEDIENT
from tests.support.environments import needs_sciworld

KINDS = {
    "babyai": {"levels": ["UnlockLocal"], "style": "compact"},
    "textcraft": {"distractors": 1},
    "guess": {},
    "sciworld": {"kinds": ["find-plant"], "simplifications": "easy"},
}


def stored(task, turns, final, *, is_over=False):
    stop, success = (Stop.DONE, True) if is_over else (Stop.HORIZON, False)
    segments = [Segment([], [], [], [])]
    trajectory = Trajectory(
        "000001-0000", task, segments, turns, stop, success, len(turns), 0, final_observation=final
    )
    return json.loads(encode_trajectory(trajectory))


def scenes(folder, episode, **settings):
    player = Scenes(**settings)
    try:
        return player.of(folder, msgspec.convert(episode, Trajectory))
    finally:
        player.close()


def played(name, *, label=None):
    """The expert's first turns as they are stored, with a reply among them that was no action; and
    the scenes.
    """
    env = make_env(name, KINDS[name])
    task = env.tasks("train")[7]
    observation = env.reset(task)
    turns, seen, is_over = [], [env.scene()], False
    for number in range(4):
        if number == 1:
            turns.append(Turn(observation, "what?", None, 0.0, (0, 0), invalid=True))
            observation = "Answer with an action."
        else:
            action = env.expert()
            step = env.step(action)
            turns.append(
                Turn(observation, action, action, step.reward, (0, 0), invalid=step.invalid)
            )
            observation, is_over = step.observation, step.terminated
        seen.append(env.scene())
        if is_over:
            break
    env.close()
    own = Task(label or task.env, task.split, task.id, task.category)
    return stored(own, turns, observation, is_over=is_over), json.loads(msgspec.json.encode(seen))


@pytest.fixture
def folder(tmp_path):
    def made(**config):
        (tmp_path / "config.toml").write_text(tomli_w.dumps(config))
        return tmp_path

    return made


def guess_run(folder):
    return folder(env={"name": "guess", "options": {}})


@pytest.mark.parametrize(
    "name", ["babyai", "textcraft", "guess", pytest.param("sciworld", marks=needs_sciworld)]
)
def test_the_scenes_of_an_episode(name, folder):
    episode, expected = played(name)
    answer = scenes(folder(env={"name": name, "options": KINDS[name]}), episode)
    assert answer == {"scenes": expected}
    assert len(expected) == len(episode["turns"]) + 1
    assert expected[1] == expected[2]
    assert expected[0] != expected[-1]


def test_a_mixture_is_read_by_its_labels(folder):
    run = folder(
        mixture=[
            {"name": "guess", "label": "small", "options": {"size": 4}},
            {"name": "textcraft", "options": KINDS["textcraft"]},
        ]
    )
    episode, expected = played("textcraft")
    assert scenes(run, episode) == {"scenes": expected}
    small = stored(
        Task("small", "train", "7"),
        [Turn("Guess the number.", "3", "3", 1.0, (0, 0))],
        "Right.",
        is_over=True,
    )
    assert [scene["at most"] for scene in scenes(run, small)["scenes"]] == [4, 4]
    episode["task"]["env"] = "elsewhere"
    assert scenes(run, episode) == {
        "scenes": None,
        "why": "the run has no environment called 'elsewhere'",
    }


@pytest.mark.parametrize(
    ("turn", "field", "value"),
    [(0, "observation", "Guess!"), (2, "reward", 0.5), (3, "observation", "Lower?")],
)
def test_another_answer_than_the_recorded_one(turn, field, value, folder):
    episode, _ = played("guess")
    episode["turns"][turn][field] = value
    assert scenes(guess_run(folder), episode) == {
        "scenes": None,
        "why": f"turn {turn + 1} is answered differently by this version",
    }


@pytest.mark.parametrize(
    "name", ["tests.support.trap:Trap", "http://127.0.0.1:9/guess", "agentgym", "search", "nothing"]
)
def test_a_run_folder_cannot_name_code_or_servers(name, folder):
    episode, _ = played("guess", label="trap")
    answer = scenes(folder(env={"name": name, "options": {}}), episode)
    assert answer["scenes"] is None
    assert "only environments that are installed here" in answer["why"]
    assert "tests.support.trap" not in sys.modules


def test_what_cannot_be_read(folder, tmp_path):
    episode, _ = played("guess")
    assert "config.toml cannot be read" in scenes(tmp_path, episode)["why"]
    run = guess_run(folder)
    assert "up to 1000" in scenes(run, {**episode, "turns": episode["turns"] * 300})["why"]
    assert (
        "before the episode began"
        in scenes(run, {**episode, "turns": [], "stop": "env_fault"})["why"]
    )
    assert (
        "the environment broke"
        in scenes(run, {**episode, "task": {**episode["task"], "id": "x"}})["why"]
    )
    assert (
        "the environment broke"
        in scenes(folder(env={"name": "guess", "options": {"sise": 3}}), episode)["why"]
    )


def test_an_environment_that_hangs_is_given_up(folder, monkeypatch):
    monkeypatch.setattr(type(envs), "names", lambda self: [OBEDIENT])
    task = Task("obedient", "train", "1")
    run = folder(env={"name": OBEDIENT, "options": {}})

    def ask(action):
        return scenes(
            run,
            stored(task, [Turn("say red", action, action, 0.0, (0, 0))], "right"),
            deadline_s=2.0,
        )

    began = time.monotonic()
    assert ask("hold_the_interpreter")["scenes"] is None
    assert time.monotonic() - began < 30
    assert ask("red") == {"scenes": None, "why": f"{OBEDIENT} has no scenes"}


def test_after_some_that_hang_no_more_are_tried(folder, monkeypatch):
    """A folder of a thousand such episodes would keep a bundle waiting for a day."""
    monkeypatch.setattr(type(envs), "names", lambda self: [OBEDIENT])
    run, player = folder(env={"name": OBEDIENT, "options": {}}), Scenes(deadline_s=1.0)
    hanging = stored(
        Task("obedient", "train", "1"),
        [Turn("say red", "sleep 600", "sleep 600", 0.0, (0, 0))],
        "right",
    )
    try:
        answers = [
            player.of(run, msgspec.convert(hanging, Trajectory)) for _ in range(MOST_TIMEOUTS + 1)
        ]
    finally:
        player.close()
    assert all("no more are played again" not in answer["why"] for answer in answers[:-1])
    assert answers[-1] == {
        "scenes": None,
        "why": "3 episodes of this environment took longer than 1 s; no more are played again",
    }


def test_environments_wait_for_the_next_episode_but_only_a_few(folder):
    episode, expected = played("guess")
    recorded = msgspec.convert(episode, Trajectory)
    player = Scenes()
    for size in range(32, 32 + MOST_POOLS + 2):
        player.of(folder(env={"name": "guess", "options": {"size": size}}), recorded)
    assert len(player._pools) == MOST_POOLS
    run = guess_run(folder)
    with ThreadPoolExecutor(6) as threads:
        again = list(threads.map(lambda _: player.of(run, recorded), range(6)))
    assert again == [{"scenes": expected}] * 6
    player.close()
    player.close()
