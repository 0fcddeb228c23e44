"""Our environment plays on servers that speak AgentGym's dialects."""

import asyncio
import json
import time

import pytest

from palestra.envs.adapters.agentgym import AgentGym, ServerError
from palestra.envs.adapters.agentgym_dialects import DIALECTS, write_action
from palestra.envs.check import check_environment
from palestra.envs.serving.handles import EnvFault, InlinePool
from tests.support.agentgym_stand_in import BY_ENV_IDX, BY_ID, TOOLS, WORDS, StandIn, running


def played(env, task, actions):
    env.reset(task)
    return [env.step(action) for action in actions]


def test_every_environment_of_theirs_is_known():
    assert {*DIALECTS} == {*BY_ID, *BY_ENV_IDX}


WAYS = {  # an action that is no use, and those that solve task 1
    "sciworld": ("red", ["blue", "blue"]),
    "webarena": ("click [1]", ["stop [blue]"]),
    **dict.fromkeys(TOOLS, ("red", ["blue", "finish"])),
}


@pytest.mark.parametrize("name", [*BY_ID, *BY_ENV_IDX])
def test_an_episode_in_every_dialect(name):
    stand_in = StandIn(name)
    useless, way = WAYS.get(name, ("red", ["blue"]))
    with running(stand_in.app) as url:
        env = AgentGym(url, name)
        task = env.tasks("train")[1]
        assert task.id == f"{name}_1"
        assert env.reset(task).endswith("say blue")
        first = env.step(useless)
        assert (first.reward, first.terminated, first.success) == (0.0, False, None)
        steps = [env.step(action) for action in way]
        assert [step.terminated for step in steps] == [False] * (len(way) - 1) + [True]
        assert steps[-1].success
        after = env.step("blue")
        assert (after.reward, after.terminated, after.success) == (0.0, True, True)
        # babyai: solved at the second of twenty turns, 1 - 0.9 * 2/20
        assert sum(step.reward for step in steps) == pytest.approx(
            0.91 if name == "babyai" else 1.0
        )
        assert env.reset(env.tasks("train")[2]).endswith("say green")
        env.close()
        env.close()
        assert stand_in.paths.count("/create") == 1
        assert stand_in.closed == [0]
        assert env.reset(task).endswith("say blue")  # a session of its own again


def test_a_task_of_any_number_is_found():
    env = AgentGym(env="textcraft", train=3, test=2)
    splits = {"textcraft_2": "train", "textcraft_3": "test", "textcraft_5": "unlisted"}
    assert {id: env.task(id).split for id in splits} == splits
    with pytest.raises(
        ValueError, match="agentgym has no task 'babyai_1': expected textcraft_<number>"
    ):
        env.task("babyai_1")


def task_word(task):
    return WORDS[int(task.id.rpartition("_")[2]) % 3]


def test_a_game_of_wordle_is_lost_at_the_sixth_wrong_guess():
    with running(StandIn("wordle").app) as url:
        env = AgentGym(url, "wordle")
        for task in env.tasks("train")[:10]:
            steps = played(env, task, ["p a n i c"] * 6)
            # the game's -1 a guess is told as -1 + 1 = 0
            assert [step.reward for step in steps] == [0.0] * 6
            assert [step.terminated for step in steps] == [False] * 5 + [True]
            assert steps[-1].success is False
            steps = played(env, task, ["p a n i c"] * 5 + [" ".join(task_word(task))])
            assert [step.reward for step in steps] == [0.0] * 5 + [1.0]
            assert steps[-1].success is True


def test_a_maze_is_lost_at_the_move_after_the_fiftieth():
    with running(StandIn("maze").app) as url:
        env = AgentGym(url, "maze", max_turns=60)
        lost = played(env, env.tasks("train")[0], ["move up"] * 51)
        assert [step.reward for step in lost] == [0.0] * 50 + [-1.0]
        assert (lost[-1].observation, lost[-1].terminated, lost[-1].success) == (
            "Failure\n",
            True,
            False,
        )
        won = played(env, env.tasks("train")[0], ["move up"] * 49 + ["red"])
        assert [step.reward for step in won] == [0.0] * 49 + [1.0]
        assert won[-1].success is True


def test_a_wrong_answer_of_webarena_is_a_failure_whatever_could_be_clicked():
    with running(StandIn("webarena").app) as url:
        env = AgentGym(url, "webarena")
        steps = played(env, env.tasks("train")[0], ["click [1]", "I am done ```stop [blue]```"])
        assert [step.info["raw_reward"] for step in steps] == [
            1.0,
            0.0,
        ]  # the click could be done; the answer should be red
        assert [step.reward for step in steps] == [0.0, 0.0]
        assert (steps[-1].terminated, steps[-1].success) == (True, False)
        assert "OBJECTIVE: say blue" in env.reset(env.tasks("train")[1])


def test_webarena_that_cannot_begin_is_a_fault():
    stand_in = StandIn("webarena")
    stand_in.fault = "timeout"
    with (
        running(stand_in.app) as url,
        pytest.raises(ServerError, match="/reset: expected an observation, came TimeoutError"),
    ):
        AgentGym(url, "webarena").reset(AgentGym(url, "webarena").tasks("train")[0])


def test_a_list_that_is_spoiled_after_all_was_done_is_taken_back():
    """todo alone looks at its lists at the end; the others tell the highest share of the goal."""
    ways = {"todo": (0.0, False), "sheet": (1.0, True)}
    for name, (worth, success) in ways.items():
        with running(StandIn(name).app) as url:
            env = AgentGym(url, name)
            steps = played(env, env.tasks("train")[0], ["half", "red", "spoil", "finish"])
            assert [step.reward for step in steps] == [0.5, 0.5, 0.0, worth - 1.0]
            assert steps[-1].success is success


def test_a_part_of_the_goal_is_no_success_but_for_weather():
    """AgentGym's server of weather tells any share of the goal as 1, and its evaluator asks for a
    1.
    """
    ways = {"movie": (0.5, False), "academia": (0.5, False), "weather": (1.0, True)}
    for name, (worth, success) in ways.items():
        with running(StandIn(name).app) as url:
            env = AgentGym(url, name)
            steps = played(env, env.tasks("train")[0], ["half", "finish"])
            assert [step.reward for step in steps] == [worth, 0.0]
            assert steps[-1].success is success


@pytest.mark.parametrize(
    ("name", "action", "sent"),
    [
        ("webarena", "click [12]", "```click [12]```"),
        ("webarena", "Next ```click [12]```", "Next ```click [12]```"),
        ("searchqa", "search[red [mug]]", "<search>red [mug]</search>"),
        ("searchqa", "answer[Ann]", "<answer>Ann</answer>"),
        (
            "searchqa",
            "<think>so</think><answer>Ann</answer>",
            "<think>so</think><answer>Ann</answer>",
        ),
        ("weather", "finish with Action Input: {}", "Action: finish with Action Input: {}"),
        ("weather", "Thought: so\nAction: finish", "Thought: so\nAction: finish"),
        ("wordle", "p a n i c", "p a n i c"),
    ],
)
def test_an_action_is_written_as_their_server_reads_it(name, action, sent):
    assert write_action(DIALECTS[name], action) == sent


def test_the_score_of_sciworld_is_paid_as_it_comes_and_taken_back():
    with running(StandIn("sciworld").app) as url:
        env = AgentGym(url, "sciworld")
        steps = played(env, env.tasks("train")[0], ["red", "nonsense", "focus on rat"])
        # 0 -> 50 -> 50 -> -100, which counts as 0
        assert [step.reward for step in steps] == [0.5, 0.0, -0.5]
        assert steps[-1].terminated
        assert steps[-1].success is False
        assert env.reset(env.tasks("train")[0]) == "Your task is to say the word twice.\nsay red"


def test_a_reward_that_is_told_again_counts_once():
    with running(StandIn("babyai").app) as url:
        env = AgentGym(url, "babyai")
        steps = played(env, env.tasks("train")[0], [*["blue"] * 11, "red", "nonsense", "blue"])
        # at the twelfth of twenty turns: 1 - 0.9 * 12/20 = 0.46, told again after nonsense, and 0
        # after the next move
        assert [step.reward for step in steps] == pytest.approx([*[0.0] * 11, 0.46, 0.0, 0.0])
        assert not steps[-1].terminated


@pytest.mark.parametrize("name", ["textcraft", "babyai", "sciworld", "searchqa"])
def test_the_contract(name):
    with running(StandIn(name).app) as url:
        broken = [
            check
            for check in check_environment(
                "agentgym", {"url": url, "env": name, "train": 6, "test": 6}, tasks=6
            )
            if not check.ok
        ]
    assert broken == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error", "/step: the simulator broke"),
        ("500", "/step: status 500: Internal Server Error"),
        ("nonsense", "/step: expected JSON, came <html>hello</html>"),
        ("no fields", "/step: expected the field 'observation', came {}"),
        ("number as text", "expected a number as reward or score, came a lot"),
        ("hang", "/step: timed out"),
    ],
)
def test_what_goes_wrong_there_is_a_fault_and_no_failure(fault, said):
    stand_in = StandIn("textcraft")
    with running(stand_in.app) as url:
        env = AgentGym(url, timeout_s=2.0 if fault == "hang" else 30.0)
        handle = asyncio.run(InlinePool(lambda: env, 60.0).open())
        asyncio.run(handle.reset(env.tasks("train")[0]))
        stand_in.fault = fault
        with pytest.raises(EnvFault, match=said):
            asyncio.run(handle.step("red"))
        stand_in.fault = ""
        asyncio.run(handle.close())
        assert stand_in.closed == [0]


@pytest.mark.parametrize("fault", ["error", "500", "nonsense", "no fields"])
def test_faults_at_the_beginning(fault):
    stand_in = StandIn("babyai")
    stand_in.fault = fault
    with running(stand_in.app) as url:
        env = AgentGym(url, "babyai")
        with pytest.raises(ServerError, match="/reset: "):
            env.reset(env.tasks("train")[0])
        stand_in.fault = ""
        assert env.reset(env.tasks("train")[0]) == "say red"


def test_nobody_is_there():
    env = AgentGym("http://127.0.0.1:9")
    with pytest.raises(ServerError, match=r"http://127.0.0.1:9/create: .*refused"):
        env.reset(env.tasks("train")[0])


def test_a_server_that_cannot_close_is_left_alone():
    with running(StandIn("babyai", can_close=False).app) as url:
        env = AgentGym(url, "babyai")
        env.reset(env.tasks("train")[0])
        env.close()


def test_a_server_that_hangs_is_not_waited_for_to_close(monkeypatch):
    monkeypatch.setattr("palestra.envs.adapters.agentgym.CLOSE_S", 0.3, raising=False)
    stand_in = StandIn("babyai")
    with running(stand_in.app) as url:
        env = AgentGym(url, "babyai")
        env.reset(env.tasks("train")[0])
        stand_in.fault = "hang at close"
        began = time.monotonic()
        env.close()
        assert time.monotonic() - began < 5


def test_their_lists_of_tasks(tmp_path):
    (tmp_path / "train.json").write_text(
        json.dumps([{"item_id": f"babyai_{number}"} for number in (7, 40, 7)])
    )
    env = AgentGym(env="babyai", train=str(tmp_path / "train.json"), test=3)
    assert [task.id for task in env.tasks("train")] == ["babyai_7", "babyai_40"]
    assert [task.id for task in env.tasks("test")] == ["babyai_0", "babyai_1", "babyai_2"]
    assert [task.id for task in AgentGym(train=2, test=2).tasks("test")] == [
        "textcraft_2",
        "textcraft_3",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": "textcraf"}, "did you mean 'textcraft'"),
        ({"url": "127.0.0.1:8000"}, "must be such as http://127.0.0.1:8000"),
        ({"url": "http://127.0.0.1:80000"}, "url is 'http://127.0.0.1:80000'; it must be such as"),
        ({"train": -1}, "train is -1; it must be at least 0"),
        ({"timeout_s": 0}, "timeout_s is 0; it must be more than 0"),
        ({"train": "nowhere.json"}, "cannot be read: No such file"),
        ({"train": "others.json"}, "expected textcraft_<number>"),
        ({"train": "odd.json"}, 'expected \\[{"item_id": "textcraft_12"}\\]'),
        ({"train": "same.json", "test": 5}, "textcraft_3 stands in train and in test"),
    ],
)
def test_options_that_cannot_be(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "others.json").write_text('[{"item_id": "babyai_1"}]')
    (tmp_path / "odd.json").write_text('{"a": 1}')
    (tmp_path / "same.json").write_text('[{"item_id": "textcraft_3"}]')
    with pytest.raises(ValueError, match=said):
        AgentGym(**options)


def test_tasks_that_there_are_not():
    env = AgentGym()
    with pytest.raises(ValueError, match="no split 'dev'"):
        env.tasks("dev")
    with pytest.raises(ValueError, match="expected textcraft_<number>"):
        env.reset(AgentGym(env="babyai").tasks("train")[0])
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("red")
