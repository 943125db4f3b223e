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
    count = 0
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
        count += 1
    return base64.b85encode(zlib.compress(bytes(bits), 6)).decode() if count else ""


def unpack_numbers(text: str) -> bytes:
    """The bitmap that ``pack_numbers`` packed."""
    return zlib.decompress(base64.b85decode(text)) if text else b""


def numbers_between(bits: bytes, first: int, last: int) -> tuple[int, ...]:
    """The numbers of a bitmap from ``first`` to ``last``."""
    return tuple(n for n in range(first, last + 1) if n >> 3 < len(bits) and bits[n >> 3] >> (n & 7) & 1)
