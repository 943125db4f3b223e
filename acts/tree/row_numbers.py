"""Row numbers as text: a bitmap, compressed. Any choice of 10,000,000 rows takes at most 1.6 MB."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def pack_numbers(numbers: Iterable[int], most: int) -> str:
    """Numbers from 1 to ``most`` as text; nothing for none."""
    bits = bytearray(most // 8 + 1)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return pack_bits(bytes(bits))


def pack_bits(bits: bytes) -> str:
    """A bitmap as text; nothing for one without numbers."""
    return base64.b85encode(zlib.compress(bits, 6)).decode() if any(bits) else ""


def unpack_numbers(text: str) -> bytes:
    """The bitmap that ``pack_numbers`` or ``pack_bits`` packed."""
    return zlib.decompress(base64.b85decode(text)) if text else b""


def numbers_between(bits: bytes, first: int, last: int) -> tuple[int, ...]:
    """The numbers of a bitmap from ``first`` to ``last``."""
    return tuple(n for n in range(first, last + 1) if n >> 3 < len(bits) and bits[n >> 3] >> (n & 7) & 1)


def count_between(bits: bytes, first: int, last: int) -> int:
    """How many numbers of a bitmap are from ``first`` to ``last``; of 250 numbers in about a microsecond."""
    part = int.from_bytes(bits[first >> 3 : (last >> 3) + 1], "little") >> (first & 7)
    return (part & ((1 << (last - first + 1)) - 1)).bit_count()
