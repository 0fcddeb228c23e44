"""AgentGym's client of WebArena plays `miniwob` and `web` in a real browser."""

import pytest

from palestra.envs.web.miniwob import MiniWob
from tests.support import agentgym_clients as ours
from tests.support.agentgym_clients import their_clients
from tests.support.served import running
from tests.web.pages import Small

TASKS = {
    "tasks": ["click-button", "click-link", "enter-text", "focus-text", "login-user"],
    "train_seeds": 2,
    "test_seeds": 1,
}


class SmallWeb(Small):
    """Under the name `web`."""

    name = "web"


def played(client, mirror, number, task):
    """The reward and whether it was the end, after what the expert does in a browser of its own."""
    client.reset(number)
    seen = mirror.reset(task)
    assert client.observe() == seen
    output = None
    while (action := mirror.expert()) is not None:
        output = client.step(
            "Let's think step-by-step. In summary, the next action I will perform is "
            f"```{action}```"
        )
        mirror.step(action)
    return output.reward, output.done


@pytest.fixture(params=["recorded", pytest.param("original", marks=pytest.mark.agentgym)])
def client_class(request):
    return (ours if request.param == "recorded" else their_clients()).WebarenaEnvClient


def test_miniwob(client_class):
    mirror = MiniWob(**TASKS)
    tasks = mirror.tasks("train")
    assert len(tasks) == 10
    with running("miniwob", options=TASKS, isolation="process", deadline_s=60.0) as server:
        client = client_class(f"{server.address}/agentgym/miniwob", len(tasks))
        assert [played(client, mirror, number, task) for number, task in enumerate(tasks)] == [
            (1.0, True)
        ] * 10
        client.close()
    mirror.close()


def test_web(client_class, site):
    mirror = SmallWeb(site)
    tasks = [task for split in mirror.splits for task in mirror.tasks(split)]
    with running(
        f"{__name__}:SmallWeb", options={"host": site}, isolation="process", deadline_s=60.0
    ) as server:
        client = client_class(f"{server.address}/agentgym/web", len(tasks))
        assert [played(client, mirror, number, task) for number, task in enumerate(tasks)] == [
            (1.0, True)
        ] * len(tasks)
        client.reset(0)
        output = client.step("```stop [I do not know]```")
        assert (output.reward, output.done) == (0, True)
        client.close()
    mirror.close()
