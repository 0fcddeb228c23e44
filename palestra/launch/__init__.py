"""From a run folder to the workers that train it: in this process, in several on this host, or on a
Ray cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palestra.launch.worker import WorkerSpec
    from palestra.runs.run import Run
    from palestra.training.preflight import Prepared


def launch(run: Run, spec: WorkerSpec, prepared: Prepared) -> None:
    """Train `run` to its end, by as many workers as it says.

    `prepared`: what the checks have created. Other processes create their own.
    """
    from palestra.training.preflight import close_envs

    settings = run.config.launch
    with run.locked():
        if settings.is_in_process:
            from palestra.launch.worker import train_here

            return train_here(run, display=spec.display, prepared=prepared, notes=spec.notes)
        close_envs(run.config, prepared.envs)
        if settings.kind == "ray":
            from palestra.launch.ray import launch_on_ray

            return launch_on_ray(run, spec)
        from palestra.launch.local import launch_local

        return launch_local(run, spec)
