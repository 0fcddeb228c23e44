"""A bundle, hosted by a web server that knows nothing of Palestra, in a folder of its own."""

import functools
import http.server
import threading

import pytest
from playwright.sync_api import expect

from palestra.cli.main import main


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def bundle(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("hosted")
    main(["view", str(runs[0]), "--bundle", str(out / "a folder" / "bundle"), "--episodes", "12"])
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=out)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a%20folder/bundle"
        server.shutdown()


def test_every_page_works_from_files(bundle, visit):
    visitor = visit(bundle)
    page = visitor.page
    expect(page.get_by_role("heading", name="small-0", level=1)).to_be_visible()
    expect(page.get_by_role("slider", name="Success, by step")).to_be_visible()
    expect(page.get_by_text("each of 4 steps")).to_be_visible()
    page.get_by_role("link", name="Episodes").first.click()
    expect(page.locator(".summary-line")).to_contain_text("24 episodes")
    page.get_by_label("Text").fill("GOTOOBJ")
    expect(page.locator(".summary-line")).to_contain_text("of 24")
    page.locator("tbody tr:not(.spacer) td:first-child a").first.click()
    expect(page.get_by_role("complementary", name="Scene").get_by_role("img")).to_be_visible()
    visitor.go("run/0/episode/step-000004/20?tokens=advantage")
    expect(page.locator(".tokens .token.is-chosen").first).to_be_visible()
    page.get_by_role("link", name="Group").click()
    expect(page.get_by_role("region", name="Episodes side by side")).to_be_visible()
