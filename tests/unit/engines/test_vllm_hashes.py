"""Hashes of an episode's earlier turns, with a hasher that chains as vLLM's does and counts what it
computes.
"""

import hashlib
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.base import Session
from palestra.engines.vllm.hashes import EpisodeHashes

BLOCK = 4


@dataclass
class Request:
    all_token_ids: list[int]
    block_hashes: list[bytes] = field(default_factory=list)


class Chain:
    def __init__(self):
        self.computed = 0

    def __call__(self, request):
        new, last = [], (request.block_hashes or [b""])[-1]
        for start in range(
            len(request.block_hashes) * BLOCK, len(request.all_token_ids) - BLOCK + 1, BLOCK
        ):
            last = hashlib.sha256(
                last + bytes(request.all_token_ids[start : start + BLOCK])
            ).digest()
            new.append(last)
        self.computed += len(new)
        return new


def begun(hashes, session, ids):
    """A request as vLLM makes it."""
    hashes.session = session
    request = Request(list(ids))
    request.block_hashes.extend(hashes(request))
    return request


def replied(hashes, request, ids):
    request.all_token_ids.extend(ids)
    request.block_hashes.extend(hashes(request))


turns = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=9),
        st.lists(st.integers(0, 2), max_size=9),
        st.booleans(),
    ),
    max_size=6,
)


@given(st.lists(turns, max_size=3))
def test_hashes_are_those_of_the_whole_request(episodes):
    hashes = EpisodeHashes(Chain(), BLOCK)
    sessions = [(Session(str(number)), []) for number in range(len(episodes))]
    for number in range(max(map(len, episodes), default=0)):
        for (session, ids), episode in zip(sessions, episodes, strict=True):
            for shown, reply, is_other in episode[number : number + 1]:
                ids[:] = (
                    [*shown] if is_other else [*ids, *shown]
                )  # a context that begins anew has other hashes
                request = begun(hashes, session, ids)
                replied(hashes, request, reply)
                ids += reply
                assert request.block_hashes == Chain()(Request(ids))


def test_a_turn_costs_only_what_is_new():
    hashes = EpisodeHashes(chain := Chain(), BLOCK)
    session = Session("x")
    first = begun(hashes, session, range(40))
    replied(hashes, first, [1] * 8)
    assert chain.computed == 12
    begun(hashes, session, [*range(40), *[1] * 8, 2, 2, 2, 2])
    assert chain.computed == 13
    hashes.forget(session)
    begun(hashes, session, range(40))
    assert chain.computed == 23
