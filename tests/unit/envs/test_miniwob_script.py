"""What is sent to a page of MiniWoB++ to begin a task; no browser is needed to look at it."""

from types import SimpleNamespace

import pytest

pytest.importorskip("playwright")
SeleniumInstance = pytest.importorskip("miniwob.selenium_instance").SeleniumInstance

from palestra.envs.web.miniwob import FIRST_TEST_SEED, begin_script  # noqa: E402


@pytest.mark.parametrize(("seed", "mode"), [(0, "train"), (17, "train"), (FIRST_TEST_SEED, "test")])
def test_the_seed_is_set_as_the_package_sets_it(seed, mode):
    sent = []
    SeleniumInstance.set_seed(
        SimpleNamespace(driver=SimpleNamespace(execute_script=sent.append)), seed
    )
    assert sent == [f"Math.seedrandom({seed});"]
    lines = [line.strip() for line in begin_script(seed).splitlines()]
    assert [line for line in lines if "seedrandom" in line] == sent
    assert f"core.setDataMode('{mode}');" in lines
    assert lines.index(sent[0]) < lines.index("core.startEpisodeReal();")
