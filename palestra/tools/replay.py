"""Replay a stored episode: its actions in a new environment, or a model that continues from one of
its turns.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palestra.agents.base import Agent
from palestra.agents.chat import ChatAgent
from palestra.config import config as configs
from palestra.config.config import Config
from palestra.core.errors import UserError
from palestra.core.registry import nearest
from palestra.core.seeds import derive_seed
from palestra.core.types import Segment, Stop, Task, Trajectory, Turn
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.envs.serving.handles import EnvFault, EnvHandle, opened
from palestra.learner import checkpoint
from palestra.models.tokenizers import byte_tokenizer
from palestra.rollout.episode import (
    Begin,
    EnvBinding,
    EpisodeSpec,
    RolloutContext,
    rollout_episode,
)
from palestra.rollout.retrace import Check, CheckedTurn, retrace, turn_of
from palestra.runs.run import Run
from palestra.runs.trajectories import encode_trajectory, read_trajectories, trajectory_ids
from palestra.training.offline_data import reads_as_recorded
from palestra.training.preflight import close_envs, make_envs
from palestra.training.setup import bind_envs, setup

NAMES_SHOWN = 8
"""File names in an error. A run has a trajectory file for each step."""


class ReplayError(UserError, ValueError):
    """An episode cannot be replayed; the message is one line."""


class Differs(Exception):
    """The environment does not answer as it did, so the record cannot be continued."""

    def __init__(self, check: Check) -> None:
        super().__init__(f"the environment differs at {', '.join(map(str, check.differing))}")
        self.check = check


@dataclass(frozen=True, slots=True)
class PlayOn:
    """How an episode is continued. None: as it was recorded."""

    turn: int
    """The first turn that is played again, from 1."""
    checkpoint: int | None = None
    """A step of the run. Default, if `model` is not given either: its newest checkpoint."""
    model: Path | None = None
    """A Hugging Face directory."""
    horizon: int | None = None
    temperature: float | None = None
    seed: int | None = None
    samples: int = 1


# finding an episode


def find_episode(run: Run, id: str, *, file: str | None = None) -> Trajectory:
    """The episode with this id: of several attempts, the last without a fault, else the last."""
    paths = _files(run, file)
    found: dict[str, list[Trajectory]] = {}
    for path in paths:
        attempts = _attempts(path, id)
        if attempts:
            found[path.stem] = attempts
    if not found:
        ids: list[str] = []
        for path in paths:
            ids += trajectory_ids(path)
        raise ReplayError(
            f"--episode {id}: {_alike(id, ids)}; the files are: "
            f"{_listed([path.stem for path in paths])}"
        )
    if len(found) > 1:
        raise ReplayError(
            f"--episode {id}: it stands in several files; choose one by --file: "
            f"{_listed(list(found))}"
        )
    (attempts,) = found.values()
    return max(attempts, key=lambda attempt: (not attempt.stop.is_fault, attempt.attempt))


def _attempts(path: Path, id: str) -> list[Trajectory]:
    try:
        return list(read_trajectories(path, id=id))
    except (ValueError, OSError, RecursionError) as error:
        raise ReplayError(
            f"{path}: expected lines of Palestra trajectories; "
            f"{str(error).removeprefix(f'{path}: ')}"
        ) from error


def _files(run: Run, file: str | None) -> list[Path]:
    paths = sorted((run.folder / "trajectories").glob("*.jsonl"))
    if not paths:
        raise ReplayError(f"{run.folder}: the run has stored no episodes yet")
    if file is None:
        return paths
    name = Path(file).name.removesuffix(".jsonl")
    chosen = [path for path in paths if path.stem == name]
    if not chosen:
        raise ReplayError(
            f"--file {file}: there is no such file of trajectories; the files are: "
            f"{_listed([path.stem for path in paths])}"
        )
    return chosen


def _alike(id: str, known: Sequence[str]) -> str:
    if not known:
        return "there are no episodes"
    close = difflib.get_close_matches(id, sorted(set(known)), n=3, cutoff=0.6)
    if close:
        return f"there is no such episode; the nearest are {', '.join(close)}"
    return f"there is no such episode; ids look like {known[0]}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    if len(names) <= NAMES_SHOWN:
        return shown
    return f"{shown} and {len(names) - NAMES_SHOWN} more, up to {names[-1]}"


# checking


async def check(binding: EnvBinding, recorded: Trajectory, *, turns: int | None = None) -> Check:
    """Give the environment the recorded actions, all or those of the first `turns` turns, and
    compare its answers.
    """
    checked: list[CheckedTurn] = []
    count = len(recorded.turns) if turns is None else turns
    try:
        async with opened(binding.pool) as env:
            await retrace(env, binding.own(recorded.task), recorded, count, checked)
    except EnvFault as fault:
        if not checked:
            checked.append(turn_of(recorded, 0))
        checked[-1].compare("fault", "", str(fault))
    return Check(recorded, checked)


def check_stored(run: Run, recorded: Trajectory) -> Check:
    """`check` in the environment that the run's configuration describes."""
    _known_env(run.config, recorded)
    envs = make_envs(run.config)
    # Only the environments are used, so any tokenizer will do.
    bindings = bind_envs(run.config, envs, byte_tokenizer())
    with asyncio.Runner() as loop:
        result = loop.run(check(bindings[recorded.task.env], recorded))
    close_envs(run.config, envs)
    return result


def _known_env(config: Config, recorded: Trajectory) -> None:
    labels = [binding.label for binding in config.env_specs]
    if recorded.task.env not in labels:
        raise ReplayError(
            f"episode {recorded.id}: the run has no environment called "
            f"{recorded.task.env!r}; {nearest(recorded.task.env, labels)}"
        )


# continuing an episode


async def play_from(
    context: RolloutContext, recorded: Trajectory, choice: PlayOn
) -> list[Trajectory]:
    """Play the recorded actions before the chosen turn, then let the context's model continue from
    exactly the recorded tokens.

    The first continuation has the seed of the record, or the chosen one; each other has its own.
    Raises `Differs` if the environment does not answer as recorded.
    """
    _check_choice(recorded, choice)
    binding = context.bindings[recorded.task.env]
    if not reads_as_recorded(recorded, binding.prompt.renderer):
        raise ReplayError(
            f"episode {recorded.id}: this model's tokenizer reads the recorded tokens as "
            "another text; it cannot play on"
        )
    before = await check(binding, recorded, turns=choice.turn - 1)
    if not before.same:
        raise Differs(before)
    gate = asyncio.Semaphore(context.concurrency)

    async def one(number: int) -> Trajectory:
        episode = _continuation(recorded, choice, number)
        async with gate:
            return await rollout_episode(context, episode, 0, _from(recorded, choice.turn))

    async with asyncio.TaskGroup() as tasks:
        jobs = [tasks.create_task(one(number)) for number in range(choice.samples)]
    return [job.result() for job in jobs]


def _check_choice(recorded: Trajectory, choice: PlayOn) -> None:
    """The checks that need no model."""
    played = len(recorded.turns)
    # An episode that ended at its horizon has an observation to continue from after its last turn.
    last = played + 1 if recorded.stop is Stop.HORIZON else played
    horizon = choice.horizon or recorded.horizon
    if not 1 <= choice.turn <= last:
        there_are = f"it can be played on from turn 1 to {last}" if last else "it has no turns"
        raise ReplayError(
            f"--from {choice.turn}: episode {recorded.id} ended ({recorded.stop}) after "
            f"{played} turns; {there_are}"
        )
    if horizon < choice.turn:
        raise ReplayError(
            f"--from {choice.turn}: with a horizon of {horizon} turns nothing is left to "
            "play; give a larger --horizon"
        )
    if len({turn.segment for turn in recorded.turns[: choice.turn]}) > 1:
        raise ReplayError(
            f"--from {choice.turn}: the turns up to there lie in several segments; only "
            "an episode of one can be played on"
        )
    if choice.temperature is not None and not choice.temperature >= 0:
        raise ReplayError(f"--temperature {choice.temperature:g}: expected 0 or more")
    if choice.checkpoint is not None and choice.model is not None:
        raise ReplayError("--checkpoint and --model: one model plays on; give one of them")


def _continuation(recorded: Trajectory, choice: PlayOn, number: int) -> EpisodeSpec:
    seed = recorded.seed if choice.seed is None else choice.seed
    return EpisodeSpec(
        id=f"{recorded.id}-from-{choice.turn}-{number}",
        task=recorded.task,
        horizon=choice.horizon or recorded.horizon,
        seed=derive_seed(seed, "replay", number) if number else seed,
        step=recorded.step,
        stage=recorded.stage,
        reward_scale=recorded.reward_scale,
    )


def _from(recorded: Trajectory, turn: int) -> Begin:
    """A start of an episode in the middle of a record."""
    past = [replace(old, segment=0) for old in recorded.turns[: turn - 1]]

    async def retrace_to_turn(agent: Agent, env: EnvHandle, task: Task, turns: list[Turn]) -> str:
        if not isinstance(agent, ChatAgent):
            raise ReplayError(f"{type(agent).__name__}: only a chat agent can resume a record")
        agent.resume_from(_tokens_before(recorded, turn), replies=len(past))
        turns.extend(past)
        checked: list[CheckedTurn] = []
        await retrace(env, task, recorded, len(past), checked)
        # It answered the same a moment ago, so a difference now is a fault, and retried as one.
        now = Check(recorded, checked)
        if not now.same:
            raise EnvFault(
                f"it answered differently from one time to the next, at turn {now.differing[0]}"
            )
        if turn <= len(recorded.turns):
            return recorded.turns[turn - 1].observation
        return recorded.final_observation

    return retrace_to_turn


def _tokens_before(recorded: Trajectory, turn: int) -> Segment:
    """A copy of the recorded tokens before a turn's reply; after the last turn, all of them."""
    is_next = turn > len(recorded.turns)
    last = recorded.turns[-1 if is_next else turn - 1]
    old = recorded.segments[last.segment]
    end = len(old.ids) if is_next else last.span[0]
    return Segment(old.ids[:end], old.mask[:end], old.logprobs[:end], old.versions[:end])


def play_stored(run: Run, recorded: Trajectory, choice: PlayOn) -> tuple[list[Trajectory], Path]:
    """`play_from` with a model of the run or another one. Returns the continuations, and the file
    in the run folder that has them.
    """
    _known_env(run.config, recorded)
    _check_choice(recorded, choice)
    folder = choice.model or _checkpoint_folder(run, choice.checkpoint)
    settings: dict[str, Any] = {"model.kind": "pretrained", "model.path": str(folder), "lora": None}
    if isinstance(run.config.engine, TorchEngineSettings):
        # The cache has room for this many episodes.
        settings["engine.slots"] = min(run.config.engine.slots, choice.samples)
    temperature = choice.temperature
    if temperature is None:
        temperature = _temperature(run.config, recorded)
    version = 0 if choice.model else int(checkpoint.read_state(folder)["step"])
    components = setup(configs.load(run.folder / "config.toml", settings, imports=True))
    try:
        components.loop.run(components.engine.sync_weights(version=version))
        sampling = replace(components.context.sampling, temperature=temperature)
        context = replace(components.context, sampling=sampling)
        played = components.loop.run(play_from(context, recorded, choice))
    finally:
        components.close()
    return played, _keep(run, recorded, choice, played)


def _checkpoint_folder(run: Run, step: int | None) -> Path:
    found = checkpoint.newest(run.checkpoints) if step is None else run.checkpoint(step)
    if found is None:
        raise ReplayError(f"{run.folder}: the run has no checkpoint yet; give a model by --model")
    if not (found / checkpoint.STATE).is_file():
        complete = run.checkpoints.glob(f"step-*/{checkpoint.STATE}")
        steps = sorted(int(path.parent.name.removeprefix("step-")) for path in complete)
        others = "there are none"
        if steps:
            others = f"there are those of {', '.join(map(str, steps))}"
        raise ReplayError(f"--checkpoint {step}: the run has no checkpoint of that step; {others}")
    return found


def _temperature(config: Config, recorded: Trajectory) -> float:
    """The temperature of the record, with which the same weights sample the same replies."""
    if recorded.is_baseline:
        return 0.0
    if recorded.id.startswith("eval-"):
        return config.eval_temperature
    return config.rollout.temperature


def _keep(run: Run, recorded: Trajectory, choice: PlayOn, played: list[Trajectory]) -> Path:
    folder = run.folder / "replays"
    folder.mkdir(exist_ok=True)
    now = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() // 10**6 % 1000:03d}"
    path = folder / f"{recorded.id}-from-{choice.turn}-{now}.jsonl"
    path.write_bytes(b"".join(encode_trajectory(trajectory) + b"\n" for trajectory in played))
    return path
