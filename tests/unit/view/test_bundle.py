"""A bundle holds what the server would have answered."""

import functools
import http.server
import json
import threading
import urllib.request
from contextlib import closing

from palestra.cli.main import main
from palestra.view.answers import Answers
from palestra.view.bundle import write_bundle
from palestra.view.server import PAGE
from tests.support.viewed import HOSTILE, episode, trained_copy, viewing, write_lines
from tests.unit.view.test_server import answer, complete, make_run, refused


def bundled(out, *arguments):
    """By the command."""
    main(["view", *map(str, arguments), "--bundle", str(out)])
    return files_in(out)


def make_quick_run(folder):
    """One whose objective need not be found out."""
    make_run(folder)
    (folder / "config.toml").write_text("= no TOML")
    return folder


def files_in(out):
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }


def test_it_is_what_the_server_serves(tmp_path, capsys):
    run = trained_copy(tmp_path / "echo")
    write_lines(
        run.folder, "step-000009", episode(HOSTILE, says=HOSTILE), b"nonsense\n", episode("b")
    )
    files = bundled(tmp_path / "out", run.folder)
    assert "look at it by: python -m http.server" in capsys.readouterr().out
    asked = {name for name in files if name.startswith("api/")}
    with viewing(run.folder) as viewer:
        columns = complete(viewer)
        for name in asked - {"api/runs.json", "api/runs/0/objective.json"}:
            assert json.loads(files[name]) == answer(viewer, f"/{name}"), name
        live = answer(viewer, "/api/runs.json")
    assert json.loads(files["api/runs.json"]) == live | {"live": False}
    main(["explain", str(run.folder / "config.toml")])
    assert (
        json.loads(files["api/runs/0/objective.json"])["lines"]
        == capsys.readouterr().out.splitlines()
    )
    rows = zip(columns["rows"]["file"], columns["rows"]["line"], strict=True)
    one_each = {
        f"api/runs/0/{kind}/{columns['files'][file]}/{line}.json"
        for file, line in rows
        for kind in ("episodes", "scenes")
    }
    assert asked - one_each == {
        "api/runs.json",
        *(f"api/runs/0/{name}.json" for name in ("run", "objective", "episodes", "texts")),
    }
    assert one_each <= asked
    assert {path.name: path.read_bytes() for path in PAGE.iterdir()}.items() <= files.items()


def test_the_newest_episodes_of_a_large_run(tmp_path):
    folder = make_quick_run(tmp_path / "run")
    for name in ("step-000002", "eval-step-000002-interim"):
        write_lines(folder, name, *(episode(f"{name}/{n}") for n in range(3)))
    answers, out, written = Answers([folder], live=False), tmp_path / "out", []
    write_bundle(answers, out, episodes=4, on_run=lambda *told: written.append(told))
    files = files_in(out)
    columns = json.loads(files["api/runs/0/episodes.json"])
    assert columns["rows"]["id"] == [
        "c",
        *(f"{name}/{n}" for name in ("step-000002", "eval-step-000002-interim") for n in range(3)),
    ]
    assert columns["total"] == len(json.loads(files["api/runs/0/texts.json"])["texts"]) == 7
    assert sum(name.startswith("api/runs/0/episodes/") for name in files) == 7
    write_bundle(answers, out, episodes=2, on_run=lambda *told: written.append(told))
    smaller = files_in(out)
    assert json.loads(smaller["api/runs/0/episodes/step-000002/2.json"])["group"] == [
        ["step-000002", 1]
    ]
    assert sum(name.startswith("api/runs/0/episodes/") for name in smaller) == 4
    assert written == [(folder, 7), (folder, 4)]
    answers.close()


def test_any_web_server_can_host_it(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").touch()
    bundled(tmp_path / "out", tmp_path / "empty", make_quick_run(tmp_path / "run"), "--episodes", 2)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}/out"
        with (
            urllib.request.urlopen(f"{base}/") as page,
            urllib.request.urlopen(f"{base}/api/runs/1/episodes.json?from=0") as episodes,
        ):
            assert page.read() == (PAGE / "index.html").read_bytes()
            assert json.load(episodes)["rows"]["id"] == ["b", "c"]
        with urllib.request.urlopen(f"{base}/api/runs/0/episodes.json") as episodes:
            assert json.load(episodes)["total"] == 0
        server.shutdown()


def test_only_bundles_are_written_over_and_only_what_is_theirs(tmp_path, capsys):
    folder, out = make_quick_run(tmp_path / "run"), tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("keep me")
    assert "expected a new or empty folder, or an older bundle" in refused(
        capsys, folder, "--bundle", out
    )
    assert "expected a new or empty folder" in refused(
        capsys, folder, "--bundle", out / "precious.txt"
    )
    assert [path.name for path in out.iterdir()] == ["precious.txt"]
    assert "expected a positive number" in refused(capsys, folder, "--bundle", out, "--episodes", 0)
    (out / "precious.txt").unlink()
    with closing(Answers([folder], live=False)) as answers:
        write_bundle(answers, out, episodes=None, on_run=lambda *_: None)
    assert "api/runs/0/episodes/step-000001/2.json" in files_in(out)
    (out / "CNAME").write_text("example.org")
    write_lines(folder, "step-000001", episode("z"))
    files = bundled(out, folder)
    assert "api/runs/0/episodes/step-000001/0.json" in files
    assert "api/runs/0/episodes/step-000001/2.json" not in files
    assert files["CNAME"] == b"example.org"
