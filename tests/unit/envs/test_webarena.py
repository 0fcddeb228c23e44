"""WebArena's tasks and evaluations, without the sites that they are played on."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import pytest

from palestra.envs.web import webarena
from palestra.envs.web.webarena import Shop, WebArena, WebArenaEnding, post_url, read_call
from palestra.envs.web.webarena_judge import ModelJudge, WordsJudge
from palestra.envs.web.webarena_matching import answer_fits, page_fits, solved
from palestra.envs.web.webarena_tasks import package_folder, webarena_tasks

URLS = {site: f"http://10.0.0.1:{7000 + n}" for n, site in enumerate(webarena.SITES)}

BUY = {
    "sites": ["shopping"],
    "task_id": 7,
    "require_login": True,
    "storage_state": "./.auth/shopping_state.json",
    "start_url": "__SHOPPING__/a.html |AND| __SHOPPING__/b.html",
    "geolocation": None,
    "intent_template": "Buy {{what}}",
    "instantiation_dict": {"what": "a mug"},
    "intent": "Buy a mug",
    "require_reset": False,
    "eval": {
        "eval_types": ["program_html", "url_match"],
        "reference_answers": None,
        "reference_url": "__SHOPPING__/checkout",
        "program_html": [
            {
                "url": "func:shopping_get_latest_order_url()",
                "locator": "document.querySelector('.items').outerText",
                "required_contents": {"must_include": ["mug"]},
            }
        ],
        "url_note": "GOLD in PRED",
    },
    "intent_template_id": 3,
}
ASK = {
    **BUY,
    "sites": ["reddit", "gitlab"],
    "task_id": 8,
    "start_url": "__REDDIT__",
    "intent_template_id": 4,
    "storage_state": None,
    "eval": {
        "eval_types": ["string_match"],
        "reference_answers": {"fuzzy_match": ["two", "mugs"]},
        "reference_url": "",
        "program_html": [],
    },
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A list of two tasks, where the package has its own."""
    (tmp_path / "webarena").mkdir()
    (tmp_path / "webarena" / "__init__.py").write_text(
        "raise RuntimeError('it is not to be imported')"
    )
    (tmp_path / "webarena" / "test.raw.json").write_text(json.dumps([BUY, ASK]))
    monkeypatch.syspath_prepend(tmp_path)
    webarena_tasks.cache_clear()
    yield tmp_path
    webarena_tasks.cache_clear()


def test_tasks_on_the_sites_that_there_are(package):
    assert [task.id for task in WebArena(urls=URLS).tasks("test")] == ["7", "8"]
    assert [
        task.id for task in WebArena(urls={"shopping": "http://10.0.0.1:7770"}).tasks("test")
    ] == ["7"]
    assert [
        task.category for task in WebArena(urls=URLS, sites=["reddit", "gitlab"]).tasks("test")
    ] == ["4"]


def test_where_an_episode_begins(package, tmp_path):
    (tmp_path / "shopping_state.json").write_text("{}")
    env = WebArena(urls=URLS, auth=str(tmp_path))
    begin = env._hosting.begin(webarena_tasks()["7"])
    assert begin.url == "http://10.0.0.1:7000/a.html |AND| http://10.0.0.1:7000/b.html"
    assert begin.storage_state == str(tmp_path / "shopping_state.json")
    assert "10.0.0.1:7003" in begin.sites
    assert env._hosting.begin(webarena_tasks()["8"]).storage_state == ""
    (tmp_path / "shopping_state.json").unlink()
    with pytest.raises(ValueError, match=r"no shopping_state\.json"):
        env._hosting.begin(webarena_tasks()["7"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"urls": {"shoping": "http://x"}}, "shopping"),
        ({"urls": {"shopping": "10.0.0.1"}}, "urls.shopping = '10.0.0.1'"),
        ({"urls": URLS, "reset_url": "reset.sh"}, "reset_url = 'reset.sh'"),
        ({"urls": URLS, "auth": "no/such"}, "auth = 'no/such'"),
        (
            {"urls": URLS, "reset": "page", "reset_url": "http://h/reset"},
            "reset = 'page': did you mean 'pages'",
        ),
        ({"urls": URLS, "reset": "pages"}, "reset_url must say who resets the sites"),
        ({"urls": URLS, "judge_url": "gpt"}, "judge_url = 'gpt'"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        WebArena(**options)


@contextmanager
def answering(answers, status=200):
    """A server that notes what it is asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            asked.append((self.path.split("?")[0], self.headers.get("Authorization"), body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answers[self.path.split("?")[0]]).encode())

        do_GET = do_POST

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("reset", "resets"),
    [
        ("all", [{"task": 8, "sites": ["reddit", "gitlab"]}, {"task": 7, "sites": ["shopping"]}]),
        ("pages", [{"task": 7, "sites": ["shopping"]}]),
        ("none", []),
    ],
)
def test_sites_are_reset_before_tasks(package, reset, resets):
    with answering({"/reset": "done"}) as (address, asked):
        hosting = WebArena(urls=URLS, reset_url=f"{address}/reset", reset=reset)._hosting
        hosting.begin(webarena_tasks()["8"])  # asks for an answer
        hosting.begin(webarena_tasks()["7"])  # is checked on a page
    assert [json.loads(body) for _, _, body in asked] == resets


def test_all_tasks_are_reset_by_default(package):
    with answering({"/reset": "done"}) as (address, asked):
        hosting = WebArena(urls=URLS, reset_url=f"{address}/reset")._hosting
        hosting.begin(webarena_tasks()["8"])
        assert [path for path, _, _ in asked] == ["/reset"]


def test_a_reset_that_fails_is_a_fault(package):
    with answering({"/reset": "no disk left"}, status=500) as (address, _):
        hosting = WebArena(urls=URLS, reset_url=f"{address}/reset")._hosting
        with pytest.raises(
            RuntimeError, match=r"reset_url: http.*/reset answered 500 .*; the sites are not reset"
        ):
            hosting.begin(webarena_tasks()["7"])
    with pytest.raises(
        RuntimeError, match="did not answer .*; the sites are not reset"
    ):  # nobody is there any more
        hosting.begin(webarena_tasks()["7"])


def test_sites_that_nobody_resets_are_told_once(package, caplog):
    webarena._tell_once_that_nobody_resets.cache_clear()
    for options in ({"reset": "none"}, {}, {}):
        WebArena(urls=URLS, **options)._hosting.begin(webarena_tasks()["7"])
    told = [record.message for record in caplog.records if record.name == webarena.__name__]
    assert len(told) == 1
    assert "reset_url is not set" in told[0]


def test_what_the_shop_knows():
    answers = {
        "/rest/default/V1/integration/admin/token": "secret",
        "/rest/V1/orders": {"items": [{"increment_id": "000000189"}]},
        "/rest/V1/products/B1/reviews": [{"nickname": "Ann", "ratings": [{"percent": 80}]}],
    }
    with answering(answers) as (address, asked):
        shop = Shop(address, "admin:pass")
        assert shop.latest_order_url() == f"{address}/sales/order/view/order_id/189/"
        assert shop.latest_review("B1")["nickname"] == "Ann"
    assert json.loads(asked[0][2]) == {"username": "admin", "password": "pass"}
    assert asked[1][1] == "Bearer secret"


class Pages:
    """In the place of a browser: the text of each page."""

    def __init__(self, texts):
        self.texts, self.session = texts, self

    def run(self, work):
        """What `element_text` was called with."""
        arguments = work.cr_frame.f_locals
        work.close()
        return self.texts[arguments["url"], arguments["locator"]]


def test_evaluations_that_call_functions(package, monkeypatch):
    env = WebArena(urls=URLS)
    order = "http://10.0.0.1:7000/sales/order/view/order_id/189/"
    monkeypatch.setattr(Shop, "latest_order_url", lambda shop: order)
    pages = Pages({(order, "document.querySelector('.items').outerText"): "1 Red Mug"})
    task = webarena_tasks()["7"]
    placed = env._hosting.placed(task.eval)

    def is_solved(url):
        return solved(
            placed, WebArenaEnding("", url, pages, Shop("", "")), WordsJudge(), task.intent
        )

    assert is_solved("http://10.0.0.1:7000/checkout/success/")
    assert not is_solved("http://10.0.0.1:7000/cart/")


def test_sites_are_named_in_what_a_page_must_show_too(package):
    (package / "webarena" / "test.raw.json").write_text(
        json.dumps([BUY]).replace('["mug"]', '["__GITLAB__/mug"]')
    )
    env = WebArena(urls=URLS)
    (check,) = env._hosting.placed(webarena_tasks()["7"].eval).program_html
    assert check.required_contents == {"must_include": [f"{URLS['gitlab']}/mug"]}


def test_calls_are_read_and_never_run():
    assert read_call("func:reddit_get_post_url('__last_url__')") == (
        "reddit_get_post_url",
        ["__last_url__"],
    )
    assert read_call('func:gitlab_get_project_memeber_role(__page__, "ann")') == (
        "gitlab_get_project_memeber_role",
        ["None", "ann"],
    )
    for text in ("func:f(__import__('os'))", "func:f", "f('x')"):
        with pytest.raises(ValueError):
            read_call(text)


def test_a_comment_belongs_to_its_post():
    assert post_url("http://h/f/books/12/a-title/-/comment/3") == "http://h/f/books/12/"
    assert post_url("http://h/user/ann") == "http://h/user/ann"


FUNCTIONS = """
import not_there

def llm_fuzzy_match(pred, reference, question):
    said = generate_from_openai_chat_completion(
        model="their-model", messages=[{"role": "user", "content": f"{pred} {reference} \
{question}"}], temperature=0, context_length=0
    )
    assert "correct" in said
    return 0.0 if "incorrect" in said else 1.0

def llm_ua_match(pred: str, reference: str, question: str) -> float:
    return 1.0
"""
"""As the package has them, in other words."""


def test_a_language_model_judges_with_the_packages_own_questions(package, monkeypatch):
    (package / "webarena" / "evaluation_harness").mkdir()
    (package / "webarena" / "evaluation_harness" / "helper_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    said = {"choices": [{"message": {"content": "correct"}}]}
    with answering({"/v1/chat/completions": said}) as (address, asked):
        judge = ModelJudge(f"{address}/v1", "our-model")
        assert judge.means("two", "2", "How many?")
        said["choices"][0]["message"]["content"] = "This is incorrect"
        assert not judge.means("three", "2", "How many?")
        assert judge.explains("nobody sells it", "not for sale", "Buy it")
        said["choices"][0]["message"]["content"] = "Who knows"
        with pytest.raises(RuntimeError, match="our-model gave no verdict"):
            judge.means("two", "2", "How many?")
        said.clear()
        with pytest.raises(RuntimeError, match="judge_url: .* did not judge"):
            judge.means("two", "2", "How many?")
    path, authorization, body = asked[0]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer secret")
    assert json.loads(body) == {
        "model": "our-model",
        "messages": [{"role": "user", "content": "two 2 How many?"}],
        "temperature": 0,
    }
    (package / "webarena" / "evaluation_harness" / "helper_functions.py").write_text("")
    with pytest.raises(RuntimeError, match="this libwebarena has no llm_fuzzy_match"):
        judge.means("two", "2", "How many?")


@pytest.mark.skipif(find_spec("webarena") is None, reason="needs libwebarena")
def test_all_of_its_tasks_can_be_evaluated():
    webarena_tasks.cache_clear()
    tasks = webarena_tasks()
    assert len(tasks) == 812
    calls = set()
    for task in tasks.values():
        assert {*task.eval.eval_types} <= {"string_match", "url_match", "program_html"}
        assert {*task.sites} <= {*webarena.SITES}
        for check in task.eval.program_html:
            calls |= {
                read_call(text)[0]
                for text in (check.url, check.locator)
                if text.startswith("func:")
            }
            page_fits(check.required_contents, "")
        if task.eval.reference_answers:
            answer_fits(task.eval.reference_answers, "", WordsJudge(), intent="", reason="")
    # Nobody says which tasks need a reset; what is done before a page is looked at is known of
    # five.
    assert not any(task.require_reset for task in tasks.values())
    assert sum(task.eval.reads_pages for task in tasks.values()) == 411
    prepared = {
        id for id, task in tasks.items() for check in task.eval.program_html if check.prep_actions
    }
    assert prepared == {"699", "700", "701", "702", "703"}
    assert (package_folder() / "evaluation_harness" / "helper_functions.py").is_file()
    assert calls == {
        *(
            "reddit_get_post_url",
            "gitlab_get_project_memeber_role",
            "shopping_get_latest_order_url",
        ),
        *("shopping_get_sku_latest_review_rating", "shopping_get_sku_latest_review_author"),
    }
    env = WebArena(urls=URLS)
    train, held_out = env.tasks("train"), env.tasks("held-out")
    assert len(train) + len(held_out) == len(env.tasks("test")) == 812
    assert not {task.category for task in train} & {task.category for task in held_out}
