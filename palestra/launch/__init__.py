"""From a run folder to workers that train it: in this process, in several on this host, or in those of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palestra.launch.work import Assignment, train_here

if TYPE_CHECKING:
    from palestra.run import Run


def launch(run: Run, assignment: Assignment) -> None:
    """Train `run` to its end, by as many workers as it says."""
    settings = run.config.launch
    if settings.is_in_process:
        return train_here(run, as_json=assignment.as_json)
    if settings.kind == "ray":
        from palestra.launch.on_ray import launch_on_ray

        return launch_on_ray(run, assignment)
    from palestra.launch.local import launch_local

    return launch_local(run, assignment)
