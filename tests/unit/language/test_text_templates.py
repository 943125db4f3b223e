"""Templates: text with expressions in braces; what is put in is text, and is never read again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import ExpressionError
from acts.language.references import Operation, Path, evaluate, parse_text_template, unread_value
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT
from tests import oracle

NAME, N = Path("user", ("name",)), Path("state", ("n",))

# text, its parts
SPELLINGS: list[tuple[str, tuple[Any, ...]]] = [
    ("†{user.name}", (NAME,)),
    ("†{†user.name}", (NAME,)),
    ("Dear †{user.name}, †{state.n} left", ("Dear ", NAME, ", ", N, " left")),
    ("†{user.name}†{state.n}", (NAME, N)),
    ("†{ user.name }", (NAME,)),
    ("†{user.name || †state.n}", (Operation("||", (NAME, N)),)),
    ("†{(user.name || state.n) && state.n}", (Operation("&&", (Operation("||", (NAME, N)), N)),)),
    ('†{user["a } b"]}', (Path("user", ("a } b",)),)),
    ("††{user.name}", ("†{user.name}",)),
    ("a ††{b} †{user.name}", ("a †{b} ", NAME)),
    ("†††{user.name}", ("†", NAME)),
    ("{†{user.name}}", ("{", NAME, "}")),
    ("†{кто.имя}", (Path("кто", ("имя",)),)),
]


@pytest.mark.parametrize(("text", "parts"), SPELLINGS, ids=lambda x: x if isinstance(x, str) else None)
def test_a_template_has_its_parts(text: str, parts: tuple[Any, ...]) -> None:
    assert parse_text_template(text).parts == parts


# text, column of the first character that cannot be read (of a brace that is not closed: its own)
MALFORMED = [
    ("†{", 1),
    ("Dear †{user.name", 6),
    ("†{a} and †{b ", 10),
    ("†{ }", 4),
    ("†{user.}", 8),
    ("†{user.name)}", 12),
    ("†{a ||}", 7),
    ("†{a = 1}", 5),
    ("†{a ? 1}", 8),
    ("†{†{a}}", 4),
    ('†{a["b}', 5),
]


@pytest.mark.parametrize(("text", "column"), MALFORMED)
def test_a_malformed_template_is_refused_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_text_template(text)
    assert caught.value.column == column


# what the path yields, the text that is put in
TEXTS: list[tuple[Any, str]] = [
    ("Ada", "Ada"),
    (None, ""),
    (1.5, "1.5"),
    ([1, "ö"], '[1,"ö"]'),
    ({"b": 1, "a": {"b": None}}, '{"a":{"b":null},"b":1}'),
    ("†{state.n} †state.n ††x", "†{state.n} †state.n ††x"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=str)
def test_a_value_is_put_in_as_text_and_never_read_again(value: Any, text: str) -> None:
    assert evaluate(parse_text_template("<†{user.name}>"), {NAME: value}.__getitem__) == f"<{text}>"


@pytest.mark.parametrize("value", [UNKNOWN, [UNKNOWN], UNKNOWN_TEXT])
def test_a_dry_run_knows_of_a_template_that_it_is_a_string(value: Any) -> None:
    assert evaluate(parse_text_template("a †{state.n}"), {N: value}.__getitem__) is UNKNOWN_TEXT


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("††x", "†x"),
        ("a ††{b}", "a †{b}"),
        ("††x ††state.n ††", "†x †state.n ††"),
        ("†state.n", UNKNOWN),
        ("a †{state.n}", UNKNOWN_TEXT),
        ("a †{", UNKNOWN_TEXT),
    ],
)
def test_what_is_known_of_a_planned_string_before_anything_is_read(text: str, value: Any) -> None:
    assert unread_value(text) == value


fragments = st.sampled_from(
    ["†{", "}", "†", "††", "††{", "a", "b.x", "||", "&&", "(", ")", " ", '["k"]', "[0]", "text"]
)
fine = st.sampled_from(["†{a}", "†{†b.x}", "†{a || b.x}", "††{", "†{(a || b) && a}", "text ", "†", "}"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(fragments, max_size=8).map("".join) | st.lists(fine, max_size=6).map("".join),
    st.sampled_from([0, None, ABSENT, {"x": "†{a}"}, "†{b}"]),
    st.sampled_from([1, None, ABSENT, ["††"]]),
)
def test_two_readers_agree_on_templates(text: str, a: Any, b: Any) -> None:
    values = {"a": a, "b": b}

    def value(kind: str, names: tuple[str, ...]) -> Any:
        part = values.get(kind, ABSENT)
        for name in names:
            part = part.get(name, ABSENT) if isinstance(part, dict) else ABSENT
        return part

    def plain(where: tuple[str, ...]) -> Any:
        part = value(where[0], where[1:])
        return oracle.ABSENT if part is ABSENT else part

    if "†{" not in text:
        return
    try:
        expected = oracle.yields(text, plain)
    except oracle.Malformed:
        with pytest.raises(ExpressionError):
            parse_text_template(text)
        return
    result = evaluate(parse_text_template(text), lambda path: value(path.kind, path.names))
    assert (oracle.ABSENT if result is ABSENT else result) == expected
