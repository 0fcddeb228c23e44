"""What `palestra web` asks of self-hosted sites. The package palestra-web has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palestra.core.registry import Registry


@dataclass(frozen=True, slots=True)
class RunningSite:
    about: str
    url: str
    """Its URL inside of the environment."""
    port: int
    """The loopback port for the user's own browser."""
    pid: int | None
    starts: int
    """How often its process was started."""
    start_seconds: float


@dataclass(frozen=True, slots=True)
class RunningSuite:
    sites: Mapping[str, RunningSite]
    instances: int
    """Copies of the sites that are open."""
    pid: int
    """The supervisor process."""


class SiteSuite(ABC):
    """Sites that can be started on this machine. Errors that the user can fix are UserErrors."""

    @abstractmethod
    def up(self, names: Sequence[str], tell: Callable[[str], None]) -> RunningSuite:
        """Start these sites (default: all) in addition to the running ones.

        `tell` gets a line for each step that takes long.
        """

    @abstractmethod
    def down(self) -> Sequence[str]:
        """Stop all sites and return the names of those that were running."""

    @abstractmethod
    def status(self) -> RunningSuite | None:
        """The running sites, or None."""


suites: Registry[type[SiteSuite]] = Registry(
    "suites", base="palestra.envs.web.suite:SiteSuite", packages={"web": "palestra-web"}
)
