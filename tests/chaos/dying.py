"""`python -m tests.chaos.dying POINT... -- ARGUMENTS`: the command line, in a process that is hit
at a chosen point of what it does.

SIGNAL:call:MODULE:NAME:N      when the function is called for the N-th time
SIGNAL:open:PATH, SIGNAL:rename:PATH, SIGNAL:remove:PATH
                               just before a path that ends so is opened, renamed, or removed with
                               all that is in it
SECONDS:set:MODULE:NAME        a limit of time is changed
"stuck" in place of a signal never returns, as a library that hangs would not.
"""

import functools
import importlib
import os
import signal
import sys
import time

EVENTS = {"open": "open", "os.rename": "rename", "shutil.rmtree": "remove"}


def hit(how):
    if how == "stuck":
        while True:
            time.sleep(1)
    os.kill(os.getpid(), signal.Signals[how])


def at_call(how, module, name, nth):
    owner = importlib.import_module(module)
    *classes, attribute = name.split(".")
    for each in classes:
        owner = getattr(owner, each)
    function = getattr(owner, attribute)
    left = [int(nth)]

    @functools.wraps(function)
    def wrapped(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            hit(how)
        return function(*arguments, **options)

    setattr(owner, attribute, wrapped)


def at_event(how, kind, path):
    def hook(event, arguments):
        if (
            EVENTS.get(event) == kind
            and isinstance(arguments[0], str | os.PathLike)
            and os.fspath(arguments[0]).endswith(path)
        ):
            hit(how)

    sys.addaudithook(hook)


def main():
    border = sys.argv.index("--")
    for point in sys.argv[1:border]:
        how, kind, *rest = point.split(":")
        if kind == "set":
            setattr(importlib.import_module(rest[0]), rest[1], float(how))
        elif kind == "call":
            at_call(how, *rest)
        else:
            at_event(how, kind, *rest)
    from palestra.cli.main import main as command

    command(sys.argv[border + 1 :])


if __name__ == "__main__":
    main()
