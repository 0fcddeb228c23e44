"""The same training steps as `step.py`, through TRL's GRPOTrainer; `peer_trl.py` runs both and
compares them.

    python benchmarks/trl_side.py MODEL [--recipe FILE] [--steps 3] [--json FILE] [--micro 8]
    [--correct] [--no-vllm] [settings ...]

Tasks, group, horizon, token budgets, clip, learning rate and optimizer are read from the recipe and
its settings, so that both sides do the same. Episodes are played turn by turn in lockstep over
TRL's colocated vLLM, token ids in and out. On a GPU the micro-batch, gradient checkpointing and
Liger's kernels are chosen by trying them on the model before the trainer is made.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow
import torch
from datasets import Dataset
from lockstep import Reply, Rollout
from step import Row, Stopwatch, facts, mean_of, now, peak_memory_gib, write
from transformers import AutoModelForCausalLM, TrainerCallback
from transformers.integrations.liger import apply_liger_kernel
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from palestra.agents.renderer import Renderer
from palestra.cli.settings import split_settings
from palestra.config.config import Config, load
from palestra.models.tokenizers import load_tokenizer
from palestra.training.task_sampler import ShuffledStream

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VLLM_SHARE = 0.25
"""Of the GPU's memory: enough for 256 episodes of a small model, and it leaves the rest to
training. TRL's default is 0.3.
"""
SPARE_GIB = 8.0
"""Left free when the micro-batch is chosen, for what a longer batch than the tried one takes."""


def with_vllm(
    config: Config, stop_ids: Sequence[int]
) -> Callable[[Any, list[list[int]]], list[Reply]]:
    """Through TRL's own vLLM, without what training does not need: no text is made of the tokens,
    and log-probs come flat.
    """
    from vllm import SamplingParams

    def generate(trainer: Any, prompts: list[list[int]]) -> list[Reply]:
        params = SamplingParams(
            temperature=config.rollout.temperature,
            max_tokens=config.agent.reply_tokens,
            stop_token_ids=list(stop_ids),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
        )
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = trainer.vllm_generation.llm.generate(
            asked, sampling_params=params, use_tqdm=False
        )
        replies = []
        for output in outputs:
            for reply in output.outputs:
                replies.append((list(reply.token_ids), list(reply.logprobs.logprobs)))
        return replies

    return generate


def with_model(
    config: Config, stop_ids: Sequence[int]
) -> Callable[[Any, list[list[int]]], list[Reply]]:
    """Through the model that is trained, in one padded batch: for machines without vLLM."""

    @torch.no_grad()
    def generate(trainer: Any, prompts: list[list[int]]) -> list[Reply]:
        model, longest = trainer.accelerator.unwrap_model(trainer.model), max(map(len, prompts))
        ids = torch.tensor(
            [[0] * (longest - len(own)) + own for own in prompts], device=model.device
        )
        mask = torch.tensor(
            [[0] * (longest - len(own)) + [1] * len(own) for own in prompts], device=model.device
        )
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=config.rollout.temperature,
            top_k=0,
            max_new_tokens=config.agent.reply_tokens,
            eos_token_id=list(stop_ids),
            pad_token_id=stop_ids[0],
            return_dict_in_generate=True,
            output_logits=True,
        )
        logp = (
            torch.stack(out.logits, dim=1).float().div(config.rollout.temperature).log_softmax(-1)
        )
        new = out.sequences[:, longest:]
        chosen = logp.gather(2, new[..., None])[..., 0].tolist()
        return [_until_stop(*both, stop_ids) for both in zip(new.tolist(), chosen, strict=True)]

    return generate


def _until_stop(ids: list[int], logprobs: list[float], stop_ids: Sequence[int]) -> Reply:
    end = next((place + 1 for place, token in enumerate(ids) if token in stop_ids), len(ids))
    return ids[:end], logprobs[:end]


@dataclass(frozen=True, slots=True)
class Way:
    """How TRL passes a batch through the model, and what that was found to take."""

    micro: int
    checkpointing: bool = False
    liger: bool = False
    tokens_per_second: float = 0.0
    peak_gib: float = 0.0
    failed: str = ""


def fastest(path: Path, config: Config, prompt: int, rest: int) -> tuple[Way, list[Way]]:
    """Try forward and backward passes of padded rows as long as given; the way with the most tokens
    a second that fits, and all tried.
    """
    batch = config.rollout.tasks * config.rollout.group // config.optim.minibatches
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
    )
    model = model.to(DEVICE).train()
    add_fused_lm_head(
        model, temperature=config.rollout.temperature, outputs=("log_probs", "entropy")
    )
    moments_gib = 8 * sum(p.numel() for p in model.parameters()) / 2**30
    budget_gib = (
        torch.cuda.get_device_properties(0).total_memory / 2**30 * (1 - VLLM_SHARE)
        - moments_gib
        - SPARE_GIB
    )
    tried: list[Way] = []
    for liger in [False, True] if find_spec("liger_kernel") else [False]:
        try:
            if liger:
                apply_liger_kernel(model, {"fused_linear_cross_entropy": False})
            _seconds(model, 1, prompt, rest)  # compiles kernels
            for checkpointing, sizes in [(False, (4, 8, 16, 32)), (True, (32,))]:
                for micro in (size for size in sizes if batch % size == 0):
                    tried.append(
                        _try(model, Way(micro, checkpointing, liger), prompt, rest, budget_gib)
                    )
                    if tried[-1].failed:
                        break
        except Exception as error:  # noqa: BLE001  kernels that do not run here are not used
            tried.append(Way(1, liger=liger, failed=f"{type(error).__name__}: {error}"))
    del model
    gc.collect()
    torch.cuda.empty_cache()
    fitting = [way for way in tried if not way.failed]
    return max(
        fitting, key=lambda way: way.tokens_per_second, default=Way(1, checkpointing=True)
    ), tried


def _try(model: Any, way: Way, prompt: int, rest: int, budget_gib: float) -> Way:
    if way.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seconds = min(_seconds(model, way.micro, prompt, rest) for _ in range(2))
    except torch.OutOfMemoryError:
        return Way(way.micro, way.checkpointing, way.liger, failed="out of memory")
    finally:
        if way.checkpointing:
            model.gradient_checkpointing_disable()
    peak = peak_memory_gib()
    failed = (
        f"more than the {budget_gib:.0f} GiB there are next to vLLM and the moments"
        if peak > budget_gib
        else ""
    )
    return Way(
        way.micro, way.checkpointing, way.liger, way.micro * (prompt + rest) / seconds, peak, failed
    )


def _seconds(model: Any, rows: int, prompt: int, rest: int) -> float:
    """One pass as the trainer makes it; half of the rows are padded on the left, so that the mask
    is not left out.
    """
    ids = torch.randint(model.config.vocab_size, (rows, prompt + rest), device=DEVICE)
    mask = torch.ones_like(ids)
    mask[::2, : prompt // 4] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :prompt] = -100
    began = now()
    with torch.autocast(DEVICE, torch.bfloat16):
        out = model(
            input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True, use_cache=False
        )
    out.log_probs[:, -rest:].sum().backward()
    return now() - began


class TimedTrainer(GRPOTrainer):
    """GRPOTrainer with a look at the clock where batches are made and where log-probs are computed
    without a gradient.
    """

    watch = Stopwatch()

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        with self.watch.timed("making"):
            return super()._generate_and_score_completions(inputs)

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            return super()._get_per_token_logps_and_entropies(*arguments, **named)
        with self.watch.timed("scoring"):
            return super()._get_per_token_logps_and_entropies(*arguments, **named)


class EachStep(TrainerCallback):
    """A row for every batch of episodes, however many optimizer steps are made of it."""

    def __init__(
        self, rollout: Rollout, watch: Stopwatch, minibatches: int, on_row: Callable[[Row], None]
    ) -> None:
        self.rollout, self.watch, self.minibatches, self.on_row = (
            rollout,
            watch,
            minibatches,
            on_row,
        )
        self.number = itertools.count()

    def on_train_begin(self, *arguments: Any, **named: Any) -> None:
        self._begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if state.global_step % self.minibatches:
            return
        total, spent = (
            now() - self.began,
            {"scoring": 0.0, "hand_over": 0.0, **self.watch.seconds, **self.rollout.watch.seconds},
        )
        seconds = {
            "generation": spent["generation"],
            "training": total - spent["making"] + spent["scoring"],
            "rest": spent["making"] - spent["generation"] - spent["scoring"],
            "hand_over": spent["hand_over"],
            "total": total,
        }
        counts = self.rollout.counts()
        number = next(self.number)
        self.on_row(
            {
                "step": number,
                "is_warm_up": number == 0,
                "seconds": seconds,
                **counts,
                "peak_memory_gib": peak_memory_gib(),
            }
        )
        self._begin()

    def _begin(self) -> None:
        self.watch.seconds.clear()
        self.rollout.watch.seconds.clear()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.began = now()


def settings_of(
    config: Config, way: Way, *, steps: int, folder: str, use_vllm: bool, correct: bool
) -> GRPOConfig:
    """The recipe in TRL's terms."""
    batch, optim, on_gpu = (
        config.rollout.tasks * config.rollout.group,
        config.optim,
        torch.cuda.is_available(),
    )
    return GRPOConfig(
        output_dir=folder,
        model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
        per_device_train_batch_size=way.micro,
        gradient_accumulation_steps=batch // optim.minibatches // way.micro,
        steps_per_generation=batch // way.micro,
        num_generations=config.rollout.group,
        max_steps=(steps + 1) * optim.minibatches,
        max_completion_length=config.agent.context_tokens,
        temperature=config.rollout.temperature,
        learning_rate=optim.lr,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        adam_beta1=optim.betas[0],
        adam_beta2=optim.betas[1],
        weight_decay=optim.weight_decay,
        max_grad_norm=optim.clip_norm,
        epsilon=config.algo.clip_low,  # type: ignore[attr-defined]
        epsilon_high=config.algo.clip_high,  # type: ignore[attr-defined]
        beta=0.0,
        loss_type="dapo",  # normalized by tokens, as ours
        bf16=on_gpu,
        use_cpu=not on_gpu,
        gradient_checkpointing=way.checkpointing,
        use_liger_kernel=way.liger,
        use_vllm=use_vllm,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=VLLM_SHARE,
        vllm_max_model_length=config.agent.context_tokens,
        vllm_importance_sampling_correction=correct,
        shuffle_dataset=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=config.seed,
    )


def train(
    known: argparse.Namespace, config: Config, way: Way, on_row: Callable[[Row], None]
) -> None:
    tokenizer = load_tokenizer(known.model)
    renderer = Renderer(tokenizer, template=config.agent.template)
    rollout = Rollout(
        config, renderer, (with_model if known.no_vllm else with_vllm)(config, renderer.stop_ids)
    )
    drawn = ShuffledStream(list(rollout.tasks.values()), config.seed).slice(
        0, config.rollout.tasks * (known.steps + 1)
    )
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = TimedTrainer(
            model=str(known.model),
            reward_funcs=lambda completions, env_reward, **_: env_reward,
            args=settings_of(
                config,
                way,
                steps=known.steps,
                folder=folder,
                use_vllm=not known.no_vllm,
                correct=known.correct,
            ),
            train_dataset=Dataset(
                pyarrow.table({"prompt": [task.id for task in drawn]}), fingerprint="tasks"
            ),
            processing_class=tokenizer,
            rollout_func=rollout,
            callbacks=[EachStep(rollout, watch, config.optim.minibatches, on_row)],
        )
        trainer.watch = watch
        if not known.no_vllm:
            hand_over = trainer.vllm_generation.sync_weights

            def timed_hand_over() -> None:
                with watch.timed("hand_over"):
                    hand_over()

            trainer.vllm_generation.sync_weights = timed_hand_over
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", type=Path)
    parser.add_argument(
        "--recipe", type=Path, default=Path("palestra/recipes/textcraft-qwen1.5b.toml")
    )
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--prompt",
        type=int,
        default=1000,
        help="tokens of the longest prompt, to choose the micro-batch by",
    )
    parser.add_argument(
        "--rest", type=int, default=1000, help="tokens of the longest rest of an episode, likewise"
    )
    parser.add_argument(
        "--micro",
        type=int,
        help="rows in a pass; without it, on a GPU, the fastest way is looked for",
    )
    parser.add_argument(
        "--correct",
        action="store_true",
        help="TRL's importance correction, which takes one more forward pass",
    )
    parser.add_argument("--no-vllm", action="store_true", help="sample through the model itself")
    defaults = vars(parser.parse_known_args([""])[0])
    flags = {f"--{name.replace('_', '-')}": value is not False for name, value in defaults.items()}
    own, overrides = split_settings(sys.argv[1:], flags)
    known = parser.parse_args(own)
    config = load(
        known.recipe, overrides | {"model.kind": "pretrained", "model.path": str(known.model)}
    )
    tried: list[Way] = []
    if known.micro is not None or not torch.cuda.is_available():
        way = Way(known.micro or 1)
    else:
        way, tried = fastest(known.model, config, known.prompt, known.rest)
    used = {
        "vllm": not known.no_vllm,
        "attention": "sdpa",
        "weights": "float32",
        "correction": known.correct,
    }
    used["compute"] = "bfloat16 autocast" if torch.cuda.is_available() else "float32"
    result = {
        "what": "training steps of TRL",
        **facts(),
        "used": used,
        "way": asdict(way),
        "tried": [asdict(each) for each in tried],
    }
    print("chosen:", way, *tried, sep="\n  ", flush=True)
    rows: list[Row] = []

    def on_row(row: Row) -> None:
        rows.append(row)
        write(known.json, result | {"steps": rows, "mean": mean_of(rows)})
        print(f"step {row['step']}: {row['seconds']['total']:.2f} s", flush=True)

    write(known.json, result)
    train(known, config, way, on_row)


if __name__ == "__main__":
    main()
