"""From a run folder to workers that train it: in this process, in several on this host, or in those
of a Ray cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.envs import Environment
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run


def launch(run: Run, spec: WorkerSpec, envs: Mapping[str, Environment]) -> None:
    """Train `run` to its end, by as many workers as it says.

    `envs`: those that the checks made; other processes make their own.
    """
    from palestra.training.setup import close_envs

    settings = run.config.launch
    with run.locked():
        if settings.is_in_process:
            from palestra.launch.worker import train_here

            return train_here(run, as_json=spec.as_json, envs=dict(envs))
        close_envs(run.config, envs)
        if settings.kind == "ray":
            from palestra.launch.ray import launch_on_ray

            return launch_on_ray(run, spec)
        from palestra.launch.local import launch_local

        return launch_local(run, spec)
