"""The viewer's server: its answers, its events, and whom it turns away."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from palestra.cli.main import main
from palestra.core.types import Stop
from palestra.runs.trajectories import read_trajectories
from palestra.view import index as indexing
from palestra.view import server as serving
from tests.support.training import trained
from tests.support.viewed import (
    DAMAGED,
    HOSTILE,
    episode,
    trained_copy,
    viewing,
    write_learned,
    write_lines,
)


@pytest.fixture(autouse=True)
def _quick_to_notice(monkeypatch):
    monkeypatch.setattr(indexing, "POLL_S", 0.05)
    monkeypatch.setattr(serving, "POLL_S", 0.05)


def answer(viewer, path, **headers):
    status, content = viewer.ask("GET", path, **headers)
    assert status == 200, content
    return content


def complete(viewer, run=0):
    """All episodes, once they are read."""
    until = time.monotonic() + 20
    while not (columns := answer(viewer, f"/api/runs/{run}/episodes.json"))["is_complete"]:
        assert time.monotonic() < until
    return columns


def make_run(folder, *, seed=0):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'seed = {seed}\nsteps = 9\n[env]\nname = "guess"\n[algo]\nname = "grpo"\n'
    )
    write_lines(folder, "step-000001", episode("a"), episode("b"), episode("c", task="8"))
    return folder


def test_a_real_run_through_all_its_answers(tmp_path):
    run = trained_copy(tmp_path / "echo")
    with viewing(run.folder) as viewer:
        runs = answer(viewer, "/api/runs.json")
        assert (runs["live"], runs["can_play"], len(runs["runs"]), runs["runs"][0]["id"]) == (
            True,
            False,
            1,
            "0",
        )
        about = answer(viewer, "/api/runs/0/run.json")
        assert (about["id"], about["rows"]) == ("0", run.metrics())
        columns = complete(viewer)
        for row in (0, 40, columns["total"] - 1):
            file, line = (
                columns["files"][columns["rows"]["file"][row]],
                columns["rows"]["line"][row],
            )
            stored = run.trajectory_file(file).read_bytes().splitlines()[line]
            shown = answer(viewer, f"/api/runs/0/episodes/{file}/{line}.json")
            assert shown["trajectory"] == json.loads(stored)
            (ids,) = [segment["ids"] for segment in shown["trajectory"]["segments"]]
            assert [len(tokens) for tokens in shown["tokens"]] == [len(ids)]
            assert " ".join(shown["tokens"][0]).startswith(
                f"say {shown['trajectory']['task']['category']}"
            )
            others = [
                n
                for n, t in enumerate(read_trajectories(run.trajectory_file(file)))
                if t.task.id == columns["rows"]["task"][row]
            ]
            assert shown["group"] == [[file, n] for n in others if n != line]
            assert answer(viewer, f"/api/runs/0/scenes/{file}/{line}.json").keys() >= {"scenes"}
        found = answer(viewer, "/api/runs/0/search.json?q=SAY%20red")["rows"]
        assert found == [
            row
            for row, text in enumerate(answer(viewer, "/api/runs/0/texts.json")["texts"])
            if "say red" in text
        ]
        assert 0 < len(found) < columns["total"]


def test_the_objective_is_what_explain_prints(tmp_path, capsys):
    run_folder = trained_copy(tmp_path / "echo").folder
    broken = make_run(tmp_path / "broken")
    (broken / "config.toml").write_text("steps = -1\n")
    main(["explain", str(run_folder / "config.toml")])
    with viewing(run_folder, broken) as viewer:
        for run in "01":
            viewer.server.objective(run)  # takes its time; what is asked over HTTP has it then
        assert (
            answer(viewer, "/api/runs/0/objective.json")["lines"]
            == capsys.readouterr().out.splitlines()
        )
        failed = answer(viewer, "/api/runs/1/objective.json")
        assert failed["lines"] == []
        assert "steps = -1" in failed["why"]


def test_what_was_learned_stands_beside_the_episode(tmp_path):
    folder = make_run(tmp_path / "run")
    write_lines(
        folder, "step-000002", *(episode(id) for id in "abc"), episode("d", stop=Stop.TIMEOUT)
    )
    values = {"advantage": [0.5, -0.5], "logp": [-0.2, None], "entropy": [0.1, 0.2]}
    too_short = values | {"logp": [-0.2]}
    write_learned(
        folder,
        "step-000002",
        {"id": "a", **values},
        {"id": "b", **too_short},
        "nonsense",
        {"id": "d", **values},
    )
    with viewing(folder) as viewer:
        learned = [
            answer(viewer, f"/api/runs/0/episodes/step-000002/{line}.json")["token_stats"]
            for line in range(4)
        ]
        assert learned == [values, None, None, None]
        assert complete(viewer)["rows"]["advantage"][3:] == [0.0, 0.0, None, None]
        assert answer(viewer, "/api/runs/0/run.json")["has_token_stats"]


@pytest.mark.parametrize("line", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_line_says_what_is_wrong(tmp_path, line):
    folder = make_run(tmp_path / "run")
    write_lines(folder, "step-000002", line, episode("b"))
    with viewing(folder) as viewer:
        shown = answer(viewer, "/api/runs/0/episodes/step-000002/0.json")
        assert shown.keys() == {"damaged", "text"}
        assert shown["damaged"]
        assert shown["text"] == line.decode(errors="replace")[:2000]
        assert answer(viewer, "/api/runs/0/scenes/step-000002/0.json")["scenes"] is None
        assert complete(viewer)["rows"]["damaged"] == [0, 0, 0, 1, 0]


def test_tokens_that_are_no_tokens_are_damage_too(tmp_path):
    folder = make_run(tmp_path / "run")
    path = write_lines(folder, "step-000002", episode("a"))
    path.write_bytes(path.read_bytes().replace(b'"ids":[5,6,9,1]', b'"ids":"x"'))
    with viewing(folder) as viewer:
        assert "ids" in answer(viewer, "/api/runs/0/episodes/step-000002/0.json")["damaged"]


def test_hostile_text_comes_back_as_it_is_and_never_as_a_page(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "log.txt").write_text(HOSTILE)
    write_lines(folder, "step-000002", episode(HOSTILE, task=HOSTILE, says=HOSTILE))
    with viewing(folder) as viewer:
        assert (
            answer(viewer, "/api/runs/0/episodes/step-000002/0.json")["trajectory"]["id"] == HOSTILE
        )
        assert answer(viewer, "/api/runs/0/search.json?q=%3CSCRIPT%3E")["rows"] in ([], [3])
        complete(viewer)
        assert answer(viewer, "/api/runs/0/search.json?q=%3CSCRIPT%3E")["rows"] == [3]
        _, headers, _ = viewer.raw("GET", "/api/runs/0/run.json")
        assert headers["Content-Type"].startswith("application/json")
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/runs/1/run.json", 404),
        ("/api/runs/0/episodes/step-000009/0.json", 404),
        ("/api/runs/0/episodes/step-000001/3.json", 404),
        ("/api/runs/0/episodes/step-000001/x.json", 400),
        ("/api/runs/0/episodes/step-000001/-1.json", 400),
        ("/api/runs/0/episodes.json?from=x", 400),
        ("/api/runs/0/episodes.json?from=99999999999999999999", 400),
        ("/api/runs/0/episodes/..%2Fsecret/0.json", 404),
        ("/api/runs/0/episodes/..%2F..%2Fsecret/0.json", 404),
        ("/api/runs/0/scenes/..%2Fsecret/0.json", 404),
        ("/api/runs/0/episodes/%00/0.json", 404),
        ("/api/runs/0/episodes/*/0.json", 404),
        ("/api/runs/0/episodes/%FF%ED%A0%80/0.json", 404),
        ("/api/runs/%ED%A0%80/run.json", 404),
        ("/..%2f..%2fserver.py", 404),
        ("/../server.py", 404),
        ("/api/nothing.json", 404),
        ("/api/play/start", 404),
    ],
)
def test_only_what_is_known_is_served(tmp_path, path, status):
    folder = make_run(tmp_path / "run")
    for place in (folder, tmp_path):
        (place / "secret.jsonl").write_text('{"secret": 1}\n')
    with viewing(folder) as viewer:
        complete(viewer)
        got, headers, body = viewer.raw("GET", path)
        assert got == status
        assert set(json.loads(body)) == {"error"}
        assert b"secret" not in body.replace(b"secret, line 0", b"").replace(b"/secret", b"")
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_page_and_its_headers(tmp_path):
    with viewing(make_run(tmp_path / "run")) as viewer:
        for path in ("/", "/index.html"):
            status, headers, body = viewer.raw("GET", path)
            assert status == 200
            assert body == (serving.PAGE / "index.html").read_bytes()
            assert headers["Content-Type"].startswith("text/html")
            policy = headers["Content-Security-Policy"]
            assert policy.startswith(
                "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                "img-src 'self' data:; connect-src 'self'"
            )
            assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(tmp_path, method):
    with viewing(make_run(tmp_path / "run")) as viewer:
        for path in ("/", "/api/runs.json", "/api/runs/0/run.json", "/api/events"):
            assert viewer.ask(method, path, b"{}")[0] == 405


def test_names_of_other_servers_and_pages_from_elsewhere_are_turned_away(tmp_path):
    with viewing(make_run(tmp_path / "run"), hosts=("gpu.example",)) as viewer:
        own = f"127.0.0.1:{viewer.port}"
        for headers, status in [
            ({"Host": own}, 200),
            ({"Host": "localhost"}, 200),
            ({"Host": "gpu.example:8200"}, 200),
            ({"Host": "evil.example"}, 403),
            ({"Host": ""}, 403),
            ({"Host": own, "Origin": f"http://{own}"}, 200),
            ({"Host": own, "Origin": "http://evil.example"}, 403),
            ({"Host": own, "Origin": "null"}, 403),
        ]:
            for path in ("/", "/api/runs.json"):
                assert viewer.raw("GET", path, **headers)[0] == status, headers


def test_play_is_asked_with_a_header_that_no_form_can_send(tmp_path):
    async def start(request):
        return serving._error(200, "played")

    with viewing(
        make_run(tmp_path / "run"), play=lambda app: app.router.add_post("/api/play/start", start)
    ) as viewer:
        ours, as_json = {"X-Palestra": "1"}, {"Content-Type": "application/json"}
        for headers, status in [
            ({}, 403),
            (ours, 403),
            (as_json, 403),
            (ours | {"Content-Type": "text/plain"}, 403),
            (ours | as_json, 200),
        ]:
            assert viewer.raw("POST", "/api/play/start", b"{}", **headers)[0] == status
        assert viewer.raw("POST", "/api/runs.json", b"{}", **ours, **as_json)[0] == 405


def test_a_token_is_brought_once_and_kept_in_a_cookie(tmp_path):
    with viewing(make_run(tmp_path / "run"), tokens=("first", "sécond")) as viewer:
        for path in (
            "/",
            "/api/runs.json",
            "/api/events",
            "/?token=wrong",
            "/api/runs.json?token=",
        ):
            status, headers, body = viewer.raw("GET", path)
            assert (status, headers.get("Set-Cookie")) == (401, None)
            assert "token" in json.loads(body)["error"]
        status, headers, _ = viewer.raw("GET", "/?token=first")
        cookie = headers["Set-Cookie"]
        assert status == 200
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert viewer.raw("GET", "/api/runs.json", Cookie=cookie.split(";")[0])[0] == 200
        assert viewer.raw("GET", "/api/runs.json", Cookie=cookie.split(";")[0] + "x")[0] == 401
        assert viewer.raw("GET", "/api/runs.json", Authorization="Bearer first")[0] == 200
        assert viewer.raw("GET", "/api/runs.json?token=s%C3%A9cond")[0] == 200


class Events:
    """What a page hears."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.connection.request("GET", "/api/events")
        self.response = self.connection.getresponse()
        assert self.response.headers["Content-Type"] == "text/event-stream"

    def next(self):
        lines = []
        while (line := self.response.readline()) != b"\n":
            if not line:
                raise EOFError
            lines.append(line.decode().rstrip("\n"))
        if lines[0].startswith(":"):
            return lines[0]
        assert lines[0] == "event: change"
        return json.loads(lines[1].removeprefix("data: "))

    def until(self, **wanted):
        """The first that says so."""
        while True:
            event = self.next()
            if isinstance(event, dict) and wanted.items() <= event.items():
                return event


def test_a_page_hears_of_what_is_written(tmp_path):
    run = trained_copy(tmp_path / "run")
    run.rewind(1)
    (run.trajectory_file("eval-step-000003-final")).unlink()
    with viewing(run.folder) as viewer:
        before = complete(viewer)["total"]
        metrics = len(run.metrics())
        events = Events(viewer.port)
        events.until(run="0", rows=before, steps=metrics, is_over=False)
        run.keep("step-000002", [episode("x"), episode("y")])
        run.log(2, {"success": 0.5})
        heard = events.until(rows=before + 2, steps=metrics + 1)
        assert not heard["rewound"]
        assert answer(viewer, f"/api/runs/0/episodes.json?from={before}")["rows"]["id"] == [
            "x",
            "y",
        ]
        run.log(3, {"phase": "final"})
        events.until(is_over=True)
        run.rewind(1)
        events.until(rewound=True, steps=metrics)
        while complete(viewer)["total"] != before:
            events.next()
        assert answer(viewer, "/api/runs/0/episodes.json")["generation"] == 1
        assert not answer(viewer, "/api/runs.json")["runs"][0]["is_over"]


def test_a_page_hears_that_the_server_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "HEARTBEAT_S", 0.1)
    with viewing(make_run(tmp_path / "run")) as viewer:
        events = Events(viewer.port)
        while events.next() != ": still here":
            pass


def test_a_page_that_is_closed_leaves_nothing_in_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(serving, "HEARTBEAT_S", 0.02)
    with viewing(make_run(tmp_path / "run")) as viewer:
        events = Events(viewer.port)
        events.next()
        events.response.close()
        events.connection.close()
        time.sleep(0.5)
    assert not caplog.records


def test_names_that_are_no_text_hide_nothing(tmp_path):
    folder = make_run(tmp_path / os.fsdecode(b"r\xffn"))
    write_lines(folder, os.fsdecode(b"step-\xff"), episode("z"))
    (folder / "eval").mkdir()
    (folder / "eval" / os.fsdecode(b"\xff.json")).write_text("{}")
    with viewing(folder) as viewer:
        (run,) = answer(viewer, "/api/runs.json")["runs"]
        assert run["name"] == run["group"] == "r?n"
        damaged = answer(viewer, "/api/runs/0/run.json")["damaged"]
        assert "eval/?.json" in [damage["file"] for damage in damaged]
        assert complete(viewer)["rows"]["id"] == ["a", "b", "c"]


def test_training_is_followed_from_its_first_step_to_its_end(tmp_path):
    with viewing(tmp_path) as viewer:
        assert answer(viewer, "/api/runs.json")["runs"] == []
        events = Events(viewer.port)
        training = threading.Thread(target=trained, args=(tmp_path / "run",), kwargs={"steps": 4})
        training.start()
        events.until(run="0")
        complete(viewer)
        events.until(is_over=True)
        training.join(60)
        lines = {
            path.stem: path.read_bytes().count(b"\n")
            for path in (tmp_path / "run" / "trajectories").iterdir()
        }
        while (columns := complete(viewer))["total"] != sum(lines.values()):
            events.next()
        assert Counter(columns["files"][file] for file in columns["rows"]["file"]) == lines
        assert not any(columns["rows"]["damaged"])
        assert len(lines) == 6
        assert answer(viewer, "/api/runs/0/run.json")["damaged"] == []


def test_a_run_that_begins_while_its_folder_is_viewed_appears(tmp_path):
    make_run(tmp_path / "runs" / "b")
    with viewing(tmp_path / "runs") as viewer:
        events = Events(viewer.port)
        events.until(run="0")
        make_run(tmp_path / "runs" / "a", seed=1)
        events.until(run="1", rows=0, rewound=False)
        assert [(run["id"], run["name"]) for run in answer(viewer, "/api/runs.json")["runs"]] == [
            ("0", "b"),
            ("1", "a"),
        ]
        assert complete(viewer, 1)["total"] == 3


def test_a_run_that_is_deleted_takes_no_other_with_it(tmp_path):
    run, other = trained_copy(tmp_path / "one"), make_run(tmp_path / "two")
    with viewing(run.folder, other) as viewer:
        complete(viewer)
        for path in sorted(run.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        run.folder.rmdir()
        assert [one["name"] for one in answer(viewer, "/api/runs.json")["runs"]] == ["one", "two"]
        assert answer(viewer, "/api/runs/0/run.json")["damaged"][0]["file"] == "config.toml"
        assert complete(viewer, 1)["total"] == 3


# the command


@contextmanager
def command(*arguments, **environment):
    line = [
        sys.executable,
        "-c",
        "from palestra.cli.main import main; main()",
        "view",
        *map(str, arguments),
        "--no-open",
    ]
    child = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def test_the_command_serves_all_runs_of_a_folder_until_it_is_interrupted(tmp_path):
    for number in range(3):
        make_run(tmp_path / f"guess-{number}", seed=number)
    (tmp_path / "eval").mkdir()
    with command(tmp_path, tmp_path / "guess-1", "--port", 0) as child:
        line = child.stdout.readline()
        assert line.startswith("3 runs at http://127.0.0.1:")
        port = int(re.search(r":(\d+)/", line).group(1))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/runs.json")
        said = json.loads(connection.getresponse().read())
        runs = said["runs"]
        assert [(run["name"], run["group"], run["seed"]) for run in runs] == [
            (f"guess-{n}", "guess", n) for n in range(3)
        ]
        assert said["t_quantiles"] == pytest.approx([12.7062, 4.3027], abs=5e-5)
        events = Events(port)
        child.send_signal(signal.SIGINT)
        with pytest.raises(EOFError):
            events.until(run="no such run")
        assert child.wait(20) == 130
        assert child.stderr.read() == ""
        with command(
            tmp_path, "--host", "0.0.0.0", "--port", 0, PALESTRA_VIEW_TOKEN="secret"
        ) as other:
            assert other.stdout.readline().rstrip().endswith("/?token=$PALESTRA_VIEW_TOKEN")


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["view", *map(str, arguments), "--no-open"])
    assert exit_.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_bad_questions_are_answered_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PALESTRA_VIEW_TOKEN", raising=False)
    run = make_run(tmp_path / "runs" / "one")
    assert refused(capsys, tmp_path / "nothing").endswith("nothing: there is no such folder")
    assert "no config.toml" in refused(capsys, run / "trajectories")
    assert "no such folder" in refused(capsys, run / "config.toml")
    assert "needs a token, and the variable PALESTRA_VIEW_TOKEN has none" in refused(
        capsys, run, "--host", "0.0.0.0"
    )
    assert "the variable NOPE has none" in refused(capsys, run, "--token-env", "NOPE")
    assert "only with --bundle" in refused(capsys, run, "--episodes", 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: " in refused(capsys, run, "--port", port)
    assert "--host no-such-host.invalid" in refused(capsys, run, "--host", "no-such-host.invalid")
    assert "'--port': Input should be less than or equal to 65535" in refused(
        capsys, run, "--port", 99999
    )
