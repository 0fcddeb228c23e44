"""A few real episodes with the run's engine, and a record of what the engine returned for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from palestra.core.seeds import derive_seed
from palestra.core.types import Generation, Sampling, Trajectory
from palestra.engines.base import Engine, Session
from palestra.rollout.episode import EpisodeSpec
from palestra.rollout.evaluation import held_out
from palestra.rollout.groups import rollout_episodes
from palestra.runs.state import State
from palestra.training.data_sources import horizon_of
from palestra.training.setup import Components

TURNS = 6
REPLY_TOKENS = 256
"""An untrained model seldom ends its replies: with fewer tokens there would be no second turn."""


class Recording:
    """An engine that records what the one behind it returns."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.said: dict[str, list[Generation]] = {}

    async def generate(
        self, ids: Sequence[int], sampling: Sampling, session: Session
    ) -> Generation:
        generation = await self.engine.generate(ids, sampling, session)
        # A copy: the check is whether the agent changed what it got.
        copy = replace(generation, ids=list(generation.ids), logprobs=list(generation.logprobs))
        self.said.setdefault(session.id, []).append(copy)
        return generation

    def release(self, session: Session) -> None:
        self.engine.release(session)

    async def sync_weights(self, version: int) -> None:
        await self.engine.sync_weights(version)

    def sleep(self) -> None:
        self.engine.sleep()


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes as training would see them, and what the engine returned for them."""

    trajectories: list[Trajectory]
    """Without those that a fault ended."""
    said: dict[str, list[Generation]]
    """By episode, in the order of its turns."""
    faults: list[Trajectory] = field(default_factory=list)

    @property
    def replies(self) -> list[Generation]:
        replies: list[Generation] = []
        for trajectory in self.trajectories:
            replies += self.said.get(trajectory.id, [])
        return replies


def play_some(
    components: Components, labels: Sequence[str], *, count: int = 12, version: int = 0
) -> Played:
    """Sync the weights, and play training tasks of these environments as the first training step
    would.
    """
    config = components.config
    components.loop.run(components.engine.sync_weights(version=version))
    tasks = {label: held_out(components.tasks(label, "train"), count) for label in labels}
    horizons = {spec.label: min(horizon_of(spec, State())[0], TURNS) for spec in config.env_specs}
    episodes: list[EpisodeSpec] = []
    for number, label in enumerate(islice(cycle(labels), count)):
        task = tasks[label][number % len(tasks[label])]
        seed = derive_seed(config.seed, "doctor", number)
        episodes.append(EpisodeSpec(f"doctor-{number:02d}", task, horizons[label], seed))
    recording = Recording(components.context.engine)
    sampling = components.context.sampling
    longer = max(sampling.max_tokens, min(REPLY_TOKENS, config.agent.context_tokens // 4))
    context = replace(
        components.context,
        engine=recording,
        sampling=replace(sampling, max_tokens=longer),
        retries=0,
    )
    trajectories, _ = components.loop.run(rollout_episodes(context, episodes))
    valid = [t for t in trajectories if not t.stop.is_fault and t.sampled_tokens]
    faults = [t for t in trajectories if t.stop.is_fault]
    if not valid:
        why = "the first observation does not fit into agent.context_tokens"
        if faults:
            why = f"{faults[0].stop}: {faults[0].fault}"
        raise RuntimeError(f"no episode could be played; {why}")
    return Played(valid, recording.said, faults)
