"""Hostile environments: whatever one task does costs that task, and inline comes to the same as a
process of its own.
"""

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import msgspec
import pytest

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.agents.scripted import RandomAgent
from palestra.config.config import build
from palestra.core.action_formats import Plain
from palestra.core.errors import ConfigError
from palestra.core.types import Sampling, Stop, Task
from palestra.engines.base import NoEngine
from palestra.envs.serving.barrier_pool import BarrierPool
from palestra.envs.serving.client import RemotePool
from palestra.envs.serving.handles import listed
from palestra.envs.serving.validation import CHARACTERS, FAULT_CHARACTERS, cut, is_cut
from palestra.envs.serving.worker_pool import Workers, WorkerSettings
from palestra.models.tokenizers import byte_tokenizer
from palestra.rollout.episode import EnvBinding, EpisodeSpec, RolloutContext
from palestra.rollout.groups import rollout_episodes
from palestra.training.preflight import close_envs, guarded, make_envs, make_tokenizer
from tests.hostile.environments import AROUND, DEADLY, NAME, OTHERS, SOUND, STEPS
from tests.hostile.plays import SOUND as SOUND_BESIDE
from tests.support.served import command

ROOT = Path(__file__).parents[2]
SAID = {name: said for name, (_, said) in (STEPS | DEADLY).items()} | {
    name: said for name, (_, _, said) in OTHERS.items()
}
FEW = (
    "raises", "interrupts", "is cancelled", "raises what cannot be said", "raises at length",
    "returns nothing",
    "observes a lone surrogate", "is paid inf", "is paid too much in all", "ends with 1",
    "informs with itself", "comes late",
    "observes at length", "is paid NumPy's int", "reset returns nothing", "actions are a text",
    "the expert says a number",
    "os._exit", "kills itself",
)  # fmt: skip
FEW_AROUND = ("constructor: exits with 0", "close: raises", "max_turns: 0", "tasks: are endless")
MOST_BYTES = 6 << 30
PEAK_MB = 400


def limited(seconds):
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (4000, 4000))

    return limit


def limited_run(command, *, seconds=100, cwd=ROOT, text=None):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds,
        preexec_fn=limited(100),
        input=text,
    )


@lru_cache
def played(mode, ids):
    done = limited_run(["-m", "tests.hostile.plays", mode, *ids])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kinds(*tables):
    return [
        pytest.param(name, marks=pytest.mark.short if name in FEW else ())
        for table in tables
        for name in table
    ]


def outcome(mode, kind):
    """In a run of the few, or of all that are not among them."""
    all_of_them = [
        name
        for table in (STEPS, SOUND, OTHERS, DEADLY if mode == "process" else {})
        for name in table
    ]
    return played(mode, tuple(name for name in all_of_them if (name in FEW) == (kind in FEW)))


def check_fault(kind, mode):
    found = outcome(mode, kind)["outcomes"][kind]
    assert found["stop"] == ("timeout" if SAID[kind] is None else "env_fault"), found
    assert SAID[kind] is None or SAID[kind] in found["fault"]
    assert len(found["fault"]) <= FAULT_CHARACTERS
    return found


@pytest.mark.hostile
@pytest.mark.parametrize("kind", kinds(STEPS, OTHERS))
def test_a_broken_task_is_the_same_fault_inline_and_in_a_process(kind):
    inline, process = check_fault(kind, "inline"), check_fault(kind, "process")
    if SAID[kind] is not None:
        addresses = re.compile("0x[0-9a-f]+")
        assert addresses.sub("", inline["fault"]) == addresses.sub("", process["fault"])


@pytest.mark.hostile
@pytest.mark.parametrize("kind", kinds(SOUND))
def test_an_odd_answer_is_taken_for_the_same_inline_and_in_a_process(kind):
    inline, process = (
        outcome(mode, kind)["outcomes"][kind]["said"] for mode in ("inline", "process")
    )
    assert inline == process
    if (expected := SOUND[kind][1]) is not None:
        assert inline[3] == msgspec.to_builtins(expected)
    else:
        (long,) = [
            text
            for text in (inline[3]["observation"], *inline[3]["info"].values())
            if len(text) > 10
        ]
        assert len(long) == CHARACTERS
        assert is_cut(long)


@pytest.mark.hostile
@pytest.mark.parametrize("kind", kinds(DEADLY))
def test_what_kills_a_worker_is_its_tasks_fault(kind):
    found = outcome("process", kind)["outcomes"][kind]
    assert found["stop"] == ("timeout" if SAID[kind] is None else "env_fault"), found
    assert SAID[kind] is None or SAID[kind] in found["fault"]


@pytest.mark.hostile
@pytest.mark.parametrize("few", [pytest.param(True, marks=pytest.mark.short), False])
@pytest.mark.parametrize("mode", ["inline", "process"])
def test_sound_tasks_beside_them_are_all_played_and_memory_stays_small(mode, few):
    found = outcome(mode, FEW[0] if few else "hangs")
    beside = [found["outcomes"][str(number)] for number in range(SOUND_BESIDE)]
    assert all("said" in one and one["said"][4]["success"] is True for one in beside)
    assert found["peak_mb"] < PEAK_MB  # with an observation of 50,000,000 characters


def test_what_is_cut_says_by_how_much():
    for length in (1001, 1029, 9_999, 10_030, 123_456):
        short = cut("x" * length, 1000)
        kept = short.index("[")
        assert len(short) == 1000
        assert short[kept:] == f"[... cut, {length - kept:,} characters more]"
    assert cut("x" * 1000, 1000) == "x" * 1000


# one bad task costs one task


def rollout(bad, *, every, count, retries, workers=1, per_worker=64, is_counted=False):
    """Episodes of an agent that says what it likes, of which every so many play a bad task; and how
    often workers broke.
    """
    pool = Workers(NAME, {}, WorkerSettings(workers=workers, per_worker=per_worker, deadline_s=3.0))
    shared = BarrierPool(pool, 60.0) if is_counted else pool
    found, faulted = rollout_in(shared, bad, every=every, count=count, retries=retries)
    return found, faulted, pool.restarts


def rollout_in(pool, bad, *, every, count, retries):
    prompt = PromptConfig(Renderer(byte_tokenizer()), Plain(), context_tokens=100_000)
    context = RolloutContext(
        {"hostile": EnvBinding(prompt, pool)},
        NoEngine(),
        Sampling(max_tokens=100),
        RandomAgent,
        concurrency=32,
        retries=retries,
    )
    tasks = [
        Task("hostile", "train", bad if number % every == every // 2 else str(number))
        for number in range(count)
    ]

    async def scenario():
        try:
            return await rollout_episodes(
                context,
                [EpisodeSpec(str(n), task, horizon=3, seed=n) for n, task in enumerate(tasks)],
            )
        finally:
            await pool.close()

    return asyncio.run(scenario())


@pytest.mark.hostile
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("bad", "every", "retries"),
    [
        pytest.param("os._exit", 30, 0, marks=pytest.mark.short),
        ("os._exit", 30, 1),
        ("raises", 30, 0),
        ("hangs", 30, 0),
        ("dies later", 15, 1),
        ("os._exit", 2, 0),
        ("kills itself", 2, 1),
    ],
)
def test_one_bad_task_costs_no_episode_of_another(bad, every, retries):
    count = 90 if every > 2 else 60
    found, faulted, restarts = rollout(bad, every=every, count=count, retries=retries)
    others = [t for t in found if not t.task.id.startswith(bad)]
    assert len(others) == count - count // every
    assert {t.stop for t in others} == {Stop.DONE}
    if (
        bad != "dies later"
        # who is asked when a thread of somebody else's ends the process is taken for its cause,
        # once
    ):
        assert {t.attempt for t in others} == {0}
        assert all(
            t.stop is Stop.ENV_FAULT or bad == "hangs" for t in found if t.task.id.startswith(bad)
        )
        assert {t.attempt for t in found if t.task.id.startswith(bad)} == {retries}
    if bad not in ("raises", "dies later"):  # the latter may be left over when all is played
        assert restarts > 0
        assert any(t.is_collateral for t in faulted)
    assert all(t.seed == int(t.id) for t in faulted if t.is_collateral)


@pytest.mark.hostile
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("bad", "every", "processes"),
    [
        pytest.param("os._exit", 30, 1, marks=pytest.mark.short),
        ("raises", 30, 1),
        ("hangs", 30, 1),
        ("os._exit", 2, 1),
        ("os._exit", 30, 2),
    ],
)
def test_nor_behind_a_server(bad, every, processes):
    """Its workers are shared by sessions, and it says whose fault it was.

    Of two processes, one passes on what the other says.
    """
    count = 90 if every > 2 else 40
    with command(NAME, "--port", "0", "--deadline", "3", processes=processes) as server:
        pool = RemotePool([server.at.url("hostile")], 60.0)
        found, faulted = rollout_in(pool, bad, every=every, count=count, retries=0)
    others = [t for t in found if t.task.id != bad]
    assert len(others) == count - count // every
    assert {t.stop for t in others} == {Stop.DONE}
    assert {t.attempt for t in found} == {0}
    assert {t.is_collateral for t in faulted} <= {True}
    assert bool(faulted) == (bad != "raises")
    assert all(t.stop.is_fault and not t.is_collateral for t in found if t.task.id == bad)


@pytest.mark.hostile
def test_episodes_beside_a_bad_task_come_out_as_if_it_were_not_there():
    """Token for token, and the same in every run."""
    runs = [
        rollout(bad, every=30, count=60, retries=1, workers=2, is_counted=True)[0]
        for bad in ("os._exit", "os._exit", "5")
    ]
    one, again, calm = (
        [(t.id, t.attempt, t.segments, t.turns, t.stop) for t in run if int(t.id) % 30 != 15]
        for run in runs
    )
    assert len(calm) == 58
    assert one == again == calm


# outside of episodes


@pytest.mark.hostile
@pytest.mark.parametrize("mode", ["inline", "process"])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=pytest.mark.short if name in FEW_AROUND else ()) for name in AROUND],
)
def test_what_breaks_outside_of_episodes_is_one_line(kind, mode, caplog):
    where, _, said = AROUND[kind]
    tree = {
        "env": {
            "name": "tests.hostile.environments:Around",
            "options": {"kind": kind},
            "isolation": mode,
            "deadline_s": 0.5,
        },
        "model": {"tokenizer": {"texts": "bpe"}.get(where, "words")},
    }
    config = build(tree, imports=True)
    try:
        made = make_envs(config)
        make_tokenizer(config, made)
        with guarded(config.env_specs[0], "tasks('test')"):
            listed("around", made["around"], "test")
        close_envs(config, made)
        assert where == "close"
        line = caplog.messages[-1]  # the run is over by then
    except ConfigError as refused:
        line = str(refused)
    assert said in line
    assert "around" in line.lower()
    assert where in line or kind in ("splits: none", "vocabulary: nothing"), line
    assert "\n" not in line
    assert len(line) < 1000


# what a person sees


def palestra(*arguments, text=None):
    return limited_run(["-m", "palestra", *arguments], text=text)


def hostile(kind):
    return f"tests.hostile.environments:{kind}"


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        pytest.param(
            ("env", "check", hostile("CannotBeMade")),
            2,
            "raised KeyboardInterrupt",
            marks=pytest.mark.short,
        ),
        (("env", "play", hostile("ExitsWhenMade")), 2, "os._exit(0)"),
        (
            ("env", "serve", hostile("TurnsOfText"), "--port", "0"),
            2,
            "max_turns is str 'x', expected a number of turns",
        ),
        (("env", "serve", hostile("HasNoTasks"), "--port", "0"), 2, "expected a Task of texts"),
        (("env", "play", hostile("ClosesBadly"), "--task", "1"), 2, "close() raised SystemExit: 0"),
        (("eval", "--agent", "expert", "--env", hostile("ExitsWhenMade")), 2, "os._exit(0)"),
        (
            (
                "eval",
                "--agent",
                "expert",
                "--env",
                hostile("ExitsWhenMade"),
                "--env.isolation",
                "process",
            ),
            2,
            "os._exit(0)",
        ),
        (
            (
                "eval",
                "--agent",
                "expert",
                "--env",
                hostile("HasNoTasks"),
                "--env.isolation",
                "process",
            ),
            2,
            "expected a Task of texts",
        ),
        (
            ("eval", "--agent", "expert", "--env", hostile("MarksExit")),
            2,
            "every episode of an evaluation ended in a fault",
        ),
        (("doctor", "--env.name", hostile("CannotBeMade")), 2, "raised KeyboardInterrupt"),
    ],
)
def test_an_environment_that_breaks_outside_of_episodes_is_one_line(
    arguments, code, said, tmp_path
):
    env = ["--out", str(tmp_path / "result.json"), "--limit", "2"] if arguments[0] == "eval" else []
    done = palestra(*arguments, *env, text="")
    assert done.returncode == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("palestra: ")
    assert said in last
    assert "Traceback" not in done.stderr


@pytest.mark.hostile
def test_who_never_returns_inline_ends_the_run_with_a_word(tmp_path):
    code = """
import sys
from palestra.envs.serving.watchdog import watchdog
watchdog.grace_s = 1.0
sys.argv = ["palestra", "eval", "--agent", "expert", "--env", \
"tests.hostile.environments:NeverReturns", "--env.deadline_s", "0.5"]
from palestra.cli.main import main
main()
"""
    done = limited_run(["-c", code])
    assert done.returncode == -signal.SIGKILL
    (line,) = done.stderr.splitlines()
    assert "neverreturns: step does not return and cannot be interrupted" in line
    assert 'isolation = "process"' in line


@pytest.mark.hostile
def test_threads_and_exit_handlers_do_not_keep_a_finished_program(tmp_path):
    out = tmp_path / "result.json"
    code = f"""
import sys
from palestra.cli import main as cli
from palestra.core import interrupts
cli.end_in_time = lambda code: interrupts.end_in_time(code, 1.0)
sys.argv = ["palestra", "eval", "--agent", "expert", "--env", {hostile("Clings")!r}, "--limit", \
"1", "--out", {str(out)!r}]
cli.main()
"""
    done = limited_run(["-c", code], seconds=60)
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    assert "did not end within 1 s and was left behind" in done.stderr
