"""JSON and YAML texts: the same values, and the position of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.cli.text.source import parse_source
from acts.language.source_text import MAX_ALIASED, Position, TextError, parse, positions
from acts.language.values import pointer

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def pointers(value: Any, at: str = "") -> Iterator[str]:
    """The pointer of every part of a value, itself first."""
    yield at
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in below:
        yield from pointers(child, at + pointer(key))


@given(values, st.sampled_from([None, 0, 2]))
@settings(deadline=None)
def test_json_is_read_as_python_reads_it_and_every_value_has_a_position(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert parse(text, "JSON") == value
    assert list(positions(text, "JSON", value)) == list(pointers(value))


@given(values)
@settings(deadline=None)
def test_json_is_yaml_and_every_value_has_the_same_position(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)  # YAML has no escapes of surrogate pairs
    assert parse(text, "YAML") == value
    assert positions(text, "YAML", value) == positions(text, "JSON", value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"), ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"), ("10:30:00", "10:30:00"),
        ("yes", "yes"), ("No", "No"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("0123", "0123"), ("0x1F", "0x1F"), ("0o17", "0o17"), ("1_000", "1_000"), ("+1", "+1"),
        ("1.5", 1.5), ("1e3", 1000.0), ("-0.5E-1", -0.05), (".5", ".5"), ("1.", "1."),
        ("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("!!int 1", 1), ("!!float 1.0", 1.0),
        ("†state.x || †state.y", "†state.x || †state.y"), ("|\n    a\n    b", "a\nb"), (">-\n    a\n    b", "a b"),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_a_json_value_or_a_string(text: str, value: Any) -> None:
    result = parse(f"a: {text}", "YAML")["a"]
    assert result == value
    assert type(result) is type(value)


def test_depth_through_aliases_is_bounded() -> None:
    rows = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
    with pytest.raises(TextError, match="nested deeper"):
        parse("\n".join(rows), "YAML")


@given(st.integers(0, 5_000), st.integers(1, 3_000), st.sampled_from(["x", "†", '"\\L"', "a: {}", "[[]]"]))
def test_what_aliases_repeat_is_counted_as_if_written_out(size: int, copies: int, part: str) -> None:
    item = f"[{part}, {'y' * size}]"
    text = f"a: &a {item}\nb: [{', '.join(['*a'] * copies)}]"
    expected = len(item.encode()) * copies
    if expected > 2 * MAX_ALIASED:
        with pytest.raises(TextError, match="the aliases expand to more than"):
            parse(text, "YAML")
    elif expected < MAX_ALIASED // 8:
        assert len(parse(text, "YAML")["b"]) == copies


@pytest.mark.parametrize(
    ("format_", "text"),
    [("JSON", '{\n "a": [\n  1,\n  {"b/c": {"~": 2}}\n ]\n}'), ("YAML", '\na:\n  - 1\n  - b/c:\n      "~": 2\n')],
)
def test_a_pointer_has_the_position_of_its_value_or_of_the_nearest_around_it(format_: Any, text: str) -> None:
    source = parse_source("x", text, format_)
    lines = {
        "": None,
        "/a": 2,
        "/a/0": 3,
        "/a/1": 4,
        "/a/1/b~1c": 4,
        "/a/1/b~1c/no": 4,
        "/a/7": 2,
        "/a/no/x": 2,
        "/z": None,
    }
    deep = 4 if format_ == "JSON" else 5
    assert source.position("/a/1/b~1c/~0") == Position(deep, 12 if format_ == "JSON" else 7)
    for at, line in lines.items():
        place = source.position(at)
        assert place is not None
        assert line in (None, place.line), at
