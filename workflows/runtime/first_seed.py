"""The seed that a run's random generator has in the beginning: the SDK's core makes it of the id of the first run.

Laws: pure, and the core's own arithmetic: Rust's ``DefaultHasher``, which is SipHash-1-3 with keys of zero, over the
UTF-8 of the text and a byte 0xff. It cannot change: a run that is replayed would draw other numbers than before.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = 2**64 - 1
# "somepseudorandomlygeneratedbytes": where SipHash begins
_START: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def seed_of(run_id: str) -> int:
    """The first seed of a run with this ``original_execution_run_id``, and the seed after a reset to this run id."""
    data = run_id.encode() + b"\xff"
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    state = _START
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = _mix((*state[:3], state[3] ^ word))
        state = (a ^ word, b, c, d)
    state = (*state[:2], state[2] ^ 0xFF, state[3])
    for _ in range(3):
        state = _mix(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _mix(state: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """One round of SipHash."""
    a, b, c, d = state
    a, c = (a + b) & _MASK, (c + d) & _MASK
    b, d = _turn(b, 13) ^ a, _turn(d, 16) ^ c
    a, c = (_turn(a, 32) + d) & _MASK, (c + b) & _MASK
    b, d = _turn(b, 17) ^ c, _turn(d, 21) ^ a
    return a, b, _turn(c, 32), d


def _turn(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
