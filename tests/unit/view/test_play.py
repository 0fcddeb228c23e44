"""Being the agent in a browser: real environments in worker processes,
and a tiny run that answers.
"""

import time

import pytest

from palestra.cli.main import main
from palestra.envs.serving.catalogue import Served
from palestra.runs.trajectories import read_trajectories
from palestra.view.agent import RunAgent
from palestra.view.play import Games, add_play_routes
from tests.fault.environments import NAME as OBEDIENT
from tests.support.environments import needs_sciworld
from tests.support.training import ECHO, trained
from tests.support.viewed import viewing

PAGE = {"X_Palestra": "1", "Content_Type": "application/json"}


def served(name, **options):
    return Served(name, options, "process", 30.0)


class Player:
    """What the page does."""

    def __init__(self, server):
        self.server = server

    def post(self, what, **body):
        return self.server.ask("POST", f"/api/play/{what}", body, **PAGE)

    def ask(self, what, **body):
        status, answer = self.post(what, **body)
        assert status == 200, answer
        return answer

    def start(self, env, *, split="train", task=None):
        return self.ask("start", env=env, split=split, task=task, options={})


@pytest.fixture
def playing():
    """A server at which these environments can be played."""
    opened = []

    def begin(*kinds, folders=(), **settings):
        games = Games(list(kinds), **settings)
        server = viewing(*folders, play=lambda app: add_play_routes(app, games))
        opened.append(server)
        player = Player(server.__enter__())
        player.games = games
        return player

    yield begin
    for server in opened:
        server.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("babyai", {"levels": ["GoToObj"]}, "grid"),
        ("textcraft", {"distractors": 1}, "crafting"),
        pytest.param(
            "sciworld",
            {"kinds": ["find-plant"], "simplifications": "easy"},
            "sciworld",
            marks=needs_sciworld,
        ),
        ("guess", {"size": 16}, "guess"),
    ],
)
def test_the_expert_is_followed_to_the_end(playing, name, options, kind):
    player = playing(served(name, **options))
    game = player.start(name)
    assert game["scene"]["kind"] == kind
    assert game["observation"]
    assert game["max_turns"] > 0
    for _ in range(game["max_turns"]):
        advice = player.ask("expert", session=game["session"])["action"]
        step = player.ask("step", session=game["session"], action=advice)
        assert step["scene"]["kind"] == kind
        assert not step["invalid"]
        if step["terminated"]:
            break
    assert step["success"]
    assert step["actions"] == []
    assert player.ask("expert", session=game["session"]) == {"action": None}
    status, answer = player.post("step", session=game["session"], action="again")
    assert (status, answer) == (409, {"error": "the episode is over; start another"})


def test_what_there_is_to_play(playing):
    player = playing(served("guess", size=16), served("textcraft"))
    status, about = player.server.ask("GET", "/api/play/about.json")
    assert status == 200
    assert about["agent"] is None
    assert about["envs"][0] == {
        "name": "guess",
        "splits": {"train": 1000, "test": 100},
        "max_turns": 20,
    }
    assert [env["name"] for env in about["envs"]] == ["guess", "textcraft"]
    assert player.server.ask("GET", "/api/play/tasks.json?env=guess&split=test")[1]["tasks"][
        :2
    ] == ["1000", "1001"]
    assert player.start("guess", task="7")["task"] == "7"
    assert 0 <= int(player.start("guess")["task"]) < 1000


@pytest.mark.parametrize(
    ("what", "body", "status", "says"),
    [
        (
            "start",
            {"env": "geuss", "split": "train"},
            404,
            "there is no environment 'geuss'; did you mean 'guess'",
        ),
        (
            "start",
            {"env": "guess", "split": "trian"},
            404,
            "guess has no split 'trian'; did you mean 'train'",
        ),
        (
            "start",
            {"env": "guess", "split": "train", "task": "2000"},
            404,
            "guess has no task '2000' in train",
        ),
        (
            "start",
            {"env": "guess", "split": "train", "options": {"size": 2}},
            400,
            "given on the command line",
        ),
        ("start", {"env": "guess"}, 400, "missing required field `split`"),
        ("step", {"session": "guessed", "action": "3"}, 404, "this game is over or was left alone"),
        ("step", {"session": "x"}, 400, "missing required field `action`"),
        ("expert", {"session": "x", "more": 1}, 400, "unknown field `more`"),
        ("agent", {"session": "x"}, 404, "there is no agent to ask"),
    ],
)
def test_what_cannot_be_asked(playing, what, body, status, says):
    player = playing(served("guess"))
    answer = player.post(what, **body)
    assert answer[0] == status
    assert says in answer[1]["error"]


def test_only_our_page_plays(playing):
    player = playing(served("guess"))
    ask, body = player.server.ask, {"env": "guess", "split": "train"}
    assert ask("POST", "/api/play/start", body, Content_Type="application/json")[0] == 403
    assert ask("POST", "/api/play/start", body, X_Palestra="1", Content_Type="text/plain")[0] == 403
    assert ask("POST", "/api/play/start", body, **PAGE, Origin="http://evil.example")[0] == 403
    assert ask("POST", "/api/play/start", body, **PAGE, Host="evil.example")[0] == 403
    assert ask("POST", "/api/play/start", b"{", **PAGE)[0] == 400
    assert ask("POST", "/api/play/start", b'{"env": "\xff"}', **PAGE)[0] == 400
    assert ask("GET", "/api/play/start", None)[0] == 405
    sessions = {player.start("guess")["session"] for _ in range(5)}
    assert len(sessions) == 5
    assert min(map(len, sessions)) >= 32


def test_an_environment_that_breaks_ends_only_its_own_game(playing):
    player = playing(Served(OBEDIENT, {}, "process", 1.5))
    broken, whole = player.start("obedient"), player.start("obedient")
    status, answer = player.post("step", session=broken["session"], action="raise sorry")
    assert (status, "the environment broke" in answer["error"]) == (502, True)
    assert player.post("step", session=broken["session"], action="red")[0] == 404
    assert player.ask("step", session=whole["session"], action="red")["observation"] == "right"
    hung = player.start("obedient")
    status, answer = player.post("step", session=hung["session"], action="sleep 60")
    assert (status, "no answer within 1.5 s" in answer["error"]) == (504, True)
    assert player.ask("step", session=whole["session"], action="count")["observation"] == "2"
    assert (
        player.ask("step", session=player.start("obedient")["session"], action="red")["observation"]
        == "right"
    )


def test_games_make_room_and_end_when_nobody_plays(playing):
    player = playing(served("guess"), most=3)
    games = [player.start("guess")["session"] for _ in range(3)]
    player.ask("step", session=games[0], action="0")
    player.start("guess")
    assert (
        player.post("step", session=games[1], action="0")[0] == 404
    )  # the one that nobody had asked for longest
    player.ask("step", session=games[0], action="0")
    player.games.idle_s = 0.0
    time.sleep(0.01)
    player.server.run(player.games.end_idle())
    assert player.post("step", session=games[0], action="0")[0] == 404


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that answers with the likeliest tokens, whether or not they are right."""
    tree = ECHO | {
        "env": {"name": "guess"},
        "agent": {"format": "plain", "context_tokens": 256, "reply_tokens": 4},
    }
    warm = {
        "episodes": 60,
        "updates": 120,
        "check_every": 120,
        "check_tasks": 10,
        "target": 0.5,
        "lr": 4e-3,
    }
    overrides = {
        "steps": 2,
        "eval.temperature": 0.0,
        "horizon.turns": [4, 6],
        "eval.tasks": 12,
        "warm_start": warm,
    }
    return trained(tmp_path_factory.mktemp("played") / "run", tree, **overrides)


def test_the_agent_plays_as_it_was_evaluated(playing, run):
    """The conversation that it reads is token for token that of training, or greedy replies would
    soon part.
    """
    player = playing(served("guess"), agent=RunAgent(run.folder), folders=[run.folder])
    stored = list(read_trajectories(run.trajectory_file("eval-step-000002-final")))
    episodes = [
        episode for episode in stored if all(turn.action is not None for turn in episode.turns)
    ]
    longest = max(episodes, key=lambda episode: len(episode.turns))
    assert len(longest.turns) > 2
    game = player.start("guess", split="test", task=longest.task.id)
    chosen = [
        p
        for segment in longest.segments
        for p, own in zip(segment.logprobs, segment.mask, strict=True)
        if own
    ]
    said = []
    for turn in longest.turns:
        reply = player.ask("agent", session=game["session"])
        assert reply["reply"] == turn.reply
        assert reply["action"] == turn.action
        assert len(reply["tokens"]) == len(reply["logprobs"])
        said += reply["logprobs"]
        step = player.ask("step", session=game["session"], action=reply["action"])
        assert step["reward"] == turn.reward
    assert said == pytest.approx(chosen, abs=1e-4)


def test_the_agent_goes_on_from_what_a_person_did(playing, run):
    player = playing(served("guess"), agent=RunAgent(run.folder))
    assert player.server.ask("GET", "/api/play/about.json")[1]["agent"] == str(run.folder)
    game = player.start("guess", task="7")
    first = player.ask("agent", session=game["session"])
    player.ask("step", session=game["session"], action="1")
    second = player.ask("agent", session=game["session"])
    assert second["tokens"]
    for _ in range(60):  # until its context is full
        player.ask("step", session=game["session"], action="1")
        status, answer = player.post("agent", session=game["session"])
        if status != 200:
            break
    assert (status, "do not fit into 256 tokens" in answer["error"]) == (409, True)
    again = player.start("guess", task="7")
    assert player.ask("agent", session=again["session"])["tokens"] == first["tokens"]


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["play", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_command_says_what_is_wrong(capsys, tmp_path):
    assert "expected an environment, or --run" in refused(capsys)
    assert "did you mean 'guess'" in refused(capsys, "geuss")
    assert "has no such option" in refused(capsys, "guess", "--sise", "3")
    assert "there is no such folder" in refused(capsys, "guess", "--run", str(tmp_path / "none"))
    (tmp_path / "config.toml").write_text('[env]\nname = "guess"\n')
    assert "the run has no checkpoint yet" in refused(capsys, "--run", str(tmp_path))
    assert "needs a token" in refused(capsys, "guess", "--host", "0.0.0.0")
    assert "need its name" in refused(capsys, "--size", "3")
