"""A user's own pages: lists of places, saved routes, settings. Changes return the URL to redirect
to.
"""

from html import escape
from urllib.parse import urlencode

from . import store
from .html import choice, field, form, link, place_link, table
from .pages import KINDS, SPEEDS, Page
from .request import Request


def told(path: str, notice: str) -> str:
    return f"{path}?{urlencode({'notice': notice})}"


def lists(request: Request) -> Page:
    rows = [
        (
            link(f"/list/{row['id']}", row["name"]),
            str(row["places"]),
            "yes" if row["public"] else "no",
        )
        for row in store.lists(request.base, request.user_id)
    ]
    return "My lists", table(("List", "Places", "Public"), rows, "Your lists") + form(
        "/lists", field("New list", "name"), "Create list"
    )


def own_list(request: Request) -> Page:
    row = store.own_list(request.base, request.user_id, request.id)
    if row is None:
        return None
    entries = table(
        ("Place", "Note", "Change"),
        (
            (
                place_link(item),
                form(
                    f"/item/{item['item']}/note",
                    field(f"Note for {item['name']}", "note", item["note"]),
                    "Save note",
                    css="row",
                ),
                form(f"/item/{item['item']}/remove", "", f"Remove {item['name']}"),
            )
            for item in store.items(request.base, row["id"])
        ),
        "Places on this list",
    )
    public = choice("Public", "public", [("0", "No"), ("1", "Yes")], str(row["public"]))
    rename = form(
        f"/list/{row['id']}/rename", field("Name", "name", row["name"]) + public, "Save list"
    )
    return row["name"], entries + rename + form(f"/list/{row['id']}/delete", "", "Delete list")


def add_list(request: Request) -> str:
    name = request.text("name")
    if not name:
        return told("/lists", "A list needs a name.")
    request.base.execute("INSERT INTO list (user, name) VALUES (?, ?)", (request.user_id, name))
    return told("/lists", f"List {name} created.")


def rename_list(request: Request) -> str:
    name = request.text("name")
    if not name:
        return told(f"/list/{request.id}", "A list needs a name.")
    values = (name, request.number("public", 0) == 1, request.id, request.user_id)
    request.base.execute("UPDATE list SET name = ?, public = ? WHERE id = ? AND user = ?", values)
    return told(f"/list/{request.id}", "Saved.")


def delete_list(request: Request) -> str:
    if store.own_list(request.base, request.user_id, request.id):
        request.base.execute("DELETE FROM list_item WHERE list = ?", (request.id,))
        request.base.execute("DELETE FROM list WHERE id = ?", (request.id,))
    return told("/lists", "List deleted.")


def _owning_list(request: Request) -> int | None:
    row = request.base.execute(
        "SELECT list.id FROM list_item JOIN list ON list.id = list_item.list "
        "WHERE list_item.id = ? AND list.user = ?",
        (request.id, request.user_id),
    ).fetchone()
    return int(row["id"]) if row else None


def remove_item(request: Request) -> str:
    owning = _owning_list(request)
    if owning is None:
        return "/lists"
    request.base.execute("DELETE FROM list_item WHERE id = ?", (request.id,))
    return told(f"/list/{owning}", "Place removed.")


def note_item(request: Request) -> str:
    owning = _owning_list(request)
    if owning is None:
        return "/lists"
    request.base.execute(
        "UPDATE list_item SET note = ? WHERE id = ?", (request.text("note"), request.id)
    )
    return told(f"/list/{owning}", "Note saved.")


def save_place(request: Request) -> str:
    row = store.own_list(request.base, request.user_id, request.number("list", 0))
    if row is None or store.place(request.base, request.id) is None:
        return told(f"/place/{request.id}", "Choose one of your lists.")
    values = (row["id"], request.id, request.text("note"))
    request.base.execute("INSERT INTO list_item (list, place, note) VALUES (?, ?, ?)", values)
    return told(f"/place/{request.id}", f"Saved to {row['name']}.")


def report_place(request: Request) -> str:
    kind = request.text("kind")
    if kind not in KINDS or store.place(request.base, request.id) is None:
        return told(f"/place/{request.id}", "Say what is wrong.")
    values = (request.user_id, request.id, kind, request.text("text"))
    request.base.execute("INSERT INTO report (user, place, kind, text) VALUES (?, ?, ?, ?)", values)
    return told(f"/place/{request.id}", "Thank you, the report was sent.")


def routes(request: Request) -> Page:
    rows = []
    for row in store.routes(request.base, request.user_id):
        stops = [
            store.place(request.base, row[name]) for name in ("start", "via", "finish") if row[name]
        ]
        names = " to ".join(place_link(stop) for stop in stops if stop)
        plain = " to ".join(stop["name"] for stop in stops if stop)
        rows.append(
            (
                names,
                escape(row["travel"]),
                form(f"/route/{row['id']}/delete", "", f"Delete {plain}"),
            )
        )
    return "My routes", table(("Way", "Travel by", "Change"), rows, "Your saved routes")


def save_route(request: Request) -> str:
    start, via, finish = (request.number(name, 0) for name in ("start", "via", "finish"))
    known = all(store.place(request.base, stop) for stop in (start, via, finish) if stop)
    if not (start and finish and known and request.text("travel") in SPEEDS):
        return told("/route", "Choose two places first.")
    values = (request.user_id, start, via or None, finish, request.text("travel"))
    request.base.execute(
        "INSERT INTO route (user, start, via, finish, travel) VALUES (?, ?, ?, ?, ?)", values
    )
    return told("/routes", "Route saved.")


def delete_route(request: Request) -> str:
    request.base.execute(
        "DELETE FROM route WHERE id = ? AND user = ?", (request.id, request.user_id)
    )
    return told("/routes", "Route deleted.")


def settings(request: Request) -> Page:
    assert request.user is not None, "only for users"
    home = store.place(request.base, request.user["home"] or 0)
    fields = field("Your name", "name", request.user["name"]) + field(
        "Home town", "home", store.full_name(home) if home else ""
    )
    units = choice("Units", "units", [("km", "Kilometres"), ("miles", "Miles")], request.units)
    return "Settings", form("/settings", fields + units, "Save settings")


def save_settings(request: Request) -> str:
    found = store.named(request.base, request.text("home"))
    if not found:
        return told("/settings", f"No place is called {request.text('home')}.")
    units = "miles" if request.text("units") == "miles" else "km"
    name = request.text("name") or (request.user["name"] if request.user else "")
    request.base.execute(
        "UPDATE user SET name = ?, home = ?, units = ? WHERE id = ?",
        (name, found[0]["id"], units, request.user_id),
    )
    return told("/settings", "Settings saved.")
