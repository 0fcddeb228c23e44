"""The tokens of an episode as text, by the tokenizer that the run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palestra.run_folder import Signature, signature


class TokenTexts:
    """Of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read_as: tuple[Path, Signature] | None = None
        self._tokenizer: Any = None
        self._known: dict[int, str] = {}

    def of(self, streams: list[list[int]]) -> list[list[str]] | None:
        """The text of each token; None where the run has no tokenizer that can be read."""
        if not self._open():
            return None
        return [[self._text(id) for id in ids] for ids in streams]

    def _open(self) -> bool:
        found = [*sorted(self.folder.glob("checkpoints/step-*/tokenizer.json"), reverse=True), self.folder / "reference" / "tokenizer.json"]
        path = next((path for path in found if path.is_file()), None)
        if path is None:
            return False
        now = (path, signature(path))
        if now != self._read_as:
            self._read_as, self._known = now, {}
            self._tokenizer = _load(path)
        return self._tokenizer is not None

    def _text(self, id: int) -> str:
        if id not in self._known:
            is_known = 0 <= id < 2**32 and self._tokenizer.id_to_token(id) is not None
            self._known[id] = self._tokenizer.decode([id], skip_special_tokens=False) if is_known else f"<{id}>"
        return self._known[id]


def _load(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001  what it raises has no class of its own
        return None
