"""JSON text: what is read, what is refused and why, and what is written."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.strict_json import (
    MAX_UNPACKED,
    DuplicateKeyError,
    NestingError,
    json_size,
    read_json,
    unpack,
    write_json,
)
from acts.language.values import UNKNOWN

# text, the error, what it says
REFUSED: list[tuple[str | bytes, type[ValueError], str]] = [
    ("", json.JSONDecodeError, "line 1 column 1"),
    ("[1,]", json.JSONDecodeError, "line 1 column"),
    ("{'a': 1}", json.JSONDecodeError, "double quotes"),
    ("1 2", json.JSONDecodeError, "Extra data"),
    ("[NaN]", ValueError, "NaN is not a JSON number"),
    ("-Infinity", ValueError, "-Infinity is not a JSON number"),
    ('{"a": 1e999}', ValueError, "the number 1e999 is too large"),
    ("-1e999", ValueError, "the number -1e999 is too large"),
    ("9" * 5000, ValueError, "a number has more digits than can be read"),
    ("[" * 100_000, NestingError, "nested deeper than 100 levels"),
    (b"\xff", UnicodeDecodeError, "position 0"),
    ("[1]".encode("utf-16"), UnicodeDecodeError, "position 0"),
]


@pytest.mark.parametrize(("text", "error", "says"), REFUSED, ids=lambda x: str(x)[:40])
@pytest.mark.parametrize("unique_keys", [False, True])
def test_what_is_not_json_is_refused_with_the_reason(
    text: str | bytes,
    error: type[ValueError],
    says: str,
    unique_keys: bool,  # noqa: FBT001
) -> None:
    with pytest.raises(error, match=says) as refused:
        read_json(text, unique_keys=unique_keys)
    assert type(refused.value) is error


@given(st.binary(), st.integers(0, 40), st.booleans())
def test_what_is_unpacked_is_whole_or_an_error(data: bytes, cut: int, is_packed: bool) -> None:  # noqa: FBT001
    packed = zlib.compress(data) if is_packed else data
    try:
        assert unpack(packed[: len(packed) - cut]) == data
        assert is_packed
        assert not cut
    except ValueError:
        assert cut or not is_packed


def test_more_than_a_run_has_is_not_unpacked() -> None:
    packer, part = zlib.compressobj(9), bytes(1024 * 1024)
    packed = b"".join(packer.compress(part) for _ in range(2 * MAX_UNPACKED // len(part))) + packer.flush()
    with pytest.raises(ValueError, match="more than 134,217,728 bytes unpacked"):
        unpack(packed)
    with pytest.raises(ValueError, match="more than 8,000,000 values unpacked"):
        unpack(zlib.compress(b"[" + b"[]," * 4_000_000 + b"0]"))


def test_a_key_that_is_twice_in_one_object_is_refused_on_request() -> None:
    assert read_json('{"a": 1, "a": 2}') == {"a": 2}
    assert read_json('[{"a": {"a": 1}}, {"a": 2}]', unique_keys=True) == [{"a": {"a": 1}}, {"a": 2}]
    with pytest.raises(DuplicateKeyError, match='the key "b" is twice in one object'):
        read_json('{"a": 1, "x": {"b": 1, "a": 2, "b": 3}}', unique_keys=True)


def test_bytes_are_utf_8_with_or_without_a_byte_order_mark() -> None:
    assert read_json('"é†"'.encode()) == "é†"
    assert read_json('"é"'.encode("utf-8-sig")) == "é"


# value, how it is written
WRITTEN: list[tuple[Any, str]] = [
    ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
    ("é†\n", '"é†\\n"'),
    ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
]


@pytest.mark.parametrize(("value", "text"), WRITTEN, ids=str)
def test_json_is_written_compact_in_the_order_of_its_keys(value: Any, text: str) -> None:
    assert write_json(value).decode() == text
    assert json_size(value) == len(text.encode())


def test_a_value_that_is_not_known_has_a_size_and_is_not_written() -> None:
    assert json_size({"a": UNKNOWN}) == len('{"a":"UNKNOWN"}')
    with pytest.raises(TypeError):
        write_json({"a": UNKNOWN})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_what_is_written_reads_as_the_same_value(value: Any) -> None:
    assert read_json(write_json(value), unique_keys=True) == value
