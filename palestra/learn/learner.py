"""The learner: the only owner of parameters. It does not know which algorithm it runs."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.algos.base import Algorithm, Need
from palestra.batch import Batch, pack
from palestra.learn.logprobs import predict
from palestra.learn.schedule import Optim
from palestra.seeds import derive_seed
from palestra.types import Group, Trajectory

log = logging.getLogger(__name__)


class Diverged(RuntimeError):
    """Loss or gradient was not a number, time and again."""


class Learner:
    def __init__(self, model: PreTrainedModel, optim: Optim, *, temperature: float, seed: int) -> None:
        self.model = model
        self.optim = optim
        self.temperature = temperature
        """Of sampling: log-probs are those of the policy that sampled."""
        self.seed = seed
        self.updates_skipped = 0
        """Optimiser steps left out in a row because something was not a number."""
        self._reference: PreTrainedModel | None = None
        self.optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.AdamW:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        return torch.optim.AdamW(parameters, lr=self.optim.lr, betas=self.optim.betas, weight_decay=self.optim.weight_decay, fused=True)

    def restart_optimizer(self) -> None:
        """Forget the moments, as between a warm start and reinforcement learning."""
        self.optimizer = self._new_optimizer()

    def prepare(self, groups: list[Group], algo: Algorithm) -> Batch:
        """Pack what may be learnt from, and add the log-probs that the algorithm needs."""
        batch = pack([learnable for group in groups if (learnable := algo.learnable(group))], algo.turn_reward).to(self.model.device)
        return replace(batch, **{f"{need}_logp_C": self._logprobs(batch, need) for need in sorted(algo.needs)})

    def remember_reference(self, model: PreTrainedModel | None = None) -> None:
        """What KL is measured against: the given model, or this one as it is now."""
        self._reference = (model or copy.deepcopy(self.model)).requires_grad_(False)

    def _logprobs(self, batch: Batch, need: Need) -> Tensor:
        model = self._reference if need == "reference" else self.model
        if model is None:
            raise RuntimeError("the algorithm needs a reference model, and none was kept")
        with torch.no_grad():
            return torch.cat([predict(model, row, self.temperature).logp_C for row in batch.rows(self.optim.row_tokens)])

    def update(
        self, batch: Batch, algo: Algorithm, *, lr: float, step: int, minibatches: int | None = None, epochs: int | None = None
    ) -> dict[str, float]:
        """Go through the batch in mini-batches, an optimiser step each. Returns the means of all diagnostics."""
        totals: dict[str, list[float]] = {}
        for epoch in range(epochs or self.optim.epochs):
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "minibatches", step, epoch))
            order_N = torch.randperm(len(batch), generator=generator).to(batch.ids_T.device)
            for part in batch.split(minibatches or self.optim.minibatches, order_N):
                stats = self._step(part, algo, lr)
                for name, value in stats.items():
                    totals.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in totals.items()} | {"lr": lr}

    def _step(self, batch: Batch, algo: Algorithm, lr: float) -> dict[str, float]:
        """One optimiser step over `batch`, its gradient added up row by row."""
        batch = batch.with_(weight_C=algo.weights(batch))
        if algo.learns_only_from_advantages:
            batch = batch.with_signal()
        tokens = max(len(batch.owner_C), 1)
        sums: dict[str, Tensor] = {"loss": torch.zeros((), device=batch.ids_T.device)}
        self.optimizer.zero_grad(set_to_none=True)
        for row in batch.rows(self.optim.row_tokens):
            if len(row.owner_C) == 0:
                continue
            new = predict(self.model, row, self.temperature)
            loss_C, stats = algo.loss(new, row)
            assert row.weight_C is not None
            loss = (loss_C * row.weight_C).sum()
            loss.backward()
            mismatch_C = (new.logp_C.detach() - row.sampled_logp_C).abs()
            means = stats | {"policy/entropy": new.entropy_C, "policy/mismatch": mismatch_C}
            for name, value_C in means.items():
                sums[name] = sums.get(name, 0.0) + value_C.sum() / tokens
            sums["loss"] += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.optim.clip_norm)
        return {name: float(value) for name, value in sums.items()} | self._apply(float(sums["loss"]), float(norm), lr)

    def _apply(self, loss: float, norm: float, lr: float) -> dict[str, float]:
        """Step the optimiser, unless something is not a number; three such steps in a row end the run."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.updates_skipped += 1
            log.error("loss %s, gradient norm %s: this update is left out (%d in a row)", loss, norm, self.updates_skipped)
            if self.updates_skipped >= 3:
                raise Diverged(f"loss {loss}, gradient norm {norm}: three updates in a row were not numbers; try a lower learning rate")
            return {"grad_norm": 0.0, "updates_skipped": 1.0}
        self.updates_skipped = 0
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = lr
        self.optimizer.step()
        return {"grad_norm": norm, "updates_skipped": 0.0}


def demonstrations(trajectories: Iterable[Trajectory]) -> list[Group]:
    """Trajectories to imitate, each as a group of its own."""
    return [Group(trajectory.task, [trajectory]) for trajectory in trajectories]
