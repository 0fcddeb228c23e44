"""Any environment as a `gymnasium.Env` with text spaces."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium import spaces

from palestra.core.types import Task
from palestra.envs.base import Environment

CHARACTERS = "".join(sorted(string.printable))


class GymEnv(gymnasium.Env[str, str]):
    """An environment as a `gymnasium.Env` with text spaces; `palestra.make` creates one.

    `reset(seed=...)` samples a task of `split`; `reset(options={"task": id})` selects one.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012  gymnasium's own convention

    def __init__(
        self,
        env: Environment,
        *,
        split: str = "train",
        max_observation: int = 65536,
        max_action: int = 1024,
        render_mode: str | None = None,
    ) -> None:
        self.env = env
        self.render_mode = render_mode
        self.max_observation = max_observation
        self.observation_space = spaces.Text(max_observation, min_length=0, charset=CHARACTERS)
        self.action_space = spaces.Text(max_action, min_length=0, charset=CHARACTERS)
        self._tasks = {task.id: task for task in env.tasks(split)}
        self._order = list(self._tasks)
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        wanted = (options or {}).get("task")
        task = self._tasks[wanted] if wanted is not None else self._drawn()
        return self._show(self.env.reset(task)), {"task": task.id, "category": task.category}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        step = self.env.step(action)
        info = {**step.info, "success": step.success, "invalid": step.invalid}
        return self._show(step.observation), step.reward, step.terminated, step.truncated, info

    def render(self) -> str | None:
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        self.env.close()

    def _drawn(self) -> Task:
        return self._tasks[self._order[int(self.np_random.integers(len(self._order)))]]

    def _show(self, observation: str) -> str:
        """Convert to what the text space allows: printable ASCII of bounded length."""
        plain = "".join(character if character in CHARACTERS else "?" for character in observation)
        self._shown = plain[: self.max_observation]
        return self._shown
