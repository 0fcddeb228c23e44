"""Seeds made from what they are for: the same parts give the same seed on every machine, whatever
ran before.
"""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """63 bits that depend on all parts and their order."""
    digest = hashlib.blake2b(
        "\x1f".join(f"{type(part).__name__}:{part}" for part in parts).encode(), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big") >> 1
