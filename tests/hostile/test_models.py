"""Models that mean harm: each ends in one line and exit code 2, within bounds, and nothing of it
runs.
"""

import ast
import json
import math
import os
import pty
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
import torch

from palestra.learner.checkpoint import export
from palestra.models.tiny import tiny_model
from palestra.models.tokenizers import byte_tokenizer
from tests.hostile import models as m

pytestmark = pytest.mark.hostile
short = pytest.mark.short
pytest.importorskip("gguf")
pytest.importorskip("peft")

ROOT = Path(__file__).parents[2]
PLAY = [
    "--env",
    "guess",
    "--limit",
    "1",
    "--k",
    "1",
    "--horizon",
    "1",
    "--agent.reply_tokens",
    "4",
    "--agent.context_tokens",
    "256",
]
PLAY += ["--device", "cpu", "--dtype", "float32"]


class Opener:
    """The command line, over and over, each time in a process of its own."""

    def __init__(self):
        command = [sys.executable, "-m", "tests.hostile.opener"]
        variables = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PRIVATE_TOKEN": "s3cret",
        }
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=variables,
        )
        assert self.process.stdout.readline() == "ready\n"

    def run(self, folder, *arguments):
        self.process.stdin.write(
            json.dumps({"arguments": [str(a) for a in arguments], "folder": str(folder)}) + "\n"
        )
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def opener():
    opened = Opener()
    yield opened
    opened.process.stdin.close()
    opened.process.wait(30)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A model that nothing is wrong with."""
    folder = tmp_path_factory.mktemp("sound") / "model"
    tokenizer = byte_tokenizer()
    model = tiny_model(
        vocabulary=len(tokenizer),
        width=16,
        layers=2,
        heads=2,
        context=256,
        stop_id=tokenizer.eos_token_id,
        seed=0,
        device=torch.device("cpu"),
    )
    export(folder, model, tokenizer)
    return folder


@pytest.fixture
def folder(tmp_path, sound, monkeypatch):
    return copytree(sound, tmp_path / "model")


@pytest.fixture
def play(opener, tmp_path, monkeypatch):
    """Evaluate a model on one task."""

    def played(path, *more):
        return opener.run(tmp_path, "eval", "--model", path, *PLAY, *more)

    return played


def assert_refused(result, because, tmp_path):
    lines = [line for line in result["errors"].splitlines() if line.strip()]
    assert result["code"] == 2, result
    assert len(lines) == 1, result["errors"][-2000:]
    assert lines[0].startswith("palestra: "), lines
    assert because in lines[0], lines
    assert len(lines[0]) < 1000
    assert result["seconds"] < 55
    assert not (tmp_path / m.MARK).exists()


CONFIGS = {
    "config-no-json": (m.content("config.json", "{'a': 1}"), "config.json is not JSON"),
    "config-list": (m.content("config.json", "[1]"), "expected a JSON object, came list"),
    "config-deep": (m.content("config.json", m.deep()), "nested too deeply"),
    "config-deep-inside": (m.config(x=json.loads("[" * 90 + "]" * 90)), "nested more than 50 deep"),
    "config-empty": (m.content("config.json", ""), "config.json is not JSON"),
    "config-bytes": (m.content("config.json", b"\xff\xfe\x00"), "config.json is not JSON"),
    "config-large": (
        m.sparse("config.json", 5 << 20),
        "config.json cannot be read: is larger than 4,194,304 bytes",
    ),
    "config-gigabytes": (m.sparse("config.json", 100 << 30), "expected at most 268,435,456"),
    "config-directory": (m.directory("config.json"), "it is a directory"),
    "config-fifo": pytest.param(m.fifo("config.json"), "it is a FIFO", marks=short),
    "config-device": (m.link("config.json", "/dev/zero"), "it is a device"),
    "config-nowhere": (m.link("config.json", "/no/such"), "No such file"),
    "config-itself": (m.link("config.json", "config.json"), "Too many levels of symbolic links"),
    "config-foreign-file": (m.link("config.json", "/etc/passwd"), "config.json is not JSON"),
    "layers-text": (
        m.config(num_hidden_layers="two"),
        "num_hidden_layers = 'two': expected a positive integer",
    ),
    "layers-none": (
        m.config(num_hidden_layers=0),
        "num_hidden_layers = 0: expected an integer from 1",
    ),
    "layers-ten-million": pytest.param(
        m.config(num_hidden_layers=10**7), "expected at most 4,096", marks=short
    ),
    "layers-three-thousand": (
        m.config(num_hidden_layers=3000),
        "its files have no more than 20 tensors",
    ),
    "layers-one-more": (m.config(num_hidden_layers=3), "parameters, and the files hold"),
    "layers-many-digits": (
        m.content("config.json", '{"num_hidden_layers": 1' + "0" * 5000 + "}"),
        "config.json is not JSON",
    ),
    "width-negative": (m.config(hidden_size=-16), "hidden_size = -16"),
    "width-huge": (m.config(hidden_size=1 << 20), "parameters, and the files hold"),
    "width-beyond": (m.config(hidden_size=1 << 60), "expected an integer from 1"),
    "inner-text": (m.config(intermediate_size="wide"), "cannot be loaded"),
    "inner-huge": (m.config(intermediate_size=1 << 35), "parameters, and the files hold"),
    "heads-none": (m.config(num_attention_heads=0), "num_attention_heads = 0"),
    "heads-uneven": (m.config(num_attention_heads=5), "cannot be loaded"),
    "kv-heads-none": (m.config(num_key_value_heads=0), "cannot be loaded"),
    "head-width-negative": (m.config(head_dim=-8), "cannot be loaded"),
    "vocabulary-none": (m.config(vocab_size=0), "vocab_size = 0"),
    "vocabulary-huge": (m.config(vocab_size=10**9), "parameters, and the files hold"),
    "vocabulary-fraction": (m.config(vocab_size=258.5), "vocab_size = 258.5"),
    "vocabulary-small": (
        m.config(vocab_size=99),
        "with the shape [258, 16]; config.json describes [99, 16]",
    ),
    "positions-none": (m.config(max_position_embeddings=0), "can take at most 0"),
    "positions-text": (m.config(max_position_embeddings="many"), "cannot be loaded"),
    "experts-ten-million": (
        m.config(num_local_experts=10**7, model_type="mixtral"),
        "expected at most 4,096",
    ),
    "type-missing": (m.config(model_type=None), "cannot be loaded"),
    "type-unknown": (m.config(model_type="nobody-knows"), "cannot be loaded"),
    "type-number": (m.config(model_type=7), "cannot be loaded"),
    "type-no-decoder": (m.config(model_type="vit"), "cannot be loaded"),
    "type-other": (m.config(model_type="gpt2"), "describes 14,816 parameters"),
    "tables-huge": (
        m.config(model_type="gptj", max_position_embeddings=10**9, rotary_dim=8),
        "describes tables of",
    ),
    "activation-unknown": (m.config(hidden_act="os.system"), "cannot be loaded"),
    "rope-nonsense": (m.config(rope_parameters=[1, 2], rope_scaling=[1]), "cannot be loaded"),
    "dtype-unknown": (m.config(dtype="float99"), "cannot be loaded"),
    "quantized-elsewhere": (
        m.config(quantization_config={"quant_method": "gptq", "bits": 4}),
        "cannot be loaded",
    ),
    "quantized-text": (m.config(quantization_config="evil"), "cannot be loaded"),
    "own-code-unknown-type": (m.both(m.own_code, m.config(model_type="evil")), "cannot be loaded"),
    "kernels-from-elsewhere": (
        m.config(attn_implementation="someone/evil-kernels"),
        "code from elsewhere is never run",
    ),
    "kernels-by-another-name": (
        m.config(_attn_implementation="someone/evil:x"),
        "code from elsewhere is never run",
    ),
    "weights-from-elsewhere": (
        m.config(transformers_weights="../x.safetensors"),
        "transformers_weights is not supported",
    ),
}

WEIGHTS = {
    "weights-missing": (m.without(m.WEIGHTS), "only safetensors are read"),
    "weights-pickle": pytest.param(
        m.a_pickle("pytorch_model.bin"),
        "pytorch_model.bin is a pickle, and is never opened",
        marks=short,
    ),
    "weights-renamed-pickle": (m.a_pickle(m.WEIGHTS), "is truncated"),
    "weights-empty": (m.content(m.WEIGHTS, b""), "is truncated"),
    "weights-truncated-header": (m.header(4000, b'{"a"'), "is truncated"),
    "weights-truncated-data": pytest.param(m.cut(m.WEIGHTS, 100), "cannot be loaded", marks=short),
    "weights-header-100-GB": (m.header(100 << 30, b"{}"), "is truncated"),
    "weights-header-100-GB-sparse": (
        m.both(m.header(100 << 30), m.sparse(m.WEIGHTS, 101 << 30)),
        "expected at most 33,554,432",
    ),
    "weights-header-no-json": (m.header(8, b"{'a': 1}"), "cannot be loaded"),
    "weights-fifo": (m.fifo(m.WEIGHTS), "it is a FIFO"),
    "weights-device": (m.link(m.WEIGHTS, "/dev/zero"), "it is a device"),
    "weights-directory": (m.directory(m.WEIGHTS), "it is a directory"),
    "weights-one-missing": (m.weights(m.without_one), "parameters, and the files hold"),
    "weights-renamed": (
        m.weights(m.renamed("q_proj", "z_proj")),
        "its files hold no model.layers.0.self_attn.q_proj.weight and 1 more",
    ),
    "weights-reshaped": (
        m.weights(m.one_reshaped),
        "describes 10,096 parameters, and the files hold 10,064",
    ),
    "weights-nan": pytest.param(m.every(lambda t: t * math.nan), "no finite numbers", marks=short),
    "weights-infinite": (m.every(lambda t: t + math.inf), "no finite numbers"),
    "weights-zero": (m.every(torch.zeros_like), "cannot be loaded"),
    "index-outside": pytest.param(
        m.index({"a": "../../../../etc/passwd"}), "names '../../../../etc/passwd'", marks=short
    ),
    "index-absolute": (
        m.index({"a": "/etc/passwd.safetensors"}),
        "names '/etc/passwd.safetensors'",
    ),
    "index-million-shards": (m.shards(10**6), "is larger than 25,165,824 bytes"),
    "index-many-shards": (m.shards(5000), "names 5,000 files, expected at most 4,096"),
    "index-shard-missing": (m.index({"a": "gone.safetensors"}), "gone.safetensors: cannot be read"),
    "index-shard-pickle": (
        m.both(m.index({"a": "pytorch_model.bin"}), m.a_pickle("pytorch_model.bin")),
        "names 'pytorch_model.bin'",
    ),
    "index-no-map": (
        m.both(m.without(m.WEIGHTS), m.content(m.INDEX, '{"weights": 1}')),
        "expected a weight_map",
    ),
    "index-map-of-numbers": (m.index({"a": 1}), "expected a weight_map"),
    "index-no-json": (m.both(m.without(m.WEIGHTS), m.content(m.INDEX, "x")), "is not JSON"),
    "index-twice": (
        m.index({"a": "1.safetensors", "b": "2.safetensors"}, ["1.safetensors", "2.safetensors"]),
        "is in another file, too",
    ),
}

TOKENIZERS = {
    "tokenizer-missing": (
        m.without("tokenizer.json", "tokenizer_config.json"),
        "its tokenizer cannot be used",
    ),
    "tokenizer-no-json": (m.content("tokenizer.json", "x"), "its tokenizer cannot be used"),
    "tokenizer-deep": (m.content("tokenizer.json", m.deep()), "its tokenizer cannot be used"),
    "tokenizer-list": (m.content("tokenizer.json", "[]"), "its tokenizer cannot be used"),
    "tokenizer-fifo": (m.fifo("tokenizer.json"), "it is a FIFO"),
    "tokenizer-large": (m.sparse("tokenizer.json", 300 << 20), "expected at most 268,435,456"),
    "tokenizer-config-list": (
        m.content("tokenizer_config.json", "[]"),
        "its tokenizer cannot be used",
    ),
    "tokenizer-config-device": (m.link("tokenizer_config.json", "/dev/zero"), "it is a device"),
    "tokenizer-endless-regex": pytest.param(
        m.pre_tokenizer("(a+)+$"), "its tokenizer cannot be used", marks=short
    ),
    "tokenizer-broken-regex": (m.pre_tokenizer("(a"), "its tokenizer cannot be used"),
    "tokenizer-huge-id": (m.huge_token_id, "its tokenizer cannot be used"),
    "tokenizer-more-words": (m.more_words, "the model has 258 embeddings"),
    "tokenizer-class-nonsense": (
        m.tokenizer_config(tokenizer_class=["x"]),
        "its tokenizer cannot be used",
    ),
    "template-device": (m.link("chat_template.jinja", "/dev/zero"), "it is a device"),
}

ADAPTERS = {
    "adapter-no-json": (m.then(m.adapter(), "adapter_config.json", b"x"), "is not JSON"),
    "adapter-list": (m.then(m.adapter(), "adapter_config.json", b"[]"), "expected a JSON object"),
    "adapter-deep": (
        m.then(m.adapter(), "adapter_config.json", m.deep().encode()),
        "nested too deeply",
    ),
    "adapter-of-itself": pytest.param(
        m.adapter("../adapter"), "more than 4 deep or in a circle", marks=short
    ),
    "adapter-circle": (m.circle, "more than 4 deep or in a circle"),
    "adapter-base-gone": (m.adapter("/no/such/place"), "model.path = '/no/such/place'"),
    "adapter-base-number": (m.adapter(7), "does not say what model"),
    "adapter-base-long": (m.adapter("x" * 5000), "expected a Hugging Face directory"),
    "adapter-pickle": (m.adapter(pickled=True), "only safetensors are read"),
    "adapter-other-modules": (m.adapter(change=m.renamed("q_proj", "z_proj")), "cannot be loaded"),
    "adapter-other-base": (
        m.adapter(
            change=lambda t: {n: torch.ones(3, 8) if "A" in n else torch.ones(8, 3) for n in t}
        ),
        "cannot be loaded",
    ),
    "adapter-nan": (
        m.adapter(change=lambda t: {n: w * math.nan for n, w in t.items()}),
        "no finite numbers",
    ),
    "adapter-empty": (
        m.adapter(change=lambda t: {"x": torch.ones(1)}),
        "holds no weights of a LoRA adapter",
    ),
    "adapter-truncated": (m.then(m.adapter(), "adapter_model.safetensors", b"abc"), "is truncated"),
    "adapter-alpha-text": (m.adapter(lora_alpha="much"), "lora_alpha = 'much'"),
    "adapter-imports-a-module": (
        m.adapter(megatron_config={"a": 1}, megatron_core="evil"),
        "megatron_config",
    ),
    "adapter-other-kind": (m.adapter(peft_type="PROMPT_TUNING"), "only LORA is supported"),
    "adapter-regex": (m.adapter(alpha_pattern={"(.*)*x": 1}), "alpha_pattern"),
}

FIELDS = m.gguf_fields()
GGUF = {
    "gguf-magic-alone": pytest.param(m.gguf(b"GGUF"), "it is truncated", marks=short),
    "gguf-version": (m.gguf(head=b"GGUF" + (99).to_bytes(4, "little") + bytes(16)), "version 99"),
    "gguf-big-endian": (m.gguf(head=b"GGUF" + (3).to_bytes(4, "big") + bytes(16)), "little-endian"),
    "gguf-many-tensors": (
        m.gguf(head=m.struct.pack("<4sIQQ", b"GGUF", 3, 1 << 60, 3)),
        "expected at most",
    ),
    "gguf-many-fields": (
        m.gguf(head=m.struct.pack("<4sIQQ", b"GGUF", 3, 1, 1 << 60)),
        "expected at most",
    ),
    "gguf-fields-that-are-not": (
        m.gguf(head=m.struct.pack("<4sIQQ", b"GGUF", 3, 12, 9999)),
        "a damaged GGUF file",
    ),
    "gguf-long-text": (
        m.gguf(fields={"x": (m.TEXT, m.struct.pack("<Q", 1 << 60))}),
        "it is truncated",
    ),
    "gguf-long-list": (
        m.gguf(fields={"x": (m.LIST, m.struct.pack("<IQ", 4, 1 << 60))}),
        "expected at most 20,000,000",
    ),
    "gguf-list-of-lists": (
        m.gguf(fields={"x": (m.LIST, m.struct.pack("<IQ", 9, 1 << 20))}),
        "unknown kind",
    ),
    "gguf-unknown-field": (m.gguf(fields={"x": (77, b"")}), "unknown kind: 77"),
    "gguf-alignment": (m.gguf(fields={"general.alignment": m.u32(3)}), "expected a power of two"),
    "gguf-alignment-none": (
        m.gguf(fields={"general.alignment": m.u32(0)}),
        "expected a power of two",
    ),
    "gguf-truncated": (m.gguf(cut_by=5000), "after the file"),
    "gguf-cut-in-header": (m.gguf(m.gguf_bytes()[:900]), "it is truncated"),
    "gguf-kind-of-tensor": (m.gguf(kind=999), "of an unknown kind: 999"),
    "gguf-quantized-badly": (m.gguf(kind=12), "a multiple of 256"),
    "gguf-offset": (m.gguf(shift=1 << 50), "after the file"),
    "gguf-tensor-twice": (
        m.gguf(tensors=[*m.gguf_tensors(), ("output_norm.weight", (32,))]),
        "is there twice",
    ),
    "gguf-tensor-of-nothing": (
        m.gguf(tensors=[*m.gguf_tensors()[1:], ("token_embd.weight", (0, 5))]),
        "expected positive numbers",
    ),
    "gguf-dimensions": (m.gguf(tensors=[*m.gguf_tensors(), ("x", (1,) * 9)]), "has 9 dimensions"),
    "gguf-architecture-unknown": (
        m.gguf(fields={"general.architecture": (m.TEXT, m.text("evil"))}),
        "evil",
    ),
    "gguf-architecture-missing": (
        m.gguf(fields={"general.architecture": None}),
        "does not say its general.architecture",
    ),
    "gguf-architecture-number": (
        m.gguf(fields={"general.architecture": m.u32(7)}),
        "does not say its general.architecture",
    ),
    "gguf-ten-million-layers": pytest.param(
        m.gguf(fields={"qwen2.block_count": m.u32(10**7)}), "its tensors are for 1", marks=short
    ),
    "gguf-width": (
        m.gguf(fields={"qwen2.embedding_length": m.u32(10**9)}),
        "its tensors are for 32",
    ),
    "gguf-inner": (
        m.gguf(fields={"qwen2.feed_forward_length": m.u32(4 * 10**9)}),
        "its largest tensor has",
    ),
    "gguf-heads-none": (m.gguf(fields={"qwen2.attention.head_count": m.u32(0)}), "head_count = 0"),
    "gguf-heads-uneven": (
        m.gguf(fields={"qwen2.attention.head_count": m.u32(7)}),
        "cannot be loaded",
    ),
    "gguf-no-tokens": (
        m.gguf(fields={"tokenizer.ggml.tokens": None}),
        "tokenizer.ggml.tokens = None",
    ),
    "gguf-fewer-tokens": (
        m.gguf(fields={"tokenizer.ggml.tokens": (m.LIST, m.texts(m.WORDS[:9]))}),
        "its tensors are for",
    ),
    "gguf-tokenizer-unknown": (
        m.gguf(fields={"tokenizer.ggml.model": (m.TEXT, m.text("evil"))}),
        "cannot be loaded",
    ),
    "gguf-merges-missing": (
        m.gguf(fields={"tokenizer.ggml.merges": (m.LIST, m.texts(["zz"]))}),
        "cannot be loaded",
    ),
    "gguf-weights-missing": (m.gguf(tensors=m.gguf_tensors()[:5]), "its files hold no "),
}


def listed(cases):
    marked = {
        name: case if hasattr(case, "marks") else pytest.param(*case)
        for name, case in cases.items()
    }
    return [pytest.param(*case.values, id=name, marks=case.marks) for name, case in marked.items()]


@pytest.mark.parametrize(("spoil", "because"), listed(CONFIGS | WEIGHTS | TOKENIZERS | ADAPTERS))
def test_a_hostile_folder_is_refused_in_one_line(play, folder, tmp_path, spoil, because):
    assert_refused(play(m.path_of(folder, spoil(folder))), because, tmp_path)


@pytest.mark.parametrize(("spoil", "because"), listed(GGUF))
def test_a_hostile_gguf_file_is_refused_in_one_line(opener, folder, tmp_path, spoil, because):
    result = opener.run(tmp_path, "model", "import", spoil(folder), tmp_path / "out")
    assert_refused(result, because, tmp_path)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_the_files_are_sound_before_they_are_spoiled(opener, play, folder, tmp_path):
    """Else all of this would be refused for another reason."""
    assert play(folder)["code"] == 0
    assert play(m.adapter()(folder))["code"] == 0
    m.template(m.SOUND)(folder)
    assert play(folder, "--agent.template", "model")["code"] == 0
    result = opener.run(tmp_path, "model", "import", m.gguf()(folder), tmp_path / "out")
    assert result["code"] == 0, result
    played = play(tmp_path / "out")
    assert played["code"] == 0, played


# templates

TEMPLATES = {
    "syntax": pytest.param("{% for %}", "TemplateSyntaxError", marks=short),
    "raises": ("{{ raise_exception('no thanks') }}", "no thanks"),
    "undefined": ("{{ x.y.z }}", "UndefinedError"),
    "number": (7, "template"),
    "nested-loops": pytest.param(m.nested(4), "it took more than", marks=short),
    "endless-macro": ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "RecursionError"),
    "large-text": ("{{ 'a' * 10 ** 11 }}", "it needs more than"),
    "large-power": ("{{ 7 ** (10 ** 9) }}", "it took more than"),
    "doubling": (
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s "
        "%}{% endfor %}",
        "more than",
    ),
    "padding": ("{{ 'a'|center(10 ** 11) }}", "it needs more than"),
    "large-output": ("{{ 'a' * 10 ** 8 }}", "it came to 100,000,000 characters"),
    "none-by-name": ([{"name": "x", "template": "a"}], "no default"),
    **{f"escape-{name}": (text, "") for name, text in m.ESCAPES.items()},
}


@pytest.mark.parametrize(("text", "because"), listed(TEMPLATES))
def test_a_hostile_template_is_refused_in_one_line(play, folder, tmp_path, text, because):
    m.template(text)(folder)
    assert_refused(play(folder, "--agent.template", "model"), because, tmp_path)


@pytest.mark.short
def test_a_template_that_cannot_be_used_is_replaced(play, folder):
    """As others that cannot be used for tokens that are only ever appended."""
    m.template("{{ 'a' * 10 ** 11 }}")(folder)
    result = play(folder)
    assert result["code"] in (0, 2), result
    assert "Traceback" not in result["errors"]


def test_a_template_may_turn_hostile_when_it_sees_a_task(play, folder, tmp_path):
    """Each rendering is bounded, not only those that prove a template when it is loaded."""
    m.template("{% if messages[0].content|length > 20 %}" + m.nested(4) + "{% endif %}" + m.SOUND)(
        folder
    )
    assert_refused(play(folder, "--agent.template", "model"), "it took more than", tmp_path)


def test_a_template_sees_no_secrets(monkeypatch):
    from palestra.core.confined import Confined

    monkeypatch.setenv("PRIVATE_TOKEN", "s3cret")
    confined = Confined("tests.hostile.confined_targets:environment")
    assert "PRIVATE_TOKEN" not in confined.ask(None, seconds=20, memory_mb=1000)
    confined.close()


# nothing runs and nobody is asked


@pytest.mark.short
def test_own_code_is_not_run_where_transformers_knows_the_type(play, folder, tmp_path):
    m.own_code(folder)
    assert play(folder)["code"] == 0
    assert not (tmp_path / m.MARK).exists()


def test_a_pickle_beside_safetensors_is_not_opened(play, folder, tmp_path):
    for name in ("pytorch_model.bin", "training_args.bin", "adapter_model.bin", "optimizer.pt"):
        (folder / name).write_bytes(m.pickle.dumps(m.Runs()))
    assert play(folder)["code"] == 0
    assert not (tmp_path / m.MARK).exists()


def test_a_regex_of_modules_is_not_tried(play, folder):
    """The weights tell which modules an adapter is for."""
    assert (
        play(m.adapter(target_modules="(.*)*(.*)*(.*)*(.*)*(.*)*x", r=10**9)(folder))["code"] == 0
    )


def test_nobody_is_asked_at_a_terminal(folder, tmp_path):
    """With a terminal, transformers asks whether to trust a model's code, and waits."""
    m.both(m.own_code, m.config(model_type="evil"))(folder)
    leader, terminal = pty.openpty()
    command = [sys.executable, "-m", "palestra", "eval", "--model", str(folder), *PLAY]
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=variables,
        start_new_session=True,
    ) as process:
        os.write(leader, b"y\ny\ny\n")
        errors = process.communicate(timeout=100)[1].decode()
    os.close(terminal)
    said = b""
    try:
        while piece := os.read(leader, 4096):
            said += piece
    except OSError:
        pass
    os.close(leader)
    assert b"trust" not in said.replace(b"y\r\n", b"")
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / m.MARK).exists()


@pytest.mark.short
def test_trusting_no_code_is_said_everywhere():
    calls = 0
    for path in [*ROOT.glob("palestra/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if not name.endswith((".from_pretrained", ".from_config")) or name.startswith(
                "PeftModel"
            ):  # which runs no code of a folder
                continue
            calls += 1
            said = [ast.unparse(keyword) for keyword in node.keywords]
            assert {"trust_remote_code=False", "**LOCAL", "**safe"} & set(said), (
                f"{path.name}:{node.lineno}"
            )
    assert calls >= 9


# the other commands

SOME = {
    name: CONFIGS[name]
    for name in (
        "config-deep",
        "config-device",
        "layers-text",
        "config-list",
        "width-beyond",
        "heads-none",
    )
}


@pytest.mark.parametrize(("spoil", "because"), listed(SOME))
@pytest.mark.parametrize("command", ["train", "doctor", "plan"])
def test_the_other_commands_refuse_them(opener, folder, tmp_path, command, spoil, because):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[env]\nname = 'guess'\n[model]\nkind = 'pretrained'\npath = '{folder}'\n")
    spoil(folder)
    result = opener.run(tmp_path, command, recipe, "--device", "cpu")
    assert_refused(result, "", tmp_path)
    assert "config.json" in result["errors"]
    assert not (tmp_path / "runs").exists()
