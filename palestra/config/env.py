"""Which environments a run plays, and where they run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt, SerializeAsAny, model_validator

from palestra.core.credentials import TOKEN_VARIABLE, has_password
from palestra.core.registry import UnknownName
from palestra.core.settings import Settings, chosen_from
from palestra.envs import check_name, is_url, label_of
from palestra.envs.serving.sandbox import misuse
from palestra.horizons import horizons
from palestra.horizons.base import Horizon

DEFAULT_ENV = "textcraft"


class EnvSettings(Settings):
    """The environment, and where it runs."""

    name: str = DEFAULT_ENV
    """A registered environment, "module:Class", or the URL of a served one such as
    "http://host:8100/textcraft".
    """
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment's constructor."""
    isolation: Literal["inline", "process"] = "inline"
    """Run environments in the training process, between the engine's steps, or in worker processes.
    """
    deadline_s: PositiveFloat = 60.0
    """Timeout of a single call to an environment, in seconds."""
    per_worker: PositiveInt | None = None
    """Environments per worker process. Default: the environment's own choice."""
    memory_mb: PositiveInt | None = None
    """Memory limit of a worker process in MiB. A worker above it gets no new episodes, and is
    replaced once its last one has ended. Default: 4096.
    """
    max_processes: PositiveInt | None = None
    """Maximum number of processes of a worker, itself and its children included; a worker with more
    is killed. Default: 128.
    """
    pass_env: tuple[str, ...] = ()
    """Secret environment variables to pass on to worker processes, such as ["HF_TOKEN"]. Variables
    that are not secret are always passed on.
    """
    sandbox: Literal["none", "bwrap"] = "none"
    """"bwrap" runs worker processes under bubblewrap: without network, and with read-only access to
    the files that they need.
    """
    sandbox_read: tuple[str, ...] = ()
    """Additional files and folders that a sandbox can read."""
    urls: tuple[str, ...] = ()
    """If `name` is the URL of a served environment: further servers of the same environment,
    among which episodes are distributed.
    """

    @property
    def is_remote(self) -> bool:
        return is_url(self.name)

    @property
    def is_inline(self) -> bool:
        """Whether the environment runs in the training process, between the engine's steps."""
        return self.isolation == "inline" and not self.is_remote

    @model_validator(mode="after")
    def _no_idle_settings(self) -> EnvSettings:
        for name in ("per_worker", "memory_mb", "max_processes"):
            if self.isolation == "inline" and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} = {getattr(self, name)}: has no effect with isolation = "
                    "'inline'; did you mean 'process'?"
                )
        if self.isolation == "inline" and self.pass_env:
            raise ValueError(
                f"pass_env = {list(self.pass_env)}: has no effect with isolation = "
                "'inline'; did you mean 'process'?"
            )
        if reason := misuse(self.name, self.sandbox, self.sandbox_read, self.isolation):
            raise ValueError(reason)
        for url in (self.name, *self.urls):
            if is_url(url) and has_password(url):
                raise ValueError(
                    f"name = {url!r}: expected a URL without user and password; a token "
                    f"goes into {TOKEN_VARIABLE}"
                )
        return self

    @model_validator(mode="after")
    def _has_valid_name(self) -> EnvSettings:
        try:
            check_name(self.name)
        except UnknownName as error:
            raise ValueError(f"name = {self.name!r}: {error}") from error
        if self.urls and not self.is_remote:
            raise ValueError(f"urls = {list(self.urls)}: name must be a URL too, not {self.name!r}")
        for url in self.urls:
            if not is_url(url) or label_of(url) != label_of(self.name):
                raise ValueError(
                    f"urls = {list(self.urls)}: expected URLs of {label_of(self.name)} "
                    f"like {self.name!r}, got {url!r}"
                )
        if self.is_remote and self.isolation != "inline":
            raise ValueError(
                f"isolation = {self.isolation!r}: has no effect, the environment's server "
                "decides where it runs"
            )
        return self


class Member(EnvSettings):
    """One environment of a mixture."""

    label: str = Field(default="", pattern=r"^[\w.-]*$")
    """Name of the environment in this run.

    Default: its registered name, the last part of its URL, or its class's name in lower case.
    """
    weight: PositiveFloat = 1.0
    """Sampling weight of the environment's tasks, relative to the other environments."""
    horizon: Annotated[SerializeAsAny[Horizon], chosen_from(horizons, "kind", "fixed")] | None = (
        None
    )
    """Horizon schedule of this environment. Default: the run's."""
    group: PositiveInt | None = None
    """Trajectories per task. Default: `rollout.group`."""
    reward_scale: PositiveFloat = 1.0
    """Factor on the environment's rewards in the loss. Metrics report the unscaled rewards."""

    @property
    def title(self) -> str:
        return self.label or label_of(self.name)


class EnvSpec(NamedTuple):
    """One environment of a run, with all defaults filled in."""

    label: str
    env: EnvSettings
    weight: float
    horizon: Horizon
    group: int
    reward_scale: float
