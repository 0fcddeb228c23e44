"""How a run is distributed over processes and machines."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt, model_validator

from palestra.core.settings import Settings


class LaunchSettings(Settings):
    """Where a run trains: in one process, in several, or on a Ray cluster."""

    kind: Literal["local", "ray"] = "local"
    """Run workers on this host ("local") or on the hosts of a Ray cluster ("ray").

    One local worker is the calling process itself.
    """
    workers: PositiveInt = 1
    """Data-parallel workers. Each samples and trains on its share of the episodes, on a GPU of its
    own if there are any.
    """
    restarts: NonNegativeInt = 3
    """Maximum number of automatic restarts, from the latest checkpoint, after a lost worker."""
    sharding: Literal["none", "fsdp"] = "none"
    """"none" replicates weights, gradients and optimizer state on every worker; "fsdp" shards them
    over the workers (FSDP2).
    """
    address: str = ""
    """Address of the Ray cluster. Default: RAY_ADDRESS, or else a new cluster on this host."""
    env_servers: NonNegativeInt = 0
    """Environment servers to start on the Ray cluster for this run; 0 runs environments as their
    own table says.
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
