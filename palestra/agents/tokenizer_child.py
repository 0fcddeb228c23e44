"""Runs untrusted tokenizers and chat templates, in the child process of `palestra.core.confined`
and without torch.

A tokenizer may have a regular expression that never terminates, and a chat template is a program.
"""

from __future__ import annotations

import string
import sys
from typing import Any

# Importing torch takes seconds and hundreds of megabytes, and tokenizers do not need it.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

from transformers import AutoTokenizer  # noqa: E402
from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402

MOST_RENDERED = 2_000_000
"""Maximum number of characters in a rendered chat."""
RUN = 48
"""Length of runs of one character: enough for catastrophic backtracking of regular expressions."""
TEXTS = (
    "Say red.\nThought: 12 + 3 = 15, isn't it?\n\nAction: go to the kitchen 7",
    "naïve Größe 東京 \U0001f600 <think>\n{'a': [1, 2.5e-3]}</think>\t| x_1 == \"y\";",
    "<|im_start|>user\n[INST] <s> </s> <pad> <unk>",
    *(
        f"{character * RUN}!"
        for character in string.ascii_letters + string.digits + string.punctuation + " \n\t"
    ),
    *(f"{character} " * RUN + "!" for character in "aA0."),
)


def answer(question: dict[str, Any]) -> Any:
    """Render a chat, or load a tokenizer and try it on some texts."""
    if "render" in question:
        return _rendered(**question["render"])
    return _tried(question["tokenizer"])


def _rendered(
    template: str, messages: list[dict[str, str]], open_reply: bool, special: dict[str, Any]
) -> str:
    rendered: Any = render_jinja_template(
        conversations=[messages],
        chat_template=template,
        add_generation_prompt=open_reply,
        **special,
    )
    text = rendered[0][0]
    if not isinstance(text, str):
        raise TypeError(f"expected a text, came {type(text).__name__}")
    if len(text) > MOST_RENDERED:
        raise ValueError(f"it came to {len(text):,} characters, expected at most {MOST_RENDERED:,}")
    return text


def _tried(folder: str) -> int:
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    for text in TEXTS:
        tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))
    return len(tokenizer)
