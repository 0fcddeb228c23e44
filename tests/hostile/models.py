"""Model folders that mean harm, or are broken. Each function takes a sound folder and spoils it."""

import json
import os
import pickle
import struct
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from palestra.models.chat_templates import WORD_TEMPLATE

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MARK = "it-ran"
"""A file that stands in the working folder where something ran that must not."""


def config(**changes):
    """With other values in config.json; None takes one out."""

    def spoil(folder):
        edit(folder / "config.json", changes)

    return spoil


def tokenizer_config(**changes):
    return lambda folder: edit(folder / "tokenizer_config.json", changes)


def edit(path, changes):
    tree = json.loads(path.read_text())
    for name, value in changes.items():
        if value is None:
            tree.pop(name, None)
        else:
            tree[name] = value
    path.write_text(json.dumps(tree))


def content(name, value):
    """With this in place of a file."""

    def spoil(folder):
        (folder / name).write_bytes(value if isinstance(value, bytes) else value.encode())

    return spoil


def without(*names):
    def spoil(folder):
        for name in names:
            (folder / name).unlink()

    return spoil


def fifo(name):
    def spoil(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def link(name, target):
    def spoil(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return spoil


def directory(name):
    def spoil(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def sparse(name, size):
    """A file that is large and takes no room."""

    def spoil(folder):
        with (folder / name).open("r+b" if (folder / name).exists() else "wb") as file:
            file.truncate(size)

    return spoil


def both(*spoils):
    def spoil(folder):
        for one in spoils:
            one(folder)

    return spoil


def weights(change):
    """With other tensors; `change` gets and gives a dictionary."""

    def spoil(folder):
        changed = change(load_file(folder / WEIGHTS))
        save_file(
            {name: tensor.contiguous() for name, tensor in changed.items()},
            folder / WEIGHTS,
            metadata={"format": "pt"},
        )

    return spoil


def every(function):
    return weights(lambda tensors: {name: function(tensor) for name, tensor in tensors.items()})


def without_one(tensors):
    return {name: tensor for name, tensor in tensors.items() if "q_proj" not in name}


def one_reshaped(tensors):
    return {name: tensor[:-1] if "up_proj" in name else tensor for name, tensor in tensors.items()}


def cut(name, by):
    def spoil(folder):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: max(len(raw) - by, 0)])

    return spoil


def header(length, text=b""):
    """Of a file of weights that claims so many bytes of header."""
    return content(WEIGHTS, struct.pack("<Q", length) + text)


def index(weight_map, files=()):
    """With an index in place of one file; `files` get the weights."""

    def spoil(folder):
        whole = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).unlink()
        for name in files:
            (folder / name).write_bytes(whole)
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    return spoil


def shards(count):
    return lambda folder: index({str(number): f"{number}.safetensors" for number in range(count)})(
        folder
    )


def deep(levels=100_000):
    return "[" * levels


class Runs:
    """A pickle that leaves the mark when it is opened."""

    def __reduce__(self):
        return (os.mkdir, (MARK,))


def a_pickle(name):
    def spoil(folder):
        (folder / WEIGHTS).unlink(missing_ok=True)
        (folder / name).write_bytes(pickle.dumps(Runs()))

    return spoil


CODE = f"import os\nos.mkdir({MARK!r})\nraise SystemExit(0)\n"


def own_code(folder):
    """As transformers would import it, if it were trusted."""
    (folder / "evil.py").write_text(CODE)
    classes = {
        "AutoConfig": "evil.C",
        "AutoModelForCausalLM": "evil.M",
        "AutoTokenizer": ["evil.T", None],
    }
    edit(folder / "config.json", {"auto_map": classes})
    edit(folder / "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", None]}})


# tokenizers and templates


def pre_tokenizer(regex):
    def spoil(folder):
        split = {
            "type": "Split",
            "pattern": {"Regex": regex},
            "behavior": "Isolated",
            "invert": False,
        }
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }
        edit(
            folder / "tokenizer.json",
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}},
        )

    return spoil


def more_words(folder):
    """Tokens that the model has no embeddings for, and which texts are made of."""
    path = folder / "tokenizer.json"
    tree = json.loads(path.read_text())
    vocabulary = tree["model"]["vocab"]
    tree["model"]["vocab"] = {
        token: number if len(token) > 1 else number + 1000 for token, number in vocabulary.items()
    }
    path.write_text(json.dumps(tree))


def huge_token_id(folder):
    tree = json.loads((folder / "tokenizer.json").read_text())
    tree["added_tokens"][0]["id"] = 10**18
    (folder / "tokenizer.json").write_text(json.dumps(tree))


def template(text):
    """A chat template of this text."""

    def spoil(folder):
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        edit(folder / "tokenizer_config.json", {"chat_template": text})

    return spoil


def nested(levels):
    opened = "".join(f"{{% for {name} in range(99999) %}}" for name in "abcdefgh"[:levels])
    return opened + "{% endfor %}" * levels


SOUND = (
    "{% for x in messages %}{{ x.content }}{% if x.role == 'assistant' %}<end>{% else "
    "%}<act>{% endif %}{% endfor %}"
)
"""A template that can be used, and is none of ours."""

ESCAPES = {
    "globals": "{{ cycler.__init__.__globals__.os.mkdir('it-ran') }}",
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attr": "{{ (''|attr('__class__'))|attr('__mro__') }}{{ x.y.z }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}{{ x.y.z }}",
    "namespace": "{% set n = namespace(__class__=1) %}",
    "mutate": "{{ messages.append(1) }}{{ messages.clear() }}",
    "self": "{{ self._TemplateReference__context.environment.loader }}{{ x.y.z }}",
}


# adapters


def adapter(base="../model", *, pickled=False, change=None, **settings):
    """An adapter beside the model, `folder.parent / adapter`; returns its place."""

    def spoil(folder):
        made = folder.parent / "adapter"
        made.mkdir()
        written = {
            "peft_type": "LORA",
            "r": 2,
            "lora_alpha": 4,
            "target_modules": ["q_proj"],
            "task_type": "CAUSAL_LM",
        }
        where = (
            base
            if not isinstance(base, str)
            else str((folder.parent / base.removeprefix("../")).resolve())
            if ".." in base
            else base
        )
        tree = written | {"base_model_name_or_path": where} | settings
        (made / "adapter_config.json").write_text(json.dumps(tree))
        prefix = "base_model.model.model.layers.0.self_attn.q_proj"
        tensors = {
            f"{prefix}.lora_A.weight": torch.ones(2, 16) / 99,
            f"{prefix}.lora_B.weight": torch.ones(16, 2) / 99,
        }
        if pickled:
            (made / "adapter_model.bin").write_bytes(pickle.dumps(Runs()))
        else:
            save_file(change(tensors) if change else tensors, made / "adapter_model.safetensors")
        return made

    return spoil


def then(spoil, name, value):
    """And another file in the adapter."""

    def done(folder):
        made = spoil(folder)
        (made / name).write_bytes(value)
        return made

    return done


def renamed(old, new):
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def circle(folder):
    """Two adapters, each the other's base."""
    one = adapter("../other")(folder)
    other = folder.parent / "other"
    one.rename(other)
    adapter("../other")(folder)
    edit(other / "adapter_config.json", {"base_model_name_or_path": str(one)})
    return one


# GGUF

U32, F32, TEXT, LIST, U64 = 4, 6, 8, 9, 10


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def texts(values):
    return struct.pack("<IQ", TEXT, len(values)) + b"".join(map(text, values))


WORDS = [
    "<end>",
    "<act>",
    *map(chr, range(0x21, 0x7F)),
    *map(chr, range(0xA1, 0xAD)),
    *map(chr, range(0xAE, 0x144)),
    "ab",
]
WIDTH, INNER = 32, 32


def gguf_fields():
    kinds = [3 if len(word) > 2 else 1 for word in WORDS]
    return {
        "general.architecture": (TEXT, text("qwen2")),
        "qwen2.block_count": (U32, struct.pack("<I", 1)),
        "qwen2.context_length": (U32, struct.pack("<I", 1024)),
        "qwen2.embedding_length": (U32, struct.pack("<I", WIDTH)),
        "qwen2.feed_forward_length": (U32, struct.pack("<I", INNER)),
        "qwen2.attention.head_count": (U32, struct.pack("<I", 2)),
        "qwen2.attention.head_count_kv": (U32, struct.pack("<I", 2)),
        "qwen2.rope.freq_base": (F32, struct.pack("<f", 10_000.0)),
        "qwen2.attention.layer_norm_rms_epsilon": (F32, struct.pack("<f", 1e-5)),
        "tokenizer.ggml.model": (TEXT, text("gpt2")),
        "tokenizer.ggml.pre": (TEXT, text("qwen2")),
        "tokenizer.ggml.tokens": (LIST, texts(WORDS)),
        "tokenizer.ggml.token_type": (
            LIST,
            struct.pack("<IQ", 5, len(WORDS)) + struct.pack(f"<{len(WORDS)}i", *kinds),
        ),
        "tokenizer.ggml.merges": (LIST, texts(["a b"])),
        "tokenizer.ggml.eos_token_id": (U32, struct.pack("<I", 0)),
        "tokenizer.chat_template": (TEXT, text(WORD_TEMPLATE)),
    }


def gguf_tensors():
    square = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    shapes = {"token_embd.weight": (WIDTH, len(WORDS)), "output_norm.weight": (WIDTH,)}
    shapes |= {f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in square}
    shapes |= {f"blk.0.{name}.bias": (WIDTH,) for name in square[:3]}
    return list(
        (shapes | {f"blk.0.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}).items()
    )


def gguf_bytes(fields=None, tensors=None, *, head=None, alignment=32, kind=0, shift=0):
    """A whole file; each part can be another than it should be."""
    fields, tensors = gguf_fields() | (fields or {}), tensors or gguf_tensors()
    fields = {name: value for name, value in fields.items() if value is not None}
    generator, data, told = torch.Generator().manual_seed(0), b"", b""
    for name, shape in tensors:
        told += text(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data) + shift
        )
        data += torch.randn(*reversed(shape), generator=generator).mul(0.1).numpy().tobytes()
        data += b"\0" * (-len(data) % alignment)
    raw = head if head is not None else struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    raw += (
        b"".join(
            text(name) + struct.pack("<I", value[0]) + value[1] for name, value in fields.items()
        )
        + told
    )
    return raw + b"\0" * (-len(raw) % alignment) + data


def gguf(raw=None, *, cut_by=0, **parts):
    """A GGUF file beside the folder; returns its place."""

    def spoil(folder):
        path = folder.parent / "model.gguf"
        made = gguf_bytes(**parts) if raw is None else raw
        path.write_bytes(made[: len(made) - cut_by])
        return path

    return spoil


def u32(value):
    return (U32, struct.pack("<I", value))


def path_of(folder, spoiled):
    return spoiled if isinstance(spoiled, Path) else folder
