"""Chat templates: those of ours, and those of strangers, which are programs and are rendered in a
confined process.
"""

from __future__ import annotations

from palestra.core.confined import Confined, Limits

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ "
    "message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORD_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ "
    "message['content'] }}<end>"
    "{% else %}{{ message['content'] }}<act>{% endif %}{% endfor %}"
)
"""The shortest chat there is: an observation, `<act>`, a reply, `<end>`."""
OURS = (CHATML, WORD_TEMPLATE)

RENDERING: Limits = {"seconds": 5.0, "memory_mb": 512}
TRYING: Limits = {"seconds": 120.0, "memory_mb": 8192}
"""A tokenizer: those of sentencepiece are converted first."""

foreign = Confined("palestra.agents.tokenizer_child:answer")
"""For templates and tokenizers that came with a model."""
