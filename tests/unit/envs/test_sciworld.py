"""SciWorld on the real simulator: its splits, its scores, its expert, and games that do not disturb
each other.
"""

import json
import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palestra.config.config import build
from palestra.core.types import Task
from palestra.training.preflight import make_tokenizer
from tests.support.environments import needs_sciworld

pytestmark = needs_sciworld
if not needs_sciworld.args[0]:
    from palestra.envs.sciworld import env as sciworld
    from palestra.envs.sciworld import gold as sciworld_gold
    from palestra.envs.sciworld.env import LONGEST_OBSERVATION, VARIATIONS, SciWorld, Taken, _next
    from palestra.envs.sciworld.examples import EXAMPLES
    from palestra.envs.sciworld.java import borrow_simulator, find_java
    from palestra.envs.sciworld.refusal import NOT_UNDERSTOOD
    from palestra.envs.sciworld.text import DOORS

QUICK = [
    "find-plant/7",
    "lifespan-shortest-lived/3",
    "power-component/2",
    "chemistry-mix-paint-secondary-color/5",
    "use-thermometer/9",
]
"""Tasks whose solutions are short."""


@pytest.fixture(scope="module", autouse=True)
def _solutions(tmp_path_factory):
    """Solutions are found here, not taken from the user's cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["XDG_CACHE_HOME"]
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture
def env():
    env = SciWorld()
    yield env
    env.close()


def task(id):
    return Task("sciworld", "train", id)


def expert_episode(env, id):
    """(action, step) of each turn."""
    env.reset(task(id))
    played = []
    while not (played and (played[-1][1].terminated or played[-1][1].truncated)):
        action = env.expert()
        assert action is not None, f"{id}: no advice after {[action for action, _ in played]}"
        played.append((action, env.step(action)))
    return played


def wander(env, id, turns):
    """What a fixed choice among the offered actions is answered with."""
    seen = [env.reset(task(id))]
    rng = random.Random(id)
    for _ in range(turns):
        actions = [action for action in env.actions() if not action.startswith("focus")]
        step = env.step(rng.choice(actions))
        seen.append((step.observation, step.reward, step.info))
    return seen


# Tasks


def test_splits(env):
    ids = {split: [task.id for task in env.tasks(split)] for split in env.splits}
    assert {split: len(listed) for split, listed in ids.items()} == {
        "train": 3592,
        "dev": 1796,
        "test": 1819,
    }
    assert len({id for listed in ids.values() for id in listed}) == 3592 + 1796 + 1819
    assert ids["train"][:2] == ["boil/0", "boil/1"]
    assert ids["test"][-1] == "use-thermometer/539"
    assert all(task.category == task.id.split("/")[0] for task in env.tasks("dev"))


def test_listing_tasks_starts_no_java():
    code = (
        "from palestra.envs.sciworld import env, java; "
        "env.SciWorld().tasks('train'); exit(java._java is not None)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_splits_are_the_simulators_own(env):
    simulator = borrow_simulator(env.heap_mb)
    assert sorted(VARIATIONS) == sorted(simulator._java.joined(simulator._server.getTaskNames()))
    for kind in VARIATIONS:
        assert simulator._server.getTaskMaxVariations(kind) == VARIATIONS[kind]
    for kind in (
        "boil",
        "identify-life-stages-1",
        "inclined-plane-friction-named-surfaces",
    ):  # 30, 14 and 1386 variations
        simulator.load(kind, 0, "")
        theirs = (
            simulator._server.getVariationsTrain(),
            simulator._server.getVariationsDev(),
            simulator._server.getVariationsTest(),
        )
        ours = (
            [int(task.id.split("/")[1]) for task in SciWorld(kinds=[kind]).tasks(split)]
            for split in env.splits
        )
        assert [str(list(variations)) for variations in ours] == [
            variations.toString() for variations in theirs
        ]
    simulator.give_back()


def test_agentevals_numbers_are_the_variations_of_the_package_without_three_topics(env):
    """As AgentGym's server lists them, with the package's own table of tasks and its simulator's
    counts.
    """
    from scienceworld import ScienceWorldEnv

    package = ScienceWorldEnv("")
    left_out = ("5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2")
    kinds = [kind for topic, kind in package.tasks.items() if topic not in left_out]
    theirs = [
        f"{kind}/{variation}"
        for kind in kinds
        for variation in range(package.get_max_variations(kind))
    ]
    package.close()
    assert len(theirs) == 4639
    assert [env.task(f"sciworld_{number}").id for number in range(4639)] == theirs
    with pytest.raises(ValueError, match="AgentEval's go from sciworld_0 to sciworld_4638"):
        env.task("sciworld_4639")


def test_a_task_is_found_whatever_its_split():
    env = SciWorld(kinds=["boil", "melt"])
    # 30 variations of boil: 14 train, 7 dev, 9 test. melt/3 is AgentEval's 33; find-plant is not
    # among the kinds.
    splits = {
        "boil/13": "train",
        "boil/14": "dev",
        "sciworld_21": "test",
        "sciworld_33": "train",
        "find-plant/7": "unlisted",
    }
    assert {id: env.task(id).split for id in splits} == splits
    assert env.task("sciworld_33").id == "melt/3"
    for id in ("sciworld_-1", "textcraft_1", "boyl/1", ""):
        with pytest.raises(
            ValueError,
            match="expected <kind>/<variation> or sciworld_<number>, such as boil/3 or sciworld_12",
        ):
            env.task(id)
    bare = SciWorld(kinds=["boil"], simplifications="noElectricalAction")
    with pytest.raises(
        ValueError,
        match=r"noElectricalAction leaves power-component/2 \(power-component\) without a solution",
    ):
        bare.task("power-component/2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["boyl"]}, "did you mean 'boil'"),
        ({"kinds": "boil"}, "must be a list"),
        ({"kinds": []}, "at least one"),
        ({"kinds": ["boil", "boil"]}, "twice"),
        ({"simplifications": "openDoor"}, "did you mean 'openDoors'"),
        ({"simplifications": "easy,openDoors"}, "stands alone"),
        ({"simplifications": "noElectricalAction"}, "power-component"),
        ({"max_moves": 0}, "max_moves is 0"),
        ({"heap_mb": 1}, "heap_mb is 1"),
        ({"style": "compct"}, "did you mean 'compact'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SciWorld(**options)


@pytest.mark.parametrize("id", ["boil", "boil/30", "boil/-1", "boyl/1", "boil/x"])
def test_tasks_that_there_are_not(env, id):
    with pytest.raises(ValueError, match="has no task"):
        env.reset(task(id))


# Playing


def test_the_examples_are_games_as_they_are_played(env):
    assert set(EXAMPLES) <= {task.id for task in env.tasks("train")}
    shown = iter(env.example)
    for id, game in EXAMPLES.items():
        observation = env.reset(task(id))
        for turn in game:
            assert turn == next(shown)
            assert turn.observation == observation
            step = env.step(turn.action)
            observation = step.observation
        assert step.success
        assert step.info["score"] == 100
    assert next(shown, None) is None
    assert (
        "which is on" in EXAMPLES["test-conductivity/6"][-1].observation
    )  # as the thought says that goes with it


def test_where_nothing_is_electrical_no_example_is():
    env = SciWorld(kinds=["boil"], simplifications="noElectricalAction")
    assert len(env.example) == sum(
        len(game) for id, game in EXAMPLES.items() if "conductivity" not in id
    )
    assert "connect" not in "".join(turn.action for turn in env.example)


@pytest.mark.parametrize("id", ["boil/3", "find-plant/7", "power-component/2"])
def test_the_house_is_as_the_agent_is_told(env, id):
    found = set()

    def explore():
        seen = env.step("look around").observation
        here = re.search(r"called the ([\w ]+)\.", seen)[1]
        for door in re.findall(r"door to the ([\w ]+) \(", seen):
            if frozenset((here, door)) not in found:
                found.add(frozenset((here, door)))
                env.step(f"open door to {door}")
                env.step(f"go to {door}")
                explore()
                env.step(f"go to {here}")

    env.reset(Task("sciworld", "train", id))
    explore()
    assert found == {frozenset((room, other)) for room, others in DOORS.items() for other in others}
    assert all(
        f"Doors of the {room}: {', '.join(others)}." in env.instructions
        for room, others in DOORS.items()
    )


@pytest.mark.parametrize("id", QUICK)
def test_the_expert_wins_and_its_rewards_add_up_to_one(env, id):
    played = expert_episode(env, id)
    assert played[-1][1].success
    assert sum(step.reward for _, step in played) == pytest.approx(1.0)
    assert all(step.success is None for _, step in played[:-1])
    again = [(action, step) for action, step in expert_episode(env, id)]
    assert again == played  # texts and all
    assert env.step("look around").terminated
    assert env.step("look around").reward == 0
    assert env.actions() == []
    assert env.expert() is None


@pytest.mark.slow
@pytest.mark.parametrize("simplifications", ["", "easy"])
@pytest.mark.parametrize("kind", list(VARIATIONS) if not needs_sciworld.args[0] else [])
def test_the_expert_wins_every_kind(kind, simplifications):
    env = SciWorld(simplifications=simplifications, max_moves=300)
    played = expert_episode(env, f"{kind}/3")
    assert played[-1][1].success
    assert sum(step.reward for _, step in played) == pytest.approx(1.0)
    env.close()


def test_a_wrong_focus_fails_and_takes_the_points_back(env):
    env.reset(task("boil/4"))
    rewards = []
    while not sum(rewards):
        rewards.append(env.step(env.expert()).reward)
    step = env.step("focus on agent")
    assert (step.terminated, step.success, step.info["score"]) == (True, False, -100)
    assert sum([*rewards, step.reward]) == 0
    assert env.step("look around").reward == 0


def test_points_given_at_the_start_are_paid_with_the_first_action_that_is_understood(env):
    env.reset(task("lifespan-longest-lived/3"))  # begins outside, where the animals are: 50 points
    assert env.step("do what I mean").reward == 0
    assert env.step("look around").reward == pytest.approx(0.5)
    assert env.step("look around").reward == 0


def test_points_that_are_lost_are_taken_back(env):
    env.reset(task("find-animal/0"))
    rewards = [env.step(turn.action).reward for turn in EXAMPLES["find-animal/0"][:4]]
    step = env.step("reset task")
    rewards.append(step.reward)
    assert sum(rewards) == pytest.approx(step.info["score"] / 100)


def test_time_runs_out():
    env = SciWorld(max_moves=12)
    env.reset(task("boil/2"))
    assert not env.step("wait").truncated  # 11 moves
    assert not env.step("look around").truncated  # takes no time
    step = env.step("wait1")  # 13 moves
    assert (step.truncated, step.terminated, step.success) == (True, False, False)
    assert env.step("look around").truncated
    env.close()


def test_nonsense(env):
    env.reset(task("boil/2"))
    for action in ("", "\ud800", "a" * 100_000, "pick up\nthe moon", "9"):
        step = env.step(action)
        assert step.invalid
        assert step.info["moves"] == 0


def test_what_is_not_understood_can_be_explained(env):
    explaining = SciWorld(explain=True)
    for one in (env, explaining):
        one.reset(task("use-thermometer/18"))
    refused = explaining.step("open door to bathroom")
    rooms = ("art studio", "bedroom", "greenhouse", "kitchen", "living room", "workshop")
    doors = ", ".join(f"{room} (closed)" for room in rooms)
    assert (
        refused.observation
        == f"There is no door to bathroom here. You are in the hallway. Doors: {doors}."
    )
    assert (refused.invalid, refused.reward, env.step("open door to bathroom").observation) == (
        True,
        0.0,
        NOT_UNDERSTOOD,
    )
    for action in (
        "open door to kitchen",
        "go to kitchen",
        "look around",
        "pick up thermometer",
    ):  # to be told changed nothing
        assert explaining.step(action) == env.step(action)
    explaining.close()


def test_a_small_model_is_told_nothing_and_learns_its_words_from_training_tasks(monkeypatch):
    monkeypatch.setattr(sciworld, "TEXTS_OF_A_KIND", 2)
    env = SciWorld(style="compact", kinds=["find-non-living-thing", "lifespan-longest-lived"])
    assert (env.instructions, list(env.example)) == ("", [])
    loaded = []
    reset = env.reset
    monkeypatch.setattr(env, "reset", lambda task: loaded.append(task) or reset(task))
    texts = list(env.texts())
    # 150 and 62 training variations: every 75th and every 31st
    expected = [
        "find-non-living-thing/0",
        "find-non-living-thing/75",
        "lifespan-longest-lived/0",
        "lifespan-longest-lived/31",
    ]
    assert [task.id for task in loaded] == expected
    assert set(loaded) <= set(env.tasks("train"))
    assert {"open door to kitchen", "You move to the kitchen."} <= set(texts)
    assert sum(text.startswith("Your task is to find") for text in texts) == 4
    assert sum("The task is done." in text for text in texts) == 4
    tokenizer = make_tokenizer(
        build({"model": {"tokenizer": "bpe", "vocab_size": 600}, "env": {"name": "sciworld"}}),
        {"sciworld": env},
    )
    assert len(tokenizer) == 600
    env.close()


def test_long_texts_are_cut(env):
    env.reset(task("boil/2"))
    assert all(
        len(env.step(action).observation) <= LONGEST_OBSERVATION + 4
        for action in ("objects", "help")
    )


def test_the_game_answers_as_the_server_around_it_does(env):
    """A step leaves out what the server does besides; texts, points and the clock must not tell."""
    kind, variation = QUICK[2].split("/")
    solution = sciworld_gold.gold_path(kind, int(variation), "", env.heap_mb).actions
    ours, theirs = borrow_simulator(env.heap_mb), borrow_simulator(env.heap_mb)
    for simulator in (ours, theirs):
        simulator.load(kind, int(variation), "")
    server = theirs._server
    for action in (
        # first: until the game was played, the server tells the points of the game before
        "look around",
        "help",
        "objects",
        "nonsense",
        "",
        "wait",
        "0",
        *solution[:4],
        "task",
        "reset task",
        *solution[4:],
        "task",
    ):
        outcome = ours.step(action)
        with theirs._java.turn_of(theirs):
            expected = (
                server.step(action),
                round(100 * server.getScore()),
                server.getCompleted(),
                server.getNumMoves(),
            )
        assert (
            outcome.observation,
            outcome.score,
            outcome.is_completed,
            outcome.moves,
        ) == expected, action
    for simulator in (ours, theirs):
        simulator.give_back()


def test_a_question_is_answered_with_a_number(env):
    env.reset(task("boil/1"))
    question = env.step("look at cup")
    assert "0:" in question.observation
    assert not question.invalid
    assert env.actions()[0] == "0"
    assert env.expert() is None  # whoever asked for a cup has to say which
    assert "cup" in env.step("0").observation
    assert env.expert() is None  # time has passed


# The expert off its path


def test_the_expert_goes_on_after_a_detour_that_took_no_time(env):
    expert_episode(env, QUICK[0])
    env.reset(task(QUICK[0]))
    env.step(env.expert())
    advice = env.expert()
    env.step("inventory")
    env.step("fly to the moon")
    assert env.expert() == advice
    env.step("wait1")
    assert env.expert() is None


def test_the_next_action_of_a_path():
    def after(*taken):
        return _next(["a", "b"], [Taken(*turn) for turn in taken])

    assert after() == "a"
    assert after(("a", True, False)) == "b"
    assert after(("x", False, False), ("a", True, False), ("y", False, False)) == "b"
    assert after(("x", True, False), ("a", True, False)) is None
    assert after(("a", True, False), ("b", False, False)) is None
    assert after(("a", False, True)) == "b"  # the path itself led to the question
    assert after(("x", False, True)) is None
    assert (
        after(("x", False, True), ("a", False, False)) == "a"
    )  # taken for an answer, and not done


def test_the_expert_claims_nothing_that_takes_too_long():
    env = SciWorld(max_moves=3)
    env.reset(task(QUICK[0]))
    assert env.expert() is None
    env.close()


def test_solutions_are_kept_and_a_broken_file_is_found_anew(env):
    kind, variation = QUICK[1].split("/")
    first = sciworld_gold.gold_path(kind, int(variation), "", env.heap_mb)
    file = sciworld_gold._cache_folder() / "plain" / kind / f"{variation}.json"
    assert list(first.actions) == sciworld_gold.msgspec.json.decode(file.read_bytes())["actions"]
    file.write_text('{"actions": ')
    sciworld_gold.gold_path.cache_clear()
    assert sciworld_gold.gold_path(kind, int(variation), "", env.heap_mb) == first
    assert sciworld_gold.msgspec.json.decode(file.read_bytes())["moves"] == first.moves


# Games side by side


def test_games_in_many_threads_are_played_as_if_alone():
    """Kinds with and without wiring: "easy" means another thing for each, and the simulator keeps
    it for the whole process.
    """
    ids = [
        "grow-fruit/5",
        "test-conductivity/8",
        "find-animal/11",
        "mendelian-genetics-known-plant/4",
        "boil/6",
        "power-component/1",
    ]
    alone = {}
    for id in ids:
        env = SciWorld(simplifications="easy")
        alone[id] = wander(env, id, 6)
        env.close()
    envs = {id: SciWorld(simplifications="easy") for id in ids}
    with ThreadPoolExecutor(len(ids)) as pool:
        together = dict(zip(ids, pool.map(lambda id: wander(envs[id], id, 6), ids), strict=True))
    assert together == alone
    for env in envs.values():
        env.close()


def test_listing_actions_changes_nothing(env):
    env.reset(task("grow-fruit/5"))
    env.step("open door")
    state = env._simulator._java.random_state
    assert env.actions() == env.actions()
    assert env._simulator._java.random_state == state


def test_the_simulator_of_a_closed_environment_is_used_again():
    one = SciWorld()
    one.reset(task("boil/1"))
    simulator = one._simulator
    one.close()
    one.close()
    other = SciWorld()
    assert "melt" in other.reset(task("melt/4"))
    assert other._simulator is simulator
    other.close()


def test_scores_are_those_of_the_packages_own_environment(monkeypatch):
    from scienceworld import ScienceWorldEnv

    monkeypatch.setenv(
        "PATH", str(Path(find_java()).parent), prepend=os.pathsep
    )  # the package looks nowhere else
    theirs, ours = ScienceWorldEnv(envStepLimit=12), SciWorld(max_moves=12)

    def by_theirs(id, script):
        kind, variation = id.split("/")
        theirs.load(kind, int(variation))
        theirs.reset()
        for action in script:
            _, _, done, info = theirs.step(action)
            yield info["score"], info["moves"], done, (info["score"] == 100 if done else None)
            if done:
                return

    def by_ours(id, script):
        ours.reset(task(id))
        for action in script:
            step = ours.step(action)
            yield (
                step.info["score"],
                step.info["moves"],
                step.terminated or step.truncated,
                step.success,
            )
            if step.terminated or step.truncated:
                return

    for id in (
        "lifespan-longest-lived/3",
        "power-component/2",
        "boil/4",
    ):  # begins with points; with wires; longer than the limit
        kind, variation = id.split("/")
        solution = sciworld_gold.gold_path(kind, int(variation), "", ours.heap_mb).actions
        for script in (
            solution,
            ["nonsense", *solution[:2], "wait", "inventory", "wait1"],
            [solution[0], "focus on agent"],
        ):
            played = list(by_ours(id, script))
            assert played[-1][2]
            # the package goes on with the random numbers of the episode before: a circuit is closed
            # in 2 of 5 episodes, in ours always
            assert any(list(by_theirs(id, script)) == played for _ in range(20)), (id, script)
    ours.close()
    theirs.close()


def test_the_benchmark_runs(tmp_path):
    root = Path(__file__).parents[3]
    command = [
        sys.executable,
        str(root / "benchmarks" / "sciworld.py"),
        "--tasks",
        "1",
        "--warm-up",
        "1",
        "--rounds",
        "1",
        "--json",
        str(tmp_path / "result.json"),
    ]
    subprocess.run(
        command,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), *filter(None, sys.path)))},
    )
    assert json.loads((tmp_path / "result.json").read_text())["ratio"] > 1
