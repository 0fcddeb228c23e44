"""Attention of new tokens over KV cache slots on a CPU, in C++: each token reads only its own
episode. Padding to the longest episode reads about twice as many keys.

The C++ is compiled once per machine, in about a second, where a compiler is installed. Elsewhere
the engine uses PyTorch's attention.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("ragged.cpp")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC")
COMPILE_S = 60

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""Queries [tokens, heads, dim], keys and values [slots, key heads, tokens, dim], each token's slot
and the number of tokens that it reads (int64), and a scale in; the result like the queries out.
"""


class _Shape(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("tokens", "heads", "key_heads", "dim", "slot_stride", "head_stride")
    ]


def ragged_attention(dtype: torch.dtype, device: torch.device) -> Attend | None:
    """The function for this kind of cache; None where there is none."""
    names = {torch.float32: "attend_float32", torch.bfloat16: "attend_bfloat16"}
    if device.type != "cpu" or dtype not in names:
        return None
    library = _library()
    if library is None:
        return None
    function = getattr(library, names[dtype])
    function.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int]
    function.restype = None

    def attend(
        query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, lengths: Tensor, scale: float
    ) -> Tensor:
        query = query.contiguous()
        out = torch.empty_like(query)
        tokens, heads, dim = query.shape
        shape = _Shape(tokens, heads, keys.shape[1], dim, keys.stride(0), keys.stride(1))
        function(
            ctypes.byref(shape),
            query.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            slots.data_ptr(),
            lengths.data_ptr(),
            scale,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    return attend


@cache
def _library() -> ctypes.CDLL | None:
    compiler = compiler_of()
    if compiler is None:
        log.info("no C++ compiler: attention on the CPU is PyTorch's")
        return None
    return load_library(compiler)


def compiler_of() -> str | None:
    """$CXX, or the system's compiler."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    found = (shutil.which(name) for name in names if name)
    return next((path for path in found if path), None)


def load_library(compiler: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(built_library(compiler)))
    # RuntimeError: there is no home folder.
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        log.info("attention on the CPU is PyTorch's: %s", error)
        return None


def built_library(compiler: str) -> Path:
    """The library of this source, compiler and processor, which is built if it is missing."""
    version = _run(compiler, "--version")
    key = "\n".join([SOURCE.read_text(), *FLAGS, version, _processor()])
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = base / "palestra" / f"ragged-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled, linked = f"{folder}/ragged.o", f"{folder}/ragged.so"
        _run(compiler, *FLAGS, "-c", str(SOURCE), "-o", compiled)
        # Without -fopenmp: OpenMP's functions are then those of torch's library, and its threads
        # are shared. A second OpenMP would start threads of its own.
        _run(compiler, "-shared", compiled, "-o", linked)
        # Atomic, as several processes may build at once.
        os.replace(linked, library)
    return library


def _run(*command: str) -> str:
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, timeout=COMPILE_S, check=True
    )
    return done.stdout


def _processor() -> str:
    """What `-march=native` depends on: a home folder may be shared by hosts of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    kinds = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    return "\n".join(sorted(kinds))
