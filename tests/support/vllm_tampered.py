"""A worker extension that can spoil one worker's share of one weight after a hand-over; only a vLLM
server of the tests imports it.
"""

import torch
from vllm.distributed import get_tp_group

from palestra.engines.vllm.worker import WorkerExtension


class TamperedExtension(WorkerExtension):
    spoilt = ("", 0)

    def palestra_spoil(self, name, worker):
        """From now on the last row of this weight is wrong in this worker."""
        self.spoilt = (name, int(worker))

    @torch.no_grad()
    def palestra_load(self, folder):
        super().palestra_load(folder)
        name, worker = self.spoilt
        if name and worker == get_tp_group().rank_in_group:
            self.model_runner.get_model().get_parameter(name)[-1] += 0.01
