"""Plans: against what was measured on one H200, against sums done by hand, and as the command
prints them.
"""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from palestra.cli.main import main
from palestra.config.config import build
from palestra.core.errors import ConfigError
from palestra.tools.plan import costs
from palestra.tools.plan.costs import Work
from palestra.tools.plan.layouts import Job, Layout, best, least_gpus, plan, warnings
from palestra.tools.plan.machines import GIB, GPUS
from palestra.tools.plan.shapes import KNOWN, known_shape, shape_of
from palestra.tools.plan.show import TABLE_WORK, figures, table, work_of

ROOT = Path(__file__).parents[3]
SMALL, H200 = KNOWN["qwen2.5-1.5b"], GPUS["h200"]
RECIPE = str(ROOT / "palestra" / "recipes" / "textcraft-qwen1.5b.toml")


def measured(name):
    return json.loads((ROOT / "docs" / "lab" / "measured" / f"{name}.json").read_text())


def played(steps):
    """The work of measured steps: means over those that were not for warming up."""
    kept = [step for step in steps if not step["is_warm_up"]]
    mean = {
        name: sum(step[name] for step in kept) / len(kept)
        for name in ("turns", "sampled_tokens", "collected_tokens", "trained_tokens")
    }
    seconds = {
        name: sum(step["seconds"][name] for step in kept) / len(kept) for name in kept[0]["seconds"]
    }
    opening = sum(step["longest_prompt"] for step in kept) / len(kept)
    work = Work(
        256,
        8,
        mean["turns"] / 256,
        mean["sampled_tokens"] / mean["turns"],
        mean["collected_tokens"] / 256,
        opening,
    )
    return work, mean["trained_tokens"], seconds


def learned(tokens, length):
    return costs.learn_seconds(
        SMALL, H200, tokens, length, gpus=1, checkpointing=False, sharded=False,
        microbatch_tokens=16384, link=1.0
    )  # fmt: skip


def decoded(episodes, *, vllm=False):
    return costs.decode_seconds(SMALL, H200, episodes, 800, tensor_parallel=1, vllm=vllm)


def collected(work, slots):
    return costs.collect_seconds(
        SMALL, H200, work, engines=1, tensor_parallel=1, slots=slots, vllm=False
    )


def points():
    """What was measured, what the model says, and the factor within which it must be."""
    learner, search = measured("learner"), measured("search-step")
    yield "learner, seconds", learner["seconds"], learned(learner["tokens"], 1500), 1.1
    memory = costs.state_bytes(SMALL, shards=1) + costs.row_bytes(
        SMALL, learner["microbatch_tokens"], checkpointing=False
    )
    yield "learner, memory", learner["peak_memory_gib"] * GIB, memory, 1.15
    for episodes, seconds in {
        256: 4.35e-3,
        128: 3.00e-3,
        32: 2.10e-3,
    }.items():  # docs/guides/performance.md
        yield f"decoding step of {episodes}", seconds, decoded(episodes), 1.1
    bench = Work(256, 256, 6, 40, 800, 500)
    yield "rollout benchmark, tokens/s", 33_300, bench.sampled_tokens / collected(bench, 256), 1.4
    raw = next(
        row
        for row in measured("vllm")[
            "graphs of up to 1024 tokens, whole episodes hashed at every turn"
        ]
        if row["what"] == "raw"
    )
    yield "vLLM, decoding step of 256", raw["seconds"] / raw["steps"], decoded(256, vllm=True), 1.4
    for name, steps, slots in (
        ("TextCraft", measured("peer")["Palestra"]["steps"], 256),
        ("search", search["steps"], 160),
    ):
        work, tokens, seconds = played(steps)
        yield f"{name}, collecting", seconds["collect"], collected(work, slots), 1.4
        yield (
            f"{name}, learning",
            seconds["prepare"] + seconds["update"],
            learned(tokens, work.episode_tokens),
            1.6,
        )
    cache = costs.cache_bytes(SMALL, 256, 4096, tensor_parallel=1)
    peak = max(step["peak_memory_gib"] for step in measured("peer")["Palestra"]["steps"])
    yield "TextCraft, memory", peak * GIB, memory + cache, 1.4
    yield (
        "vLLM, hand-over",
        0.053,
        costs.hand_over_seconds(SMALL, link=1.0, moved=False, vllm=True, tensor_parallel=1),
        1.1,
    )


@pytest.mark.parametrize(
    ("name", "was", "is_said", "factor"),
    list(points()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_within_a_factor_of_what_was_measured(name, was, is_said, factor):
    assert was / factor <= is_said <= was * factor, (
        f"{name}: measured {was:.4g}, planned {is_said:.4g}"
    )


def test_parameters_are_those_of_the_models():
    known = {
        "qwen2.5-1.5b": 1.54e9,
        "qwen2.5-7b": 7.62e9,
        "qwen2.5-32b": 32.8e9,
        "qwen2.5-72b": 72.7e9,
    }
    known |= {"llama-3-8b": 8.03e9, "llama-3-70b": 70.6e9}
    assert {name: KNOWN[name].parameters for name in known} == pytest.approx(known, rel=5e-3)


def test_bytes_by_hand():
    # Llama-3-70B: 80 layers x 8 heads x 128 wide x 2 (keys, values) x 2 bytes = 327,680 a token
    assert KNOWN["llama-3-70b"].cache_bytes == 327_680
    # 7.615e9 x 16 / 8 = 15.23e9, and 4 bytes x (a layer of 0.233e9 + the head's 0.545e9)
    seven = KNOWN["qwen2.5-7b"]
    assert costs.state_bytes(seven, shards=8) == pytest.approx(
        15.23e9 + 4 * (0.233e9 + 0.545e9), rel=1e-3
    )
    assert costs.state_bytes(seven, shards=1) == 20 * seven.parameters
    # with an adapter of rank 16 the frozen weights are 2 bytes, and what learns is little
    assert costs.state_bytes(seven, shards=1, adapter_rank=16) < 2.2 * seven.parameters
    # 28 layers x 2 bytes x 3,584 of what enters each, instead of all that is in them
    kept = (
        costs.row_bytes(seven, 1000, checkpointing=True),
        costs.row_bytes(seven, 1000, checkpointing=False),
    )
    assert kept[0] < 0.6 * kept[1]


def test_openings_are_computed_once_for_a_group():
    # 16 episodes in 2 groups: 16 x (1000 - 400 - 5 x 20) = 8,000 and 2 x 400 = 800
    assert Work(16, 8, 5, 20, 1000, 400).shown_tokens == 8_800


def job(name, gpus, **changes):
    made = Job(
        KNOWN[name],
        TABLE_WORK,
        H200,
        gpus,
        "infiniband",
        context_tokens=16384,
        microbatch_tokens=16384,
        slots=256,
    )
    return replace(made, **changes)


def test_more_gpus_are_never_slower():
    for name in ("qwen2.5-7b", "qwen2.5-32b", "llama-3-70b"):
        steps = [found.step_s for gpus in (8, 16, 64, 256) if (found := best(job(name, gpus))).fits]
        assert len(steps) >= 3
        assert all(later <= 1.05 * earlier for earlier, later in pairwise(steps))


def test_what_does_not_fit():
    found = best(job("llama-3-70b", 8))
    assert not found.fits
    least = least_gpus(job("llama-3-70b", 8))
    assert least == 16
    assert best(job("llama-3-70b", least)).fits
    assert best(job("llama-3-70b", 8, adapter_rank=16)).fits


def test_a_recommended_layout_uses_all_gpus_and_fits():
    for gpus in (1, 2, 8, 24, 64):
        found = best(job("qwen2.5-1.5b", gpus))
        assert found.fits
        assert found.layout.learners + found.layout.generators == gpus
        assert found.layout.engines * found.layout.tensor_parallel == (
            found.layout.generators or gpus
        )


def test_slow_links_count():
    layout = Layout(
        learners=64, generators=0, sharding="fsdp", tensor_parallel=1, checkpointing=True, slots=64
    )
    fast, slow = (
        plan(job("qwen2.5-7b", 64, link=link), layout) for link in ("infiniband", "ethernet")
    )
    assert slow.seconds["learn"] > fast.seconds["learn"]
    assert slow.seconds["hand over"] == pytest.approx(4 * fast.seconds["hand over"])


def test_it_says_where_it_extrapolates():
    assert warnings(best(job("qwen2.5-1.5b", 1))) == []
    notes = " ".join(warnings(best(job("llama-3-70b", 64, gpu=GPUS["h100"]))))
    assert "this one has 71B" in notes
    assert "H100" in notes
    assert "one GPU" in notes
    assert "32 learners share" in notes
    assert "run on CPUs only" in notes
    assert "have not been run yet" in notes


def test_shapes_come_from_names_and_directories(tmp_path):
    assert known_shape("Qwen/Qwen2.5-Coder-7B-Instruct") is KNOWN["qwen2.5-7b"]
    assert known_shape("meta-llama/Meta-Llama-3.1-70B-Instruct") is KNOWN["llama-3-70b"]
    assert known_shape("gpt2") is None
    written = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    (tmp_path / "config.json").write_text(json.dumps(written))
    found = shape_of(build({"model": str(tmp_path)}))
    # 2 x (4 x 64 x 64 + 3 x 64 x 128) + 2 x 100 x 64
    assert found.parameters == 2 * (16384 + 24576) + 12800
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="does not say 'num_hidden_layers'"):
        shape_of(build({"model": str(tmp_path)}))
    with pytest.raises(ConfigError, match="model of a known shape"):
        shape_of(build({"model": "org/unheard-of"}))


def test_work_of_a_recipe():
    config = build(
        {},
        {
            "agent.reply_tokens": 100,
            "agent.context_tokens": 3000,
            "horizon.turns": 10,
            "rollout.tasks": 4,
        },
    )
    work = work_of(config)
    # a quarter of 100; a third of 3,000 (0.33); half of what is not sampled
    assert (work.episodes, work.turns, work.reply_tokens, work.episode_tokens) == (32, 10, 25, 990)
    assert work.opening_tokens == (990 - 250) / 2
    with pytest.raises(ConfigError, match="plans are for algorithms that play every step"):
        work_of(build({}, {"algo.name": "sft"}))


def test_the_command(capsys):
    main(["plan", RECIPE, "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpus", "64"])
    out = capsys.readouterr().out
    for word in (
        "fits",
        "GiB",
        "a step",
        "limited by",
        "layout",
        "settings     --launch.workers",
        "note         speeds were measured",
    ):
        assert word in out
    main(["plan", RECIPE, "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpus", "8", "--json"])
    tree = json.loads(capsys.readouterr().out)
    assert tree["fits"]
    assert tree["layout"]["learners"] + tree["layout"]["generators"] == 8
    assert tree["seconds"]["step"] > 0


def test_the_command_says_what_does_not_fit(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(
            ["plan", RECIPE, "--model", "meta-llama/Llama-3.1-70B", "--gpus", "8", "--gpu", "h100"]
        )
    assert stopped.value.code == 1
    assert "does not fit" in (out := capsys.readouterr().out)
    assert "it would on" in out


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0523, "0.052"), (0.93, "0.93"), (2.71, "2.7"), (84.3, "84"), (123, "120"), (0, "0")],
)
def test_two_figures(seconds, said):
    assert figures(seconds) == said


def test_the_table_in_the_documentation_is_this_one():
    page = (ROOT / "docs" / "guides" / "scaling.md").read_text()
    assert table().markdown() in page, (
        "print(palestra.tools.plan.show.table().markdown()) goes into docs/guides/scaling.md"
    )
