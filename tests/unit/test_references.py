"""Expressions: one table drives parsing, rendering and the way back; hostile strings cost no more than their length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import ExpressionError
from acts.language.expression_parser import parse
from acts.language.reference_uses import is_reference, unescape
from acts.language.references import AllOf, AnyOf, Expression, Path, alternatives, evaluate, paths
from acts.language.values import ABSENT
from tests import oracle


def p(*where: str) -> Path:
    return Path(where[0], where[1:])


A, B, C = p("a"), p("b"), p("c")

# text, tree, how it is rendered (None: as it is)
SPELLINGS: list[tuple[str, Expression, str | None]] = [
    ("†state", p("state"), None),
    ("†state.user.name", p("state", "user", "name"), None),
    ("†my-kind_2.x", p("my-kind_2", "x"), None),
    ("†_.x", p("_", "x"), None),
    ("†вход.имя", p("вход", "имя"), None),
    ("†state.list.0", p("state", "list", "0"), None),
    ("†state.list[0]", p("state", "list", "0"), "†state.list.0"),
    ("†state[12][3].x", p("state", "12", "3", "x"), "†state.12.3.x"),
    ("†state[007]", p("state", "7"), "†state.7"),
    ("†state.007", p("state", "007"), None),
    ("†state[999999999]", p("state", "999999999"), "†state.999999999"),
    ('†state["x"]', p("state", "x"), "†state.x"),
    ('†state["a b"].c', p("state", "a b", "c"), None),
    ('†state["a.b"]["[0]"]', p("state", "a.b", "[0]"), None),
    ('†state[""]', p("state", ""), None),
    ('†state["say \\"hi\\""]', p("state", 'say "hi"'), None),
    ('†state["back\\\\slash"]', p("state", "back\\slash"), "†state.back\\slash"),
    ('†state["\\u2020"]', p("state", "†"), "†state.†"),
    ('†state["||"]', p("state", "||"), None),
    ("†state.$ref", p("state", "$ref"), None),
    ("†state.a-b", p("state", "a-b"), None),
    ("†state.a†b", p("state", "a†b"), None),
    ("†state.a/b~c", p("state", "a/b~c"), None),
    ("†a || †b", AnyOf((A, B)), None),
    ("†a||†b||†c", AnyOf((A, B, C)), "†a || †b || †c"),
    ("†a && †b", AllOf((A, B)), None),
    ("†a&&†b&&†c", AllOf((A, B, C)), "†a && †b && †c"),
    ("†a || †b && †c", AnyOf((A, AllOf((B, C)))), None),
    ("†a && †b || †c", AnyOf((AllOf((A, B)), C)), None),
    ("(†a || †b) && †c", AllOf((AnyOf((A, B)), C)), None),
    ("†a && (†b || †c)", AllOf((A, AnyOf((B, C)))), None),
    ("((†a))", A, "†a"),
    (" \t( †a\n||\u00a0†b ) ", AnyOf((A, B)), "†a || †b"),
    ("†a.x  &&\n†b", AllOf((p("a", "x"), B)), "†a.x && †b"),
]


@pytest.mark.parametrize(("text", "tree", "rendered"), SPELLINGS, ids=lambda x: x if isinstance(x, str) else None)
def test_a_spelling_has_its_tree_and_comes_back(text: str, tree: Expression, rendered: str | None) -> None:
    assert parse(text) == tree
    assert str(parse(text)) == (text if rendered is None else rendered)
    assert parse(str(tree)) == tree


# text, column of the first character that cannot be read
MALFORMED = [
    ("†", 2),
    ("††", 2),
    ("††x", 2),
    ("† state", 2),
    ("†.x", 2),
    ("†state.", 8),
    ("†state..x", 8),
    ("†state. x", 8),
    ("†state .x", 8),
    ("†state x", 8),
    ("†state †b", 8),
    ("†state.(x)", 8),
    ('†state."x"', 8),
    ("†state]", 7),
    ("†state[]", 8),
    ("†state[-1]", 8),
    ("†state[1.5]", 8),
    ("†state[ 1]", 8),
    ("†state[x]", 8),
    ("†state['x']", 8),
    ("†state[1", 8),
    ('†state["x', 8),
    ('†state["x"', 11),
    ('†state["x" ]', 11),
    ('†state["\\x"]', 8),
    ("†a |", 4),
    ("†a | †b", 4),
    ("†a || ", 7),
    ("†a ||", 6),
    ("†a & †b", 4),
    ("†a && && †b", 7),
    ("|| †a", 1),
    ("(†a", 4),
    ("(†a || †b", 10),
    ("†a)", 3),
    ("()", 2),
    ("", 1),
    ("state", 1),
    ("†a || b", 7),
    ("†a,†b", 3),
    ("†state\x00", 7),
]


@pytest.mark.parametrize(("text", "column"), MALFORMED)
def test_a_malformed_expression_is_refused_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.column == column
    assert f"(column {column})" in str(caught.value)


HOSTILE = {
    "ten thousand parentheses": "(" * 10_000 + "†a" + ")" * 10_000,
    "ten thousand open parentheses": "(" * 10_000,
    "a huge index": "†a[" + "9" * 10_000 + "]",
    "a bracket never closed": '†a["' + "x" * 10_000,
    "ten thousand alternatives": "†a" + " || †a" * 10_000,
    "doubling": " && ".join(["(†a || †b)"] * 40),
    "a mark and nothing": "†" * 10_000,
    "white space": "†a" + " " * 10_000 + "x",
    "ten thousand names": "†a" + ".b" * 10_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_expression_is_parsed_or_refused(text: str) -> None:
    try:
        tree = parse(text)
        alternatives(tree)
        str(tree)
    except ExpressionError:
        return
    assert len(paths(tree)) <= len(text)


def test_parentheses_are_bounded_and_the_error_says_so() -> None:
    assert parse("(" * 60 + "†a" + ")" * 60) == A
    with pytest.raises(ExpressionError, match="deeper than 64"):
        parse("(" * 100 + "†a" + ")" * 100)


def test_alternatives_are_bounded_and_the_error_says_so() -> None:
    assert len(alternatives(parse(" && ".join(["(†a || †b)"] * 6)))) <= 64
    with pytest.raises(ExpressionError, match="more than 64 alternatives"):
        alternatives(parse(" || ".join(f"†a.x{i}" for i in range(65))))


@pytest.mark.parametrize("escape", ['†state["\\ud800"]', '†state["a\\udfff"].b'])
def test_a_name_that_is_not_unicode_is_refused(escape: str) -> None:
    """It would become a key that nothing can send."""
    with pytest.raises(ExpressionError):
        parse(escape)


def test_an_escaped_pair_is_one_character() -> None:
    assert parse('†state["\\ud83d\\ude00"]') == p("state", "😀")


# -- alternatives ---------------------------------------------------------------------

DISTRIBUTED = [
    ("†a", [[A]]),
    ("†a && †b", [[A, B]]),
    ("†a || †b", [[A], [B]]),
    ("(†a || †b) && †c", [[A, C], [B, C]]),
    ("†a && †a", [[A]]),
    ("†a && (†b || †c && †a)", [[A, B], [A, C]]),
    ("(†a || †b) && (†b || †c)", [[A, B], [A, C], [B], [B, C]]),
    ("†a || (†b || †c)", [[A], [B], [C]]),
]


@pytest.mark.parametrize(("text", "expected"), DISTRIBUTED)
def test_parentheses_are_distributed_into_alternatives_of_conjunctions(text: str, expected: list[list[Path]]) -> None:
    assert [list(option) for option in alternatives(parse(text))] == expected


# -- what an expression yields -----------------------------------------------------------

# a and b are what the paths yield; then a || b, and a && b
YIELDS = [
    (1, 2, 1, 2),
    (0, 2, 0, 2),
    (False, 2, False, 2),
    ("", 2, "", 2),
    ([], {}, [], {}),
    (None, 2, 2, None),
    (1, None, 1, None),
    (None, None, None, None),
    (ABSENT, 2, 2, ABSENT),
    (1, ABSENT, 1, ABSENT),
    (ABSENT, None, None, ABSENT),
    (None, ABSENT, None, ABSENT),
    (ABSENT, ABSENT, ABSENT, ABSENT),
]


@pytest.mark.parametrize(("a", "b", "either", "both"), YIELDS)
def test_the_three_valued_tables(a: Any, b: Any, either: Any, both: Any) -> None:
    values = {A: a, B: b}
    for text, expected in (("†a", a), ("†a || †b", either), ("†a && †b", both)):
        result = evaluate(parse(text), values.__getitem__)
        assert type(result) is type(expected)  # False is not 0
        assert result == expected


def test_a_longer_choice_takes_the_first_value_and_a_longer_conjunction_the_last() -> None:
    values = {A: None, B: ABSENT, C: 3}
    assert evaluate(parse("†a || †b || †c"), values.__getitem__) == 3
    assert evaluate(parse("†c && †c && †a"), values.__getitem__) is None
    assert evaluate(parse("(†b || †a) && †c"), values.__getitem__) is None
    assert evaluate(parse("†b && †c || †c"), values.__getitem__) == 3


# -- literals and references -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reference", "plain"),
    [
        ("†x", True, None),
        ("†", True, None),
        ("††x", False, "†x"),
        ("†††x", False, "††x"),
        ("x†y", False, "x†y"),
        (" †x", False, " †x"),
        ("(†x)", False, "(†x)"),
        ("", False, ""),
    ],
)
def test_what_begins_with_one_mark_is_a_reference(text: str, reference: bool, plain: str | None) -> None:  # noqa: FBT001
    assert is_reference(text) is reference
    assert plain is None or unescape(text) == plain


# -- against another reader -----------------------------------------------------------------

fragments = st.sampled_from(
    [
        "†",
        "††",
        "a",
        "state",
        ".",
        "..",
        ".x",
        ".0",
        "[0]",
        "[",
        "]",
        '["k"]',
        '["',
        '"]',
        "||",
        "|",
        "&&",
        "&",
        "(",
        ")",
        " ",
    ]
)
fine = st.sampled_from(["†a", "†b.x", "†c[0]", '†d["k k"]', "(†a || †b)", "(†a)", " || ", " && ", "||", "&&", " "])


def plainly(tree: Expression) -> Any:
    match tree:
        case Path(kind, names):
            return ("path", (kind, *names))
        case AnyOf(terms):
            return ("or", [plainly(t) for t in terms])
        case AllOf(terms):
            return ("and", [plainly(t) for t in terms])


@settings(max_examples=200, deadline=None)
@given(st.lists(fragments, max_size=8).map("".join) | st.lists(fine, max_size=9).map("".join))
def test_two_readers_agree_on_what_is_an_expression(text: str) -> None:
    try:
        expected = oracle.parse(text)
    except oracle.Malformed:
        with pytest.raises(ExpressionError):
            parse(text)
        return
    tree = parse(text)
    assert plainly(tree) == expected
    assert [[(q.kind, *q.names) for q in option] for option in alternatives(tree)] == oracle.alternatives(expected)
    again = parse(str(tree))  # without the parentheses that make no difference
    assert str(again) == str(tree)
    assert alternatives(again) == alternatives(tree)


names = st.text(min_size=1, max_size=4).filter(lambda n: n.encode("utf-8", "replace").decode() == n)


@settings(max_examples=200, deadline=None)
@given(st.lists(names, max_size=3))
def test_any_name_can_be_written_and_read_again(parts: list[str]) -> None:
    path = Path("state", tuple(parts))
    assert parse(str(path)) == path


def test_overlap_is_being_a_prefix() -> None:
    whole, part, other = p("state", "a"), p("state", "a", "b"), p("state", "ab")
    assert whole.overlaps(part)
    assert part.overlaps(whole)
    assert whole.holds(part)
    assert not part.holds(whole)
    assert not whole.overlaps(other)
    assert not p("state").overlaps(p("input"))
    assert p("state").overlaps(other)
