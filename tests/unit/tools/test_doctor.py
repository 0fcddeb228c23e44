"""Every check of the doctor: it passes on a healthy run, and fails when its fault is planted."""

import asyncio
import copy
import json
import shutil
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from palestra.agents.renderer import CHATML, Renderer
from palestra.algos.grpo import GRPO
from palestra.cli.main import main
from palestra.config.config import build
from palestra.config.optimizer import OptimizerConfig
from palestra.engines.torch.settings import TorchEngineSettings
from palestra.envs import make_env
from palestra.learner.checkpoint import export
from palestra.learner.logprobs import predict
from palestra.models.attention import PackedLayout, sdpa
from palestra.models.tiny import tiny_model
from palestra.tools.doctor.checks import run_checks
from palestra.tools.doctor.env_checks import (
    check_answers,
    check_contract,
    check_disk,
    checkpoint_bytes,
)
from palestra.tools.doctor.memory import (
    Need,
    bytes_per_token,
    check_fit,
    check_memory,
    estimate,
    largest,
    learn_one_row,
    made_up,
)
from palestra.tools.doctor.play import Played, play_some
from palestra.tools.doctor.result import size
from palestra.tools.doctor.tokens import check_mask, check_replies, check_template
from palestra.tools.doctor.weights import (
    check_handover,
    check_logprobs,
    check_packing,
    check_toy,
    fingerprint,
)
from palestra.training.setup import make_pool, setup
from tests.support.environments import Echo
from tests.support.templates import (
    COUNTS_TURNS,
    FORGETS_THOUGHTS,
    LLAMA_LIKE,
    QWEN3_LIKE,
    qwen3_like,
    tokenizer_with,
)

ROOT = Path(__file__).parents[3]
WORDS = ["say", "red", "blue"]
ECHO = {
    "device": "cpu",
    "threads": 1,
    "model": {"width": 32, "layers": 2, "heads": 2},
    "env": {"name": "tests.support.environments:Echo", "options": {"rounds": 2}, "deadline_s": 5.0},
    "agent": {"format": "plain", "context_tokens": 128, "reply_tokens": 8},
    "engine": {"slots": 16},
    "rollout": {"tasks": 4, "group": 4},
    "horizon": {"kind": "fixed", "turns": 4},
}
# prefix-preserving for as long as anyone would try it: earlier replies go after ten of them
FORGETS_LATE = CHATML.replace(
    "{{ message['content'] }}",
    "{% if message['role'] == 'assistant' and messages | length > 20 %}...{% else %}{{ "
    "message['content'] }}{% endif %}",
)


class Slow(Echo):
    """Answers, but only just before the deadline of 0.2 s."""

    def step(self, action):
        time.sleep(0.12)
        return super().step(action)


class Stale:
    """An engine with weights of its own that no hand-over reaches."""

    def __init__(self, model, *, takes_version=True):
        self.native = TorchEngineSettings(slots=64).build(copy.deepcopy(model), 128)
        self.takes_version = takes_version

    async def generate(self, ids, sampling, session):
        return await self.native.generate(ids, sampling, session)

    def release(self, session):
        self.native.release(session)

    async def sync_weights(self, version):
        if self.takes_version:
            await self.native.sync_weights(version)


class Wrong(GRPO):
    """Learns to lose."""

    def advantages(self, batch):
        return -super().advantages(batch)


@pytest.fixture
def components():
    made = setup(build(ECHO))
    yield made
    made.close()


@pytest.fixture
def played(components):
    return play_some(components, ["echo"])


def with_engine(components, engine):
    return replace(components, engine=engine, context=replace(components.context, engine=engine))


def shifted(played):
    """The same episodes with masks that begin and end one token late."""

    def late(segment):
        return replace(segment, mask=[0, *segment.mask[:-1]])

    return replace(
        played,
        trajectories=[
            replace(t, segments=[late(s) for s in t.segments]) for t in played.trajectories
        ],
    )


def test_a_healthy_run_passes_all_checks(tmp_path):
    findings = list(run_checks(build(ECHO), folder=tmp_path / "runs" / "new", fit=True))
    assert [finding for finding in findings if not finding.ok] == []
    assert len({finding.name for finding in findings}) == 15
    assert all(finding.number is not None for finding in findings)


def test_a_mixture_is_examined_environment_by_environment(tmp_path):
    mixture = [
        {"name": "tests.support.environments:Echo"},
        {"name": "tests.support.environments:Raises", "label": "broken"},
    ]
    tree = {key: value for key, value in ECHO.items() if key != "env"} | {"mixture": mixture}
    findings = list(run_checks(build(tree), folder=tmp_path))
    answers = {
        f.detail.split(":")[0]: f.ok for f in findings if f.name == "environment answers in time"
    }
    assert answers == {"echo": True, "broken": False}
    assert [f.name for f in findings if not f.ok] == ["environment answers in time"]


# tokens


@pytest.mark.parametrize("template", [FORGETS_THOUGHTS, COUNTS_TURNS, QWEN3_LIKE, None])
def test_a_template_that_cannot_be_appended_to(template):
    finding = check_template(tokenizer_with(template), "model", WORDS)
    assert not finding.ok
    assert "template = 'model' cannot be used" in finding.detail


def test_a_template_that_drifts_only_at_depth():
    tokenizer = tokenizer_with(FORGETS_LATE, specials=("<|im_start|>", "<|im_end|>"))
    Renderer(tokenizer, template="model")  # a few turns show nothing
    finding = check_template(tokenizer, "model", WORDS)
    # system, user, and a pair for each turn: turn 10 is the first with more than 20 messages
    assert (finding.ok, finding.number) == (False, 9)
    assert "after turn 10" in finding.detail


def test_a_fallback_is_no_fault_but_is_told():
    tokenizer = tokenizer_with(
        FORGETS_THOUGHTS, specials=("<|im_start|>", "<|im_end|>", "<|start|>", "<|eot|>")
    )
    finding = check_template(tokenizer, "auto", WORDS)
    assert finding.ok
    assert "not prefix-preserving" in finding.detail


@pytest.mark.parametrize(
    ("tokenizer", "is_usable"),
    [
        (tokenizer_with(FORGETS_THOUGHTS), False),
        (qwen3_like(), False),
        (tokenizer_with(LLAMA_LIKE), True),
    ],
)
def test_the_template_of_a_run_is_reported(tmp_path, tokenizer, is_usable):
    model = tiny_model(
        vocabulary=len(tokenizer),
        width=32,
        layers=1,
        heads=2,
        context=512,
        stop_id=0,
        seed=0,
        device=torch.device("cpu"),
    )
    export(tmp_path / "model", model, tokenizer)
    tree = ECHO | {
        "model": {"kind": "pretrained", "path": str(tmp_path / "model")},
        "env": {"name": "guess"},
    }
    settings = {"agent.template": "model", "agent.context_tokens": 512}
    findings = list(run_checks(build(tree, settings), folder=tmp_path))
    assert [f.name for f in findings if not f.ok] == (
        [] if is_usable else ["pieces of a chat add up to the whole"]
    )
    assert ("a toy reward rises" in [f.name for f in findings]) == is_usable


def test_replies_that_text_would_change(words):
    renderer = Renderer(words)
    red, unknown, end = (words.convert_tokens_to_ids(token) for token in ("red", "<unk>", "<end>"))
    finding = check_replies(renderer, [[red, end], [red, end, red], [unknown, end], [red, red]])
    # a stop token inside a reply never happens; it is left out on both sides
    assert finding.ok
    assert finding.number == 0
    bytes_ = tokenizer_with(CHATML, specials=("<|im_start|>", "<|im_end|>"))
    half = bytes_.encode("ü")[:1]  # half a letter is no text
    assert check_replies(Renderer(bytes_, template="model"), [half, bytes_.encode("u")]).number == 1


def test_a_mask_that_is_shifted_by_one(played):
    assert check_mask(played).ok
    finding = check_mask(shifted(played))
    assert not finding.ok
    assert "lie in the spans of its turns" in finding.detail


def test_a_mask_that_is_shifted_with_its_spans(played):
    def early(trajectory):
        segments = [
            replace(segment, mask=[*segment.mask[1:], 0]) for segment in trajectory.segments
        ]
        turns = [
            replace(turn, span=(turn.span[0] - 1, turn.span[1] - 1)) for turn in trajectory.turns
        ]
        return replace(trajectory, segments=segments, turns=turns)

    finding = check_mask(replace(played, trajectories=[early(t) for t in played.trajectories]))
    assert not finding.ok
    assert "the engine returned" in finding.detail


def test_tokens_that_were_encoded_again(played):
    def altered(segment):
        first = segment.mask.index(1)
        return replace(
            segment, ids=[*segment.ids[:first], segment.ids[first] ^ 1, *segment.ids[first + 1 :]]
        )

    finding = check_mask(
        replace(
            played,
            trajectories=[
                replace(t, segments=[altered(s) for s in t.segments]) for t in played.trajectories
            ],
        )
    )
    assert not finding.ok


# weights


def test_log_probs_of_other_weights(components, played):
    assert check_logprobs(components, played).ok
    with torch.no_grad():
        components.learner.model.lm_head.weight.mul_(1.5)
    finding = check_logprobs(components, played)
    assert not finding.ok
    assert finding.number > 1e-3


def test_stale_weights(components, played):
    before = fingerprint(components.learner.model)
    assert check_handover(components, played).ok
    finding = check_handover(with_engine(components, Stale(components.learner.model)), played)
    assert not finding.ok
    assert "after the weight sync the mean KL is" in finding.detail
    assert fingerprint(components.learner.model) == before


def test_a_version_that_does_not_move(components, played):
    class Forgetful(Stale):
        def __init__(self, model):
            self.native, self.takes_version = TorchEngineSettings(slots=64).build(model, 128), False

    finding = check_handover(with_engine(components, Forgetful(components.learner.model)), played)
    assert not finding.ok
    assert "versions [0]" in finding.detail


def test_an_update_that_does_nothing(components, played, monkeypatch):
    monkeypatch.setattr(components.learner, "update", lambda *_, **__: {})
    finding = check_handover(components, played)
    assert not finding.ok
    assert "before and after an update" in finding.detail


def test_segments_that_see_each_other(components, played, monkeypatch):
    assert check_packing(components, played).ok

    class Leaky(PackedLayout):
        def attend(self, query, key, value, *, scale, layer):
            return sdpa(query, key, value, scale=scale, is_causal=True)

    monkeypatch.setattr("palestra.learner.logprobs.PackedLayout", Leaky)
    finding = check_packing(components, played)
    assert not finding.ok
    assert finding.number > 1e-3


def test_a_reward_that_does_not_rise(components):
    assert check_toy(components).ok
    assert not check_toy(components, algo=Wrong()).ok
    assert not check_toy(with_engine(components, Stale(components.learner.model)), steps=8).ok


def test_the_toy_is_bounded_in_time(components):
    began = time.monotonic()
    finding = check_toy(components, algo=Wrong(), steps=10_000, budget_s=0.5)
    assert not finding.ok
    assert time.monotonic() - began < 10


def test_checks_leave_the_weights_as_they_were(components, played):
    before = fingerprint(components.learner.model)
    check_handover(components, played)
    check_packing(components, played)
    check_toy(components, steps=4)
    assert fingerprint(components.learner.model) == before
    assert asyncio.run(_version(components)) == 0


async def _version(components):
    return components.engine.version


# surroundings


@pytest.mark.parametrize(
    ("env", "isolation", "deadline_s", "said"),
    [
        ("tests.support.environments:Raises", "inline", 5.0, "the simulator broke"),
        ("tests.support.environments:NeverStarts", "inline", 5.0, "the simulator is missing"),
        ("tests.support.environments:Hangs", "inline", 0.3, "timeout: no answer within 0.3 s"),
        ("tests.support.environments:Dies", "process", 30.0, "the worker died with exit code 7"),
        ("tests.support.environments:AnswersNothing", "inline", 5.0, "step must return a Step"),
        ("tests.unit.tools.test_doctor:Slow", "inline", 0.2, "too close to it"),
    ],
)
def test_broken_environments(env, isolation, deadline_s, said):
    (place,) = build(
        ECHO
        | {
            "env": {"name": env, "isolation": isolation, "deadline_s": deadline_s},
            "engine": {"deterministic": isolation == "inline"},
        }
    ).env_specs
    finding = check_answers(
        "it",
        make_env(place.env.name, place.env.options),
        make_pool(place.env),
        deadline_s=deadline_s,
        episodes=4,
    )
    assert not finding.ok
    assert said in finding.detail


def test_a_broken_promise():
    (place,) = build({"env": {"name": "tests.contract.test_envs:ExpertLies"}}).env_specs
    finding = check_contract(place)
    assert not finding.ok
    assert "the expert solves what it claims" in finding.detail


def test_a_run_whose_environment_hangs_is_examined_in_a_few_seconds(tmp_path):
    began = time.monotonic()
    findings = list(
        run_checks(
            build(ECHO | {"env": {"name": "tests.support.environments:Hangs", "deadline_s": 0.3}}),
            folder=tmp_path,
        )
    )
    assert [finding.name for finding in findings if not finding.ok] == [
        "environment answers in time"
    ]
    assert time.monotonic() - began < 30


def test_a_full_disk(components, tmp_path, monkeypatch):
    # float32 weights and two moments of each: 12 bytes a parameter, three checkpoints, and a
    # reference of 4 bytes a parameter
    parameters = sum(p.numel() for p in components.learner.model.parameters())
    assert checkpoint_bytes(components.learner) == 12 * parameters
    finding = check_disk(
        components.learner, tmp_path / "not" / "yet", checkpoints=3, keeps_reference=True
    )
    assert (finding.ok, finding.number) == (True, 40 * parameters)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 40 * parameters - 1))
    assert not check_disk(components.learner, tmp_path, checkpoints=3, keeps_reference=True).ok
    assert check_disk(components.learner, tmp_path, checkpoints=3, keeps_reference=False).ok


# memory


def test_memory_that_is_too_small(components):
    assert check_memory(components).ok
    finding = check_memory(components, available=1_000_000)
    assert not finding.ok
    assert "976.6 KiB available" in finding.detail


def test_what_is_estimated_is_what_is_allocated(components):
    need = estimate(components.learner, components.config, microbatch_tokens=64, slots=16)
    cache = components.engine._cache
    assert need.cache == sum(tensor.nbytes for tensor in (*cache.keys, *cache.values))
    assert need.weights == sum(p.nbytes for p in components.learner.model.parameters())
    longer = estimate(components.learner, components.config, microbatch_tokens=1024, slots=16)
    assert (
        need.activations < longer.activations < 9 * need.activations
    )  # rows are never shorter than the context of 128
    assert isinstance(longer, Need)


@pytest.mark.parametrize("room", [0, 1, 2, 37, 100, 1000, 5000])
def test_the_largest_that_fits(room):
    tried = []

    def fits(n):
        tried.append(n)
        return n <= room

    found = largest(fits, 1, 1000)
    assert found <= room
    assert found >= min(room, 1000) * 15 / 16 - 1
    assert len(tried) < 20


def test_sizes_are_proposed_and_fit_an_estimate():
    config = build(ECHO)
    finding = check_fit(config)
    assert finding.ok
    assert "--optim.microbatch_tokens 131072 --engine.slots 16 (estimated" in finding.detail
    tight = check_fit(config, available=3_000_000)
    assert tight.ok
    assert tight.number < 131072
    assert not check_fit(config, available=1000).ok


def test_a_row_is_learned_from_in_one_go_and_nothing_is_learned(components, monkeypatch):
    rows = []

    def spied(model, batch, *args, **kwargs):
        rows.append(len(batch.ids_T))
        return predict(model, batch, *args, **kwargs)

    monkeypatch.setattr("palestra.learner.learner.predict", spied)
    before = fingerprint(components.learner.model)
    learn_one_row(components.learner, 9000, 128)  # more than the run's optim.microbatch_tokens
    assert rows == [9000]
    assert fingerprint(components.learner.model) == before
    assert components.learner.optim == components.config.optim


def test_a_made_up_row_is_as_long_as_it_can_be():
    batch = made_up(1000, 300, 50)
    assert batch.lengths_S.tolist() == [300, 300, 300, 100]
    assert len(batch.trajectory_C) == 996
    assert size(3 * 2**30) == "3.0 GiB"


# the command


def test_the_quickstart_is_examined_within_a_minute(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    began = time.monotonic()
    main(
        [
            "doctor",
            "--model.width",
            "64",
            "--engine.slots",
            "32",
            "--env.options.train_seeds",
            "50",
            "--threads",
            "1",
            "--json",
            "--fit",
        ]
    )
    findings = json.loads(capsys.readouterr().out)
    assert all(finding["ok"] for finding in findings)
    assert time.monotonic() - began < 60


def test_a_fault_exits_1_with_a_line_for_each_check(capsys, tmp_path):
    recipe = tmp_path / "broken.toml"
    recipe.write_text(
        '[env]\nname = "tests.support.environments:Raises"\n'
        '[model]\nwidth = 32\n[agent]\nformat = "plain"\n'
    )
    with pytest.raises(SystemExit) as exit_:
        main(
            [
                "doctor",
                str(recipe),
                "--threads",
                "1",
                "--engine.slots",
                "8",
                "--agent.context_tokens",
                "64",
                "--agent.reply_tokens",
                "8",
            ]
        )
    assert exit_.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines].count("FAILED") == 1
    assert all(line.split()[0] in ("ok", "FAILED") for line in lines)


def test_played_without_a_record_is_no_proof():
    assert Played([], {}).replies == []
    assert not check_mask(Played([], {})).ok


def test_activation_checkpointing_counts_what_enters_layers_and_one_layer_in_full(model):
    # two layers of width 64 and inner width 168, in 4 bytes: each keeps 26 x 64 + 4 x 168 = 2336
    # numbers of a token
    assert bytes_per_token(model, OptimizerConfig()) == 2 * 2336 * 4
    assert (
        bytes_per_token(model, OptimizerConfig(activation_checkpointing=True))
        == (2 * 64 + 2336) * 4
    )
