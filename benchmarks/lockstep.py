"""Episodes in lockstep, as TRL's `rollout_func` wants them: everyone's turn is one call of the
generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from step import Row, Stopwatch

from palestra.agents.base import PromptConfig
from palestra.agents.renderer import Renderer
from palestra.config.config import Config
from palestra.core.types import Step, Task
from palestra.envs import Environment, make_env
from palestra.training.setup import make_prompt

Reply = tuple[list[int], list[float]]
"""Sampled ids and their log-probs."""


@dataclass
class Play:
    """One episode as TRL wants it: prompt, then replies and observations as one completion."""

    env: Environment
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    """1 where the policy chose the token."""
    reward: float = 0.0
    success: bool = False
    turns: int = 0
    is_over: bool = False

    @classmethod
    def begin(cls, env: Environment, task: Task, prompt: PromptConfig) -> Play:
        return cls(env, prompt.renderer.prompt(prompt.opening(env.reset(task))))

    def take(self, reply: Reply, prompt: PromptConfig, *, horizon: int, reply_tokens: int) -> None:
        """Act, and append what is seen next unless the episode is over.

        The rules are those of `palestra.rollout.episode.rollout_episode`.
        """
        ids, logprobs = reply
        self._append(ids, logprobs, 1)
        self.turns += 1
        if ids[-1] not in prompt.renderer.stop_ids:  # half a reply is no action
            self.is_over = True
            return
        parsed = prompt.format.parse(prompt.renderer.reply_text(ids))
        step = (
            Step(parsed.error, invalid=True)
            if parsed.action is None
            else self.env.step(parsed.action)
        )
        self.reward += step.reward
        self.success = bool(step.success)
        new = prompt.renderer.bridge(step.observation, reply_ended=True)
        used = len(self.prompt_ids) + len(self.completion_ids) + len(new) + reply_tokens
        self.is_over = (
            step.terminated
            or step.truncated
            or self.turns == horizon
            or used > prompt.context_tokens
        )
        if not self.is_over:
            self._append(new, [0.0] * len(new), 0)

    def _append(self, ids: list[int], logprobs: list[float], chosen: int) -> None:
        self.completion_ids += ids
        self.logprobs += logprobs
        self.env_mask += [chosen] * len(ids)


class Rollout:
    """TRL's `rollout_func`: from the prompts of a batch, which are ids of tasks, to token ids,
    log-probs and a mask.
    """

    def __init__(
        self,
        config: Config,
        renderer: Renderer,
        generate: Callable[[Any, list[list[int]]], list[Reply]],
    ) -> None:
        assert config.env is not None
        self.config, self.generate = config, generate
        self.envs = [
            make_env(config.env.name, config.env.options)
            for _ in range(config.rollout.tasks * config.rollout.group)
        ]
        self.tasks = {task.id: task for task in self.envs[0].tasks("train")}
        self.prompt = make_prompt(config, self.envs[0], renderer)
        self.watch = Stopwatch()
        self.plays: list[Play] = []
        """Of the newest batch."""

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        with self.watch.timed("generation"):
            self.plays = [
                Play.begin(env, self.tasks[task_id], self.prompt)
                for env, task_id in zip(self.envs, prompts, strict=True)
            ]
            while live := [play for play in self.plays if not play.is_over]:
                replies = self.generate(
                    trainer, [play.prompt_ids + play.completion_ids for play in live]
                )
                for play, reply in zip(live, replies, strict=True):
                    play.take(
                        reply,
                        self.prompt,
                        horizon=self.horizon,
                        reply_tokens=self.config.agent.reply_tokens,
                    )
        plays = self.plays
        return {
            "prompt_ids": [play.prompt_ids for play in plays],
            "completion_ids": [play.completion_ids for play in plays],
            "logprobs": [play.logprobs for play in plays],
            "env_mask": [play.env_mask for play in plays],
            "env_reward": [play.reward for play in plays],
        }

    @property
    def horizon(self) -> int:
        return self.config.horizon.full

    def counts(self) -> Row:
        plays, group = self.plays, self.config.rollout.group
        rewards = [play.reward for play in plays]
        groups = [rewards[start : start + group] for start in range(0, len(rewards), group)]
        lengths = [len(play.prompt_ids) + len(play.completion_ids) for play in plays]
        prompt, rest = (
            max(len(play.prompt_ids) for play in plays),
            max(len(play.completion_ids) for play in plays),
        )
        return {
            "episodes": len(plays),
            "turns": sum(play.turns for play in plays),
            "success": sum(play.success for play in plays) / len(plays),
            "groups": len(groups),
            "groups_with_signal": sum(len(set(own)) > 1 for own in groups),
            "sampled_tokens": sum(sum(play.env_mask) for play in plays),
            "collected_tokens": sum(lengths),
            "trained_tokens": sum(lengths),
            "padded_tokens": len(plays) * (prompt + rest),
            "longest_prompt": prompt,
            "longest_rest": rest,
        }
