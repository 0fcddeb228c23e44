"""A report as one self-contained HTML page, and as Markdown next to its pictures.

All texts are escaped: they come from models and environments.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path

from palestra.core.files import replace_file
from palestra.core.tables import Table, markdown_text
from palestra.tools.report.content import Block, Code, Pictures, Section, told

MOST_CHARACTERS = 4000
"""Characters that are shown of one observation or reply."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2024; background: #fff; max-width: 1120px; \
margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.7em; overflow-wrap: anywhere } h2 { font-size: 1.25em; margin-top: 2em; \
border-bottom: 1px solid #ddd }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; \
font-size: .93em }
th, td { text-align: left; padding: .25em .8em; border-bottom: 1px solid #e5e5e5; vertical-align: \
top; overflow-wrap: anywhere }
th { color: #666; font-weight: 600; overflow-wrap: normal } td { max-width: 34em }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: .8em \
} img { width: 100% }
details { margin: .5em 0; border: 1px solid #ddd; border-radius: 6px; padding: .4em .8em }
summary { cursor: pointer; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .87em; margin: .2em 0 } .story td \
{ border: 0; padding: .1em .6em }
.story .reply { background: #eef6ff } .remark { color: #777; font-size: .85em; white-space: \
pre-wrap }
@media print { details { break-inside: avoid } }
"""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""A second line of defense after the escaping: the browser runs and fetches nothing."""


def write_html(path: Path, title: str, sections: list[Section], pictures: Path) -> None:
    body = ""
    for section in sections:
        body += f"<h2>{escape(section.title)}</h2>\n"
        body += "".join(_html(block, pictures) for block in section.blocks)
    head = (
        '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{POLICY}"><title>{shown(title)}</title>'
    )
    page = (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n'
        f"<body><h1>{shown(title)}</h1>\n{body}</body></html>\n"
    )
    replace_file(path, page.encode(errors="replace"))


def shown(text: str) -> str:
    """Escaped for HTML, with replacement characters for control characters."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} … ({len(text) - MOST_CHARACTERS:,} more characters)"
    # Control characters, changes of the writing direction, and lone surrogates.
    return re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
        "\N{REPLACEMENT CHARACTER}",
        text,
    )


def _html(block: Block, pictures: Path) -> str:
    if isinstance(block, str):
        return f"<p>{shown(block)}</p>\n"
    if isinstance(block, Table):
        head = "".join(f"<th>{shown(column)}</th>" for column in block.columns)
        rows = ""
        for row in block.rows:
            cells = "".join(f"<td>{shown(cell)}</td>" for cell in row)
            rows += f"<tr>{cells}</tr>\n"
        return (
            '<div class="wide"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
        )
    if isinstance(block, Pictures):
        images = ""
        for name, title in block.titles.items():
            data = b64encode((pictures / name).read_bytes()).decode()
            images += f'<img alt="{shown(title)}" src="data:image/png;base64,{data}">'
        return f'<div class="pictures">{images}</div>\n'
    if isinstance(block, Code):
        text = escape(_plain_lines(block.text))
        return f"<details><summary>{shown(block.title)}</summary><pre>{text}</pre></details>\n"
    rows = ""
    for who, what, remark in told(block.episode):
        kind = "reply" if remark.startswith("reply") else "seen"
        rows += f'<tr class="{kind}"><td>{shown(who)}</td><td><pre>{shown(what)}</pre></td>'
        rows += f'<td class="remark">{shown(remark)}</td></tr>\n'
    table = f'<table class="story">{rows}</table>'
    return f"<details><summary>{shown(block.title)}</summary>{table}</details>\n"


def _plain_lines(text: str) -> str:
    return "\n".join(map(_plain, text.splitlines()))


def write_markdown(path: Path, title: str, sections: list[Section]) -> None:
    paragraphs = [f"# {markdown_text(_plain(title))}\n"]
    for section in sections:
        paragraphs.append(f"## {section.title}\n")
        for block in section.blocks:
            paragraphs += _markdown(block)
    replace_file(path, "\n".join(paragraphs).encode(errors="replace"))


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield f"{markdown_text(_plain(block))}\n"
    elif isinstance(block, Table):
        rows = [list(map(_plain, row)) for row in block.rows]
        yield f"{Table(block.columns, rows).markdown()}\n"
    elif isinstance(block, Pictures):
        for name, title in block.titles.items():
            yield f"![{title}]({name})\n"
    elif isinstance(block, Code):
        yield f"**{markdown_text(_plain(block.title))}**\n\n{_indented(_plain_lines(block.text))}"
    else:
        yield f"**{markdown_text(_plain(block.title))}**\n"
        lines: list[str] = []
        for number, text, remark in told(block.episode):
            lines.append(f"[{number or ' '}] {remark}: {_plain(text)}")
        yield _indented("\n".join(lines))


def _indented(text: str) -> str:
    """An indented code block, which no text can end. A fence could occur in the text."""
    return "".join(f"    {line}\n" for line in text.splitlines())
