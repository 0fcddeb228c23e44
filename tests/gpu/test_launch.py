"""Workers and the GPUs of this host."""

import pytest
import torch

from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.training.preflight import preflight

pytestmark = pytest.mark.gpu


def test_every_worker_needs_a_gpu():
    there_are = torch.cuda.device_count()
    with pytest.raises(
        ConfigError, match=f"launch.workers = {there_are + 1}: this machine has {there_are} GPUs"
    ):
        preflight(
            build(
                {"env": {"name": "tests.support.environments:Echo"}},
                {"launch.workers": there_are + 1},
            )
        )
    preflight(
        build(
            {"env": {"name": "tests.support.environments:Echo"}},
            {"launch.workers": there_are + 1, "device": "cpu"},
        )
    )
