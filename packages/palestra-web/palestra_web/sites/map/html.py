"""HTML for the map's pages: small functions from values to markup."""

from collections.abc import Iterable, Sequence
from html import escape
from sqlite3 import Row
from urllib.parse import urlencode

from .geo import KM_PER_MILE, Point
from .store import full_name

STYLE = """
body{font:16px/1.45 system-ui,sans-serif;margin:0;color:#1d2b28;background:#f6f5f0}
header{background:#17463d;color:#fff;padding:.7rem 1.5rem}
header{display:flex;gap:1.5rem;align-items:center;flex-wrap:wrap}
header a{color:#fff} header form{margin-left:auto}
main{max-width:60rem;margin:1rem auto;padding:0 1.5rem}
table{border-collapse:collapse;margin:.6rem 0}
th,td{text-align:left;padding:.25rem 1.1rem .25rem 0;border-bottom:1px solid #d8d5c9}
label{display:block;margin:.4rem 0} form.row label{display:inline-block;margin-right:.8rem}
.note{background:#fff3cd;padding:.5rem .8rem}
svg{background:#dfeaf0;width:100%;height:auto;max-width:44rem}
input,select,button,textarea{font:inherit}
"""


def link(href: str, text: str) -> str:
    return f'<a href="{escape(href)}">{escape(text)}</a>'


def url(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}"


def place_link(place: Row) -> str:
    return link(f"/place/{place['id']}", full_name(place))


def length(km: float, units: str) -> str:
    return f"{km / KM_PER_MILE:,.0f} miles" if units == "miles" else f"{km:,.0f} km"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Cells are markup."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in row)
        body += f"<tr>{cells}</tr>"
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A name and a value (markup) in each row."""
    return (
        "<table><tbody>"
        + "".join(f'<tr><th scope="row">{escape(n)}</th><td>{value}</td></tr>' for n, value in rows)
        + "</tbody></table>"
    )


def field(label: str, name: str, value: str = "", kind: str = "text") -> str:
    return (
        f'<label>{escape(label)} <input type="{kind}" name="{name}" '
        f'value="{escape(value)}"></label>'
    )


def choice(label: str, name: str, options: Iterable[tuple[str, str]], chosen: str = "") -> str:
    """`options` are (value, text)."""
    inner = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape(text)}</option>"
        for value, text in options
    )
    return f'<label>{escape(label)} <select name="{name}">{inner}</select></label>'


def form(action: str, inner: str, button: str, *, method: str = "post", css: str = "") -> str:
    return (
        f'<form method="{method}" action="{escape(action)}" class="{css}">'
        f"{inner}<button>{escape(button)}</button></form>"
    )


def drawing(points: Sequence[tuple[Point, str]], line: bool, label: str) -> str:
    """The named points on a sheet that just holds them, north up; `line` joins them in order."""
    lats, lons = [p[0] for p, _ in points], [p[1] for p, _ in points]
    # The sheet is twice as wide as high: `side` degrees of latitude, 2 * `side` of longitude.
    side = max(max(lats) - min(lats), (max(lons) - min(lons)) / 2, 1.0) * 1.4
    top, left = (max(lats) + min(lats) + side) / 2, (max(lons) + min(lons)) / 2 - side
    path: list[str] = []
    marks = ""
    for (lat, lon), name in points:
        x, y = (lon - left) * 350 / side, (top - lat) * 350 / side
        path.append(f"{x:.0f},{y:.0f}")
        marks += (
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" fill="#b3412b"/>'
            f'<text x="{x + 8:.0f}" y="{y + 5:.0f}" font-size="14">{escape(name)}</text>'
        )
    joined = ""
    if line:
        way = " ".join(path)
        joined = f'<polyline points="{way}" fill="none" stroke="#17463d" stroke-width="2"/>'
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 700 350">'
        f'<g aria-hidden="true">{joined}{marks}</g></svg>'
    )


def page(title: str, body: str, user: Row | None, notice: str = "") -> bytes:
    account = link("/login", "Log in")
    if user:
        logout = form("/logout", "", "Log out")
        account = (
            f"{link('/lists', 'My lists')} {link('/routes', 'My routes')} "
            f"{link('/settings', 'Settings')} {escape(user['name'])}{logout}"
        )
    told = f'<p class="note" role="status">{escape(notice)}</p>' if notice else ""
    ways = (
        f"<strong>{link('/', 'Wayfinder')}</strong> {link('/route', 'Directions')} "
        f"{link('/countries', 'Countries')}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} - Wayfinder</title><style>{STYLE}</style></head>"
        f"<body><header>{ways} {account}</header>"
        f"<main>{told}<h1>{escape(title)}</h1>{body}</main></body></html>"
    ).encode()
