"""A report as one HTML page that needs nothing else, and as Markdown beside its pictures.

All texts are shown as text.
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
"""Of one observation or reply."""

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
"""For the browser: whatever a text may hold, nothing runs and nothing is fetched."""


def write_html(path: Path, title: str, sections: list[Section], pictures: Path) -> None:
    body = "".join(
        f"<h2>{escape(section.title)}</h2>\n"
        f"{''.join(_html(block, pictures) for block in section.blocks)}"
        for section in sections
    )
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
    """Escaped, with a mark in place of what a terminal or a browser would obey."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    cut = (
        text
        if len(text) <= MOST_CHARACTERS
        else f"{text[:MOST_CHARACTERS]} … ({len(text) - MOST_CHARACTERS:,} more characters)"
    )
    return re.sub(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
        "\N{REPLACEMENT CHARACTER}",
        cut,
    )


def _html(block: Block, pictures: Path) -> str:
    if isinstance(block, str):
        return f"<p>{shown(block)}</p>\n"
    if isinstance(block, Table):
        head = "".join(f"<th>{shown(column)}</th>" for column in block.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{shown(cell)}</td>' for cell in row)}</tr>\n" for row in block.rows
        )
        return (
            "<div "
            f'class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'
        )
    if isinstance(block, Pictures):
        images = (
            f'<img alt="{shown(title)}" '
            f'src="data:image/png;base64,{b64encode((pictures / name).read_bytes()).decode()}">'
            for name, title in block.titles.items()
        )
        return f'<div class="pictures">{"".join(images)}</div>\n'
    if isinstance(block, Code):
        whole = escape(_plain_lines(block.text))
        return f"<details><summary>{shown(block.title)}</summary><pre>{whole}</pre></details>\n"
    rows = ""
    for who, what, remark in told(block.episode):
        kind = "reply" if remark.startswith("reply") else "seen"
        rows += f'<tr class="{kind}"><td>{shown(who)}</td><td><pre>{shown(what)}</pre></td>'
        rows += f'<td class="remark">{shown(remark)}</td></tr>\n'
    return (
        f"<details><summary>{shown(block.title)}</summary><table "
        f'class="story">{rows}</table></details>\n'
    )


def _plain_lines(text: str) -> str:
    return "\n".join(map(_plain, text.splitlines()))


def write_markdown(path: Path, title: str, sections: list[Section]) -> None:
    parts = [f"# {markdown_text(_plain(title))}\n"]
    for section in sections:
        parts += [
            f"## {section.title}\n",
            *(part for block in section.blocks for part in _markdown(block)),
        ]
    replace_file(path, "\n".join(parts).encode(errors="replace"))


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield f"{markdown_text(_plain(block))}\n"
    elif isinstance(block, Table):
        rows = [list(map(_plain, row)) for row in block.rows]
        yield f"{Table(block.columns, rows).markdown()}\n"
    elif isinstance(block, Pictures):
        yield from (f"![{title}]({name})\n" for name, title in block.titles.items())
    elif isinstance(block, Code):
        yield f"**{markdown_text(_plain(block.title))}**\n\n{_indented(_plain_lines(block.text))}"
    else:
        yield f"**{markdown_text(_plain(block.title))}**\n"
        yield _indented(
            "\n".join(
                f"[{who or ' '}] {remark}: {_plain(what)}"
                for who, what, remark in told(block.episode)
            )
        )


def _indented(text: str) -> str:
    """A block of code: nothing in it ends it, as a fence might."""
    return "".join(f"    {line}\n" for line in text.splitlines())
