"""An episode in a browser, looked at in a browser: a screenshot for each turn."""

from dataclasses import replace

import tomli_w
from playwright.sync_api import expect

from palestra.core.types import Turn
from palestra.envs import make_env
from tests.support.viewed import episode, viewing, write_lines

OPTIONS = {"tasks": ["enter-text"], "train_seeds": 2}


def played():
    """The expert's turns, as they are stored."""
    env = make_env("miniwob", OPTIONS)
    task = env.tasks("train")[1]
    observation, turns = env.reset(task), []
    while (action := env.expert()) is not None:
        step = env.step(action)
        turns.append(Turn(observation, action, action, step.reward, (2, 4), invalid=step.invalid))
        observation = step.observation
    env.close()
    return replace(episode("000001-0000"), task=task, turns=turns, final_observation=observation)


def test_screenshots_follow_the_turn(tmp_path, visit):
    stored = played()
    assert len(stored.turns) == 2
    run = tmp_path / "wob"
    run.mkdir()
    (run / "config.toml").write_text(
        tomli_w.dumps({"env": {"name": "miniwob", "options": OPTIONS}})
    )
    (run / "metrics.jsonl").write_text("")
    write_lines(run, "step-000001", stored)
    with viewing(run) as server:
        page = visit(server, "run/0/episode/step-000001/0").page
        shot = page.get_by_role("complementary", name="Scene").get_by_role("img")
        expect(shot).to_be_visible(timeout=60_000)
        first = shot.get_attribute("src")
        assert first.startswith("data:image/jpeg;base64,/9j/")
        assert shot.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [320, 320]
        expect(
            page.get_by_role("complementary", name="Scene").get_by_text(
                "http://miniwob.test/miniwob/enter-text.html"
            )
        ).to_be_visible()
        page.keyboard.press("End")
        expect(shot).not_to_have_attribute("src", first)
