"""The unit of each setting that is a number, for the list of settings."""

from __future__ import annotations

_NAMES = {
    "seed": "seed",
    "steps": """
        steps optim.warmup horizon.steps horizon.window horizon.every eval.every save.every
        guard.window rollout.max_age algo.round algo.critic.warmup""",
    "optimizer steps": "warm_start.updates warm_start.copying warm_start.check_every",
    "updates": "rollout.max_staleness",
    "seconds": """
        env.deadline_s mixture.deadline_s engine.reply_timeout_s engine.load_timeout_s
        engine.wait_s track.timeout_s""",
    "minutes": "limit.minutes",
    "MiB": "env.memory_mb mixture.memory_mb",
    "tokens": """
        limit.tokens agent.context_tokens agent.reply_tokens engine.prefill_tokens
        engine.graph_tokens engine.decode_chunk optim.microbatch_tokens model.vocab_size
        algo.constant""",
    "turns": """
        horizon.turns horizon.first horizon.last eval.horizon""",
    "episodes": """
        rollout.group rollout.concurrency mixture.group engine.slots warm_start.episodes
        warm_start.batch eval.k algo.episodes algo.best""",
    "pairs": "algo.per_task",
    "pairs (dpo), episodes (others)": "algo.batch",
    "tasks": "rollout.tasks eval.tasks eval.interim_tasks warm_start.check_tasks",
    "groups": "rollout.partial",
    "environments": "env.per_worker mixture.per_worker",
    "processes": "env.max_processes mixture.max_processes",
    "workers": "launch.workers",
    "servers": "launch.env_servers",
    "threads": "threads",
    "requests": "engine.concurrency engine.max_sequences",
    "retries": "rollout.retries engine.retries",
    "restarts": "launch.restarts",
    "rollbacks": "guard.rollbacks",
    "rounds": "rollout.resample_rounds",
    "epochs": "optim.epochs",
    "mini-batches": "optim.minibatches",
    "parts": "optim.accumulation_parts",
    "checkpoints": "save.keep",
    "layers": "model.layers",
    "heads": "model.heads",
    "dimensions": "model.width lora.rank",
    "steps ahead": "rollout.prefetch",
    "nats per token": "algo.entropy_target guard.entropy_below guard.mismatch_above",
    "reward": """
        algo.overlong_penalty algo.invalid_penalty algo.min_gap algo.min_reward""",
    "success rate": """
        horizon.gate horizon.fall horizon.plateau warm_start.target guard.success_fall""",
    "probability": "rollout.skip_solved algo.noise warm_start.noise",
    "fraction": """
        engine.admit_fraction engine.gpu_memory optim.final algo.label_smoothing
        guard.zero_advantage_above""",
    "learning rate": "optim.lr warm_start.lr algo.critic.lr",
    "gradient norm": "optim.clip_norm guard.grad_norm_above",
    "importance ratio": """
        algo.clip_low algo.clip_high algo.correction.cap algo.correction.mask_below""",
    "value": "algo.value_clip",
    "temperature": "rollout.temperature eval.temperature",
    "factor": """
        algo.dual_clip algo.turn_discount algo.negative_reward_scale algo.gamma algo.lam
        mixture.reward_scale lora.alpha optim.betas optim.weight_decay""",
    "weight": """
        algo.entropy algo.kl algo.beta algo.imitation algo.step_weight algo.value_weight
        mixture.weight""",
}

UNITS = {name: unit for unit, names in _NAMES.items() for name in names.split()}
"""By dotted name. What a table's choice (`algo.name`) decides has the same unit in all choices."""
