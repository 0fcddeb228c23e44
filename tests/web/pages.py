"""A small site on this machine: pages that behave, and pages that do not."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from palestra.core.types import Task
from palestra.envs.web.env import WebEnvironment
from palestra.envs.web.hosting import FixedSites
from palestra.envs.web.solutions import stop
from palestra.envs.web.tasks import answer, ends_at, shows
from palestra.envs.web.template import Template

FORM = """
<title>Form</title><h1><a href=/plain>Top</a></h1>
<form onsubmit="event.preventDefault(); out.textContent = 'sent ' + n.value + ' ' + s.value + ' ' \
+ c.checked + ' ' + d.value">
<label for=n>Name:</label><input id=n> <select id=s \
aria-label=Size><option>Small<option>Large</select>
<label><input type=checkbox id=c> Agree</label> <input type=date id=d aria-label=Day> <textarea \
id=t aria-label=Note></textarea>
<div contenteditable id=e aria-label=Rich role=textbox></div><input disabled aria-label=Locked \
value=fixed>
<button>Send</button></form><p id=out>nothing yet</p>
<button onmouseover="this.textContent = 'hovered'">Point here</button>
<button onclick="out.textContent = 'chosen ' + confirm('Really?')">Ask</button>
<button onclick="out.textContent = 'named ' + prompt('Your name?')">Prompt</button>
<button onclick="alert('Well done')">Alert</button>
<iframe srcdoc="<button onclick=&quot;this.textContent = 'pushed'&quot;>In the \
frame</button>"></iframe>
"""

PAGES = {
    "/form": FORM,
    "/plain": "<title>Plain</title><h1>A plain page</h1><p>Its number is <b>42</b>.</p><a "
    "href=/form>Form</a> <a href=/shelf>Shelf</a>",
    "/shelf": "<title>Shelf</title>"
    + "".join(
        f"<h2>Item {n}</h2><p>It costs {n * 3} coins.</p><button>Take</button>" for n in range(1, 8)
    ),
    "/outside": "<title>Outside</title><img src=http://elsewhere.test/x.png><img "
    "src=http://127.0.0.1:18099/x.png>"
    "<script>fetch('http://elsewhere.test/steal').catch(() => {})</script><a "
    "href=http://elsewhere.test/>Leave</a>",
    "/popups": "<title>Popups</title><a href=/plain target=_blank>One</a>"
    "<button onclick=\"for (let i = 0; i < 20; i++) window.open('/plain')\">Open</button>",
    "/loop": "<title>Loop</title><script>setTimeout(() => location.reload(), 1)</script>round",
    "/busy": "<title>Busy</title><p id=p></p><script>setInterval(() => p.textContent = "
    "Math.random(), 5)</script><button>Fine</button>",
    "/hang": "<title>Hang</title><button onclick='while (true) {}'>Hang</button>",
    "/huge": "<title>Huge</title>"
    + "".join(
        f"<a href=/plain>Link number {n} of very many that nobody reads</a>\n"
        for n in range(60_000)
    ),
    "/long": "<title>Long</title>"
    + "".join(f"<p>Paragraph number {n}</p><button>Button {n}</button>" for n in range(600)),
    "/crash": "<title>Crash</title><a href=chrome://crash>Crash</a>",
    "/slow-image": "<title>Slow</title><button>Here</button><img src=/never>",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/never":
            time.sleep(30)
        elif self.path.startswith("/around"):
            self._send(302, "", Location="/around")
        elif self.path == "/file":
            self._send(
                200, "x" * 1000, **{"Content-Disposition": "attachment; filename=report.bin"}
            )
        elif self.path == "/escape":
            self._send(302, "", Location="http://elsewhere.test/")
        elif self.path in PAGES:
            self._send(200, PAGES[self.path])
        else:
            self._send(404, "not found")

    def _send(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    """Gives the host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Price(Template):
    id, sites, split, start = "small-price", ("small",), "train", "__SMALL__/plain"
    intent = "What does item {item} on the shelf cost?"

    def instances(self):
        return [{"item": n, "cost": n * 3} for n in (2, 5)]

    def evaluation(self, slots):
        return answer(f"{slots['cost']} coins") & ends_at("__SMALL__/shelf")

    def solve(self, page, slots):
        yield page.click("link", "Shelf")
        yield page.click("button", "Take", after=f"Item {slots['item']}")
        yield stop(f"{slots['cost']} coins")


class Send(Template):
    id, sites, split, start = "small-send", ("small",), "test", "__SMALL__/form"
    intent, changes = "Send the form with the name {name}, size Large, and your agreement.", True

    def instances(self):
        return [{"name": "Ann"}, {"name": "Bob [the] builder"}]

    def evaluation(self, slots):
        return shows(
            "last",
            f"sent {slots['name']} Large true",
            locator="document.querySelector('#out').innerText",
        )

    def solve(self, page, slots):
        yield page.type("textbox", "Name:", slots["name"])
        yield page.select("combobox", "Size", "Large")
        yield page.check("checkbox", "Agree")
        yield page.click("button", "Send")
        yield stop()


TEMPLATES = {template.id: template for template in (Price(), Send())}


class Small(WebEnvironment):
    """The templates above, on the site at `host`."""

    name = "small"

    def __init__(self, host, **times):
        self.host = host
        super().__init__()
        self._browsing.look = replace(self._browsing.look, **times)

    def _hosted(self):
        return FixedSites({"small": f"http://{self.host}"})

    def _known(self, split):
        return {
            task.task_id: task
            for template in TEMPLATES.values()
            for task in template.tasks()
            if task.split == split
        }

    def _template(self, task):
        return TEMPLATES[task.intent_template_id]

    def play(self, path):
        """Begin at a page, whatever the task is."""
        first = self.reset(Task("small", "train", "small-price/0"))
        return self.step(f"goto [http://{self.host}{path}]") if path else first
