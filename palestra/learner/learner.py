"""The learner: the only owner of parameters. It does not know which algorithm it runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from palestra.algos.base import Algorithm, CriticSettings, Need, PolicyOutput
from palestra.algos.batch import Batch, pack
from palestra.algos.losses import Stats, kl_divergence
from palestra.config.optimizer import OptimizerConfig
from palestra.core.errors import UserError
from palestra.core.seeds import derive_seed
from palestra.core.types import Group
from palestra.learner.critic import Critic
from palestra.learner.layers import rework_layers
from palestra.learner.logprobs import estimate, predict
from palestra.learner.master_weights import MasterWeights
from palestra.learner.parallel import Parallel, clipped_norm
from palestra.learner.reference import Reference

log = logging.getLogger(__name__)

SPARED_EVERY = 8
"""Segments (or trajectories, groups) without a signal are spared the forward pass but for one in so
many: diagnostics of action tokens are means over all of them, those that are spared estimated by
these.
"""

Watch = Callable[[Batch, PolicyOutput], None]
"""Is shown each piece of a batch and what the model said of it."""


class NonFiniteLoss(UserError, RuntimeError):
    """Loss or gradient was not a number, time and again."""


class Learner:
    def __init__(
        self,
        model: PreTrainedModel,
        optim: OptimizerConfig,
        *,
        temperature: float,
        seed: int,
        critic: CriticSettings | None = None,
        parallel: Parallel | None = None,
    ) -> None:
        self.model = model
        self.optim = optim
        self.temperature = temperature
        """Of sampling: log-probs are those of the policy that sampled."""
        self.seed = seed
        self.updates_skipped = 0
        """Optimizer steps left out in a row because something was not a number."""
        self.parallel = parallel or Parallel()
        self.dtype = model.dtype
        """What the model computes in."""
        self._critic_settings = critic
        self._reference: Reference | None = None
        if optim.compile or optim.activation_checkpointing:
            rework_layers(model, compiled=optim.compile, recomputed=optim.activation_checkpointing)
        if self.parallel.is_sharded:
            self.parallel.shard(model, self.dtype)
        self.reset_optimizer()

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """All parameters that learn, by name, in full precision: the policy's and the critic's."""
        return self.masters.full_precision

    @property
    def _policy_parameters(self) -> list[torch.nn.Parameter]:
        return [p for name, p in self.trained().items() if not name.startswith("critic.")]

    @property
    def _critic_parameters(self) -> list[torch.nn.Parameter]:
        return [p for name, p in self.trained().items() if name.startswith("critic.")]

    def reset_optimizer(self) -> None:
        """Forget the moments and let the critic begin from the weights as they are, as between a
        warm start and what follows.
        """
        self.critic = (
            None if self._critic_settings is None else Critic(self._critic_settings, self.model)
        )
        modules = (
            {"": self.model} if self.critic is None else {"": self.model, "critic.": self.critic}
        )
        self.masters = MasterWeights(
            {
                f"{prefix}{name}": p
                for prefix, module in modules.items()
                for name, p in module.named_parameters()
                if p.requires_grad
            }
        )
        groups = [
            {"params": parameters}
            for parameters in (self._policy_parameters, self._critic_parameters)
            if parameters
        ]
        optim = self.optim
        self.optimizer = torch.optim.AdamW(
            groups, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay, fused=True
        )

    def prepare(self, groups: list[Group], algo: Algorithm) -> Batch:
        """Pack what may be learned from, and add the log-probs and estimates that the algorithm
        needs.
        """
        learnable = [(group, kept) for group in groups if (kept := algo.learnable(group))]
        batch = pack(
            [kept for _, kept in learnable], algo.turn_rewards, keep_tail="value" in algo.needs
        )
        if algo.needs_baseline:
            baselines = [algo.baseline_reward(group) for group, kept in learnable for _ in kept]
            batch = batch.with_(baseline_N=torch.tensor(baselines))
        batch = batch.to(self.model.device)
        for need in sorted(algo.needs):
            batch = batch.with_(**self._estimated(batch, need, algo.temperature(self.temperature)))
        return batch

    def remember_reference(self, model: PreTrainedModel | None = None) -> None:
        """What KL is measured against: the given model, or this one as it is now."""
        self._reference = Reference(model or self.model)

    def return_to_reference(self) -> None:
        """Begin anew from the model that was remembered."""
        assert self._reference is not None
        self._reference.restore(self.model)
        self.reset_optimizer()

    def _estimated(self, batch: Batch, need: Need, temperature: float) -> dict[str, Tensor]:
        """What a model says of the batch before the first update."""
        if need == "reference" and self._reference is None:
            raise RuntimeError("the algorithm needs a reference model, and none was kept")
        shown = (
            self._reference.activate(self.model)
            if need == "reference" and self._reference
            else nullcontext(self.model)
        )
        said: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad(), shown as model:
            for row, counts in self.parallel.microbatches(batch, self.optim.microbatch_tokens):
                one = self.parallel.run(model, partial(self._estimated_row, row, need, temperature))
                said += [one] if counts else []
        value_C, after_S = (
            self.parallel.joined([pair[part] for pair in said], batch.sampled_logp_C)
            for part in (0, 1)
        )
        if need != "value":
            return {f"{need}_logp_C": value_C}
        is_last_S = batch.is_last_S
        after_N = torch.zeros_like(batch.reward_N).index_put_(
            (batch.trajectory_S[is_last_S],), after_S[is_last_S]
        )
        return {"value_C": value_C, "value_after_N": after_N}

    def _estimated_row(
        self, row: Batch, need: Need, temperature: float, model: PreTrainedModel
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and nothing, or values and those after each segment."""
        if need != "value":
            logp_C = predict(model, row, temperature).logp_C
            return logp_C, logp_C[:0]
        assert self.critic is not None
        return estimate(model, self.critic, row)

    def update(
        self,
        batch: Batch,
        algo: Algorithm,
        *,
        lr: float,
        step: int,
        minibatches: int | None = None,
        epochs: int | None = None,
        watch: Watch | None = None,
    ) -> dict[str, float]:
        """Go through the batch in mini-batches, an optimizer step each. Returns the means of all
        diagnostics: over action tokens, each as the weights are when it is learned from, and of
        what there is one figure for each optimizer step over those.

        `watch` sees the first epoch.
        """
        steps: dict[str, list[float]] = {}
        means: dict[str, list[tuple[float, int]]] = {}
        for epoch in range(epochs or self.optim.epochs):
            generator = torch.Generator().manual_seed(
                derive_seed(self.seed, "minibatches", step, epoch)
            )
            for part in batch.split(minibatches or self.optim.minibatches, generator, algo.unit):
                is_fresh = not {"policy/mismatch", "policy/drift"} & set(means)
                of_step, of_tokens = self._step(
                    part, algo, lr, step, is_fresh=is_fresh, watch=watch if epoch == 0 else None
                )
                for name, value in of_step.items():
                    steps.setdefault(name, []).append(value)
                for name, value in of_tokens.items():
                    means.setdefault(name, []).append((value, len(part.trajectory_C)))
        of_steps = {name: sum(values) / len(values) for name, values in steps.items()}
        return (
            of_steps | {name: _weighted_mean(pairs) for name, pairs in means.items()} | {"lr": lr}
        )

    def _step(
        self,
        batch: Batch,
        algo: Algorithm,
        lr: float,
        step: int,
        *,
        is_fresh: bool,
        watch: Watch | None,
    ) -> tuple[dict[str, float], dict[str, float]]:
        """One optimizer step over `batch`, its gradient added up row by row. `is_fresh`: the
        weights are those that were handed over.

        Returns what there is one figure of for the step, and means over all action tokens.
        """
        batch = batch.with_(weight_C=algo.weights(batch))
        temperature = algo.temperature(self.temperature)
        has_gaps = algo.is_on_policy and is_fresh and temperature == self.temperature
        figures = _Figures(batch, algo, newest=step - 1 if has_gaps else None)
        critic = self.critic if "value" in algo.needs else None
        learned, spared = batch, None
        if algo.learns_only_from_advantages and batch.entropy_weight_C is None:
            learned, spared = (
                batch.with_signal(algo.unit),
                batch.sample_without_signal(algo.unit, every=SPARED_EVERY),
            )
        gradients: dict[str, Tensor] = {}
        self.optimizer.zero_grad(set_to_none=True)
        for part in self.parallel.in_parts(learned, self.optim.microbatch_tokens, algo.unit):
            for row, counts in part:
                if len(row.trajectory_C) == 0 and not self.parallel.is_sharded:
                    continue
                policy = self._predicted(row, critic, temperature)
                loss_C, stats = algo.loss(policy, row)
                assert row.weight_C is not None
                loss = (loss_C * row.weight_C).sum()
                (loss * (self.parallel.loss_scale if counts else 0.0)).backward()
                self.masters.accumulate_grads()
                if counts and watch is not None:
                    watch(row, policy)
                if counts:
                    figures.add(row, policy, stats | {"loss": loss.detach()})
            self.masters.add_to(gradients)
        if spared is not None and len(spared.trajectory_C):
            share = (len(batch.trajectory_C) - len(learned.trajectory_C)) / len(spared.trajectory_C)
            with torch.no_grad():
                for row, counts in self.parallel.microbatches(
                    spared, self.optim.microbatch_tokens, algo.unit
                ):
                    policy = self._predicted(row, critic, temperature)
                    if counts:
                        figures.add(row, policy, algo.loss(policy, row)[1], share)
        self.masters.set_grads(gradients)
        if len(learned.trajectory_C):  # where there is nothing to learn, no rank has a gradient
            self.parallel.add_up(
                [*self._policy_parameters, *(self._critic_parameters if critic is not None else ())]
            )
        norms = self._clipped_norms(critic, step)
        totals = self.parallel.world.total(
            {name: float(value) for name, value in figures.sums.items()}
        )
        of_step = {
            name: totals.pop(name) for name in ("loss", *algo.means_of_loss) if name in totals
        }
        return of_step | self._apply(of_step["loss"], norms, lr), totals

    def _predicted(self, row: Batch, critic: Critic | None, temperature: float) -> PolicyOutput:
        def said(model: PreTrainedModel) -> tuple[Tensor, Tensor, Tensor | None]:
            policy = predict(
                model,
                row,
                temperature,
                critic=critic,
                entropy_gradient=row.entropy_weight_C is not None,
            )
            return policy.logp_C, policy.entropy_C, policy.value_C

        return PolicyOutput(*self.parallel.run(self.model, said))

    def _clipped_norms(self, critic: Critic | None, step: int) -> dict[str, float]:
        """Clip the gradients, those of the critic apart, and drop the policy's while the critic
        warms up.
        """
        norms = {}
        if critic is not None:
            norms["value/grad_norm"] = clipped_norm(self._critic_parameters, self.optim.clip_norm)
            if critic.is_warming_up(step):
                for parameter in self._policy_parameters:
                    parameter.grad = None
        return {"grad_norm": clipped_norm(self._policy_parameters, self.optim.clip_norm), **norms}

    def _apply(self, loss: float, norms: dict[str, float], lr: float) -> dict[str, float]:
        """Step the optimizer, unless something is not a number; three such steps in a row end the
        run.
        """
        if not all(map(math.isfinite, (loss, *norms.values()))):
            self.updates_skipped += 1
            found = f"loss {loss}, {', '.join(f'{name} {norm}' for name, norm in norms.items())}"
            log.error("%s: this update is left out (%d in a row)", found, self.updates_skipped)
            if self.updates_skipped >= 3:
                raise NonFiniteLoss(
                    f"{found}: three updates in a row were not numbers; try a lower learning rate"
                )
            return {**dict.fromkeys(norms, 0.0), "updates_skipped": 1.0}
        self.updates_skipped = 0
        own_lr = self.critic.settings.lr if self.critic is not None else None
        for parameters, base in zip(self.optimizer.param_groups, (None, own_lr), strict=False):
            parameters["lr"] = (
                lr if base is None else base * lr / self.optim.lr
            )  # the critic's follows the same schedule
        self.optimizer.step()
        self.masters.copy_to_model()
        return {**norms, "updates_skipped": 0.0}


class _Figures:
    """The diagnostics of one optimizer step, added up row by row."""

    def __init__(self, batch: Batch, algo: Algorithm, *, newest: int | None) -> None:
        """`newest`: the version of the weights that the step began with, where the distance from
        those that sampled is measured.
        """
        self.algo, self.newest = algo, newest
        self.tokens = max(len(batch.trajectory_C), 1)
        self.share_of_newest = (
            0.0 if newest is None else int((batch.version_C >= newest).sum()) / self.tokens
        )
        self.sums: dict[str, Tensor] = {"loss": torch.zeros((), device=batch.ids_T.device)}

    def add(self, row: Batch, policy: PolicyOutput, stats: Stats, share: float = 1.0) -> None:
        """`share`: how many action tokens each of the row's stands for."""
        stats = stats | {"policy/entropy": policy.entropy_C.detach()}
        if self.newest is not None:
            stats |= _gaps(
                policy.logp_C.detach(), row, newest=self.newest, share=self.share_of_newest
            )
        for name, value in stats.items():
            weight = share / self.tokens
            if name in self.algo.means_of_loss:
                assert row.weight_C is not None
                value, weight = value * row.weight_C, 1.0
            total = value if value.dim() == 0 else value.sum() * weight
            self.sums[name] = self.sums.get(name, 0.0) + total


def _weighted_mean(pairs: list[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in pairs) / max(
        sum(weight for _, weight in pairs), 1
    )


def _gaps(logp_C: Tensor, row: Batch, *, newest: int, share: float) -> dict[str, Tensor]:
    """How far the learner's log-probs are from those that came with the tokens; `share` of all
    tokens are of the newest weights.

    For these it is a mismatch between engine and learner; for tokens of older weights it is also
    what the weights have moved since.
    """
    gap_C, is_newest_C = (logp_C - row.sampled_logp_C).abs(), row.version_C >= newest
    gaps: dict[str, Tensor] = {}
    if share > 0:
        kl_C = kl_divergence(row.sampled_logp_C, logp_C)
        gaps |= {
            "policy/mismatch": gap_C * is_newest_C / share,
            "policy/mismatch_kl": kl_C * is_newest_C / share,
        }
    return gaps | ({"policy/drift": gap_C * ~is_newest_C / (1 - share)} if share < 1 else {})
