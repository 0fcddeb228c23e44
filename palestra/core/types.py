"""What flows through a run: a task is played as a trajectory of turns, over one or more streams of
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

Role = Literal["system", "user", "assistant"]


class Stop(StrEnum):
    """Why a trajectory ended."""

    DONE = "done"
    """The environment reached its end."""
    HORIZON = "horizon"
    """The turns allowed at this training step ran out."""
    TRUNCATED = "truncated"
    """The environment's own time limit."""
    CONTEXT = "context"
    """The next observation and a reply to it would not fit into the context."""
    LENGTH = "length"
    """A reply was cut at its token budget."""
    ENV_FAULT = "env_fault"
    """The environment broke. Counted, shown in the viewer, never trained on."""
    TIMEOUT = "timeout"
    """The environment did not answer before its deadline. Never trained on."""
    CANCELLED = "cancelled"
    """We stopped the episode. Never trained on."""

    @property
    def is_fault(self) -> bool:
        """Our machinery is to blame, not the agent: no gradient, and no part in the group's
        statistics.
        """
        return self in (Stop.ENV_FAULT, Stop.TIMEOUT, Stop.CANCELLED)

    @property
    def is_time_limit(self) -> bool:
        """The episode could have continued: its remaining reward is not 0 but unknown."""
        return self in (Stop.HORIZON, Stop.TRUNCATED)

    @property
    def is_overlong(self) -> bool:
        """A token budget ended it: trained on or masked, as the run's `overlong` setting says."""
        return self in (Stop.CONTEXT, Stop.LENGTH)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Task:
    """Something to do in an environment. The same id is the same task on every machine."""

    env: str
    split: str
    id: str
    category: str = field(default="", compare=False)
    """Results are grouped by it: a level, a depth, a kind of question."""


@dataclass(frozen=True, slots=True)
class Step:
    """An environment's answer to an action, with Gymnasium's meaning of
    terminated and truncated.
    """

    observation: str
    reward: float = 0.0
    """In [0, 1] unless the environment defines it otherwise. A raw score goes to `info`."""
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    """Whether the task is solved; None if the environment cannot tell yet."""
    invalid: bool = False
    """The action could not be parsed or executed, and nothing happened."""
    info: dict[str, Any] = field(default_factory=dict)


class Example(NamedTuple):
    """One turn of a worked example that can be shown in the prompt."""

    observation: str
    thought: str
    action: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is sampled."""

    temperature: float = 1.0
    """0: greedy."""
    max_tokens: int = 128
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    """The seed of this reply: the same seed, context and weights give the same tokens."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine returns for one reply."""

    ids: list[int]
    """The sampled tokens, including the stop token."""
    logprobs: list[float]
    """Of each sampled token, at the sampling temperature, under the weights that sampled it."""
    finish: Literal["stop", "length"]
    version: int
    """The version of the weights that sampled it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One append-only stream of tokens. The four lists are parallel."""

    ids: list[int]
    mask: list[int]
    """1 for action tokens, which the policy sampled; 0 for tokens that it was shown."""
    logprobs: list[float]
    """Of action tokens, as the engine returned them; 0 elsewhere."""
    versions: list[int]
    """The version of the weights that sampled an action token; -1 elsewhere."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An observation, the agent's reply, and the reward.

    The texts are for people; the tokens are in the segment at `span`.
    """

    observation: str
    reply: str
    """The full text that the model wrote."""
    action: str | None
    """The action for the environment; None if the reply could not be parsed as one."""
    reward: float
    span: tuple[int, int]
    """The start and end of its sampled tokens in the segment."""
    segment: int = 0
    invalid: bool = False
    """The reply could not be parsed, or the environment could not execute the action."""
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One complete episode: its texts, its tokens, and how and why it ended."""

    id: str
    task: Task
    segments: list[Segment]
    turns: list[Turn]
    stop: Stop
    success: bool | None
    horizon: int
    """The turns that were allowed."""
    seed: int
    step: int = 0
    """The training step that started it; the step it is for, if it was started earlier."""
    stage: int = 1
    """The stage of the horizon's schedule, counted from 1."""
    reward_scale: float = 1.0
    """The weight of its rewards in a mixture of environments. The recorded rewards are unscaled."""
    is_baseline: bool = False
    """Played greedily, to compare others of its task with. Never trained on."""
    attempt: int = 0
    """How often the episode was retried after a fault, each time with another seed."""
    final_observation: str = ""
    fault: str = ""
    """A description of the fault, if there was one."""
    is_collateral: bool = False
    """Another episode broke it: it was retried with the same seed, which did not count as a retry.
    """
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds in the engine and in the environment."""

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Shown and sampled."""
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def sampled_tokens(self) -> int:
        return sum(sum(segment.mask) for segment in self.segments)

    def transcript(self) -> str:
        """The episode as text for people: observations, replies and rewards, turn by turn."""
        from palestra.core.transcript import transcript

        return transcript(self)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task, played with the same weights unless these changed in between
    (`rollout.partial`, `staleness`).
    """

    task: Task
    trajectories: list[Trajectory]
    baseline: Trajectory | None = None
    """A greedy episode of the same task, where the algorithm compares with one."""

    @classmethod
    def of_one(cls, trajectory: Trajectory) -> Group:
        """A trajectory that is compared with no other, such as one to imitate."""
        return cls(trajectory.task, [trajectory])

    @property
    def valid(self) -> list[Trajectory]:
        """The trajectories that may be trained on: a fault is not a failure."""
        return [trajectory for trajectory in self.trajectories if not trajectory.stop.is_fault]
