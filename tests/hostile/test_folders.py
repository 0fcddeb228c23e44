"""Somebody's run folders are looked at: nothing hangs, takes the memory, ends in a traceback, or
shows another file.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from tests.hostile.folders import CONFIG, IRREGULAR, SECRET, SPOILED, make_group, sound, spoil

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
MEMORY = 1_200_000_000
SECONDS = 120
TOLD = "palestra: "

CASES = [
    pytest.param(
        group, name, id=f"{group}-{name}", marks=[pytest.mark.short] if group == "config" else []
    )
    for group, cases in SPOILED.items()
    for name in cases
]


def limited(*commands, cwd):
    """What they ended with, and what they printed."""
    command = [
        sys.executable,
        "-m",
        "tests.hostile.limited",
        str(MEMORY),
        json.dumps([list(map(str, one)) for one in commands]),
    ]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=fewer_processes,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, err[-3000:]
    last = json.loads(out.splitlines()[-1])
    return SimpleNamespace(out=out, err=err, **last)


def environment():
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return (
        os.environ
        | threads
        | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "OMP_WAIT_POLICY": "PASSIVE"}
    )


def fewer_processes():
    resource.setrlimit(resource.RLIMIT_NPROC, (4000, 4000))


def server_limits():
    fewer_processes()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def served(runs):
    """All that the page asks for, by address; the answers' JSON, or the status where there is none.

    And what the server logged.
    """
    command = [sys.executable, "-m", "palestra", "view", str(runs), "--port", "0", "--no-open"]
    server = subprocess.Popen(
        command,
        env=environment(),
        cwd=runs.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=server_limits,
    )
    answers = {}
    try:
        said = server.stdout.readline().decode()
        assert "http://" in said, server.stderr.read().decode()[-3000:]
        base = re.search(r"http://\S+/", said)[0]

        def ask(place):
            with urllib.request.urlopen(
                f"{base}api/{quote(place, safe='/?=')}", timeout=60
            ) as answer:
                answers[place] = json.loads(answer.read())
            return answers[place]

        for run in ask("runs.json")["runs"]:
            place = f"runs/{run['id']}"
            ask(f"{place}/run.json")
            ask(f"{place}/search.json?q={SECRET}")
            columns = ask_until_complete(ask, f"{place}/episodes.json")
            rows = columns["rows"]
            places = list(zip(rows["file"], rows["line"], strict=True))
            for file, line in dict.fromkeys([*places[:3], *places[-2:]]):
                ask(f"{place}/episodes/{columns['files'][file]}/{line}.json")
                ask(f"{place}/scenes/{columns['files'][file]}/{line}.json")
        ask("runs.json")  # it is still there
        assert server.poll() is None
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())
        return answers, int(peak[1])
    finally:
        server.send_signal(signal.SIGINT)
        try:
            _, err = server.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            _, err = server.communicate()
        assert b"Traceback" not in err, err[-3000:]


def ask_until_complete(ask, place):
    for _ in range(2000):
        columns = ask(place)
        if columns["is_complete"]:
            return columns
    raise AssertionError(f"{place} is never complete")


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """By group, made when it is first asked for: each way of looking at the group's runs, side by
    side.
    """
    known = {}

    def look(group):
        if group not in known:
            try:
                known[group] = looked_at_by(group, tmp_path_factory.mktemp(group))
            except (
                Exception,
                pytest.fail.Exception,
            ) as error:  # and not once more for each of its tests
                known[group] = f"{type(error).__name__}: {error}"
        assert not isinstance(known[group], str), known[group]
        return known[group]

    yield look
    for found in known.values():
        if not isinstance(found, str):
            shutil.rmtree(found.runs)  # some of it is large


def looked_at_by(group, top):
    runs = top / f"runs-{group}"
    make_group(runs, group)
    bundle, report = (
        ["view", runs, "--bundle", top / "site"],
        ["report", runs, "--out", top / "report"],
    )
    alone = [["report", runs / name, "--json"] for name in SPOILED[group]]
    with ThreadPoolExecutor(2) as threads:
        commands = threads.submit(limited, bundle, report, *alone, cwd=top)
        server = threads.submit(served, runs)
        done, (answers, peak) = commands.result(), server.result()
    return SimpleNamespace(top=top, runs=runs, done=done, answers=answers, server_kb=peak)


def by_name(answers, name, place="run.json"):
    (id,) = [run["id"] for run in answers["runs.json"]["runs"] if run["name"] == name]
    return answers[f"runs/{id}/{place}"]


@pytest.mark.parametrize(("group", "name"), CASES)
def test_a_spoiled_run_is_shown_with_its_damage(looked_at, group, name):
    found = looked_at(group)
    file, _, why = SPOILED[group][name]
    site = found.top / "site" / "api"
    bundled = {
        str(path.relative_to(site)): json.loads(path.read_bytes())
        for path in site.glob("runs/*/run.json")
    }
    bundled["runs.json"] = json.loads((site / "runs.json").read_bytes())
    for answers in (found.answers, bundled):
        run = by_name(answers, name)
        said = [
            damage["why"]
            for damage in run["damaged"]
            if damage["file"] in (file, file.split("/")[0])
        ]
        if why is None:
            continue
        assert any(why in one for one in said), (said, run["damaged"])
        if file == "config.toml" and name in IRREGULAR:
            assert run["config"] == ""
    assert found.done.codes[2 + list(SPOILED[group]).index(name)] in (0, 2)


LAST_EPISODES = {
    "sparse": "a line has more than 32 MB",
    "lines": "more than 1,000 lines are no JSON objects",
    "objects": "more than 1,000 lines are no JSON objects",
    "full": "expected at most 1,000,000 lists and objects",
    "unclosed": "Expected `object`, got `array`",
    "long": "a line has more than 32 MB",
    **{kind: why for kind, (_, why) in IRREGULAR.items()},
}


@pytest.mark.parametrize("name", LAST_EPISODES)
def test_episodes_that_are_not_read_say_why(looked_at, name):
    """In the last row of the file, step-000001, which an evaluation's follows."""
    answers = looked_at("episodes").answers
    columns = by_name(answers, name, "episodes.json")
    rows = columns["rows"]
    assert rows["id"][-1] == "c"
    assert (rows["damaged"][-2], columns["files"][rows["file"][-2]]) == (
        int(name != "full"),
        "step-000001",
    )  # seen in its own page alone
    assert len(rows["id"]) <= 1002
    said = by_name(answers, name, f"episodes/step-000001/{rows['line'][-2]}.json")
    assert LAST_EPISODES[name] in said["damaged"]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[pytest.mark.short] if group == "config" else [])
        for group in SPOILED
    ],
)
def test_nothing_else_suffers(looked_at, group):
    found = looked_at(group)
    assert found.done.codes[:2] == [0, 0], found.done.err[-3000:]
    assert "Traceback" not in found.done.err
    assert not found.done.torch
    assert found.server_kb * 1000 < MEMORY
    assert found.done.peak_kb * 1000 < MEMORY
    # the sound run is whole, wherever it is looked at
    run = by_name(found.answers, "zz-sound")
    assert (len(run["rows"]), len(run["evals"]), run["damaged"], run["has_token_stats"]) == (
        3,
        1,
        [],
        True,
    )
    assert by_name(found.answers, "zz-sound", "episodes.json")["rows"]["id"] == ["a", "b", "c"]
    site = found.top / "site" / "api"
    listed = json.loads((site / "runs.json").read_bytes())["runs"]
    assert [one["name"] for one in listed] == sorted([*SPOILED[group], "zz-sound"])
    assert "zz-sound" in (found.top / "report" / "report.md").read_text()
    # one line for each run that the report left out
    left_out = [
        name for name, (file, _, why) in SPOILED[group].items() if file == "config.toml" and why
    ]
    told = found.done.err.splitlines()
    for name in left_out:
        assert (
            sum(
                f"{found.runs / name}: config.toml: " in line and "left out" in line
                for line in told
            )
            == 1
        )
    # nothing of another file anywhere
    texts = [
        path.read_bytes()
        for folder in ("site", "report")
        for path in (found.top / folder).rglob("*")
        if path.is_file()
    ]
    texts += [
        json.dumps(answer).encode()
        for place, answer in found.answers.items()
        if "search" not in place
    ]
    assert not any(
        SECRET.encode() in text
        for text in [*texts, found.done.out.encode(), found.done.err.encode()]
    )
    assert all(answer["rows"] == [] for place, answer in found.answers.items() if "search" in place)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", found.done.out + found.done.err)


def test_a_run_in_a_folder_is_not_found_through_a_link(tmp_path):
    runs = tmp_path / "runs"
    sound(runs / "own")
    sound(tmp_path / "elsewhere")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "named").symlink_to(tmp_path / "elsewhere")
    out = limited(
        ["view", runs, "--bundle", tmp_path / "site"], ["view", tmp_path / "named", "--bundle",
        tmp_path / "other"],
        ["report", runs, "--out", tmp_path / "report"], ["report", tmp_path / "named", "--out",
        tmp_path / "report"], cwd=tmp_path,
    )  # fmt: skip
    assert out.codes == [0, 0, 0, 0]
    assert [line for line in out.err.splitlines() if "not followed" in line] == out.err.splitlines()
    assert len(out.err.splitlines()) == 2
    for site, names in (("site", ["own"]), ("other", ["named"])):
        listed = json.loads((tmp_path / site / "api" / "runs.json").read_bytes())["runs"]
        assert [run["name"] for run in listed] == names


@pytest.mark.parametrize(
    "spoiled",
    [
        "report",
        "report/report.html",
        "report/.report.html.draft",
        "report/report.md",
        "report/loss.png",
    ],
)
def test_a_report_is_not_written_through_a_link(tmp_path, spoiled):
    run = sound(tmp_path / "run")
    victim = tmp_path / "victim"
    if spoiled == "report":
        victim.mkdir()
    else:
        victim.write_text("precious")
        (run / "report").mkdir()
    (run / spoiled).symlink_to(victim)
    out = limited(["report", run], cwd=tmp_path)
    if spoiled == "report":
        assert out.codes == [2]
        assert len(out.err.splitlines()) == 1
        assert list(victim.iterdir()) == []
    else:
        assert out.codes == [0]
        assert victim.read_text() == "precious"
        assert "<!doctype html>" in (run / "report" / "report.html").read_text()


def test_a_bundle_is_not_written_through_a_link(tmp_path):
    run, site, victim = sound(tmp_path / "run"), tmp_path / "site", tmp_path / "victim"
    victim.mkdir()
    site.mkdir()
    (site / "palestra-bundle.json").write_text("{}")
    (site / "api").symlink_to(victim)
    out = limited(["view", run, "--bundle", site], cwd=tmp_path)
    assert (out.codes, list(victim.iterdir()), len(out.err.splitlines())) == ([2], [], 1)


@pytest.mark.parametrize("name", ["\x1b[31mred\x07", "two\nlines", "\u202eltr", "\udcff bytes"])
def test_names_do_not_command_the_terminal(tmp_path, name):
    runs = tmp_path / "runs"
    sound(runs / name)
    spoil(runs / f"{name} broken", "config.toml", IRREGULAR["pipe"][0])
    out = limited(
        ["view", runs, "--bundle", tmp_path / "site"], ["report", runs], ["report", runs, "--out",
        tmp_path / "r"],
        ["report", runs / f"{name} broken"], ["view", runs / name / "nowhere"], cwd=tmp_path,
    )  # fmt: skip
    assert out.codes == [0, 0, 0, 2, 2]
    for text in (out.out, out.err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    errors = out.err.splitlines()
    assert all(line.startswith(TOLD) for line in errors)
    assert len(errors) == 4


@pytest.mark.parametrize("kind", IRREGULAR)
def test_a_bad_run_alone_ends_in_one_line(tmp_path, kind):
    run = tmp_path / "run"
    spoil(run, "config.toml", IRREGULAR[kind][0])
    out = limited(["report", run], ["view", run, "--bundle", tmp_path / "site"], cwd=tmp_path)
    assert out.codes == [2, 0]
    assert len(out.err.splitlines()) == 1
    assert IRREGULAR[kind][1] in out.err


PATTERN = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
TOKENIZERS = {
    "endless": {"decoder": PATTERN},
    "growing": {"decoder": {"type": "Sequence", "decoders": [GROWING] * 4}},
    "full": {
        "model": {
            "type": "WordLevel",
            "unk_token": "<unk>",
            "vocab": {f"{n}": n for n in range(1_100_000)},
        }
    },
    "no decoder": {"decoder": [1]},
    "no model": {"model": {"type": "Unheard"}},
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_costs_the_texts_of_tokens_and_nothing_else(tmp_path, name):
    from palestra.models.tokenizers import word_tokenizer

    run = sound(tmp_path / "run")
    place = run / "checkpoints" / "step-000002"
    word_tokenizer(["red", "green", "a" * 60 + "b"]).save_pretrained(place)
    tokenizer = json.loads((place / "tokenizer.json").read_text())
    done = limited(["view", run, "--bundle", tmp_path / "sound"], cwd=tmp_path)
    (place / "tokenizer.json").write_text(json.dumps(tokenizer | TOKENIZERS[name]))
    done = limited(["view", run, "--bundle", tmp_path / "spoiled"], cwd=tmp_path)
    assert (done.codes, done.err) == ([0], "")
    one = "api/runs/0/episodes/step-000001/0.json"
    sound_tokens, spoiled_tokens = (
        json.loads((tmp_path / site / one).read_bytes())["tokens"] for site in ("sound", "spoiled")
    )
    assert sound_tokens[0][0] == "a" * 60 + "b"
    assert spoiled_tokens is None


def test_the_sound_run_is_sound(tmp_path):
    """What the other tests change one file of is shown and reported on whole, and its objective is
    told.
    """
    run = sound(tmp_path / "run")
    out = limited(
        ["report", run, "--json"], ["view", run, "--bundle", tmp_path / "site"], cwd=tmp_path
    )
    assert (out.codes, out.err) == ([0, 0], "")
    (told,) = json.loads(out.out.split("\n}\n")[0] + "\n}")["groups"][0]["runs"]
    assert (told["done"], told["is_over"], told["notes"], len(told["evals"])) == (2, True, [], 1)
    assert (run / "config.toml").read_text() == CONFIG
