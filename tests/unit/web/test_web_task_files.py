"""The tasks that are shipped, as files: enough of them, of all kinds, and whole."""

import json
from collections import Counter

import pytest

from palestra_web.sites.catalogue import SITES, SOURCE
from palestra_web.tasks import shipped_tasks

TASKS = [*shipped_tasks("train").values(), *shipped_tasks("test").values()]


def test_there_are_enough_of_all_kinds():
    by_template = Counter(task.intent_template_id for task in TASKS)
    assert len(TASKS) >= 300
    assert len(by_template) >= 40
    assert min(by_template.values()) >= 7
    assert {task.require_reset for task in TASKS} == {True, False}
    assert any(len(task.sites) > 1 for task in TASKS)


@pytest.mark.parametrize("site", SITES)
def test_a_part_of_each_sites_templates_is_kept_for_the_test(site):
    own = {task.intent_template_id: task.split for task in TASKS if task.sites == [site]}
    share = Counter(own.values())["test"] / len(own)
    assert 0.25 < share < 0.5, own


def test_tasks_are_whole():
    for task in TASKS:
        assert "{" not in task.intent, task.task_id
        assert all(f"http://{site}.test/" in task.intent + task.start_url for site in task.sites), (
            task.task_id
        )
        for site, user in task.users.items():
            accounts = json.loads((SOURCE / SITES[site].module / "users.json").read_text())
            assert user in accounts or any(
                user == account.get("email") for account in accounts.values()
            ), (task.task_id, user)


def test_no_two_tasks_are_the_same():
    said = Counter((task.intent, *sorted(task.users.items())) for task in TASKS)
    assert [intent for intent, count in said.items() if count > 1] == []
