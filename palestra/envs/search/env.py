"""The environment `search`: answer a question by searching a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal, get_args

from palestra.core.registry import nearest
from palestra.core.types import Example, Step, Task
from palestra.envs import is_url
from palestra.envs.base import Environment
from palestra.envs.search.adapters import read_corpus, read_questions
from palestra.envs.search.answers import exact_match, f1
from palestra.envs.search.cache import cached_index, cached_index_of_file, cached_world
from palestra.envs.search.data import Lookup, Question, World
from palestra.envs.search.index import require_index
from palestra.envs.search.retrievers import RETRIEVERS, Hit, Remote, Retriever, open_retriever
from palestra.envs.search.text import escaped, information, pages, printable, read_command, snippet

Reward = Literal["em", "f1"]
Style = Literal["text", "compact"]

LONGEST_QUERY = 1000
LONGEST_ANSWER = 1000
"""Characters."""
PAGE_CHARS = 1500

INSTRUCTIONS = """\
You answer a question by searching an encyclopaedia. You know nothing about its subjects \
beforehand: everything has to be looked up, and \
it may take several searches, one after the other, as what one article says tells you what to look \
up next.

Each turn you take one action:
- search[words]
  Finds the articles that fit the words best and shows a stretch of each between <information> and \
</information>.
- answer[text]
  Gives your final answer and ends the task. Give nothing but the answer itself: a name, a date or \
a number, no sentence.{reading}"""

READING = """
- open[number]
  Opens the result with that number, from its first page on.
- next[]
  Turns to the next page of the article that is open.
- find[words]
  Turns to the next page of the open article that has these words."""

EXPECTED = "search[words], answer[text]"
EXPECTED_READING = ", open[number], next[], find[words]"

EXAMPLE = (
    Example(
        observation="Question: In which town was the composer of the opera The Salt Harvest born?",
        thought="I have to find out who composed The Salt Harvest first.",
        action="search[The Salt Harvest opera composer]",
    ),
    Example(
        observation=information(
            "[1] The Salt Harvest\nThe Salt Harvest is an opera in three acts by Ilse "
            "Varnholt. It was first performed in 1911.\n\n"
            "[2] Harvest customs\nOn the coast, the salt harvest ends with a fair."
        ),
        thought="The composer is Ilse Varnholt. Now I need her place of birth.",
        action="search[Ilse Varnholt born]",
    ),
    Example(
        observation=information(
            "[1] Ilse Varnholt\nIlse Varnholt (1874-1939) was a composer. Born in "
            "Dremmel, she studied the organ."
        ),
        thought="She was born in Dremmel.",
        action="answer[Dremmel]",
    ),
)


class _ActionError(Exception):
    """An action that cannot be carried out; the message is the observation."""


class Search(Environment):
    """Answer questions of one or more hops by searching an encyclopaedia.

    An answer ends the episode, right or wrong.
    """

    name: ClassVar[str] = "search"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    example: Sequence[Example] = EXAMPLE

    def __init__(
        self,
        *,
        seed: int = 0,
        questions: int | None = None,
        kinds: str | Sequence[str] | None = None,
        hops: int | Sequence[int] | None = None,
        corpus: str = "",
        train: str | Sequence[str] = (),
        dev: str | Sequence[str] = (),
        test: str | Sequence[str] = (),
        retriever: str = "bm25",
        model: str = "",
        top_k: int = 5,
        snippet_chars: int = 1200,
        reward: Reward = "em",
        reading: bool = False,
        max_turns: int = 10,
        style: Style = "text",
    ) -> None:
        """`seed`: of the generated world. `questions`: number of questions in its training split.
        `kinds`, `hops`: only questions of these kinds and numbers of hops. Default: all.

        Instead of the generated world: `corpus`, a folder built by `palestra search index` or a
        JSONL file, and files of questions for `train`, `dev` and `test`. `retriever`: "bm25",
        "dense", "hybrid", or the URL of a Search-R1 `/retrieve` server, which has its own corpus.
        `model`: a directory for the dense retriever. `top_k`: results per search, each of up to
        `snippet_chars`. `reward`: "em" or "f1". `reading`: results can be opened, paged and
        searched. `style`: "compact" omits instructions and example, for a small randomly
        initialized model that learns the format by imitation.
        """
        files = {"train": _listed(train), "dev": _listed(dev), "test": _listed(test)}
        _check_options(corpus, files, retriever, model, reward)
        _check_numbers({"top_k": top_k, "snippet_chars": snippet_chars, "max_turns": max_turns})
        _check_numbers({} if questions is None else {"questions": questions})
        _check_numbers({"seed": seed}, least=0)
        if style not in get_args(Style):
            raise ValueError(f"style must be one of {', '.join(get_args(Style))}, not {style!r}")
        self.instructions = (
            INSTRUCTIONS.format(reading=READING if reading else "") if style == "text" else ""
        )
        self.example = EXAMPLE if style == "text" else ()
        self._is_compact = style == "compact"
        self.max_turns = max_turns
        self._seed, self._number = seed, questions
        self._kinds = None if kinds is None else _listed(kinds)
        if isinstance(hops, int):
            hops = (hops,)
        self._hops = None if hops is None else tuple(hops)
        self._corpus, self._files = corpus, files
        self._retriever_name, self._model = retriever, model
        self._top_k, self._snippet_chars = top_k, snippet_chars
        self._reward, self._reading = reward, reading
        self._question: Question | None = None
        self._retriever: Retriever | None = None
        self._begin_episode()

    def _begin_episode(self) -> None:
        self._ending: Step | None = None
        self._results: list[Hit] = []
        self._pages: Sequence[str] = ()
        self._page = 0
        self._open: Hit | None = None
        self._asked: set[str] = set()
        self._seen: dict[str, str] = {}
        """By article id: the text shown so far."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [
            Task(self.name, split, question.id, _category(question))
            for question in self._questions(split).values()
        ]

    def reset(self, task: Task) -> str:
        questions = self._questions(task.split)
        if task.id not in questions:
            raise ValueError(f"search has no task {task.id!r} in split {task.split!r}")
        self._question = questions[task.id]
        self._retriever = self._open_retriever(task.split)
        self._begin_episode()
        return f"Question: {escaped(self._question.text)}"

    def step(self, action: str) -> Step:
        question = self._playing()
        if self._ending is not None:
            return self._ending
        name, argument = read_command(printable(action)) or ("", "")
        try:
            if name == "answer":
                return self._answer(question, argument)
            if name not in self._looking:
                raise _ActionError(
                    f"Expected one of {EXPECTED}{EXPECTED_READING if self._reading else ''}."
                )
            return Step(self._looking[name](argument))
        except _ActionError as refusal:
            return Step(str(refusal), invalid=True)

    def expert(self) -> str | None:
        """Searches for each lookup of the question's chain in order, and answers once every finding
        was shown. None if a search did not show it.
        """
        question = self._playing()
        if self._ending is not None or not question.chain:
            return None
        for lookup in question.chain:
            if not self._has_seen(lookup):
                if lookup.query in self._asked:
                    return None
                return self._written("search", lookup.query)
        return self._written("answer", question.answers[0])

    def _written(self, name: str, argument: str) -> str:
        """An action. In the compact style the argument follows a space, as words do in a text, so
        that a small model can copy it token by token.
        """
        return f"{name}: {argument}" if self._is_compact else f"{name}[{argument}]"

    def _has_seen(self, lookup: Lookup) -> bool:
        if lookup.article not in self._seen:
            return False
        shown = self._seen[lookup.article].lower()
        return all(part in shown for part in lookup.finding.lower().split("; "))

    def _playing(self) -> Question:
        if self._question is None:
            raise RuntimeError("search: call reset(task) before this")
        return self._question

    # Carrying out an action.

    @property
    def _looking(self) -> dict[str, Callable[[str], str]]:
        """By name: the actions that show text."""
        reading = {"open": self._open_result, "next": self._next_page, "find": self._find}
        return {"search": self._search, **(reading if self._reading else {})}

    def _answer(self, question: Question, answer: str) -> Step:
        """The observation does not reveal whether the answer is right, nor the expected one."""
        if not answer:
            raise _ActionError("The answer is empty. Expected answer[text].")
        if len(answer) > LONGEST_ANSWER:
            raise _ActionError(
                f"The answer is too long: it has {len(answer)} characters, and at most "
                f"{LONGEST_ANSWER} are read."
            )
        is_right = exact_match(answer, question.answers)
        overlap = f1(answer, question.answers)
        info = {"exact_match": is_right, "f1": overlap}
        self._ending = Step(
            "The episode is over: an answer was given.", terminated=True, success=is_right
        )
        reward = overlap if self._reward == "f1" else float(is_right)
        return Step(
            "Your answer was taken. The episode is over.",
            reward,
            terminated=True,
            success=is_right,
            info=info,
        )

    def _search(self, query: str) -> str:
        if not query:
            raise _ActionError("The query is empty. Expected search[words].")
        if len(query) > LONGEST_QUERY:
            raise _ActionError(
                f"The query is too long: it has {len(query)} characters, and at most "
                f"{LONGEST_QUERY} are searched for."
            )
        assert self._retriever is not None
        self._asked.add(query)
        self._results = self._retriever.search(query, self._top_k)
        if not self._results:
            return information("Nothing was found. Try other words.")
        shown = []
        for number, hit in enumerate(self._results, 1):
            stretch = snippet(hit.text, query, self._snippet_chars)
            self._seen[hit.id] = f"{self._seen.get(hit.id, hit.title)}\n{stretch}"
            shown.append(f"[{number}] {_headed(hit.title, stretch)}")
        return information("\n\n".join(shown))

    # Reading an article.

    def _open_result(self, number: str) -> str:
        if not self._results:
            raise _ActionError("There is no result to open. Search first.")
        is_number = number.isascii() and number.isdecimal() and len(number) < 5
        if not is_number or not 1 <= int(number) <= len(self._results):
            raise _ActionError(
                f"Expected open[number] with a number from 1 to {len(self._results)}."
            )
        self._open, self._page = self._results[int(number) - 1], 0
        self._pages = pages(self._open.text, PAGE_CHARS)
        return self._show_page()

    def _next_page(self, argument: str) -> str:
        if self._open is None:
            raise _ActionError("No article is open. Expected open[number] first.")
        if self._page + 1 >= len(self._pages):
            raise _ActionError("This is the last page.")
        self._page += 1
        return self._show_page()

    def _show_page(self) -> str:
        assert self._open is not None
        page = self._pages[self._page]
        self._seen[self._open.id] = f"{self._seen.get(self._open.id, '')}\n{page}"
        return information(
            _headed(f"{self._open.title} (page {self._page + 1} of {len(self._pages)})", page)
        )

    def _find(self, words: str) -> str:
        if self._open is None:
            raise _ActionError("No article is open. Expected open[number] first.")
        if not words:
            raise _ActionError("There is nothing to find. Expected find[words].")
        places = [
            number for number, page in enumerate(self._pages) if words.lower() in page.lower()
        ]
        if not places:
            return information("The open article does not have these words.")
        self._page = next((number for number in places if number > self._page), places[0])
        return self._show_page()

    # Questions and retrievers.

    def texts(self) -> Iterable[str] | None:
        """Articles as shown, questions, queries and answers. None for a custom corpus, which may be
        too large.
        """
        if any(self._files.values()):
            return None
        return self._world_texts()

    def _world_texts(self) -> Iterator[str]:
        for _, title, text in _world("train", self._seed, self._number).articles:
            yield information(f"[1] {title}\n{text}")
        asked = self._questions("train").values()
        for question in asked:
            yield f"Question: {question.text}"
        for question in asked:
            for lookup in question.chain:
                yield self._written("search", lookup.query)
        for question in asked:
            yield self._written("answer", question.answers[0])

    def _questions(self, split: str) -> dict[str, Question]:
        if split not in self.splits:
            raise ValueError(f"search has no split {split!r}; there are: {', '.join(self.splits)}")
        if any(self._files.values()):
            return _asked_in(self._files[split], self._kinds, self._hops)
        return _asked_about(split, self._seed, self._number_in(split), self._kinds, self._hops)

    def _number_in(self, split: str) -> int | None:
        return self._number if split == "train" else None

    def _open_retriever(self, split: str) -> Retriever:
        if is_url(self._retriever_name):
            return Remote(self._retriever_name)
        if self._corpus:
            folder = _corpus_index(self._corpus)
        else:
            folder = _world_index(split, self._seed, self._number_in(split))
        return open_retriever(self._retriever_name, folder, model=self._model)


def _headed(title: str, text: str) -> str:
    """The title on a line before the text. Passages of some corpora have no title."""
    return f"{' '.join(title.split())}\n{text}" if title.strip() else text


def _category(question: Question) -> str:
    return f"{question.kind} {question.hops}" if question.hops else question.kind


def _chosen(
    questions: Iterable[Question], kinds: tuple[str, ...] | None, hops: tuple[int, ...] | None
) -> dict[str, Question]:
    """By id: the questions of these kinds and numbers of hops."""
    everything = list(questions)
    fitting = everything
    if kinds is not None:
        fitting = [question for question in fitting if question.kind in kinds]
    if hops is not None:
        fitting = [question for question in fitting if question.hops in hops]
    if everything and not fitting:
        there = ", ".join(sorted({_category(question) for question in everything}))
        raise ValueError(
            f"kinds = {kinds}, hops = {hops}: there is no such question; there are: {there}"
        )
    chosen = {question.id: question for question in fitting}
    if len(chosen) < len(fitting):
        raise ValueError("two questions have the same id: the files of a split must not overlap")
    return chosen


@cache
def _asked_in(
    files: tuple[str, ...], kinds: tuple[str, ...] | None, hops: tuple[int, ...] | None
) -> dict[str, Question]:
    questions: list[Question] = []
    for file in files:
        questions += read_questions(Path(file))
    return _chosen(questions, kinds, hops)


@cache
def _asked_about(
    split: str,
    seed: int,
    questions: int | None,
    kinds: tuple[str, ...] | None,
    hops: tuple[int, ...] | None,
) -> dict[str, Question]:
    return _chosen(_world(split, seed, questions).questions, kinds, hops)


@cache
def _world(split: str, seed: int, questions: int | None) -> World:
    return cached_world(split, seed, questions)


@cache
def _world_index(split: str, seed: int, questions: int | None) -> Path:
    return cached_index(_world(split, seed, questions).articles)


@cache
def _corpus_index(corpus: str) -> Path:
    path = Path(corpus)
    if path.is_dir():
        require_index(path)
        return path
    return cached_index_of_file(path, lambda: read_corpus(path))


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) and names else tuple(names)


def _check_numbers(options: dict[str, int], *, least: int = 1) -> None:
    for option, value in options.items():
        if type(value) is not int or value < least:
            raise ValueError(f"{option} must be a whole number of at least {least}, not {value!r}")


def _check_options(
    corpus: str, files: dict[str, tuple[str, ...]], retriever: str, model: str, reward: str
) -> None:
    if reward not in get_args(Reward):
        raise ValueError(f"reward must be one of {', '.join(get_args(Reward))}, not {reward!r}")
    if retriever not in RETRIEVERS and not is_url(retriever):
        raise ValueError(
            f"retriever = {retriever!r}: {nearest(retriever, RETRIEVERS)}, or a URL such "
            "as http://127.0.0.1:8000/retrieve"
        )
    if model and retriever not in ("dense", "hybrid"):
        raise ValueError(
            f"model = {model!r}: has no effect with retriever = {retriever!r}; expected "
            "dense or hybrid"
        )
    packages = (
        ("tantivy", "search", RETRIEVERS),
        ("faiss", "search-dense", RETRIEVERS[1:]),
    )
    for needed, extra, retrievers in packages:
        if retriever in retrievers and find_spec(needed) is None:
            raise ValueError(
                f"retriever = {retriever!r}: needs {needed}; pip install 'palestra[{extra}]'"
            )
    asks = any(files.values())
    if asks and not corpus and not is_url(retriever):
        raise ValueError(
            "train, dev, test: questions of your own need a corpus, or a retriever's URL"
        )
    if corpus and not asks:
        raise ValueError(
            f"corpus = {corpus!r}: needs questions; set train and test to files of them"
        )
    if corpus and is_url(retriever):
        raise ValueError(f"corpus = {corpus!r}: has no effect, {retriever} searches its own")
    paths_of = {"corpus": _listed(corpus), "model": _listed(model), **files}
    for option, paths in paths_of.items():
        for path in paths:
            if not Path(path).exists():
                raise ValueError(f"{option} = {path!r}: there is no such file or folder")
    if corpus and Path(corpus).is_dir():
        require_index(Path(corpus))
