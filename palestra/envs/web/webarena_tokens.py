"""Whether a digit is a token of an answer, as NLTK's `word_tokenize` would say, which WebArena
asks.

Punkt cuts a text into sentences, and the Treebank rules cut these into tokens: 5 is a token of "5,
or so" and of "5.", but not of "5:30", "15" or "5. floor". The only single characters that the tasks
require are digits. Answers in words and numbers give what NLTK 3.9 gives; heaps of signs such as
"5's." may not.
"""

from __future__ import annotations

import re

_APART = r"\s;@#$%&?!*()\[\]{}<>\"`«“\u2018„»”\u2019"
"""Characters that are tokens, or separate them, wherever they stand."""
_BEFORE = re.compile(rf"(?:^|[{_APART}]|(?<!-)(?:--)+|\.\.|'').\Z", re.DOTALL)
_END = rf"(?:$|[{_APART}]|''|[:,](?!\d)|--|\.\.)"
_AFTER = re.compile(rf"(?:'[smd]|(?:'(?:ll|re|ve)|n't|)'?)(?:{_END}|'(?!re|ve|ll|[mtsdn])\w\b)")
"""Such as 5's, and a quote that ends."""
_LAST = re.compile(r"[\])}>\"'»”\u2019 ]*")
"""Characters that may follow the last period of a sentence."""

_PERIOD = re.compile(r"('(?:s|m|d|ll|re|ve)?|n't|)\.(?!\.)")
_CLOSING = re.compile(r"[\"')\]}]+(?:\s|--|$)")
_BLANK = re.compile(r"[ \t\n\r\x0b\x0c]")
_SIGNS = "?!)\";}]*:@'({["
_BREAK = re.compile(rf"[.?!](?:[{re.escape(_SIGNS)}]|\s+\S)")
_MANY = r"-{2,}|\.{2,}"
_WORD = re.compile(
    rf"""{_MANY}
    | (?![("`{{\[:;&\#*@)}}\]\-,]) \S+?
        (?= \s | $ | [{re.escape(_SIGNS)}] | {_MANY} | ,(?:\s|$|[{re.escape(_SIGNS)}]|{_MANY}) )
    | \S""",
    re.VERBOSE,
)
"""The sentences of a text according to Punkt."""
_NEVER_CAPITAL = {"administrators", "b-week", "r-revised", "z-holiday"}
"""The words of Punkt's English model that begin sentences in lower case and are never capitalized.

"""


def has_token(character: str, text: str) -> bool:
    """Whether the digit is a token of the text, which must be in lower case."""
    for found in re.finditer(re.escape(character), text):
        before, after = text[: found.end()], text[found.end() :]
        if _begins(before, after) and (_AFTER.match(after) or _ends_sentence(before, after)):
            return True
    return False


def _begins(before: str, after: str) -> bool:
    if re.search(r"(?<!')'.\Z", before):
        return not re.match(r"\w", after)  # '5' is quoted, and '5th is not
    return _BEFORE.search(before) is not None


def _has_later_break(rest: str) -> bool:
    """If several sentences end without a space between them, Punkt only considers the last one."""
    later = _BREAK.search(rest)
    return later is not None and _BLANK.search(rest, 0, later.start()) is None


def _ends_sentence(before: str, after: str) -> bool:
    """Whether a period follows that is a token: the last one of a sentence."""
    period = _PERIOD.match(after)
    if period is None:
        return False
    before, after = before + period[1], after[period.end() :]
    rest = after.lstrip()
    if not rest:
        return True
    gap = after[: len(after) - len(rest)]
    if not gap and (rest[0] not in _SIGNS or _has_later_break(rest)):
        return _LAST.fullmatch(rest) is not None
    if gap and (closing := _CLOSING.match(rest)):  # it belongs to this sentence
        return not gap.strip(" ") and not closing[0].startswith(('"', "''"))
    # Punkt looks at what stands without a blank around the period, and at the next word or sign.
    *others, number = _WORD.findall(_BLANK.split(before)[-1] + ".")
    if number not in (f"{digit}." for digit in "0123456789") or any(
        other[-1] in ".?!" and other.strip(".") for other in others
    ):
        return True
    # To Punkt, "5. floor" is an ordinal number: all text is in lower case here.
    first, *more = _WORD.findall(rest.split()[0] if gap else rest[0])
    is_word = first[0].islower() and first.rstrip(".") not in _NEVER_CAPITAL
    is_sign = first in (*";:,",) or (first in (*".!?",) and not more)
    return not is_word and not is_sign
