"""Whether an answer is right: exact match and F1 as SQuAD (arXiv:1606.05250) defines them, the best
over all aliases.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and redundant spaces."""
    lower = text.lower()
    bare = " ".join(_ARTICLES.sub(" ", lower.translate(_PUNCTUATION)).split())
    return bare or " ".join(lower.split())  # "The The" and "!!!" are names too


def exact_match(answer: str, expected: Iterable[str]) -> bool:
    given = normal(answer)
    return bool(given) and any(given == normal(alias) for alias in expected)


def f1(answer: str, expected: Iterable[str]) -> float:
    return max(
        (_f1(normal(answer).split(), normal(alias).split()) for alias in expected), default=0.0
    )


def _f1(given: list[str], wanted: list[str]) -> float:
    """The harmonic mean of precision and recall over words."""
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else 0.0
