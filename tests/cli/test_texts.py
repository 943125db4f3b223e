"""JSON and YAML texts: the same values, and the position of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cli.text import json_text, yaml_text
from cli.text.positions import Position, TextError
from cli.text.source_text import parse_source

Path = tuple[str | int, ...]

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every path of a value, itself first."""
    yield at
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in below:
        yield from paths(child, (*at, key))


def strings(value: Any) -> Iterator[str]:
    """Every string of a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(child)


def number_in_json_alone(text: str) -> bool:
    """True for ``1e5``: YAML 1.1 writes the text without quotes, and JSON has that number."""
    return re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+]?[0-9]+", text) is not None


@given(values, st.sampled_from([None, 0, 2]))
@settings(deadline=None)
def test_json_is_read_as_python_reads_it_and_every_value_has_a_position(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert json_text.parse(text) == value
    assert [path for path, _ in json_text.positions(text)] == list(paths(value))


@given(values)
@settings(deadline=None)
def test_json_is_yaml_and_every_value_has_the_same_position(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)  # YAML has no escapes of surrogate pairs
    assert yaml_text.parse(text) == value
    assert list(yaml_text.positions(text)) == list(json_text.positions(text))


@given(values)
@settings(deadline=None)
def test_yaml_of_a_library_parses_to_the_same_value(value: Any) -> None:
    assume(not any(map(number_in_json_alone, strings(value))))
    text = yaml.safe_dump(value, allow_unicode=True)
    assert yaml_text.parse(text) == value
    assert {path for path, _ in yaml_text.positions(text)} <= set(paths(value))  # copies of an alias share one


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01", "2024-01-01"), ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"), ("10:30:00", "10:30:00"),
        ("yes", "yes"), ("No", "No"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("0123", "0123"), ("0x1F", "0x1F"), ("0o17", "0o17"), ("1_000", "1_000"), ("+1", "+1"),
        ("1.5", 1.5), ("1e3", 1000.0), ("-0.5E-1", -0.05), (".5", ".5"), ("1.", "1."), ("NaN", "NaN"),
        ("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("! 1", "1"), ("!!int 1", 1), ("!!float 1.0", 1.0),
        ("†state.x || †state.y", "†state.x || †state.y"), ("|\n    a\n    b", "a\nb"), (">-\n    a\n    b", "a b"),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_a_json_value_or_a_string(text: str, value: Any) -> None:
    result = yaml_text.parse(f"a: {text}")["a"]
    assert result == value
    assert type(result) is type(value)


def test_aliases_are_values() -> None:
    assert yaml_text.parse("a: &x {k: [1]}\nb: *x\nc: [*x, *x]") == {
        "a": {"k": [1]},
        "b": {"k": [1]},
        "c": [{"k": [1]}, {"k": [1]}],
    }


@pytest.mark.parametrize("name", ["MAX_ALIASED", "MAX_DEPTH"])
def test_a_text_at_the_limit_is_read(name: str) -> None:
    if name == "MAX_DEPTH":
        text = "[" * 100 + "1" + "]" * 100
        assert yaml_text.parse(text) == json_text.parse(text) == json.loads(text)
        assert len(list(json_text.positions(text))) == 101
    else:
        row = ", ".join(["1"] * 99)
        text = f"a: &a [{row}]\nb: [{', '.join(['*a'] * 1000)}]"
        assert len(yaml_text.parse(text)["b"]) == 1000
        with pytest.raises(TextError, match="expand to more than"):
            yaml_text.parse(text + "\nc: *a")


def test_depth_through_aliases_is_bounded() -> None:
    rows = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)]
    with pytest.raises(TextError, match="nested deeper"):
        yaml_text.parse("\n".join(rows))


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("JSON", '{\n "a": [\n  1,\n  {"b/c": {"~": 2}}\n ]\n}'),
        ("YAML", '\na:\n  - 1\n  - b/c:\n      "~": 2\n'),
    ],
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
    for pointer, line in lines.items():
        place = source.position(pointer)
        assert place is not None
        assert line in (None, place.line), pointer


def test_a_long_line_is_cut_around_the_position() -> None:
    text = json.dumps({"a": ["x" * 50] * 20_000 + ["here"]})
    shown = parse_source("x", text, "JSON").excerpt("/a/20000")
    assert len(shown) < 120
    assert '"here"' in shown


def test_a_number_beyond_a_float_is_refused_and_a_long_one_is_exact() -> None:
    assert json_text.parse("12345678901234567890123") == 12345678901234567890123
    with pytest.raises(Exception, match="the number 1e999 is too large"):
        parse_source("x", "[1e999]", "JSON")
