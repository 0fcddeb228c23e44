"""Each site really changes, for one episode alone, and the next one begins with the seed."""

import http.client
from pathlib import Path

import pytest

from palestra.core.types import Task
from palestra_web.env import Web

CHANGES = {
    "map": "map-save-place/0",
    "forum": "forum-reply/0",
    "cms": "cms-publish-draft/0",
    "code": "code-close-ticket/0",
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("site", CHANGES)
def test_two_episodes_of_one_user_do_not_see_each_other_and_the_next_begins_with_the_seed(
    sites, site
):
    one, other = Web(), Web()
    try:
        for env in (one, other):
            env.reset(Task("web", "train", CHANGES[site]))
        done = None
        while (action := one.expert()) is not None:
            done = one.step(action)
        assert done.success
        assert not other.step("stop []").success
        fresh = sites.open([site])
        assert Path(fresh.files[site]).read_bytes() == Path(fresh.base[site]).read_bytes()
        assert fresh.changes(site) == []
        fresh.close()
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("site", "user", "path", "said"),
    [
        ("forum", "odette", "/", "Log out"),
        ("cms", "nadia", "/admin/", "Nadia"),
        ("code", "priya", "/timeline", "Logout"),
        ("map", "emma", "/", "Emma Lindqvist"),
    ],
)
def test_sessions_are_made_without_the_form(instance, site, user, path, said):
    assert said not in page(instance, site, path, [])
    assert said in page(instance, site, path, instance.login(site, user))


def page(instance, site, path, cookies):
    connection = http.client.HTTPConnection(
        "127.0.0.1", instance.sites.sites[site]["port"], timeout=60
    )
    jar = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in cookies)
    connection.request(
        "GET", path, headers={"Host": f"{site}.test", "X-Instance": instance.id, "Cookie": jar}
    )
    return connection.getresponse().read().decode()
