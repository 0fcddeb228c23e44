"""A run is one closed object: what it prints it loads again,
and what is wrong is said in one line.
"""

import re
from pathlib import Path

import pytest
import torch

from palestra.cli.main import main
from palestra.config import config as configs
from palestra.config.config import Config, build, dump, load, warn_of_dropped
from palestra.config.model import PretrainedModel
from palestra.config.optimizer import OptimizerConfig
from palestra.config.run import WarmStart
from palestra.core.errors import ConfigError

RECIPES = sorted((Path(__file__).parents[3] / "palestra" / "recipes").rglob("*.toml"))
QUICKSTART = next(path for path in RECIPES if path.name == "quickstart.toml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_survives_being_written(path, tmp_path):
    config = load(path)
    (tmp_path / "config.toml").write_text(dump(config))
    assert load(tmp_path / "config.toml") == config


def test_a_dotted_flag_sets_any_field():
    config = load(
        QUICKSTART,
        {"steps": 7, "algo.clip_low": 0.1, "horizon.turns": [3, 4], "env.options.test_seeds": 5},
    )
    assert (config.steps, config.algo.clip_low, config.horizon.turns) == (7, 0.1, (3, 4))
    assert config.env.options["test_seeds"] == 5


@pytest.mark.parametrize("none", ["none", "None"])
def test_an_optional_setting_can_be_taken_back(none, tmp_path):
    """By a flag, and over a base; and a run that is resumed still has it so."""
    (tmp_path / "base.toml").write_text(
        '[warm_start]\nepisodes = 7\n[algo]\nname = "ppo"\n[limit]\ntokens = 9\n'
    )
    (tmp_path / "over.toml").write_text(f'base = "base.toml"\nwarm_start = "{none}"\n')
    config = load(tmp_path / "over.toml", {"algo.value_clip": none, "limit.tokens": none})
    assert (config.warm_start, config.algo.value_clip, config.limit.tokens) == (None, None, None)
    (tmp_path / "config.toml").write_text(dump(config))
    assert load(tmp_path / "config.toml", {}) == config
    assert load(tmp_path / "config.toml", {}).algo.value_clip is None  # 0.2 by default
    with pytest.raises(ConfigError, match="steps = 'none'"):
        load(tmp_path / "over.toml", {"steps": "none"})


def test_choosing_anew_starts_from_the_defaults():
    config = load(QUICKSTART, {"horizon.kind": "fixed", "env.name": "textcraft"})
    assert config.horizon.model_dump() == {"kind": "fixed", "turns": 20}
    assert config.env.options == {}
    assert (
        build({"horizon": {"turns": 2}}, {"horizon.kind": "fixed"}).horizon.full == 2
    )  # naming the default changes nothing
    assert (
        load(QUICKSTART, {"horizon.kind": "stages"}).horizon.full > 1
    )  # the same choice keeps what the recipe says


def test_a_model_can_be_named_in_short():
    expected = {"kind": "pretrained", "path": "a/b"}
    assert build({"model": "a/b"}).model.model_dump() == expected
    assert load(QUICKSTART, {"model": "a/b"}).model.model_dump() == expected
    assert build({"model": "x/y"}, {"model": "a/b", "steps": 3}).model.model_dump() == expected
    with pytest.raises(ConfigError, match="model = 7: expected a table"):
        build({}, {"model": 7})


def test_nothing_changes_once_the_run_has_begun():
    config = load(QUICKSTART)
    with pytest.raises(Exception, match="frozen"):
        config.steps = 3
    with pytest.raises(Exception, match="frozen"):
        config.algo.scale = False


STALE = [
    "--rollout.max_staleness",
    "2",
    "--algo.recompute_logprobs",
    "true",
    "--algo.correction.cap",
    "2",
]
BAD = [
    (["--algo.clip_lo", "0.1"], ["algo.clip_lo", "0.1", "clip_low"]),
    (["--algo.name", "gpro"], ["algo.name", "gpro", "grpo"]),
    (["--horizon.kind", "stage"], ["horizon.kind", "stage", "stages"]),
    (["--horizon.turns", "[12, 6]"], ["horizon", "[12, 6]", "must not shrink"]),
    (["--env.name", "babyia"], ["env.name", "babyia", "babyai"]),
    (["--env.options.levels", '["GoToObjj"]'], ["env.options", "GoToObjj", "GoToObj'"]),
    (["--env.options.sytle", "text"], ["env.options.sytle", "text", "style"]),
    (["--engine.name", "torhc"], ["engine.name", "torhc", "torch"]),
    (["--agent.format", "recat"], ["agent.format", "recat", "react"]),
    (["--dtype", "float23"], ["dtype", "float23", "float32"]),
    (["--steps", "ten"], ["steps", "ten", "whole number"]),
    (["--steps", "-3"], ["steps", "-3", "greater than 0"]),
    (["--stesp", "3"], ["stesp", "3", "steps"]),
    (["--eval.split", "tset"], ["eval.split", "tset", "test"]),
    (["--rollout.prefetch", "2"], ["rollout.prefetch", "2", "less than or equal to 1"]),
    (
        ["--rollout.partial", "2", "--rollout.resample_rounds", "1"],
        ["resample_rounds (1) and partial (2)", "not both"],
    ),
    (
        ["--rollout.prefetch", "1", "--algo.name", "rft"],
        ["rollout.prefetch", "1", "rft", "no importance ratios"],
    ),
    (
        ["--rollout.partial", "3", "--algo.recompute_logprobs", "true"],
        ["rollout.partial", "3", "recompute_logprobs", "algo.correction"],
    ),
    (
        ["--rollout.prefetch", "1", "--algo.name", "evol"],
        ["rollout.prefetch", "1", "no effect", "evol does not play every step"],
    ),
    (
        ["--rollout.max_staleness", "2", "--algo.name", "rft"],
        ["rollout.max_staleness = 2", "rft", "no importance ratios"],
    ),
    (
        ["--rollout.max_staleness", "2"],
        ["rollout.max_staleness = 2", "algo.recompute_logprobs = true and algo.correction.cap = 2"],
    ),
    ([*STALE], ["rollout.max_staleness = 2", "engine.deterministic = false"]),
    ([*STALE, "--rollout.partial", "1"], ["partial (1) and max_staleness (2)", "not both"]),
    (
        [*STALE, "--rollout.resample_rounds", "3"],
        ["resample_rounds (3) and max_staleness (2)", "not both"],
    ),
    (
        ["--rollout.max_staleness", "1", "--algo.name", "sft"],
        ["rollout.max_staleness = 1", "no effect", "sft plays no episodes"],
    ),
    (["--rollout.group", "1"], ["rollout.group", "1", "at least 2"]),
    (["--warm_start.epsiodes", "5"], ["warm_start.epsiodes", "5", "episodes"]),
    (
        ["--env.isolation", "process", "--rollout.partial", "1"],
        ["rollout.partial = 1", "env.isolation = 'process'", "engine.deterministic = false"],
    ),
    (
        ["--optim.accumulation_parts", "3", "--launch.workers", "2"],
        ["optim.accumulation_parts = 3", "2 workers add up in 2 parts"],
    ),
    (["--env.memory_mb", "500"], ["env.memory_mb", "500", "no effect", "process"]),
    (["--env.max_processes", "9"], ["env.max_processes", "9", "no effect", "process"]),
    (["--env.sandbox", "bwrap"], ["env.sandbox", "bwrap", "no effect", "process"]),
    (["--env.sandbox_read", '["data"]'], ["env.sandbox_read", "data", "no effect", "bwrap"]),
    (["--env.sandbox", "docker"], ["env.sandbox", "docker", "bwrap"]),
    (
        ["--env.name", "agentgym", "--env.isolation", "process", "--env.sandbox", "bwrap"],
        ["env.sandbox", "agentgym", "network"],
    ),
    (["--env.per_worker", "0"], ["env.per_worker", "0", "greater than 0"]),
    (["--model.kind", "pretrained"], ["model.path", "required"]),
    (
        ["--model.kind", "pretrained", "--model.path", "no/such"],
        ["model.path", "no/such", "Hugging Face directory"],
    ),
    (["--algo.name", "foo:bar"], ["algo.name", "foo:bar", "cannot be imported"]),
    (["--agent.format", "foo:bar"], ["agent.format", "foo:bar", "cannot be imported"]),
    (["--env.name", "foo:bar"], ["env.name", "foo:bar", "cannot be imported"]),
    (["--dtype", "bfloat16"], ["dtype", "bfloat16", "too small", "float32"]),
    (["--env.options.style", "text"], ["model.tokenizer", "words", "bytes"]),
    (["--agent.example", "true"], ["agent.example", "true", "no worked example"]),
    *([(["--device", "cuda"], ["device", "cuda", "cpu"])] if not torch.cuda.is_available() else []),
    (["--steps.x", "1"], ["steps.x", "1", "no such table"]),
]


@pytest.mark.parametrize(
    ("flags", "named"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_a_bad_setting_exits_2_with_one_line_before_any_model_is_loaded(
    flags, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("palestra.training.loop.run_training", lambda *_: pytest.fail("it went on"))
    with pytest.raises(SystemExit) as exit_:
        main(["train", str(QUICKSTART), *flags, "--out", str(tmp_path / "run")])
    assert exit_.value.code == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    for word in named:
        assert word in error
    assert not (tmp_path / "run").exists()


def test_a_missing_recipe_and_a_broken_one(tmp_path):
    with pytest.raises(ConfigError, match="no such recipe; did you mean 'quickstart.toml'"):
        load(QUICKSTART.with_name("quikstart.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("steps = = 3")
    with pytest.raises(ConfigError, match="not TOML"):
        load(broken)


@pytest.mark.parametrize(
    ("algo", "reason"),
    [
        ({"constant": 5}, "constant goes with normalize"),
        ({"kl_estimator": "k1"}, "do nothing while kl = 0"),
        ({"correction": {"cap": 3.0}}, "correction needs recompute_logprobs"),
        (
            {"name": "cispo", "dual_clip": 3.0},
            "dual_clip and ratio = 'sequence' go with objective = 'clip'",
        ),
        ({"name": "rloo", "scale": True}, "algo.scale = True: there is no such setting"),
    ],
)
def test_settings_that_an_algorithm_does_not_use_are_errors(algo, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        build({"algo": algo})


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp"])
def test_redraws_are_refused_where_every_group_has_a_signal(name):
    with pytest.raises(
        ConfigError, match=re.escape(f"rollout.resample_rounds = 2: has no effect under {name}")
    ):
        build({"algo": {"name": name}, "rollout": {"resample_rounds": 2}})
    build({"algo": {"name": "reinforce_pp", "baseline": True}, "rollout": {"resample_rounds": 2}})
    build({"algo": {"name": "remax"}, "rollout": {"resample_rounds": 2}})
    build(
        {"algo": {"name": "rft"}, "rollout": {"resample_rounds": 2}}
    )  # a group in which nothing was good enough is replaced


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo", "gigpo"])
def test_the_scale_of_a_mixtures_rewards_is_refused_where_it_is_divided_out(name):
    mixture = [{"name": "guess"}, {"name": "textcraft", "reward_scale": 0.5}]
    reason = (
        f"mixture.textcraft.reward_scale = 0.5: has no effect under {name}, which divides by "
        "the deviation"
    )
    with pytest.raises(ConfigError, match=re.escape(reason)):
        build({"mixture": mixture, "algo": {"name": name}})
    build({"mixture": mixture, "algo": {"name": name, "scale": False}})
    build({"mixture": mixture, "algo": {"name": "rloo"}})
    with pytest.raises(ConfigError, match="has no effect under sft$"):
        build({"mixture": mixture, "algo": {"name": "sft"}})


def test_the_default_learning_rate_fits_the_model():
    pretrained = {"kind": "pretrained", "path": "somewhere"}
    assert build({}).optim.lr == 2e-4
    assert build({"optim": {"warmup": 3}}).optim.lr == 2e-4
    assert build({"model": pretrained}).optim.lr == 1e-6
    assert build({"model": pretrained, "lora": {}}).optim.lr == 1e-5
    assert build({"model": pretrained, "lora": "none"}).optim.lr == 1e-6
    assert build({}, {"model": "somewhere"}).optim.lr == 1e-6
    assert build({"optim": {"lr": 3e-3}}).optim.lr == 3e-3
    assert build({}, {"optim.lr": 3e-3}).optim.lr == 3e-3
    assert Config(optim=OptimizerConfig(warmup=3)).optim == OptimizerConfig(lr=2e-4, warmup=3)
    assert Config(model=PretrainedModel(path="x")).optim.lr == 1e-6


def test_evaluations_sample_as_training_does_unless_said():
    assert build({"rollout": {"temperature": 0.7}}).eval_temperature == 0.7
    assert (
        build({"rollout": {"temperature": 0.7}, "eval": {"temperature": 0.0}}).eval_temperature
        == 0.0
    )


def test_what_another_algorithm_drops_from_the_recipe_is_said(caplog):
    config = load(QUICKSTART, {"algo.name": "ppo", "algo.clip_high": 0.3})
    assert not caplog.records  # said only after the checks that can still refuse the run
    warn_of_dropped(config)
    (record,) = caplog.records
    assert record.getMessage() == (
        "algo.name = 'ppo' begins with its own defaults; dropped from the recipe: "
        "algo.scale = False, algo.invalid_penalty = 0.05, algo.clip_low = 0.2"
    )
    assert (config.algo.clip_high, config.algo.invalid_penalty) == (0.3, 0.0)
    caplog.clear()
    warn_of_dropped(load(QUICKSTART, {"algo.name": "grpo"}))
    assert not caplog.records


@pytest.mark.parametrize(
    "correction", [{"level": "geometric", "mask_below": 3.0}, {"mask_below": 2.0}]
)
def test_a_correction_must_leave_something(correction):
    with pytest.raises(ConfigError, match=re.escape("must be below cap (2)")):
        build({"algo": {"recompute_logprobs": True, "correction": correction}})


@pytest.mark.parametrize("overlap", [{"prefetch": 1}, {"partial": 2}])
def test_what_plays_nothing_overlaps_with_nothing(overlap):
    with pytest.raises(
        ConfigError,
        match=r"rollout\.(prefetch|partial) = [12]: has no effect, sft plays no episodes",
    ):
        build({"algo": {"name": "sft"}, "rollout": overlap})
    corrected = build({"algo": {"recompute_logprobs": True, "correction": {}}, "rollout": overlap})
    assert corrected.rollout.is_overlapped


def test_every_choice_that_a_flag_can_make_is_known():
    assert set(configs.CHOICES) <= set(configs.Config.model_fields)


def test_a_recipe_takes_what_it_does_not_say_from_its_base(tmp_path):
    (tmp_path / "base.toml").write_text(
        'steps = 7\nseed = 3\n[horizon]\nkind = "stages"\nturns = [2, 4]\nevery = 5\n'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.toml").write_text(
        'base = "../base.toml"\nsteps = 9\n[horizon]\nkind = "fixed"\nturns = 3\n'
    )
    (tmp_path / "two.toml").write_text('base = "sub/one.toml"\nseed = 4\n')
    config = load(tmp_path / "two.toml", {"steps": 11})
    assert (config.seed, config.steps, config.horizon.full, config.horizon.kind) == (
        4,
        11,
        3,
        "fixed",
    )


def test_tables_of_a_base_are_taken_key_by_key(tmp_path):
    (tmp_path / "base.toml").write_text(
        '[agent]\nformat = "react"\nreply_tokens = 99\n[algo]\nclip_low = 0.1\n'
        "recompute_logprobs = true\ncorrection = { cap = 3.0 }\n"
        '[env]\nname = "babyai"\n[env.options]\nlevels = ["GoToObj"]\ntrain_seeds = 7\n'
        "[rollout]\npartial = 2\n"
    )
    (tmp_path / "one.toml").write_text(
        'base = "base.toml"\n[agent]\ncontext_tokens = 555\n[algo]\nname = "grpo"\n'
        "clip_high = 0.4\n[env.options]\ntrain_seeds = 8\n"
    )
    one = load(tmp_path / "one.toml")
    assert (one.agent.format, one.agent.reply_tokens, one.agent.context_tokens) == (
        "react",
        99,
        555,
    )
    assert (one.algo.clip_low, one.algo.clip_high, one.algo.correction.cap) == (
        0.1,
        0.4,
        3.0,
    )  # grpo is what the base has too
    assert (one.env.name, one.env.options) == ("babyai", {"levels": ["GoToObj"], "train_seeds": 8})
    assert one.rollout.partial == 2


def test_a_table_that_chooses_anew_has_nothing_of_the_base(tmp_path):
    (tmp_path / "base.toml").write_text(
        '[algo]\nclip_low = 0.1\n[env]\nname = "babyai"\noptions = { train_seeds = 7 }\n'
    )
    (tmp_path / "one.toml").write_text(
        'base = "base.toml"\n[algo]\nname = "rloo"\n[env]\nname = "textcraft"\n'
    )
    one = load(tmp_path / "one.toml")
    assert (one.algo.name, one.algo.clip_low) == ("rloo", 0.2)
    assert (one.env.name, one.env.options) == ("textcraft", {})


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ("'one.toml'", "another recipe"),
        ("3", "another recipe"),
        ("'none.toml'", "none.toml: no such"),
    ],
)
def test_a_base_that_is_none(tmp_path, base, named):
    (tmp_path / "one.toml").write_text(f"base = {base}\n")
    with pytest.raises(ConfigError, match=named):
        load(tmp_path / "one.toml")


def test_recipes_that_are_each_others_base(tmp_path):
    (tmp_path / "one.toml").write_text("base = 'two.toml'\n")
    (tmp_path / "two.toml").write_text("base = 'one.toml'\n")
    with pytest.raises(ConfigError, match=r"two.toml: base = 'one.toml': expected another recipe"):
        load(tmp_path / "one.toml")


@pytest.mark.parametrize(
    ("model", "lora", "rate"),
    [
        ({"kind": "tiny"}, None, 2e-3),
        ({"kind": "pretrained", "path": "x"}, None, 2e-5),
        ({"kind": "pretrained", "path": "x"}, {"rank": 8}, 1e-4),
    ],
)
def test_the_rate_of_a_warm_start_fits_the_model(model, lora, rate):
    tree = {"model": model, "warm_start": {"episodes": 5}}
    tree |= {} if lora is None else {"lora": lora}
    assert build(tree).warm_start.lr == rate
    as_object = tree | {"warm_start": WarmStart(episodes=5)}
    assert Config.model_validate(as_object).warm_start.lr == rate
    given = tree | {"warm_start": {"lr": 0.5}}
    assert build(given).warm_start.lr == 0.5
    assert build({"model": model}).warm_start is None
