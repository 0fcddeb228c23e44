"""What WebArena's evaluations read in a real browser."""

import pytest

from palestra.core.types import Task
from palestra.envs.web import webarena
from palestra.envs.web.webarena import MEMBER_ROLE, element_text
from tests.web.pages import PAGES, Small

FORM = """<!DOCTYPE html><title>Rule</title><div data-index="actions"><b \
class="title">Actions</b></div>
<script>
  clicks = 0;
  document.querySelector('.title').onclick = () => {
    clicks += 1;
    document.body.insertAdjacentHTML('beforeend', '<input name="amount" value="20 &amp;amp; \
more">');
  };
</script>
<table>
<tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@ann</span></td>
<td class="col-max-role"><span>Guest</span></td></tr>
<tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@bob</span></td>
<td class="col-max-role"><span>Owner</span></td></tr>
</table>"""
AMOUNT = "document.querySelector('[name=\"amount\"').value"
OPEN = "document.querySelector('[data-index=\"actions\"]').querySelector('.title').click()"


@pytest.fixture
def look(site, monkeypatch):
    monkeypatch.setattr(webarena, "REST_S", 0.0)
    monkeypatch.setitem(PAGES, "/rule", FORM)
    env = Small(site)
    env.reset(Task("small", "train", "small-price/0"))
    env.step(f"goto [http://{site}/rule]")

    def look(locator, prep_actions=(), url="last"):
        return env._browsing.run(element_text(env._browsing.session, url, locator, prep_actions))

    yield look
    env.close()


def test_a_page_is_prepared_before_it_is_looked_at(look):
    assert look(AMOUNT) == ""  # the page does not have it yet
    assert look(AMOUNT, [OPEN]) == "20 &amp; more"  # as it is: comparing unescapes it
    assert (
        look("document.title + clicks", [OPEN, "no.such.thing", OPEN]) == "Rule2"
    )  # nothing is done after one that fails


def test_what_a_script_gives_is_text_as_python_writes_it(look):
    assert look("document.querySelector('.none')") == "None"
    assert look("document.title == 'Rule'") == "True"
    assert look("document.title.length") == "4"
    assert look("document.querySelector('.none').outerText") == ""


def test_all_of_a_page_and_pages_beside_it(look, site):
    assert look("").startswith("<!DOCTYPE html><html><head><title>Rule</title>")
    assert "A plain page" in look("", url=f"http://{site}/plain")
    assert (
        look("document.querySelector('h1').outerText", url=f"http://{site}/plain") == "A plain page"
    )
    assert look("document.title") == "Rule"


def test_a_members_role(look):
    roles = {name: look(MEMBER_ROLE % f'"@{name}"') for name in ("ann", "bob", "eve")}
    assert roles == {"ann": "Guest", "bob": "Owner", "eve": ""}
