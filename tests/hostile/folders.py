"""Run folders that mean harm: each spoils a sound one in its own way."""

import json
import os
import shutil
import socket

from palestra.runs.trajectories import encode_trajectory
from tests.support.viewed import episode, write_learned, write_lines

SECRET = "the-secret-of-another-file"
CONFIG = 'seed = 0\nsteps = 2\n[algo]\nname = "grpo"\n[env]\nname = "babyai"\n'
SCORE = {
    "tasks": 2,
    "episodes": 2,
    "success": 0.5,
    "success_interval": [0.1, 0.9],
    "pass_at_k": 0.5,
    "pass_interval": [0.1, 0.9],
    "reward": 0.5,
    "turns": 1.0,
    "tokens": 2.0,
    "reward_interval": [0.1, 0.9],
}
EVAL = {
    "phase": "final",
    "step": 2,
    "k": 1,
    "faults": 0,
    "all": SCORE,
    "envs": {"guess": {"10": {"all": SCORE, "categories": {}}}},
}
ROWS = [
    {"step": 1, "loss": 0.5, "horizon": 4, "stage": 0},
    {"step": 2, "loss": 0.25, "horizon": 4, "stage": 0},
    {"step": 2, "phase": "final", "eval/success": 0.5, "eval/low": 0.1, "eval/high": 0.9},
]
TERABYTE = 10**12


def sound(folder):
    """A small complete run."""
    for name in ("eval", "checkpoints/step-000002"):
        (folder / name).mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    write_metrics(folder, *ROWS)
    (folder / "eval" / "step-000002-final.json").write_text(json.dumps(EVAL))
    write_lines(folder, "step-000001", episode("a"), episode("b", says="17"))
    write_lines(folder, "eval-step-000002-final", episode("c"))
    write_learned(
        folder,
        "step-000001",
        {"id": "a", "advantage": [0.5, 1.0], "logp": [-1, -1], "entropy": [0, 0]},
    )
    (folder / "log.txt").write_text("it went well\n")
    return folder


def write_metrics(folder, *rows):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# ways to spoil a file


def link_to(target):
    return lambda path: path.symlink_to(target)


def secret_link(path):
    target = path.parent / f"outside-{path.name}"
    for folder in path.parents:  # beside the folder of all runs
        if folder.name.startswith("runs-"):
            target = folder.with_name(f"secret-{folder.name}")
    target.write_text(f'{{"step": 1, "{SECRET}": 1}}\n')
    path.symlink_to(target)


def secret_folder(path):
    """A link to a folder that has the files of a sound run in it."""
    top = next(folder for folder in path.parents if folder.name.startswith("runs-"))
    other = top.with_name(f"other-{top.name}") / path.parent.name
    if not other.exists():
        sound(other)
        write_lines(other, f"step-000009-{SECRET}", episode(SECRET, says=SECRET))
        (other / "eval" / f"step-000009-{SECRET}.json").write_text(json.dumps(EVAL))
        (other / "token_stats" / f"{SECRET}.jsonl").touch()
    path.symlink_to(other / path.name)


def sparse(path):
    with path.open("wb") as file:
        file.truncate(TERABYTE)


def unix_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # addresses of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def many_stages() -> str:
    """Rows whose horizon and stage change at every step."""
    rows = [{"step": n, "horizon": n % 7, "stage": n % 5, "loss": 1} for n in range(100_000)]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def content(text):
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode())


def repeated(line, times):
    def write(path):
        with path.open("wb") as file:
            for _ in range(100):
                file.write(line * (times // 100))

    return write


IRREGULAR = {
    "link": (secret_link, "got a link"),
    "zeros": (link_to("/dev/zero"), "got a link"),
    "dangling": (link_to("/nowhere/at/all"), "got a link"),
    "circle": (lambda path: path.symlink_to(path.name), "got a link"),
    "pipe": (os.mkfifo, "got a named pipe"),
    "socket": (unix_socket, "got a socket"),
    "folder": (lambda path: path.mkdir(), "got a folder"),
}
DEEP = b"[" * 900 + b"]" * 900
FULL = b"[],"
ENCODED = encode_trajectory(episode("a"))[:-1]

SPOILED = {
    # group -> name -> (file, how, what is said of it; None: it is shown)
    "config": {
        **{kind: ("config.toml", *how) for kind, how in IRREGULAR.items()},
        "sparse": ("config.toml", sparse, "at most 256 KB"),
        "dotted": ("config.toml", content(".".join("a" * 100_000) + " = 1"), "more than 32 parts"),
        "deep": ("config.toml", content(b"a = " + DEEP), "nested too deeply"),
        "inline": (
            "config.toml",
            content("a = " + "{a = " * 450 + "1" + "}" * 450),
            "nested too deeply",
        ),
        "digits": ("config.toml", content("seed = " + "9" * 5000), "not TOML"),
        "large": ("config.toml", content("seed = 0x" + "f" * 4000), "64 bits"),
        "nul": ("config.toml", content(b"seed = 0\n\0"), "not TOML"),
        "binary": ("config.toml", content(bytes(range(256))), "not TOML"),
        "types": (
            "config.toml",
            content('seed = "x"\nsteps = [1]\nalgo = 3\nenv = [1]\nmixture = 7\n'),
            None,
        ),
        "dates": (
            "config.toml",
            content(
                "seed = 1979-05-27\nsteps = nan\n[algo]\nname = inf\n[env.options]\nx = 07:32:00\n"
            ),
            None,
        ),
    },
    "metrics": {
        **{kind: ("metrics.jsonl", *how) for kind, how in IRREGULAR.items()},
        "sparse": ("metrics.jsonl", sparse, "more than 32 MB"),
        "rows": ("metrics.jsonl", repeated(b'{"step":1}\n', 10_000_000), "at most 200,000 lines"),
        "empty": ("metrics.jsonl", repeated(b"\n", 10_000_000), "more damaged lines"),
        "deep": ("metrics.jsonl", content(b'{"step":1,"x":' + DEEP + b"}\n"), "got `array`"),
        "unclosed": ("metrics.jsonl", content(b"[" * 5_000_000 + b"\n"), "got `array`"),
        "full": (
            "metrics.jsonl",
            content(b'{"step":1,"x":[' + FULL * 5_000_000 + b"1]}\n"),
            "got `array`",
        ),
        "numbers": (
            "metrics.jsonl",
            content(
                "".join(
                    f'{{"step":{step},"loss":{value},"reward":{value},"horizon":{value},"time/learn":{value},"phase":{phase}}}\n'
                    for step, value, phase in [
                        (1, "1e308", "null"),
                        (2, "-1e308", "[[1]]"),
                        (3, "9" * 400, '"x"'),
                        (4, "1e999", '"x"'),
                        (5, "NaN", '"x"'),
                        ("9" * 300, "1", '"x"'),
                        ("-5", "1", '"x"'),
                        ("true", "1", '"x"'),
                        ("1.5", "1", '"x"'),
                        (6, "1e99", '"final"'),
                    ]
                )
                + '{"step":7,"loss":1e308}\n{"step":8,"loss":1e99}\n{"step":9,"loss":-1e99}\n'
            ),
            "expected a row with a step",
        ),
        "elsewhere": (
            "metrics.jsonl",
            content(
                "".join(
                    json.dumps(
                        {
                            "step": 2,
                            "phase": phase,
                            "eval/success": 0.5,
                            "eval/low": 0.1,
                            "eval/high": 0.9,
                        }
                    )
                    + "\n"
                    for phase in (
                        "/../../../../etc/x",
                        "a/../../config",
                        "\0",
                        "x" * 5000,
                        "\ud7ff\x1b[31m",
                        ".",
                    )
                )
            ),
            None,
        ),
        "horizons": (
            "metrics.jsonl",
            content(many_stages()),
            None,
        ),
    },
    "episodes": {
        **{kind: ("trajectories/step-000001.jsonl", *how) for kind, how in IRREGULAR.items()},
        "linked": ("trajectories", secret_folder, "expected a folder, got a link"),
        "piped": ("trajectories", os.mkfifo, "expected a folder, got a named pipe"),
        "sparse": ("trajectories/step-000001.jsonl", sparse, None),
        "lines": ("trajectories/step-000001.jsonl", repeated(b"\n", 10_000_000), None),
        "objects": ("trajectories/step-000001.jsonl", repeated(b"[]\n", 1_000_000), None),
        "full": (
            "trajectories/step-000001.jsonl",
            content(ENCODED + b',"x":[' + FULL * 9_000_000 + b"1]}\n"),
            None,
        ),
        "unclosed": ("trajectories/step-000001.jsonl", content(b"[" * 5_000_000 + b"\n"), None),
        "long": (
            "trajectories/step-000001.jsonl",
            content(b'{"id":"' + b"x" * 50_000_000 + b'"}\n'),
            None,
        ),
        "dots": ("trajectories/...jsonl", content(b"{}\n"), None),
        "names": ("trajectories/\x1b[31m\n\u202e.jsonl", content(b"{}\n"), None),
    },
    "others": {
        **{
            f"log-{kind}": ("log.txt", *IRREGULAR[kind])
            for kind in ("link", "zeros", "pipe", "folder")
        },
        **{
            f"token-stats-{kind}": ("token_stats/step-000001.jsonl", *IRREGULAR[kind])
            for kind in ("link", "zeros", "pipe")
        },
        "token-stats-linked": ("token_stats", secret_folder, "expected a folder, got a link"),
        "token-stats-sparse": ("token_stats/step-000001.jsonl", sparse, None),
        **{
            f"eval-{kind}": ("eval/step-000002-final.json", *how) for kind, how in IRREGULAR.items()
        },
        "eval-linked": ("eval", secret_folder, "expected a folder, got a link"),
        "eval-sparse": ("eval/step-000002-final.json", sparse, "at most 16 MB"),
        "eval-deep": (
            "eval/step-000002-final.json",
            content(b'{"step":2,"x":' + DEEP + b"}"),
            "nested too deeply",
        ),
        "eval-full": (
            "eval/step-000002-final.json",
            content(b'{"x":[' + FULL * 5_000_000 + b"1]}"),
            "lists and objects",
        ),
        "eval-empty": (
            "eval/step-000002-final.json",
            content(json.dumps(EVAL | {"envs": {"guess": {}}})),
            None,
        ),
        "eval-numbers": (
            "eval/step-000002-final.json",
            content(json.dumps(EVAL | {"all": SCORE | {"success": 1e300}})),
            None,
        ),
        "checkpoints-linked": ("checkpoints", secret_folder, "expected a folder, got a link"),
        **{
            f"tokens-{kind}": ("checkpoints/step-000002/tokenizer.json", IRREGULAR[kind][0], None)
            for kind in ("link", "zeros", "pipe")
        },
        "tokens-sparse": ("checkpoints/step-000002/tokenizer.json", sparse, None),
        "tokens-deep": (
            "checkpoints/step-000002/tokenizer.json",
            content(b'{"decoder":' + DEEP + b"}"),
            None,
        ),
    },
}


def spoil(folder, file, how):
    """A sound run, but for one file."""
    path = sound(folder) / file
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    how(path)


def make_group(top, group):
    """A folder of runs: all of a group, and a sound one after them."""
    top.mkdir()
    for name, (file, how, _) in SPOILED[group].items():
        spoil(top / name, file, how)
    sound(top / "zz-sound")
