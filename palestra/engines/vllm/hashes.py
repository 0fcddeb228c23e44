"""Reuses the hashes of an episode's earlier turns, by which vLLM's prefix cache finds blocks of
tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palestra.engines.base import Session


class EpisodeHashes:
    """Stands in for vLLM's own hasher, which begins every request at its first token.

    Hashing is a chain, so what two requests begin with alike has the same hashes in both.
    """

    def __init__(self, hasher: Callable[[Any], list[bytes]], block_tokens: int) -> None:
        self._hasher = hasher
        self._block_tokens = block_tokens
        self._before: dict[Session, Any] = {}
        """The last request of each episode. vLLM goes on adding tokens and hashes to it while it
        replies.
        """
        self.session: Session | None = None
        """Whose request is made next."""

    def __call__(self, request: Any) -> list[bytes]:
        """The hashes that `request` lacks.

        Those of the turn before are set here, and vLLM's hasher goes on from them.
        """
        if self.session is not None:
            before = self._before.get(self.session)
            if before is not None:
                request.block_hashes.extend(self._shared(before, request))
            self._before[self.session], self.session = request, None
        return self._hasher(request)

    def forget(self, session: Session) -> None:
        self._before.pop(session, None)

    def _shared(self, before: Any, request: Any) -> list[bytes]:
        tokens = len(before.block_hashes) * self._block_tokens
        is_continued = request.all_token_ids[:tokens] == before.all_token_ids[:tokens]
        return list(before.block_hashes) if is_continued else []
