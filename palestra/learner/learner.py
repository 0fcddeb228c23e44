"""The learner: the only owner of trained parameters. It does not know which algorithm it runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
from palestra.core.types import Group, Trajectory
from palestra.learner.critic import Critic
from palestra.learner.layers import rework_layers
from palestra.learner.logprobs import estimate, predict
from palestra.learner.master_weights import MasterWeights
from palestra.learner.parallel import Parallel, clipped_norm
from palestra.learner.reference import Reference

log = logging.getLogger(__name__)

NO_SIGNAL_SAMPLE = 8
"""Of the segments (trajectories, groups) without a signal, one in this many is computed for the
diagnostics, which are means over all action tokens; it stands for the ones that are skipped.
"""

Watch = Callable[[Batch, PolicyOutput], None]
"""Called with each micro-batch and the model's outputs for it."""


class NonFiniteLoss(UserError, RuntimeError):
    """Loss or gradient norm was NaN or infinite several times in a row."""


class Learner:
    """Updates the model's parameters with any algorithm."""

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
        """The sampling temperature: log-probs are those of the policy as it samples."""
        self.seed = seed
        self.updates_skipped = 0
        """Consecutive optimizer steps skipped because loss or gradients were not finite."""
        self.parallel = parallel or Parallel()
        self.dtype = model.dtype
        """The type that the model computes in."""
        self._critic_settings = critic
        self._reference: Reference | None = None
        if optim.compile or optim.activation_checkpointing:
            rework_layers(model, compiled=optim.compile, recomputed=optim.activation_checkpointing)
        if self.parallel.is_sharded:
            self.parallel.shard(model, self.dtype)
        self.reset_optimizer()

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """All trained parameters by name, in full precision: the policy's and the critic's."""
        return self.masters.full_precision

    @property
    def _policy_parameters(self) -> list[torch.nn.Parameter]:
        return [p for name, p in self.trained().items() if not name.startswith("critic.")]

    @property
    def _critic_parameters(self) -> list[torch.nn.Parameter]:
        return [p for name, p in self.trained().items() if name.startswith("critic.")]

    def reset_optimizer(self) -> None:
        """Create the optimizer without moments, and a new critic from the current weights: at the
        start, and between a warm start and training.
        """
        self.critic = None
        modules: dict[str, torch.nn.Module] = {"": self.model}
        if self._critic_settings is not None:
            self.critic = Critic(self._critic_settings, self.model)
            modules["critic."] = self.critic
        trainable: dict[str, torch.nn.Parameter] = {}
        for prefix, module in modules.items():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    trainable[f"{prefix}{name}"] = parameter
        self.masters = MasterWeights(trainable)
        groups = [{"params": self._policy_parameters}]
        if self._critic_parameters:
            groups.append({"params": self._critic_parameters})
        optim = self.optim
        self.optimizer = torch.optim.AdamW(
            groups, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay, fused=True
        )

    def prepare(self, groups: list[Group], algo: Algorithm) -> Batch:
        """Pack the trainable trajectories of the groups, and add the log-probs and value estimates
        that the algorithm needs.
        """
        learnable: list[list[Trajectory]] = []
        baselines: list[float] = []
        for group in groups:
            trajectories = algo.learnable(group)
            if trajectories:
                learnable.append(trajectories)
                if algo.needs_baseline:
                    baselines += [algo.baseline_reward(group)] * len(trajectories)
        batch = pack(learnable, algo.turn_rewards, keep_tail="value" in algo.needs)
        if algo.needs_baseline:
            batch = batch.with_(baseline_N=torch.tensor(baselines))
        batch = batch.to(self.model.device)
        for need in sorted(algo.needs):
            batch = batch.with_(**self._estimates(batch, need, algo.temperature(self.temperature)))
        return batch

    def remember_reference(self, model: PreTrainedModel | None = None) -> None:
        """Copy the given model, or the current one, as the reference model."""
        self._reference = Reference(model or self.model)

    def return_to_reference(self) -> None:
        """Reset the weights to the reference model's, and the optimizer."""
        assert self._reference is not None
        self._reference.restore(self.model)
        self.reset_optimizer()

    def _estimates(self, batch: Batch, need: Need, temperature: float) -> dict[str, Tensor]:
        """The batch's fields for one of the algorithm's needs, from before the first update."""
        active: AbstractContextManager[PreTrainedModel] = nullcontext(self.model)
        if need == "reference":
            if self._reference is None:
                raise RuntimeError("the algorithm needs a reference model, and none was kept")
            active = self._reference.activate(self.model)

        firsts: list[Tensor] = []
        afters: list[Tensor] = []
        with torch.no_grad(), active as model:
            for micro, counts in self.parallel.microbatches(batch, self.optim.microbatch_tokens):
                work = partial(self._estimate_microbatch, micro, need, temperature)
                first_C, after_S = self.parallel.run(model, work)
                if counts:
                    firsts.append(first_C)
                    afters.append(after_S)
        first_C = self.parallel.joined(firsts, batch.sampled_logp_C)
        after_S = self.parallel.joined(afters, batch.sampled_logp_C)

        if need != "value":
            return {f"{need}_logp_C": first_C}
        is_last_S = batch.is_last_S
        after_N = torch.zeros_like(batch.reward_N)
        after_N.index_put_((batch.trajectory_S[is_last_S],), after_S[is_last_S])
        return {"value_C": first_C, "value_after_N": after_N}

    def _estimate_microbatch(
        self, micro: Batch, need: Need, temperature: float, model: PreTrainedModel
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and an empty tensor; or values before each token and after each segment."""
        if need != "value":
            logp_C = predict(model, micro, temperature).logp_C
            return logp_C, logp_C[:0]
        assert self.critic is not None
        return estimate(model, self.critic, micro)

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
        """Train on the batch: one optimizer step per mini-batch, for all epochs.

        Returns the means of all diagnostics: those of tokens over action tokens, each computed with
        the weights at its own update, and those of optimizer steps over the steps. `watch` sees the
        first epoch.
        """
        step_values: dict[str, list[float]] = {}
        token_means: dict[str, list[tuple[float, int]]] = {}
        for epoch in range(epochs or self.optim.epochs):
            seed = derive_seed(self.seed, "minibatches", step, epoch)
            generator = torch.Generator().manual_seed(seed)
            for part in batch.split(minibatches or self.optim.minibatches, generator, algo.unit):
                # Mismatch with the engine is measured once, before the weights change.
                is_fresh = not {"policy/mismatch", "policy/drift"} & set(token_means)
                of_step, of_tokens = self._step(
                    part, algo, lr, step, is_fresh=is_fresh, watch=watch if epoch == 0 else None
                )
                for name, value in of_step.items():
                    step_values.setdefault(name, []).append(value)
                for name, value in of_tokens.items():
                    token_means.setdefault(name, []).append((value, len(part.trajectory_C)))
        metrics = {name: sum(values) / len(values) for name, values in step_values.items()}
        metrics |= {name: _weighted_mean(pairs) for name, pairs in token_means.items()}
        return metrics | {"lr": lr}

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
        """One optimizer step over `batch`, with gradients accumulated over micro-batches.

        `is_fresh`: the weights have not been updated since the engine got them. Returns diagnostics
        of the step, and means over all action tokens.
        """
        batch = batch.with_(weight_C=algo.weights(batch))
        temperature = algo.temperature(self.temperature)
        # Imitation's temperature may not be the sampler's: then the log-probs cannot be compared.
        has_gaps = algo.is_on_policy and is_fresh and temperature == self.temperature
        stats_of_step = _StepStats(batch, algo, newest=step - 1 if has_gaps else None)
        critic = self.critic if "value" in algo.needs else None
        max_tokens = self.optim.microbatch_tokens
        learned, skipped_sample = batch, None
        if algo.learns_only_from_advantages and batch.entropy_weight_C is None:
            # Tokens without an advantage have no gradient, so they need no backward pass. A sample
            # of them is computed for the diagnostics.
            learned = batch.with_signal(algo.unit)
            skipped_sample = batch.sample_without_signal(algo.unit, every=NO_SIGNAL_SAMPLE)

        gradients: dict[str, Tensor] = {}
        self.optimizer.zero_grad(set_to_none=True)
        for part in self.parallel.in_parts(learned, max_tokens, algo.unit):
            for micro, counts in part:
                if len(micro.trajectory_C) == 0 and not self.parallel.is_sharded:
                    continue
                policy = self._predict(micro, critic, temperature)
                loss_C, stats = algo.loss(policy, micro)
                assert micro.weight_C is not None
                loss = (loss_C * micro.weight_C).sum()
                (loss * (self.parallel.loss_scale if counts else 0.0)).backward()
                self.masters.accumulate_grads()
                if counts and watch is not None:
                    watch(micro, policy)
                if counts:
                    stats_of_step.add(micro, policy, stats | {"loss": loss.detach()})
            self.masters.add_to(gradients)

        if skipped_sample is not None and len(skipped_sample.trajectory_C):
            skipped = len(batch.trajectory_C) - len(learned.trajectory_C)
            weight = skipped / len(skipped_sample.trajectory_C)
            with torch.no_grad():
                for micro, counts in self.parallel.microbatches(
                    skipped_sample, max_tokens, algo.unit
                ):
                    policy = self._predict(micro, critic, temperature)
                    if counts:
                        stats_of_step.add(micro, policy, algo.loss(policy, micro)[1], weight)

        self.masters.set_grads(gradients)
        # If there is nothing to learn, no rank has a gradient.
        if len(learned.trajectory_C):
            parameters = self._policy_parameters
            if critic is not None:
                parameters = parameters + self._critic_parameters
            self.parallel.all_reduce_grads(parameters)
        norms = self._clip_gradients(critic, step)
        sums = {name: float(value) for name, value in stats_of_step.sums.items()}
        totals = self.parallel.world.total(sums)
        of_step = {}
        for name in ("loss", *algo.means_of_loss):
            if name in totals:
                of_step[name] = totals.pop(name)
        return of_step | self._optimizer_step(of_step["loss"], norms, lr), totals

    def _predict(self, micro: Batch, critic: Critic | None, temperature: float) -> PolicyOutput:
        has_bonus = micro.entropy_weight_C is not None

        def work(model: PreTrainedModel) -> tuple[Tensor, Tensor, Tensor | None]:
            policy = predict(model, micro, temperature, critic=critic, entropy_gradient=has_bonus)
            # A tuple: FSDP finds the gradients only of tensors in plain containers.
            return policy.logp_C, policy.entropy_C, policy.value_C

        return PolicyOutput(*self.parallel.run(self.model, work))

    def _clip_gradients(self, critic: Critic | None, step: int) -> dict[str, float]:
        """Clip the gradients of policy and critic separately, and drop the policy's during the
        critic's warm-up. Returns the norms before clipping.
        """
        norms = {}
        if critic is not None:
            norms["value/grad_norm"] = clipped_norm(self._critic_parameters, self.optim.clip_norm)
            if critic.is_warming_up(step):
                for parameter in self._policy_parameters:
                    parameter.grad = None
        return {"grad_norm": clipped_norm(self._policy_parameters, self.optim.clip_norm), **norms}

    def _optimizer_step(self, loss: float, norms: dict[str, float], lr: float) -> dict[str, float]:
        """Step the optimizer, unless loss or a norm is not finite; three such steps in a row raise
        `NonFiniteLoss`.
        """
        if not all(map(math.isfinite, (loss, *norms.values()))):
            self.updates_skipped += 1
            listed = ", ".join(f"{name} {norm}" for name, norm in norms.items())
            found = f"loss {loss}, {listed}"
            log.error("%s: this update is left out (%d in a row)", found, self.updates_skipped)
            if self.updates_skipped >= 3:
                raise NonFiniteLoss(
                    f"{found}: three updates in a row were not numbers; try a lower learning rate"
                )
            return {**dict.fromkeys(norms, 0.0), "updates_skipped": 1.0}
        self.updates_skipped = 0
        policy_group, *critic_groups = self.optimizer.param_groups
        policy_group["lr"] = lr
        own_lr = self.critic.settings.lr if self.critic is not None else None
        for group in critic_groups:
            # A learning rate of its own follows the schedule of the policy's.
            group["lr"] = lr if own_lr is None else own_lr * lr / self.optim.lr
        self.optimizer.step()
        self.masters.copy_to_model()
        return {**norms, "updates_skipped": 0.0}


class _StepStats:
    """The diagnostics of one optimizer step, summed over micro-batches."""

    def __init__(self, batch: Batch, algo: Algorithm, *, newest: int | None) -> None:
        """`newest`: the version of the weights before the step; None skips the comparison with the
        engine's log-probs.
        """
        self.algo, self.newest = algo, newest
        self.tokens = max(len(batch.trajectory_C), 1)
        self.share_of_newest = 0.0
        """The fraction of action tokens that the newest weights sampled."""
        if newest is not None:
            self.share_of_newest = int((batch.version_C >= newest).sum()) / self.tokens
        self.sums: dict[str, Tensor] = {"loss": torch.zeros((), device=batch.ids_T.device)}

    def add(
        self, micro: Batch, policy: PolicyOutput, stats: Stats, token_weight: float = 1.0
    ) -> None:
        """`token_weight`: how many action tokens each one of this micro-batch stands for."""
        stats = stats | {"policy/entropy": policy.entropy_C.detach()}
        if self.newest is not None:
            stats |= _gaps(
                policy.logp_C.detach(), micro, newest=self.newest, share=self.share_of_newest
            )
        for name, value in stats.items():
            weight = token_weight / self.tokens
            if name in self.algo.means_of_loss:
                assert micro.weight_C is not None
                value, weight = value * micro.weight_C, 1.0
            # The loss is a sum already, of dimension 0.
            total = value if value.dim() == 0 else value.sum() * weight
            self.sums[name] = self.sums.get(name, 0.0) + total


def _weighted_mean(pairs: list[tuple[float, int]]) -> float:
    """The mean of values, given as (value, weight)."""
    total = sum(value * weight for value, weight in pairs)
    return total / max(sum(weight for _, weight in pairs), 1)


def _gaps(logp_C: Tensor, batch: Batch, *, newest: int, share: float) -> dict[str, Tensor]:
    """The difference between the learner's log-probs and the engine's, per token.

    For tokens of the newest weights (a fraction `share` of all) it is the mismatch between engine
    and learner; for tokens of older weights it includes the drift of the policy since. Each is
    divided by its fraction, so that the mean over all tokens is the mean over its own.
    """
    gap_C = (logp_C - batch.sampled_logp_C).abs()
    is_newest_C = batch.version_C >= newest
    gaps: dict[str, Tensor] = {}
    if share > 0:
        kl_C = kl_divergence(batch.sampled_logp_C, logp_C)
        gaps["policy/mismatch"] = gap_C * is_newest_C / share
        gaps["policy/mismatch_kl"] = kl_C * is_newest_C / share
    if share < 1:
        gaps["policy/drift"] = gap_C * ~is_newest_C / (1 - share)
    return gaps
