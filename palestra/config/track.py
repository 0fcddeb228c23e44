"""Settings of experiment trackers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, NonNegativeFloat

from palestra.core.registry import Registry
from palestra.core.settings import Settings, named_in

trackers: Registry[Any] = Registry(
    "trackers",
    {
        "tensorboard": "palestra.training.trackers:TensorBoard",
        "wandb": "palestra.training.trackers:WeightsAndBiases",
        "mlflow": "palestra.training.trackers:MLflow",
    },
    base="palestra.training.tracking:Tracker",
)


class TrackSettings(Settings):
    """Experiment trackers that follow the run."""

    names: tuple[Annotated[str, AfterValidator(named_in(trackers))], ...] = ()
    """Experiment trackers: "tensorboard", "wandb", "mlflow", or "module:Class".

    Their own environment variables configure them.
    """
    project: str = "palestra"
    """The project in W&B, the experiment in MLflow."""
    timeout_s: NonNegativeFloat = 5.0
    """Maximum time in seconds that a run waits for its trackers at the end."""
