"""Lines of a server: the same whatever the chunks, and never more in memory than the limit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.mcp.message_lines import LineSplitter, OversizedLine

LIMIT = 40


def split(data: bytes, cuts: list[int]) -> list[bytes | OversizedLine]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    splitter = LineSplitter(LIMIT)
    found: list[bytes | OversizedLine] = []
    for start, end in itertools.pairwise(edges):
        found += splitter.feed(data[start:end])
        assert sum(map(len, splitter._parts)) <= LIMIT
    return found


@given(st.lists(st.binary(max_size=2 * LIMIT)), st.lists(st.integers(0, 10_000)))
def test_chunks_make_no_difference(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(part + b"\n" for part in parts)
    expected: list[bytes | OversizedLine] = []
    for line in data.split(b"\n")[:-1]:
        if len(line) > LIMIT:
            expected.append(OversizedLine(None))
        elif line.strip():
            expected.append(line)
    assert split(data, cuts) == expected


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"content":"%s"}}', 7),
        ('{ "jsonrpc" : "2.0", "id" : 7 , "error":"%s"}', 7),
        ('{"jsonrpc":"2.0","method":"x","params":"%s"}', None),
        ('{"result":"%s","id":7,"jsonrpc":"2.0"}', None),
        ('{"jsonrpc":"2.0","id":"7","result":"%s"}', None),
        ('{"jsonrpc":"2.0","id":7,"method":"sampling","params":"%s"}', None),
    ],
)
def test_of_a_line_that_is_too_long_the_request_is_recognized(line: str, request_id: int | None) -> None:
    data = (line % ("x" * 1000)).encode() + b"\n{}\n"
    assert split(data, [3, 50, 90]) == [OversizedLine(request_id), b"{}"]
