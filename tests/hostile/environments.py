"""An environment whose tasks say how it misbehaves.

It imports no torch, so that workers start fast.
"""

import asyncio
import ctypes
import decimal
import fractions
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import numpy as np

from palestra.core.types import Step, Task
from palestra.envs.base import Environment

NAME = "tests.hostile.environments:Hostile"
LONG = 5_000_000


def throw(error):
    raise error


class Own(BaseException):
    pass


class StrRaises(Exception):
    def __str__(self):
        raise ValueError("no words")


class StrExits(Exception):
    def __str__(self):
        sys.exit(0)


class StrHangs(Exception):
    def __str__(self):
        while True:
            time.sleep(0.01)


class ReprRaises:
    def __repr__(self):
        raise KeyboardInterrupt


class Words(str):
    def __str__(self):
        return 7  # not a text


class Richer(Step):
    pass


def deep(levels):
    inner = {}
    for _ in range(levels):
        inner = {"in": inner}
    return inner


def cyclic():
    table = {}
    table["self"] = table
    return table


def recurse(depth=0):
    return recurse(depth + 1) + 1


def hang(_=None):
    while True:
        time.sleep(0.01)


def come_late():
    """It swallows what tells it that its time is over."""
    try:
        hang()
    except BaseException:
        return Step("late")


def interrupt_itself():
    signal.raise_signal(signal.SIGINT)
    return Step("on")


def die_later():
    threading.Timer(0.05, partial(os._exit, 0)).start()
    return Step("for now")


def talk_nonsense():
    """On every socket that there is, such as the one to the pool."""
    for descriptor in range(3, 40):
        with suppress(OSError):
            if "socket" in os.readlink(f"/proc/self/fd/{descriptor}"):
                os.write(descriptor, b"\xff" * 1000)


STEPS = {
    # what is raised, and what the fault says
    "raises": (lambda: throw(RuntimeError("the simulator broke")),
    "RuntimeError: the simulator broke"),
    "interrupts": (lambda: throw(KeyboardInterrupt()), "KeyboardInterrupt"),
    "exits with 0": (lambda: sys.exit(0), "SystemExit: 0"),
    "exits with words": (lambda: sys.exit("enough"), "SystemExit: enough"),
    "ends a generator": (lambda: throw(GeneratorExit("g")), "GeneratorExit: g"),
    "is cancelled": (lambda: throw(asyncio.CancelledError("c")), "CancelledError: c"),
    "stops an iteration": (lambda: throw(StopIteration("s")), "StopIteration: s"),
    "stops an asynchronous iteration": (lambda: throw(StopAsyncIteration("s")),
    "StopAsyncIteration: s"),
    "is out of memory": (lambda: throw(MemoryError("m")), "MemoryError: m"),
    "asks for all memory": (lambda: bytearray(1 << 50), "MemoryError"),
    "recurses": (recurse, "RecursionError"),
    "raises what is no Exception": (lambda: throw(Own("own")), "Own: own"),
    "raises what cannot be said": (lambda: throw(StrRaises()), "cannot be shown"),
    "raises what exits when it is said": (lambda: throw(StrExits()), "cannot be shown"),
    "raises a lone surrogate": (lambda: throw(ValueError("\ud800")), "ValueError: \\ud800"),
    "raises at length": (lambda: throw(ValueError("x" * LONG)), " characters more]"),
    "raises a group": (lambda: throw(BaseExceptionGroup("g", [KeyboardInterrupt()])),
    "BaseExceptionGroup: g"),
    "raises a timeout": (lambda: throw(TimeoutError("t")), "TimeoutError: t"),
    "raises a broken pipe": (lambda: throw(BrokenPipeError("p")), "BrokenPipeError: p"),
    "raises an end of file": (lambda: throw(EOFError("e")), "EOFError: e"),
    "raises a Unicode error": (lambda: "\ud800".encode(), "UnicodeEncodeError"),
    # what is returned
    "returns nothing": (lambda: None, "must return a Step, not NoneType None"),
    "returns a text": (lambda: "text", "must return a Step, not str 'text'"),
    "returns a tuple": (lambda: ("text", 1.0, False, False, {}), "must return a Step, not tuple"),
    "returns a table": (lambda: {"observation": "text"}, "must return a Step, not dict"),
    "returns a class": (lambda: Step, "must return a Step, not type"),
    "returns what cannot be shown": (ReprRaises, "must return a Step, not an object of ReprRaises"),
    "observes nothing": (lambda: Step(None), "a text as its observation, not NoneType None"),
    "observes bytes": (lambda: Step(b"x"), "a text as its observation, not bytes"),
    "observes a number": (lambda: Step(7), "a text as its observation, not int 7"),
    "observes a list": (lambda: Step(["x"]), "a text as its observation, not list"),
    "observes a lone surrogate": (lambda: Step("a\udc80"), "cannot be encoded"),
    "is paid nothing": (lambda: Step("x", None), "a finite reward, not NoneType None"),
    "is paid in text": (lambda: Step("x", "1"), "a finite reward, not str '1'"),
    "is paid nan": (lambda: Step("x", float("nan")), "a finite reward, not float nan"),
    "is paid inf": (lambda: Step("x", float("inf")), "a finite reward, not float inf"),
    "is paid -inf": (lambda: Step("x", -np.inf), "a finite reward, not float -inf"),
    "is paid NumPy's nan": (lambda: Step("x", np.float32("nan")), "a finite reward"),
    "is paid a complex number": (lambda: Step("x", 1j), "a finite reward, not complex"),
    "is paid without end": (lambda: Step("x", 10**400), "OverflowError"),
    "is paid a decimal": (lambda: Step("x", decimal.Decimal(1)), "a finite reward, not Decimal"),
    "is paid a fraction": (lambda: Step("x", fractions.Fraction(1)),
    "a finite reward, not Fraction"),
    "is paid an array": (lambda: Step("x", np.ones(1)), "a finite reward, not ndarray"),
    "is paid too much in all": (lambda: Step("x", 1e308), "the episode's rewards add up to inf"),
    "ends with 1": (lambda: Step("x", terminated=1), "terminated must be True or False, not int 1"),
    "ends with nothing": (lambda: Step("x", terminated=None),
    "terminated must be True or False, not NoneType"),
    "ends with a text": (lambda: Step("x", terminated="yes"),
    "terminated must be True or False, not str"),
    "ends with an array": (lambda: Step("x", terminated=np.array([True])),
    "terminated must be True or False, not ndarray"),
    "is truncated by a text": (lambda: Step("x", truncated="no"),
    "truncated must be True or False, not str"),
    "succeeds in text": (lambda: Step("x", success="yes"),
    "success must be True or False or None, not str"),
    "succeeds with 1.0": (lambda: Step("x", success=1.0),
    "success must be True or False or None, not float"),
    "is invalid by nothing": (lambda: Step("x", invalid=None),
    "invalid must be True or False, not NoneType"),
    "informs with nothing": (lambda: Step("x", info=None), "info must be a table"),
    "informs with a list": (lambda: Step("x", info=[1]), "info must be a table"),
    "informs with itself": (lambda: Step("x", info=cyclic()), "info cannot be written as JSON"),
    "informs 60 deep": (lambda: Step("x", info=deep(60)), "nested more than 50 deep"),
    "informs 100,000 deep": (lambda: Step("x", info=deep(100_000)),
    "info cannot be written as JSON"),
    "informs with an object": (lambda: Step("x", info={"a": object()}), "object is no JSON"),
    "informs with an array": (lambda: Step("x", info={"a": np.ones(2)}), "ndarray is no JSON"),
    "informs with a function": (lambda: Step("x", info={"a": hang}), "function is no JSON"),
    "informs with a lone surrogate": (lambda: Step("x", info={"a": "\ud800"}),
    "info cannot be written as JSON"),
    "informs under tuples": (lambda: Step("x", info={(1, 2): 3}), "info cannot be written as JSON"),
    # what hangs
    "hangs": (hang, None),
    "backtracks": (lambda: re.match(r"(a+)+$", "a" * 64 + "b"), None),
    "hangs when it is said what it raises": (lambda: throw(StrHangs()), None),
    "comes late": (come_late, None),
}  # fmt: skip
"""Ways for a step to break, and what its fault says; None where it ends by its deadline."""

SOUND = {
    "is richer": (lambda: Richer("x"), Step("x")),
    "observes at length": (lambda: Step("x" * (10 * LONG)), None),
    "observes NumPy's text": (lambda: Step(np.str_("x")), Step("x")),
    "observes words of its own": (lambda: Step(Words("x")), Step("x")),
    "is paid an int": (lambda: Step("x", 1), Step("x", 1.0)),
    "is paid truth": (lambda: Step("x", True), Step("x", 1.0)),
    "is paid NumPy's int": (lambda: Step("x", np.int64(1)), Step("x", 1.0)),
    "is paid NumPy's half": (lambda: Step("x", np.float16(0.5)), Step("x", 0.5)),
    "is paid NumPy's truth": (lambda: Step("x", np.bool_(True)), Step("x", 1.0)),
    "is paid an array of no dimensions": (lambda: Step("x", np.array(0.25)), Step("x", 0.25)),
    "ends with NumPy's truth": (lambda: Step("x", terminated=np.bool_(True)), Step("x",
    terminated=True)),
    "succeeds with NumPy's truth": (lambda: Step("x", success=np.bool_(False)), Step("x",
    success=False)),
    "informs with NumPy's numbers": (lambda: Step("x", info={"n": np.int32(3),
    "x": np.float64(0.5)}), Step("x", info={"n": 3, "x": 0.5})),
    "informs with nan": (lambda: Step("x", info={"n": float("nan")}), Step("x", info={"n": None})),
    "informs with tuples": (lambda: Step("x", info={"n": (1, 2)}), Step("x", info={"n": [1, 2]})),
    "informs under numbers": (lambda: Step("x", info={1: 2}), Step("x", info={"1": 2})),
    "informs at length": (lambda: Step("x", info={"page": "y" * LONG}), None),
}  # fmt: skip
"""Answers that are odd, and what they are taken for; None where they are cut."""

OTHERS = {
    "reset returns nothing": ("reset", lambda: None, "reset must return a text, not NoneType"),
    "reset returns bytes": ("reset", lambda: b"x", "reset must return a text, not bytes"),
    "reset returns a Step": ("reset", lambda: Step("x"), "reset must return a text, not Step"),
    "reset returns Gymnasium's pair": ("reset", lambda: ("x", {}),
    "reset must return a text, not tuple"),
    "reset returns a lone surrogate": ("reset", lambda: "\ud800", "cannot be encoded"),
    "reset exits": ("reset", lambda: sys.exit(0), "SystemExit: 0"),
    "reset is cancelled": ("reset", lambda: throw(asyncio.CancelledError()), "CancelledError"),
    "reset hangs": ("reset", hang, None),
    "actions are a text": ("actions", lambda: "go",
    "actions must return a list of texts or None, not str"),
    "actions are numbers": ("actions", lambda: [1], "actions must return texts, not int 1"),
    "actions come one by one": ("actions", lambda: iter("ab"),
    "actions must return a list of texts or None"),
    "actions have a lone surrogate": ("actions", lambda: ["\ud800"], "cannot be encoded"),
    "actions are endless": ("actions", lambda: ["x" * 1000] * 2000,
    "more than 1,000,000 characters"),
    "actions exit": ("actions", lambda: sys.exit(0), "SystemExit: 0"),
    "the expert says a number": ("expert", lambda: 7,
    "expert must return a text or None, not int 7"),
    "the expert says bytes": ("expert", lambda: b"go",
    "expert must return a text or None, not bytes"),
    "the expert says a lone surrogate": ("expert", lambda: "\ud800", "cannot be encoded"),
    "the expert interrupts": ("expert", lambda: throw(KeyboardInterrupt()), "KeyboardInterrupt"),
}  # fmt: skip
"""Other methods, and what the fault says."""

DEADLY = {
    "os._exit": (lambda: os._exit(0), "exit code 0"),
    "exits in C": (lambda: ctypes.CDLL(None)._exit(0), "exit code 0"),
    "kills itself": (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
    "segfaults": (lambda: ctypes.string_at(0), "signal 11"),
    "aborts": (os.abort, "signal 6"),
    "holds the interpreter": (lambda: throw(RuntimeError(str(pow(7, 10**9))[:1])), None),
    "closes all files": (lambda: os.closerange(0, 1000), "worker"),
    "dies later": (die_later, "exit code 0"),
    "talks nonsense": (talk_nonsense, "worker"),
}  # fmt: skip
"""What only a process of its own survives."""


class Hostile(Environment):
    name = "hostile"
    max_turns = 3

    def tasks(self, split):
        return [
            Task(self.name, split, id)
            for id in (*STEPS, *SOUND, *OTHERS, *DEADLY, *map(str, range(400)))
        ]

    def answer(self, method, usual):
        own, act, _ = OTHERS.get(self.id, ("", None, None))
        return act() if own == method else usual

    def reset(self, task):
        self.id = task.id.partition("/")[0]  # the same in other tasks
        self.turns = 0
        return self.answer("reset", "say yes")

    def expert(self):
        return self.answer("expert", "yes")

    def actions(self):
        return self.answer("actions", ("yes", "no"))

    def step(self, action):
        self.turns += 1
        for table in (STEPS, SOUND, DEADLY):
            if self.id in table and not (self.id in SOUND and self.turns > 1):
                return table[self.id][0]()
        return Step(
            "right",
            1.0 if self.turns == 2 else 0.0,
            terminated=self.turns == 2,
            success=self.turns == 2 or None,
        )


class MarksExit(Hostile):
    def step(self, action):
        os._exit(0)


class Clings(Hostile):
    """Its episodes go well, and its thread and its exit handler would keep the program for ever."""

    def __init__(self):
        import atexit

        threading.Thread(target=hang, daemon=False).start()
        atexit.register(hang)


class NeverReturns(Hostile):
    def step(self, action):
        while True:
            try:
                hang()
            except BaseException:
                continue


class ClosesBadly(Hostile):
    def close(self):
        sys.exit(0)


class CannotBeMade(Hostile):
    def __init__(self):
        raise KeyboardInterrupt


class ExitsWhenMade(Hostile):
    def __init__(self):
        os._exit(0)


class HasNoTasks(Hostile):
    def tasks(self, split):
        return [1, 2]


class TurnsOfText(Hostile):
    max_turns = "x"


def endless(make):
    while True:
        yield make()


def broken_off(*items):
    yield from items
    raise RuntimeError("the simulator broke")


def a_task(**changes):
    return Task(**{"env": "around", "split": "test", "id": "1", **changes})


RAISED = {
    "raises": "the simulator broke",
    "exits with 0": "SystemExit: 0",
    "interrupts": "KeyboardInterrupt",
    "is cancelled": "CancelledError: c",
    "ends a generator": "GeneratorExit: g",
    "raises what cannot be said": "cannot be shown",
    "raises at length": " characters more]",
    "raises a group": "BaseExceptionGroup: g",
    "hangs": "gave no answer within",
    "hangs when it is said what it raises": "gave no answer within",
}
"""Of STEPS: what a call outside of an episode does, and what its error says."""

BROKEN_CALLS = {name: (STEPS[name][0], said) for name, said in RAISED.items()} | {
    "ends the process": (lambda: os._exit(0), "os._exit(0)"),
}

AROUND = {
    **{
        f"{method}: {kind}": (method, act, said)
        for method in ("constructor", "tasks", "vocabulary", "texts", "close")
        for kind, (act, said) in BROKEN_CALLS.items()
    },
    **{
        f"max_turns: {kind}": ("max_turns", BROKEN_CALLS[kind][0], BROKEN_CALLS[kind][1])
        for kind in ("raises", "exits with 0", "hangs")
    },
    "max_turns: -1": ("max_turns", lambda: -1, "max_turns is int -1, expected a number of turns"),
    "max_turns: 0": ("max_turns", lambda: 0, "max_turns is int 0, expected a number of turns"),
    "max_turns: a text": ("max_turns", lambda: "x", "max_turns is str 'x', expected a number"),
    "max_turns: nothing": ("max_turns", lambda: None, "max_turns is NoneType None, expected"),
    "max_turns: truth": ("max_turns", lambda: True, "max_turns is bool True, expected a number"),
    "max_turns: a half": ("max_turns", lambda: 2.5, "max_turns is float 2.5, expected a number"),
    "max_turns: nan": ("max_turns", lambda: float("nan"), "max_turns is float nan, expected"),
    "splits: raises": ("splits", STEPS["raises"][0], "RuntimeError: the simulator broke"),
    "splits: a text": ("splits", lambda: "test", "splits is str 'test', expected a tuple of names"),
    "splits: nothing": ("splits", lambda: None, "splits is NoneType None, expected a tuple"),
    "splits: a number": ("splits", lambda: 7, "splits is int 7, expected a tuple of names"),
    "splits: numbers": ("splits", lambda: (1, 2), "splits is tuple (1, 2), expected a tuple"),
    "splits: none": ("splits", tuple, "has no such split"),
    "instructions: nothing": ("instructions", lambda: None, "it must be a text, not NoneType None"),
    "instructions: a number": ("instructions", lambda: 7, "it must be a text, not int 7"),
    "instructions: raises": ("instructions", STEPS["raises"][0], "the simulator broke"),
    "instructions: a lone surrogate": ("instructions", lambda: "\ud800", "cannot be encoded"),
    "example: a text": ("example", lambda: "do this", "example is str 'do this', expected"),
    "example: numbers": ("example", lambda: (1,), "example is tuple (1,), expected"),
    "tasks: nothing": ("tasks", lambda: None, "raised TypeError"),
    "tasks: a number": ("tasks", lambda: 7, "raised TypeError"),
    "tasks: a text": ("tasks", lambda: "abc", "has str 'a', expected a Task of texts"),
    "tasks: numbers": ("tasks", lambda: [1, 2], "has int 1, expected a Task of texts"),
    "tasks: a table": ("tasks", lambda: {"id": 1}, "has str 'id', expected a Task of texts"),
    "tasks: an id that is a number": ("tasks", lambda: [a_task(id=1)], "expected a Task of texts"),
    "tasks: no id": ("tasks", lambda: [a_task(id=None)], "expected a Task of texts"),
    "tasks: a lone surrogate": ("tasks", lambda: [a_task(id="\ud800")], "cannot be encoded"),
    "tasks: break off": ("tasks", lambda: broken_off(a_task()), "the simulator broke"),
    "tasks: are endless": ("tasks", lambda: endless(a_task), "gave no answer within"),
    "vocabulary: a number": ("vocabulary", lambda: 7, "raised TypeError"),
    "vocabulary: numbers": ("vocabulary", lambda: [1], "it must list texts, not int 1"),
    "vocabulary: nothing": ("vocabulary", lambda: None, "does not list its words"),
    "vocabulary: breaks off": ("vocabulary", lambda: broken_off("yes"), "the simulator broke"),
    "vocabulary: a lone surrogate": ("vocabulary", lambda: ["\ud800"], "cannot be encoded"),
    "texts: a number": ("texts", lambda: 7, "raised TypeError"),
    "texts: numbers": ("texts", lambda: [1], "it must list texts, not int 1"),
    "texts: nothing": ("texts", lambda: None, "has no texts to learn them from"),
    "texts: break off": ("texts", lambda: broken_off("yes"), "the simulator broke"),
    "texts: a lone surrogate": ("texts", lambda: ["\ud800"], "cannot be encoded"),
}  # fmt: skip
"""What happens outside of episodes: in which method or attribute, and what the error says."""


class Around(Hostile):
    """Its episodes go well; what it does besides is an option."""

    name = "around"

    def __init__(self, kind):
        self.where, self.act, _ = AROUND[kind]
        self._answer("constructor", None)

    def _answer(self, where, usual):
        return self.act() if where == self.where else usual

    @property
    def max_turns(self):
        return self._answer("max_turns", 3)

    @property
    def splits(self):
        return self._answer("splits", ("train", "test"))

    @property
    def instructions(self):
        return self._answer("instructions", "")

    @property
    def example(self):
        return self._answer("example", ())

    def tasks(self, split):
        return self._answer("tasks", [a_task(split=split)])

    def vocabulary(self):
        return self._answer("vocabulary", ["yes", "no"])

    def texts(self):
        return self._answer("texts", ["yes", "no"])

    def close(self):
        self._answer("close", None)
