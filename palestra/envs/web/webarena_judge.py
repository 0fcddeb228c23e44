"""Who decides whether an answer of WebArena's means the same as its reference: a language model, or
a rule.
"""

from __future__ import annotations

import ast
import json
import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from palestra.envs.web.webarena_matching import Judge, includes
from palestra.envs.web.webarena_tasks import package_folder

log = logging.getLogger(__name__)

JUDGE_S = 120.0
KEY = "OPENAI_API_KEY"
MEANS, EXPLAINS = "llm_fuzzy_match", "llm_ua_match"
"""The package's functions that put its questions and read the verdict."""


class _NoRedirects(HTTPRedirectHandler):
    """A redirect stays the answer: following it would take the key along to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


class WordsJudge:
    """Without a language model: an answer must contain the reference, and an impossible task must
    be answered with "N/A" alone.
    """

    def means(self, answer: str, reference: str, intent: str) -> bool:
        _tell_once()
        return includes(reference, answer)

    def explains(self, answer: str, reason: str, intent: str) -> bool:
        _tell_once()
        return False


@cache
def _tell_once() -> None:
    log.warning(
        "webarena: judge_url is not set, so that answers WebArena has a language model "
        "judge are compared by their words"
    )


class ModelJudge:
    """A language model behind an OpenAI-compatible API, with the package's own questions."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url.rstrip("/"), model

    def means(self, answer: str, reference: str, intent: str) -> bool:
        return self._verdict(MEANS, answer, reference, intent)

    def explains(self, answer: str, reason: str, intent: str) -> bool:
        return self._verdict(EXPLAINS, answer, reason, intent)

    def _verdict(self, function: str, answer: str, reference: str, intent: str) -> bool:
        try:
            return bool(_package_functions(self.ask)[function](answer, reference, intent))
        except AssertionError:
            raise RuntimeError(
                f"judge_url: {self.model} gave no verdict that WebArena's {function} can read"
            ) from None

    def ask(
        self, *, messages: list[dict[str, str]], model: str, context_length: int, **options: Any
    ) -> str:
        """Called by the package's functions, with the name of the model that they know."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        asked = json.dumps({"model": self.model, "messages": messages, **options}).encode()
        try:
            with _opener.open(
                Request(f"{self.url}/chat/completions", asked, headers),  # noqa: S310
                timeout=JUDGE_S,
            ) as said:
                return str(json.loads(said.read())["choices"][0]["message"]["content"])
        except HTTPError as error:
            raise RuntimeError(
                f"judge_url: {self.url} answered {error.code} {error.reason}"
            ) from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RuntimeError(f"judge_url: {self.url} did not judge: {error}") from None


def _package_functions(ask: Callable[..., str]) -> dict[str, Any]:
    """Two functions of the package, run without importing it, which would ask for keys and
    addresses.
    """
    source = (package_folder() / "evaluation_harness" / "helper_functions.py").read_text()
    found: list[ast.stmt] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in (MEANS, EXPLAINS)
    ]
    names: dict[str, Any] = {"Any": Any, "generate_from_openai_chat_completion": ask}
    exec(compile(ast.Module(found, []), "libwebarena", "exec"), names)  # noqa: S102
    if missing := {MEANS, EXPLAINS} - {*names}:
        raise RuntimeError(
            f"this libwebarena has no {', '.join(sorted(missing))}; pip install --no-deps "
            "libwebarena==0.0.4"
        )
    return names


def judge_at(url: str, model: str) -> Judge:
    return ModelJudge(url, model) if url else WordsJudge()
