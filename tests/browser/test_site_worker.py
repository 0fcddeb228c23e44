"""The documentation site's stand-in for a web worker, on a page that is opened from a file."""

from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "website" / "assets" / "iframe-worker.js"

PAGE = """<!doctype html><body><script src="iframe-worker.js"></script><script>
window.said = [];
const worker = new Worker("worker.js");
worker.onmessage = (event) => said.push(event.data);
const query = { text: "horizon" };
worker.postMessage(query);
query.text = "changed after it was sent";
said.push("sent");
</script></body>"""

WORKER = """self.onmessage = (event) => {
  const answer = { found: event.data.text };
  self.postMessage(answer);
  answer.found = "changed after it was sent";
};"""


def test_messages_are_copied_and_arrive_later(chromium, tmp_path):
    (tmp_path / "iframe-worker.js").write_text(SCRIPT.read_text())
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "worker.js").write_text(WORKER)
    page = chromium.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    page.wait_for_function("said.length === 2")
    assert page.evaluate("said") == ["sent", {"found": "horizon"}]
    page.close()
