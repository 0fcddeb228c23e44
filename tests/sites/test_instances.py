"""Every episode has the sites to itself, and begins with the seed."""

import http.client
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palestra.core.types import Task
from palestra_web.client import SitesDown
from palestra_web.env import Web
from palestra_web.sites.building import BASE_FILE, base, python, site_variables
from palestra_web.sites.catalogue import SITES
from palestra_web.tasks import shipped_tasks
from tests.sites.visitor import Visitor


def contents(paths):
    return {site: Path(path).read_bytes() for site, path in paths.items()}


def test_the_state_after_reset_is_the_seed_byte_for_byte(sites):
    seed = None
    for _ in range(2):
        made = sites.open()
        seed = seed or contents(made.base)
        assert contents(made.files) == seed == contents(made.base)
        Visitor(made).put_into_cart(20)
        assert contents(made.files)["shop"] != seed["shop"]
        assert {change.table for change in made.changes("shop")} == {"basket_line"}
        made.close()
        assert not any(Path(path).exists() for path in made.files.values())


def test_sixteen_who_write_at_once_see_nothing_of_each_other(sites):
    made = [sites.open(["shop"]) for _ in range(16)]
    visitors = [Visitor(one) for one in made]
    seeded = visitors[0].cart()
    there = [
        row["id"]
        for row in made[0].query(
            "shop", "SELECT product_id AS id FROM partner_stockrecord WHERE num_in_stock > 20"
        )
    ]
    wanted = [set(there[n * 3 : n * 3 + 3]) for n in range(16)]

    def shop(n):
        for product in wanted[n]:
            visitors[n].put_into_cart(product)
        return visitors[n].cart()

    try:
        with ThreadPoolExecutor(16) as threads:
            bought = list(threads.map(shop, range(16)))
        assert bought == [seeded | wanted[n] for n in range(16)]
    finally:
        for one in made:
            one.close()


def test_two_episodes_that_change_the_same_cart_do_not_see_each_other(sites):
    """The same customer in two browsers at once, action by action in turns."""
    one, other = Web(), Web()
    try:
        task = Task("web", "train", "shop-remove-from-cart/0")
        one.reset(task)
        other.reset(task)
        product = shipped_tasks("train")[task.id].instantiation_dict["product"]
        while (action := one.expert()) is not None and not action.startswith("stop"):
            seen = one.step(action).observation
        assert product not in seen
        assert product in other.step(other.expert()).observation  # its own cart, as it was
        assert one.step("stop []").success
        assert not other.step("stop []").success
    finally:
        one.close()
        other.close()


@pytest.mark.timeout(600)  # seconds where nobody else is at work
@pytest.mark.parametrize("name", SITES)
def test_a_site_is_seeded_alike_each_time(sites, name, tmp_path):
    site = SITES[name]
    variables = site_variables(site) | {"SITE_BASE": str(tmp_path)}
    subprocess.run([str(python(site)), "-m", f"{site.module}.seed"], env=variables, check=True)
    assert (tmp_path / BASE_FILE).read_bytes() == (base(site) / BASE_FILE).read_bytes()


@pytest.mark.parametrize(
    "name", ["", "0" * 16, "../" * 5 + "etc", "visitor/../visitor", "%2e%2e", "x" * 5000]
)
def test_without_an_instance_there_is_no_site(sites, name):
    connection = http.client.HTTPConnection("127.0.0.1", sites.sites["shop"]["port"], timeout=30)
    connection.request(
        "GET",
        "/",
        headers={"Host": "shop.test", "X-Instance": name} if name else {"Host": "shop.test"},
    )
    answer = connection.getresponse()
    assert (answer.status, b"There is no such instance" in answer.read()) == (404, True)


def test_sessions_are_made_for_the_supervisor_alone(instance):
    connection = http.client.HTTPConnection(
        "127.0.0.1", instance.sites.sites["shop"]["port"], timeout=30
    )
    for token in ("", "wrong"):
        connection.request(
            "POST",
            "/-/login",
            b'{"user": "x"}',
            {"Host": "shop.test", "X-Instance": instance.id, "X-Token": token},
        )
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (403, True)
    with pytest.raises(SitesDown, match="no user 'nobody'"):
        instance.login("shop", "nobody")


def test_the_database_cannot_be_changed_by_asking(instance):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        instance.query("shop", "DELETE FROM basket_line")


def test_an_unknown_site_is_named(sites):
    with pytest.raises(SitesDown, match="not up: nowhere; there are: "):
        sites.open(["nowhere"])
