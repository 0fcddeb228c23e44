"""The environment `web`: tasks on the self-hosted sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from palestra.envs.web.env import WebEnvironment
from palestra.envs.web.hosting import Hosting
from palestra.envs.web.tasks import WebTask
from palestra.envs.web.template import Template
from palestra_web.hosting import OwnSites
from palestra_web.tasks import shipped_tasks
from palestra_web.templates import all_templates


class Web(WebEnvironment):
    """Tasks on self-hosted sites: a shop, a forum, a CMS, a code host and a map.

    `palestra web up` starts them.
    """

    name: ClassVar[str] = "web"

    def _hosted(self) -> Hosting:
        return OwnSites()

    def _known(self, split: str) -> Mapping[str, WebTask]:
        return shipped_tasks(split)

    def _template(self, task: WebTask) -> Template | None:
        return all_templates().get(str(task.intent_template_id))
