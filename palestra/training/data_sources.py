"""Where the trajectories of a training step come from: played by the policy, read from files, or gathered in rounds of both."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from palestra.algos.dpo import DPO
from palestra.algos.evol import AgentEvol
from palestra.algos.sft import SFT
from palestra.config.config import Config
from palestra.config.env import Playground
from palestra.core.errors import ConfigError
from palestra.core.seeds import derive_seed
from palestra.core.types import Group, Task, Trajectory
from palestra.rollout.metrics import success_rate
from palestra.rollout.partial import Begun, InPlay
from palestra.rollout.rollout import Assignment, Collected, collect, shared_persona, stop_if_all_broke
from palestra.runs.run import Run
from palestra.runs.state import State
from palestra.training import offline_data as data
from palestra.training.experts import expert_episodes
from palestra.training.setup import Parts
from palestra.training.task_sampler import Draw, Stream, TaskDraw, with_dead

log = logging.getLogger(__name__)

OnDone = Callable[[Trajectory], None]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a step has to learn from."""

    groups: list[Group]
    state: State
    """With what was drawn and how it went."""
    collected: Collected | None = None
    """What was played, where anything was."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What else there is to log of the step."""
    from_reference: bool = False
    """The learner is to begin anew from the model that was remembered."""

    @property
    def tokens(self) -> int:
        """Of what was played, or else of what is learnt from."""
        if self.collected is not None:
            return self.collected.tokens
        return sum(t.tokens for group in self.groups for t in group.valid)


class Experience(ABC):
    """A source of trajectories. All that it remembers is in the state and in the run folder."""

    @abstractmethod
    def gather(self, state: State, on_done: OnDone) -> Gathered:
        """What the step after `state` learns from."""

    def meanwhile(self, state: State, on_done: OnDone) -> AbstractContextManager[None]:
        """Around the learner's work: a source may gather for the step after `state` beside it."""
        return nullcontext()

    def files(self) -> dict[str, bytes]:
        """What goes into a checkpoint after the last step that was completed, by file name; also while the next is gathered for."""
        return {}

    def close(self) -> None:
        """Nothing more will be gathered."""


def experience_of(run: Run, parts: Parts, state: State) -> Experience:
    """The source that the run's algorithm learns from, as it is after `state`."""
    algo = run.config.algo
    if algo.source == "play":
        return Carried(parts) if run.config.rollout.carry or state.in_flight else OnPolicy(parts)
    if isinstance(algo, AgentEvol):
        return Rounds(run, parts, algo, state)
    if isinstance(algo, SFT):
        return Stored([Group.of_one(t) for t in base_set(parts, algo)], algo.batch, run.config.seed)
    if isinstance(algo, DPO):
        found = data.pairs(_read(parts, algo.data), min_gap=algo.min_gap, min_reward=algo.min_reward, per_task=algo.per_task)
        if not found:
            reason = f"no two trajectories of a task with a reward of at least {algo.min_reward:g} and {algo.min_gap:g} less"
            raise ConfigError(f"algo.data = {list(algo.data)}: {reason}")
        log.info("%d pairs", len(found))
        return Stored(found, algo.batch, run.config.seed)
    raise ConfigError(f"algo.name = {algo.name!r}: there is no source of {algo.source} for it")


class OnPolicy(Experience):
    """Every step plays fresh episodes with the weights as they are."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.tasks = TaskDraw(parts, parts.config.seed)

    def gather(self, state: State, on_done: OnDone) -> Gathered:
        return played(self.parts.config, *play_step(self.parts, self.tasks, state, on_done))


class Carried(Experience):
    """Every step adds fresh groups to those in play, and takes the first that are complete."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.tasks = TaskDraw(parts, parts.config.seed)
        self.in_play = InPlay(parts.arena, parts.config.seed)

    def gather(self, state: State, on_done: OnDone) -> Gathered:
        config, draw = self.parts.config, self.tasks.after(state)
        rollout, assigned = config.rollout, assigner(config, state)
        outdated = [begun for begun in state.in_flight if state.step + 1 - begun.step > rollout.most_age]
        waiting = [begun for begun in state.in_flight if begun not in outdated]
        new = [begun for begun in waiting if begun not in self.in_play.begun]  # after a resume they are begun anew
        wanted = min(rollout.tasks + rollout.carry, rollout.tasks * (config.steps - state.step))  # no more than will be learnt from
        first = 0
        for _ in range(wanted - len(waiting)):
            assignment = assigned(draw.next())
            new.append(Begun(assignment, state.step + 1, first))
            first += assignment.episodes
        collected = self.parts.loop.run(self.in_play.collect(new, rollout.tasks, on_done, outdated=outdated))
        after = replace(with_outcome(draw.counted(state), collected, config, draw), in_flight=self.in_play.begun)
        return played(config, collected, after)


class Stored(Experience):
    """Every step takes the next few of a fixed set of groups."""

    def __init__(self, groups: list[Group], batch: int, seed: int) -> None:
        self.groups = Stream(groups, derive_seed(seed, "stored"))
        self.batch = min(batch, len(groups))

    def gather(self, state: State, on_done: OnDone) -> Gathered:
        return Gathered(self.groups.slice(state.step * self.batch, self.batch), state)


class Rounds(Experience):
    """AgentEvol: a round explores with the policy as it is, keeps what succeeded, and trains the base model on all that was kept."""

    def __init__(self, run: Run, parts: Parts, algo: AgentEvol, state: State) -> None:
        self.parts, self.algo = parts, algo
        self.tasks = TaskDraw(parts, parts.config.seed)
        self.kept = base_set(parts, algo) if algo.has_base_set else []
        for step in filter(algo.explores, range(1, state.step + 1)):  # what earlier rounds kept is in the run folder
            self.kept += self._good(run.kept(f"step-{step:06d}"))

    def gather(self, state: State, on_done: OnDone) -> Gathered:
        step, collected = state.step + 1, None
        if self.algo.explores(step):
            collected, state = play_step(self.parts, self.tasks, state, on_done)
            _stop_if_all_broke(collected)
            self.kept += self._good(collected.trajectories)
            log.info("step %d: %d trajectories to imitate", step, len(self.kept))
        round_, place = divmod(state.step, self.algo.round)
        if not self.kept:
            log.warning("no episode was good enough to be imitated")
            return Gathered([], state, collected, from_reference=place == 0)
        stream = Stream(self.kept, derive_seed(self.parts.config.seed, "round", round_))
        batch = min(self.algo.batch, len(self.kept))
        return Gathered([Group.of_one(t) for t in stream.slice(place * batch, batch)], state, collected, from_reference=place == 0)

    def _good(self, explored: Iterable[Trajectory]) -> list[Trajectory]:
        by_task: dict[Task, list[Trajectory]] = {}
        for trajectory in explored:
            by_task.setdefault(trajectory.task, []).append(trajectory)
        return [t for task, played in by_task.items() for t in self.algo.kept(Group(task, played))]


def base_set(parts: Parts, algo: SFT | AgentEvol) -> list[Trajectory]:
    """What is imitated from the start: stored trajectories, and episodes of the environments' experts."""
    found = data.solved(_read(parts, algo.data), min_reward=algo.min_reward) if algo.data else []
    if algo.data and not found:
        raise ConfigError(f"algo.data = {list(algo.data)}: no trajectory has a reward of at least {algo.min_reward:g}")
    if algo.episodes and not (algo.data and isinstance(algo, SFT)):
        found += expert_episodes(parts, TaskDraw(parts, derive_seed(parts.config.seed, "expert")).after(State()), algo.episodes, algo.noise)
    return found


def check_data(config: Config) -> None:
    """That there is something at the paths which the algorithm learns from, before anything is loaded or played."""
    if isinstance(config.algo, SFT | DPO | AgentEvol):
        for path in config.algo.data:
            data.files(Path(path))


def _read(parts: Parts, paths: tuple[str, ...]) -> list[Trajectory]:
    return data.read(paths, shared_persona(parts.arena.places).renderer, context_tokens=parts.config.agent.context_tokens)


def play_step(parts: Parts, tasks: TaskDraw, state: State, on_done: OnDone) -> tuple[Collected, State]:
    """The episodes of one step, and the state with what was drawn for them and how often they succeeded."""
    config, draw = parts.config, tasks.after(state)
    assigned = assigner(config, state)
    collected = parts.loop.run(
        collect(
            parts.arena,
            [assigned(draw.next()) for _ in range(config.rollout.tasks)],
            seed=state.sampling_seed(config.seed),
            step=state.step + 1,
            redraw=lambda assignment: assigned(draw.of(assignment.task.env)),
            redraws=config.rollout.redraws,
            has_signal=config.algo.has_signal,
            on_done=on_done,
        )
    )
    return collected, with_outcome(draw.counted(state), collected, config, draw)


def assigner(config: Config, state: State) -> Callable[[Task], Assignment]:
    """How a task is to be played in the step after `state`."""
    places = {place.label: (place, *horizon_of(place, state)) for place in config.playgrounds}

    def assigned(task: Task) -> Assignment:
        place, horizon, stage = places[task.env]
        return Assignment(task, place.group, horizon, stage, place.reward_scale, config.algo.needs_baseline)

    return assigned


def played(config: Config, collected: Collected, state: State) -> Gathered:
    """What may be learnt from what was played."""
    _stop_if_all_broke(collected)
    groups = [group for group in collected.groups if config.algo.learnable(group)]
    if not groups:
        log.warning("no episode of this step may be learnt from")
    return Gathered(groups, state, collected, figures=_figures_of_draws(config, collected, state))


def _figures_of_draws(config: Config, collected: Collected, state: State) -> dict[str, float]:
    """Where tasks are skipped, the success of what was played is not that of the policy."""
    if not config.rollout.skip_dead:
        return {}
    figures = {"tasks/dead": float(sum(map(len, state.tasks_dead.values())))}
    groups = Counter(group.task.env for group in collected.played if group.valid)
    rates = {env: state.success[env][-1] for env in groups}
    if groups:
        figures["success"] = sum(rates[env] * groups[env] for env in groups) / groups.total()
    if len(config.playgrounds) > 1:
        figures |= {f"env/{env}/success": rate for env, rate in rates.items()}
    return figures


def horizon_of(place: Playground, state: State) -> tuple[int, int]:
    """The turns that episodes of the next step may take, and the stage that this is."""
    progress = state.progress(place.label)
    return place.horizon(progress), place.horizon.stage(progress)


def with_outcome(state: State, collected: Collected, config: Config, draw: Draw) -> State:
    """The state with the success rates of what was collected, and with what that says about its tasks."""
    by_env: dict[str, list[Group]] = {}
    for group in collected.played:
        if group.valid:
            by_env.setdefault(group.task.env, []).append(group)
    success = dict(state.success)
    for env, groups in by_env.items():
        played = [t for group in groups for t in group.valid]
        rate = draw.success(groups, env) if config.rollout.skip_dead else success_rate(played)
        success[env] = (*success.get(env, ()), rate)
    state = replace(state, success=success)
    return with_dead(state, collected, config.algo) if config.rollout.skip_dead else state


def _stop_if_all_broke(collected: Collected) -> None:
    stop_if_all_broke("this step", [t for group in collected.played for t in group.trajectories], collected.faulted)
