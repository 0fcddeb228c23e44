"""Chat templates, and tokenizers that have them."""

from palestra.models.tokenizers import byte_tokenizer

LLAMA_LIKE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}<|header|>\n\n{{ "
    "message['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|header|>\n\n{% endif %}"
)


FORGETS_THOUGHTS = (  # as reasoning models do: only the last reply is rendered whole
    "{% for message in messages %}<|start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' and not loop.last %}{{ message['content'][:2] "
    "}}{% else %}{{ message['content'] }}{% endif %}"
    "<|eot|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


COUNTS_TURNS = (
    "{% for message in messages %}<|start|>{{ loop.index }} {{ message['role'] }}\n{{ "
    "message['content'] }}<|eot|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


QWEN3_LIKE = """\
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + \
'<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last_query_index=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set ns.searching = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if '</think>' in content %}
            {%- set thoughts = \
content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or thoughts) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thoughts.strip('\\n') + \
'\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
"""In the style of Qwen3's: of earlier replies only what follows </think> is rendered."""


def tokenizer_with(template, *, specials=("<|start|>", "<|header|>", "<|eot|>")):
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(specials)})
    tokenizer.chat_template = template
    return tokenizer


def qwen3_like():
    tokenizer = tokenizer_with(QWEN3_LIKE, specials=("<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens(["<think>", "</think>"])  # in the vocabulary, and not special
    return tokenizer
