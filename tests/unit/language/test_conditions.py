"""Conditions: comparisons, negation and JSON literals beside paths; one table for what holds when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import ExpressionError
from acts.language.references import (
    Expression,
    Literal,
    Operation,
    Path,
    ReferenceUse,
    holds,
    is_provided,
    parse_condition,
    paths,
)
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT
from tests import oracle

A, B, C = Path("a"), Path("b"), Path("c")


def op(sign: str, *terms: Expression) -> Operation:
    return Operation(sign, terms)


SPELLINGS: list[tuple[str, Expression]] = [
    ("†a", A),
    ("!†a", op("!", A)),
    ("!!†a", op("!", op("!", A))),
    ("†a == 1", op("==", A, Literal("1"))),
    ("†a==1", op("==", A, Literal("1"))),
    ("†a.x>=0.8", op(">=", Path("a", ("x",)), Literal("0.8"))),
    ("1 < †a", op("<", Literal("1"), A)),
    ('†a != "†b"', op("!=", A, Literal('"†b"'))),
    ("†a == null", op("==", A, Literal("null"))),
    ("†a == [ ]", op("==", A, Literal("[]"))),
    ('†a == {"k": [1, true]}', op("==", A, Literal('{"k":[1,true]}'))),
    ("†a <= -1.5e3", op("<=", A, Literal("-1500.0"))),
    ("true", Literal("true")),
    ("†a >= 1 && !†b", op("&&", op(">=", A, Literal("1")), op("!", B))),
    ("†a == 1 || †b == 2 && †c", op("||", op("==", A, Literal("1")), op("&&", op("==", B, Literal("2")), C))),
    ("!(†a || †b)", op("!", op("||", A, B))),
    ("!†a == false", op("!", op("==", A, Literal("false")))),
    ("!!†a == false", op("!", op("!", op("==", A, Literal("false"))))),
    ("(!†a) == false", op("==", op("!", A), Literal("false"))),
    ("†a == !†b", op("==", A, op("!", B))),
    ("(†a || †b) == †c", op("==", op("||", A, B), C)),
    ('†a["x=1"] == 1', op("==", Path("a", ("x=1",)), Literal("1"))),
    ("†a.is-open", Path("a", ("is-open",))),
]


@pytest.mark.parametrize(("text", "tree"), SPELLINGS, ids=lambda x: x if isinstance(x, str) else None)
def test_a_spelling_has_its_tree_and_comes_back(text: str, tree: Expression) -> None:
    assert parse_condition(text) == tree
    assert str(parse_condition(str(tree))) == str(tree)


# text, column, a word of the message
MALFORMED = [
    ("", 1, "expected a path like †state.name, found the end"),
    ("state.x > 1", 1, "expected a path"),
    ("†a = 1", 4, "equality is =="),
    ("†a === 1", 6, "expected a path"),
    ("†a < 1 < 2", 8, "two sides"),
    ("†a ==", 6, "found the end"),
    ('†a == "x', 7, "JSON"),
    ("†a == [1", 7, "JSON"),
    ("†a == 01", 8, "unexpected"),
    ("†a == 1e999", 7, "JSON"),
    ("†a == nullx", 7, "found 'n'"),
    ("!", 2, "found the end"),
    ("†a !", 4, "unexpected '!'"),
    ("(†a == 1", 9, "parenthesis"),
    ("†{a} == 1", 2, "kind"),
    ('†a == "\\ud800"', 7, "surrogate"),
]


@pytest.mark.parametrize(("text", "column", "words"), MALFORMED)
def test_a_malformed_condition_is_refused_with_its_column(text: str, column: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_condition(text)
    assert words in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "a", "expected"),
    [
        ("†a", UNKNOWN, UNKNOWN),
        ("!†a", UNKNOWN, UNKNOWN),
        ("†a == 1", UNKNOWN, UNKNOWN),
        ("†a == null", UNKNOWN, UNKNOWN),
        ("†a == [1]", [UNKNOWN], UNKNOWN),
        ('†a == "x"', UNKNOWN_TEXT, UNKNOWN),
        ("†a && false", UNKNOWN, False),
        ("†a || true", UNKNOWN, True),
        ("†a && true", UNKNOWN, UNKNOWN),
        ("†a", UNKNOWN_TEXT, True),
        ("†a", {"x": UNKNOWN}, True),
    ],
)
def test_a_dry_run_says_only_what_is_certain(text: str, a: Any, expected: Any) -> None:
    assert holds(parse_condition(text), {A: a}.__getitem__) is expected


@pytest.mark.parametrize(
    ("text", "provided", "without_b", "needed"),
    [
        ("†a && !†b", "ab", False, ["†a"]),
        ("†a == null", "a", True, []),
        ("†a >= †b", "ab", False, ["†a", "†b"]),
        ("†a || !†b", "ab", True, []),
        ("(†a || †b) && †c", "abc", True, ["(†a || †b) && †c"]),
        ("(†a || !†b) && †c", "abc", True, ["†c"]),
        ("true", "", True, []),
    ],
)
def test_what_a_condition_reads_and_cannot_do_without(
    text: str,
    provided: str,
    without_b: bool,  # noqa: FBT001
    needed: list[str],
) -> None:
    tree = parse_condition(text)
    assert sorted({p.kind for p in paths(tree)}) == list(provided)
    assert is_provided(tree, lambda path: path != B) is without_b
    assert [str(t) for t in ReferenceUse.of((), text, tree).needed_expressions] == needed


values = st.sampled_from([ABSENT, None, False, True, 0, 1, 1.0, 2, "", "a", "b", [], [1], {"x": 1}])
sides = st.sampled_from(
    ["†a", "†b", "†a.x", "1", "0", "null", "false", "true", '"a"', "[]", "(†a || †b)", "!†a", "(†a == 1)"]
)
comparisons = st.tuples(sides, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), sides).map(" ".join)
terms = st.one_of(sides, comparisons, comparisons.map(lambda c: f"!({c})"))
conditions = st.lists(terms, min_size=1, max_size=3).flatmap(
    lambda parts: st.lists(st.sampled_from([" && ", "||"]), min_size=len(parts), max_size=len(parts)).map(
        lambda signs: "".join(p + s for p, s in zip(parts, [*signs[1:], ""], strict=True))
    )
)


@settings(max_examples=400, deadline=None)
@given(conditions, values, values)
def test_two_readers_agree_on_conditions(text: str, a: Any, b: Any) -> None:
    known = {"a": a, "b": b}

    def read(kind: str, names: tuple[str, ...]) -> Any:
        part = known[kind]
        return part if not names else part.get("x", ABSENT) if isinstance(part, dict) else ABSENT

    def read_plainly(where: tuple[str, ...]) -> Any:
        part = read(where[0], where[1:])
        return oracle.ABSENT if part is ABSENT else part

    expected = oracle.holds(oracle.parse_condition(text), read_plainly)
    tree = parse_condition(text)
    assert holds(tree, lambda path: read(path.kind, path.names)) is expected
    assert str(parse_condition(str(tree))) == str(tree)
