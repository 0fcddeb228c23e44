"""How a run is spread over processes and machines."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from palestra.core.settings import Settings


class LaunchSettings(Settings):
    kind: Literal["local", "ray"] = "local"
    """Workers on this host, or on the hosts of a Ray cluster.

    One local worker is the calling process itself.
    """
    workers: PositiveInt = 1
    """Each has its share of the episodes and of the learning, and a GPU of its own where there are
    any.
    """
    restarts: NonNegativeInt = 3
    """How often a run that lost a worker goes on by itself, from its newest checkpoint."""
    sharding: Literal["none", "fsdp"] = "none"
    """The learner's weights, gradients and moments whole on every worker, or each worker with a
    share of them.
    """
    address: str = ""
    """Of the Ray cluster; what RAY_ADDRESS says where not set, or else a cluster of this host
    alone.
    """
    env_servers: NonNegativeInt = 0
    """Environment servers that Ray starts on the cluster's hosts for the time of the run; 0 plays
    as the environment's table says.
    """

    @property
    def is_in_process(self) -> bool:
        return self.kind == "local" and self.workers == 1 and self.sharding == "none"

    @model_validator(mode="after")
    def _no_idle_settings(self) -> LaunchSettings:
        for name in ("address", "env_servers"):
            if self.kind != "ray" and getattr(self, name):
                raise ValueError(
                    f"{name} = {getattr(self, name)!r}: has no effect with kind = "
                    f"{self.kind!r}; did you mean 'ray'?"
                )
        if self.is_in_process and self.restarts != type(self).model_fields["restarts"].default:
            raise ValueError(
                f"restarts = {self.restarts}: has no effect with one local worker, there "
                "is nobody to notice its loss"
            )
        return self
