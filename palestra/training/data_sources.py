"""Where the trajectories of a training step come from: played by the policy, read from files, or
gathered in rounds of both.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from palestra.algos.sources import ExpertIteration, Offline, OnPolicy, each_alone
from palestra.config.config import Config
from palestra.config.env import EnvSpec
from palestra.core.errors import ConfigError
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Task, Trajectory
from palestra.rollout.episode import shared_prompt
from palestra.rollout.groups import GroupRequest, RolloutBatch, collect_groups, raise_if_all_failed
from palestra.rollout.metrics import success_rate
from palestra.rollout.partial import InFlightGroups, PendingGroup
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.training import offline_data
from palestra.training.experts import expert_episodes
from palestra.training.setup import Components
from palestra.training.task_sampler import Cursor, ShuffledStream, TaskSampler, with_skippable

log = logging.getLogger(__name__)

OnDone = Callable[[Trajectory], None]


@dataclass(frozen=True, slots=True)
class StepData:
    """What a step has to learn from."""

    groups: list[Group]
    state: State
    """With what was drawn and how it went."""
    rollouts: RolloutBatch | None = None
    """What was played, where anything was."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What else there is to log of the step."""
    from_reference: bool = False
    """The learner is to begin anew from the model that was remembered."""

    @property
    def tokens(self) -> int:
        """Of what was played, or else of what is learned from."""
        if self.rollouts is not None:
            return self.rollouts.tokens
        return sum(t.tokens for group in self.groups for t in group.valid)


class DataSource(ABC):
    """A source of trajectories. All that it remembers is in the state and in the run folder."""

    @abstractmethod
    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        """What the step after `state` learns from."""

    def overlap(self, state: State, on_done: OnDone) -> AbstractContextManager[None]:
        """Around the learner's work: a source may gather for the step after `state` beside it."""
        return nullcontext()

    def files(self) -> dict[str, bytes]:
        """What goes into a checkpoint after the last step that was completed, by file name; also
        while the next is gathered for.
        """
        return {}

    def close(self) -> None:
        """Nothing more will be gathered."""


def data_source_for(run: Run, components: Components, state: State) -> DataSource:
    """The data source that the run's algorithm asks for, as it is after `state`."""
    match run.config.algo.source():
        case OnPolicy() if run.config.rollout.partial or state.in_flight:
            return PartialRolloutSource(components)
        case OnPolicy():
            return OnPolicySource(components)
        case Offline() as source:
            return OfflineSource(components, source)
        case ExpertIteration() as source:
            return ExpertIterationSource(run, components, source, state)


class OnPolicySource(DataSource):
    """Every step plays fresh episodes with the weights as they are."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.tasks = TaskSampler(components, components.config.seed)

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        return played(
            self.components.config, *play_step(self.components, self.tasks, state, on_done)
        )


class PartialRolloutSource(DataSource):
    """Every step adds fresh groups to those in play, and takes the first that are complete."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.tasks = TaskSampler(components, components.config.seed)
        self.in_flight = InFlightGroups(components.context, components.config.seed)

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        config, cursor = self.components.config, self.tasks.after(state)
        rollout, make_request = config.rollout, request_factory(config, state)
        outdated = [
            pending
            for pending in state.in_flight
            if state.step + 1 - pending.step > rollout.most_age
        ]
        waiting = [pending for pending in state.in_flight if pending not in outdated]
        new = [
            pending for pending in waiting if pending not in self.in_flight.pending
        ]  # after a resume they are begun anew
        wanted = min(
            rollout.tasks + rollout.partial, rollout.tasks * (config.steps - state.step)
        )  # no more than will be learned from
        first = 0
        for _ in range(wanted - len(waiting)):
            request = make_request(cursor.next())
            new.append(PendingGroup(request, state.step + 1, first))
            first += request.episodes
        rollouts = self.components.loop.run(
            self.in_flight.collect(new, rollout.tasks, on_done, outdated=outdated)
        )
        after = replace(
            with_outcome(cursor.counted(state), rollouts, config, cursor),
            in_flight=self.in_flight.pending,
        )
        return played(config, rollouts, after)


class OfflineSource(DataSource):
    """Every step takes the next few of a fixed set of groups."""

    def __init__(self, components: Components, source: Offline) -> None:
        groups = offline_groups(components, source)
        log.info("%d groups to learn from", len(groups))
        self.groups = ShuffledStream(groups, derive_seed(components.config.seed, "stored"))
        self.batch = min(source.batch, len(groups))

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        return StepData(self.groups.slice(state.step * self.batch, self.batch), state)


class ExpertIterationSource(DataSource):
    """AgentEvol: a round explores with the policy as it is, keeps what succeeded, and trains the
    base model on all that was kept.
    """

    def __init__(
        self, run: Run, components: Components, source: ExpertIteration, state: State
    ) -> None:
        self.components, self.source = components, source
        self.tasks = TaskSampler(components, components.config.seed)
        base = offline_groups(components, source.base)
        self.kept = [trajectory for group in base for trajectory in group.trajectories]
        for step in range(1, state.step + 1):
            if source.explores(step):  # what earlier rounds kept is in the run folder
                self.kept += self._good(run.kept(f"step-{step:06d}"))

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        step, rollouts = state.step + 1, None
        if self.source.explores(step):
            rollouts, state = play_step(self.components, self.tasks, state, on_done)
            _stop_if_all_broke(rollouts)
            self.kept += self._good(rollouts.trajectories)
            log.info("step %d: %d trajectories to imitate", step, len(self.kept))
        round_, index = divmod(state.step, self.source.round)
        if not self.kept:
            log.warning("no episode was good enough to be imitated")
            return StepData([], state, rollouts, from_reference=index == 0)
        stream = ShuffledStream(
            self.kept, derive_seed(self.components.config.seed, "round", round_)
        )
        batch = min(self.source.base.batch, len(self.kept))
        return StepData(
            [Group.of_one(t) for t in stream.slice(index * batch, batch)],
            state,
            rollouts,
            from_reference=index == 0,
        )

    def _good(self, explored: Iterable[Trajectory]) -> list[Trajectory]:
        by_task: dict[Task, list[Trajectory]] = {}
        for trajectory in explored:
            by_task.setdefault(trajectory.task, []).append(trajectory)
        good: list[Trajectory] = []
        for task, played in by_task.items():
            good += self.source.keep(Group(task, played))
        return good


def offline_groups(components: Components, source: Offline) -> list[Group]:
    """Groups of stored trajectories, then those of the environments' experts."""
    groups: list[Group] = []
    if source.data:
        groups = source.select(
            offline_data.read(
                source.data,
                shared_prompt(components.context.bindings).renderer,
                context_tokens=components.config.agent.context_tokens,
            )
        )
        if not groups:
            raise ConfigError(f"algo.data = {list(source.data)}: {source.expected}")
    if source.expert_episodes:
        sampler = TaskSampler(components, derive_seed(components.config.seed, "expert"))
        groups += each_alone(
            expert_episodes(
                components, sampler.after(State()), source.expert_episodes, source.expert_noise
            )
        )
    return groups


def play_step(
    components: Components, tasks: TaskSampler, state: State, on_done: OnDone
) -> tuple[RolloutBatch, State]:
    """The episodes of one step, and the state with what was drawn for them and how often they
    succeeded.
    """
    config, cursor = components.config, tasks.after(state)
    make_request = request_factory(config, state)
    rollouts = components.loop.run(
        collect_groups(
            components.context,
            [make_request(cursor.next()) for _ in range(config.rollout.tasks)],
            seed=state.sampling_seed(config.seed),
            step=state.step + 1,
            resample=lambda request: make_request(cursor.of(request.task.env)),
            resample_rounds=config.rollout.resample_rounds,
            has_signal=config.algo.has_signal,
            on_done=on_done,
        )
    )
    return rollouts, with_outcome(cursor.counted(state), rollouts, config, cursor)


def request_factory(config: Config, state: State) -> Callable[[Task], GroupRequest]:
    """How a task is to be played in the step after `state`."""
    bindings = {place.label: (place, *horizon_of(place, state)) for place in config.env_specs}

    def make_request(task: Task) -> GroupRequest:
        place, horizon, stage = bindings[task.env]
        return GroupRequest(
            task, place.group, horizon, stage, place.reward_scale, config.algo.needs_baseline
        )

    return make_request


def played(config: Config, rollouts: RolloutBatch, state: State) -> StepData:
    """What may be learned from what was played."""
    _stop_if_all_broke(rollouts)
    groups = [group for group in rollouts.groups if config.algo.learnable(group)]
    if not groups:
        log.warning("no episode of this step may be learned from")
    return StepData(groups, state, rollouts, figures=_figures_of_draws(config, rollouts, state))


def _figures_of_draws(config: Config, rollouts: RolloutBatch, state: State) -> dict[str, float]:
    """Where tasks are skipped, the success of what was played is not that of the policy."""
    if not config.rollout.skip_solved:
        return {}
    figures = {"tasks/skippable": float(sum(map(len, state.tasks_skippable.values())))}
    groups = Counter(group.task.env for group in rollouts.played if group.valid)
    rates = {env: state.success[env][-1] for env in groups}
    if groups:
        figures["success"] = sum(rates[env] * groups[env] for env in groups) / groups.total()
    if len(config.env_specs) > 1:
        figures |= {f"env/{env}/success": rate for env, rate in rates.items()}
    return figures


def horizon_of(place: EnvSpec, state: State) -> tuple[int, int]:
    """The turns that episodes of the next step may take, and the stage that this is."""
    progress = state.progress(place.label)
    return place.horizon(progress), place.horizon.stage(progress)


def with_outcome(state: State, rollouts: RolloutBatch, config: Config, cursor: Cursor) -> State:
    """The state with the success rates of what was collected, and with what that says about its
    tasks.
    """
    by_env: dict[str, list[Group]] = {}
    for group in rollouts.played:
        if group.valid:
            by_env.setdefault(group.task.env, []).append(group)
    success = dict(state.success)
    for env, groups in by_env.items():
        played = [t for group in groups for t in group.valid]
        rate = cursor.success(groups, env) if config.rollout.skip_solved else success_rate(played)
        success[env] = (*success.get(env, ()), rate)
    state = replace(state, success=success)
    return with_skippable(state, rollouts, config.algo) if config.rollout.skip_solved else state


def _stop_if_all_broke(rollouts: RolloutBatch) -> None:
    raise_if_all_failed(
        "this step", [t for group in rollouts.played for t in group.trajectories], rollouts.faulted
    )
