"""libwebarena's own evaluators, with nothing behind them that asks for keys, addresses or a
browser.
"""

import contextlib
import importlib
import sys
from types import ModuleType

import pytest

STAND_INS = {
    "browser_env": {},
    "browser_env.actions": {"Action": dict},
    "browser_env.utils": {"StateInfo": dict},
    "browser_env.env_config": dict.fromkeys(
        ("ACCOUNTS", "GITLAB", "MAP", "REDDIT", "SHOPPING", "SHOPPING_ADMIN", "WIKIPEDIA"), ""
    ),
    "llms": {},
    "llms.providers": {},
    "llms.providers.openai_utils": {},
}
"""Modules that the evaluators import, which need packages and addresses of their own."""


def load_evaluators(ask):
    """The package's module `evaluators`. Skips where it, NLTK or NLTK's English model is not
    installed.

    `ask`: called in place of the language model, with the package's messages.
    """
    for name in ("nltk", "beartype", "playwright", "requests"):
        pytest.importorskip(name)
    from nltk.tokenize import word_tokenize

    try:
        word_tokenize("one. two.")
    except LookupError:
        pytest.skip("needs NLTK's punkt_tab")
    with _only_here("webarena"):
        pytest.importorskip("webarena")
        for name, content in STAND_INS.items():
            module = sys.modules[f"webarena.{name}"] = ModuleType(f"webarena.{name}")
            module.__dict__.update(content, __path__=[])
        sys.modules[
            "webarena.llms.providers.openai_utils"
        ].generate_from_openai_chat_completion = ask
        evaluators = importlib.import_module("webarena.evaluation_harness.evaluators")
    evaluators.time = ModuleType("time")
    evaluators.time.sleep = lambda seconds: None  # it rests on each page that it opens
    return evaluators


@contextlib.contextmanager
def _only_here(package):
    """Nobody else is to find the package as it is made up here."""

    def taken():
        return {
            name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] == package
        }

    before = taken()
    try:
        yield
    finally:
        taken()
        sys.modules.update(before)


class Page:
    """In the place of Playwright's: `texts` has what pages give, by address and script."""

    def __init__(self, texts, at="last", done=None):
        self.texts, self.at, self.context = texts, at, self
        self.done = [] if done is None else done
        """Scripts that nothing is known about: actions that prepare a page."""

    def new_page(self):
        return Page(self.texts, done=self.done)

    def goto(self, url):
        self.at = url

    def content(self):
        return self.texts[self.at, ""]

    def evaluate(self, script):
        if "gl-avatar-labeled-sublabel" in script:
            return 0
        if "col-max-role" in script:
            script = "role"
        script = script.removeprefix("() => ")
        if (self.at, script) not in self.texts:
            self.done.append(script)
            raise LookupError(script)
        return self.texts[self.at, script]

    def close(self):
        pass


def original_verdict(evaluators, file, answer, url, page):
    """Of all the evaluators that the task in `file` asks for."""
    from playwright.sync_api import CDPSession

    comb = evaluators.evaluator_router(file)
    client = object.__new__(CDPSession)  # never asked
    return bool(comb([{}, {"answer": answer}], file, evaluators.PseudoPage(page, url), client))
