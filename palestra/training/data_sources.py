"""Where the trajectories of a training step come from: on-policy rollouts, files, or rounds of both
(expert iteration).
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
    """The data of one training step."""

    groups: list[Group]
    state: State
    """The state with the sampled tasks counted and the step's success rates added."""
    rollouts: RolloutBatch | None = None
    """The episodes that were played for the step; None if there were none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Additional metrics of the step."""
    from_reference: bool = False
    """Whether the learner first returns to the weights of the reference model."""

    @property
    def tokens(self) -> int:
        """Of the episodes that were played; without any, of those that are trained on."""
        if self.rollouts is not None:
            return self.rollouts.tokens
        total = 0
        for group in self.groups:
            total += sum(trajectory.tokens for trajectory in group.valid)
        return total


class DataSource(ABC):
    """A source of trajectories. Everything it remembers is in the state and in the run folder."""

    @abstractmethod
    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        """The data of the step after `state`."""

    def overlap(self, state: State, on_done: OnDone) -> AbstractContextManager[None]:
        """Around the learner's update: a source may collect the step after `state` concurrently."""
        return nullcontext()

    def files(self) -> dict[str, bytes]:
        """What a checkpoint after the last completed step stores of this source, by file name. May
        be called while the next step is being collected.
        """
        return {}

    def close(self) -> None:
        """Stop collecting."""


def data_source_for(run: Run, components: Components, state: State) -> DataSource:
    """The data source that the run's algorithm asks for, positioned after `state`."""
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
    """Every step plays new episodes with the current weights."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.tasks = TaskSampler(components, components.config.seed)

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        return played(
            self.components.config, *play_step(self.components, self.tasks, state, on_done)
        )


class PartialRolloutSource(DataSource):
    """Every step adds new groups to those in flight, and takes the first that are complete."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self.tasks = TaskSampler(components, components.config.seed)
        self.in_flight = InFlightGroups(components.context, components.config.seed)

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        config, cursor = self.components.config, self.tasks.after(state)
        rollout, make_request = config.rollout, request_factory(config, state)
        oldest_step = state.step + 1 - rollout.most_age
        outdated = [pending for pending in state.in_flight if pending.step < oldest_step]
        waiting = [pending for pending in state.in_flight if pending not in outdated]
        # After a resume, groups of the state are not in flight yet: they start from the beginning.
        new = [pending for pending in waiting if pending not in self.in_flight.pending]
        # The last steps start no more groups than they will train on.
        left_to_train = rollout.tasks * (config.steps - state.step)
        wanted = min(rollout.tasks + rollout.partial, left_to_train)
        first = 0
        for _ in range(wanted - len(waiting)):
            request = make_request(cursor.next())
            new.append(PendingGroup(request, state.step + 1, first))
            first += request.episodes
        rollouts = self.components.loop.run(
            self.in_flight.collect(new, rollout.tasks, on_done, outdated=outdated)
        )
        after = with_outcome(cursor.counted(state), rollouts, config, cursor)
        return played(config, rollouts, replace(after, in_flight=self.in_flight.pending))


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
    """AgentEvol: a round explores with the current policy, keeps what succeeded, and trains the
    base model on everything kept so far.
    """

    def __init__(
        self, run: Run, components: Components, source: ExpertIteration, state: State
    ) -> None:
        self.components, self.source = components, source
        self.tasks = TaskSampler(components, components.config.seed)
        self.kept: list[Trajectory] = []
        for group in offline_groups(components, source.base):
            self.kept += group.trajectories
        for step in range(1, state.step + 1):
            if source.explores(step):  # what earlier rounds kept is in the run folder
                self.kept += self._good(run.kept(f"step-{step:06d}"))

    def next_batch(self, state: State, on_done: OnDone) -> StepData:
        step, rollouts = state.step + 1, None
        if self.source.explores(step):
            rollouts, state = play_step(self.components, self.tasks, state, on_done)
            _stop_if_all_failed(rollouts)
            self.kept += self._good(rollouts.trajectories)
            log.info("step %d: %d trajectories to imitate", step, len(self.kept))
        round_, index = divmod(state.step, self.source.round)
        is_first_of_round = index == 0
        if not self.kept:
            log.warning("no episode was good enough to be imitated")
            return StepData([], state, rollouts, from_reference=is_first_of_round)
        seed = derive_seed(self.components.config.seed, "round", round_)
        batch = min(self.source.base.batch, len(self.kept))
        lessons = ShuffledStream(self.kept, seed).slice(index * batch, batch)
        groups = [Group.of_one(lesson) for lesson in lessons]
        return StepData(groups, state, rollouts, from_reference=is_first_of_round)

    def _good(self, explored: Iterable[Trajectory]) -> list[Trajectory]:
        """What the algorithm keeps of an exploration."""
        by_task: dict[Task, list[Trajectory]] = {}
        for trajectory in explored:
            by_task.setdefault(trajectory.task, []).append(trajectory)
        good: list[Trajectory] = []
        for task, played in by_task.items():
            good += self.source.keep(Group(task, played))
        return good


def offline_groups(components: Components, source: Offline) -> list[Group]:
    """Groups of stored trajectories, then those of the environments' experts."""
    config = components.config
    groups: list[Group] = []
    if source.data:
        stored = offline_data.read(
            source.data,
            shared_prompt(components.context.bindings).renderer,
            context_tokens=config.agent.context_tokens,
        )
        groups = source.select(stored)
        if not groups:
            raise ConfigError(f"algo.data = {list(source.data)}: {source.expected}")
    if source.expert_episodes:
        cursor = TaskSampler(components, derive_seed(config.seed, "expert")).after(State())
        solved = expert_episodes(components, cursor, source.expert_episodes, source.expert_noise)
        groups += each_alone(solved)
    return groups


def play_step(
    components: Components, tasks: TaskSampler, state: State, on_done: OnDone
) -> tuple[RolloutBatch, State]:
    """The episodes of one step, and the state with their tasks counted and their success rates
    added.
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
    """A function from a task to how it is played in the step after `state`."""
    specs = {spec.label: spec for spec in config.env_specs}
    horizons = {label: horizon_of(spec, state) for label, spec in specs.items()}

    def make_request(task: Task) -> GroupRequest:
        spec, (horizon, stage) = specs[task.env], horizons[task.env]
        return GroupRequest(
            task, spec.group, horizon, stage, spec.reward_scale, config.algo.needs_baseline
        )

    return make_request


def played(config: Config, rollouts: RolloutBatch, state: State) -> StepData:
    """The groups of a rollout that may be trained on."""
    _stop_if_all_failed(rollouts)
    groups = [group for group in rollouts.groups if config.algo.learnable(group)]
    if not groups:
        log.warning("no episode of this step may be learned from")
    return StepData(groups, state, rollouts, figures=_skip_metrics(config, rollouts, state))


def _skip_metrics(config: Config, rollouts: RolloutBatch, state: State) -> dict[str, float]:
    """With `rollout.skip_solved`: the number of tasks that may be skipped, and the policy's
    estimated success, since the mean over the played episodes alone leaves skipped tasks out.
    """
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


def horizon_of(spec: EnvSpec, state: State) -> tuple[int, int]:
    """The turns that episodes of the next step may take, and the stage of the schedule."""
    progress = state.progress(spec.label)
    return spec.horizon(progress), spec.horizon.stage(progress)


def with_outcome(state: State, rollouts: RolloutBatch, config: Config, cursor: Cursor) -> State:
    """The state with the success rates of these rollouts, and with the tasks that may be skipped
    from now on.
    """
    by_env: dict[str, list[Group]] = {}
    for group in rollouts.played:
        if group.valid:
            by_env.setdefault(group.task.env, []).append(group)
    success = dict(state.success)
    for env, groups in by_env.items():
        if config.rollout.skip_solved:
            rate = cursor.success(groups, env)
        else:
            valid: list[Trajectory] = []
            for group in groups:
                valid += group.valid
            rate = success_rate(valid)
        success[env] = (*success.get(env, ()), rate)
    state = replace(state, success=success)
    return with_skippable(state, rollouts, config.algo) if config.rollout.skip_solved else state


def _stop_if_all_failed(rollouts: RolloutBatch) -> None:
    trajectories: list[Trajectory] = []
    for group in rollouts.played:
        trajectories += group.trajectories
    raise_if_all_failed("this step", trajectories, rollouts.faulted)
