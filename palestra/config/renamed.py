"""Renamed settings, values and metrics: using an old name is an error that tells the new one."""

from __future__ import annotations

from typing import Any

from palestra.core.errors import ConfigError

RENAMED = {
    "algo.kl_place": "algo.kl_in",
    "algo.length_normalised": "algo.length_normalized",
    "algo.negative_weight": "algo.negative_reward_scale",
    "algo.recompute_old": "algo.recompute_logprobs",
    "engine.chunk": "engine.decode_chunk",
    "engine.wave": "engine.admit_fraction",
    "guard.dead_above": "guard.zero_advantage_above",
    "model.pieces": "model.vocab_size",
    "optim.parts": "optim.accumulation_parts",
    "optim.row_tokens": "optim.microbatch_tokens",
    "rollout.ahead": "rollout.prefetch",
    "rollout.carry": "rollout.partial",
    "rollout.redraws": "rollout.resample_rounds",
    "rollout.skip_dead": "rollout.skip_solved",
    "rollout.staleness": "rollout.max_staleness",
    "save.learnt": "save.token_stats",
    "track.patience_s": "track.timeout_s",
}
"""Dotted settings: old name -> new name."""

RENAMED_VALUES = {
    "engine.name": {"native": "torch"},
    "model.kind": {"new": "tiny"},
    "model.tokenizer": {"pieces": "bpe"},
}
"""Values of settings: old value -> new value."""

RENAMED_METRICS = {
    "groups/dead": "groups/zero_advantage",
    "guard/dead_above": "guard/zero_advantage_above",
    "tasks/dead": "tasks/skippable",
}
"""Keys of `metrics.jsonl`: old name -> new name."""


def refuse_renamed(tree: dict[str, Any]) -> None:
    """Raise ConfigError at the first old name or value in nested tables, and name the new one."""
    for table, settings in tree.items():
        if not isinstance(settings, dict):
            continue
        for name, value in settings.items():
            dotted = f"{table}.{name}"
            if dotted in RENAMED:
                raise ConfigError(
                    f"{dotted} = {value!r}: this setting is now called {RENAMED[dotted]}"
                )
            new = RENAMED_VALUES.get(dotted, {}).get(value) if isinstance(value, str) else None
            if new is not None:
                raise ConfigError(f"{dotted} = {value!r}: this value is now called {new!r}")
