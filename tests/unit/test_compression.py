"""What the children of a batch have in common: short in every history, and read again from all of them."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.strict_json import read_json, write_json
from acts.tree import compression
from acts.tree.compression import MAX_UNPACKED, compress, decompress

Json = Any

TOOL = {"type": "tool", "tool": {"properties": {"_tool": {"const": "echo"}, "_activity": {"const": "echo"}}}}
PLAN = {"type": "plan", "plan": [{"_tool": "echo", "value": "†state.text", "_outputPath": "†state.said"}]}

# Written once with the dictionary of each letter. Histories hold such data: it is never written again.
STORED = {
    "a": "YXj57WNgt8OpjEDGSE3OyIeUwFgSBUSyFjmp4Qp+sFIdJWARDq4C4GkA7AmcCaY4MTMFHHEAxUBDmw==",
    "b": "Ynj52jNHc8OpjEBJnpqckQ9pMmBJcRDJWmLiDaxURwnY5gC3WeARCPYEzrKiOBFYFoKiEQDFQEOb",
}


@given(st.binary() | st.text().map(str.encode))
def test_what_is_compressed_is_read_again(data: bytes) -> None:
    assert decompress(compress(data)) == data


@pytest.mark.parametrize("data", [b"", b"x" * 100_000, "†🙂".encode(), bytes(range(256))])
def test_any_bytes_can_be_compressed(data: bytes) -> None:
    assert decompress(compress(data)) == data
    assert compress(data) == compress(bytes(data))


@pytest.mark.parametrize("letter", STORED)
def test_what_was_compressed_once_is_read_for_ever(letter: str) -> None:
    data = base64.b64decode(STORED[letter])
    assert data[:1] == letter.encode()
    assert read_json(decompress(data)) == [TOOL, PLAN]


def test_the_latest_dictionary_has_a_stored_example() -> None:
    assert compress(b"")[:1].decode() == max(STORED)


def test_a_small_request_becomes_a_sixth() -> None:
    tools = [{"type": "tool", "tool": {
        "description": f"Do the thing {n}", "type": "object", "required": ["id"],
        "properties": {"_tool": {"const": f"do{n}"}, "_activity": {"const": f"things.do{n}"},
                       "_output": {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]},
                       "_outputPath": {"const": f"†state.do{n}"}, "id": {"type": "string"}},
    }} for n in range(5)]  # fmt: skip
    data = write_json({"request": {"context": [*tools, PLAN]}})
    assert len(compress(data)) * 6 < len(data)


def test_the_dictionary_is_worth_it() -> None:
    data = write_json({"request": {"config": {"approve": {"plan": False}}, "context": [TOOL, PLAN]}})
    assert len(compress(data)) < len(zlib.compress(data, 9)) * 0.7


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "begins with"), (b"c123", "begins with"), (b"a", "cut off"), (b"bno zlib", "cannot be read"),
        (compress(b'{"a":1}')[:-6], "cut off"),
    ],
)  # fmt: skip
def test_what_was_not_compressed_here_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decompress(data)


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = compress(b"0" * 100_000)
    assert len(bomb) < 500
    assert MAX_UNPACKED > 2 * 1024 * 1024  # more than one payload holds
    monkeypatch.setattr(compression, "MAX_UNPACKED", 10_000)
    with pytest.raises(ValueError, match="more than 10,000 bytes"):
        decompress(bomb)
