"""What a confined process is asked to do in tests."""

import os
import time


def environment(_):
    return sorted(os.environ)


def echo(question):
    return question


def hang(_):
    while True:
        time.sleep(1)


def die(_):
    os._exit(7)


def fill(_):
    return len(bytearray(1 << 40))


def write(path):
    with open(path, "w") as file:
        file.write("x")


def stop(_):
    raise KeyboardInterrupt("not for it")


def answer(question):
    kinds = {"echo": echo, "hang": hang, "die": die, "fill": fill, "write": write, "stop": stop}
    return kinds[question[0]](question[1])
