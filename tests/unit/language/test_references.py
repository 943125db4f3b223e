"""Expressions: one table drives parsing, rendering and the way back; where they are in JSON, and what they yield."""

from __future__ import annotations

import copy
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
    Projection,
    ReferenceUse,
    Step,
    alternatives,
    escape_literal,
    evaluate,
    is_provided,
    is_reference,
    may_yield,
    parse,
    parse_marked,
    parse_output,
    resolve_references,
    scan,
    scan_marked,
    unread_value,
)
from acts.language.values import ABSENT, get
from tests import oracle


def p(*where: str) -> Path:
    return Path(where[0], where[1:])


A, B, C = p("a"), p("b"), p("c")

# text, tree, how it is rendered (None: as it is)
SPELLINGS: list[tuple[str, Expression, str | None]] = [
    ("†state", p("state"), None),
    ("†state.user.name", p("state", "user", "name"), None),
    ("†my-kind_2.x", p("my-kind_2", "x"), None),
    ("†вход.имя", p("вход", "имя"), None),
    ("†state.list.0", p("state", "list", "0"), None),
    ("†state.list[0]", p("state", "list", "0"), "†state.list.0"),
    ("†state[007]", p("state", "7"), "†state.7"),
    ("†state[999999999]", p("state", "999999999"), "†state.999999999"),
    ('†state["a b"].c', p("state", "a b", "c"), None),
    ('†state["a.b"]["[0]"]', p("state", "a.b", "[0]"), None),
    ('†state[""]', p("state", ""), None),
    ('†state["say \\"hi\\""]', p("state", 'say "hi"'), None),
    ('†state["back\\\\slash"]', p("state", "back\\slash"), "†state.back\\slash"),
    ('†state["\\u2020"]', p("state", "†"), "†state.†"),
    ("†state.$ref", p("state", "$ref"), None),
    ("†state.a†b", p("state", "a†b"), None),
    ("†state.a/b~c", p("state", "a/b~c"), None),
    ("†a || †b", Operation("||", (A, B)), None),
    ("†a && †b", Operation("&&", (A, B)), None),
    ("†a || †b && †c", Operation("||", (A, Operation("&&", (B, C)))), None),
    ("†a && †b || †c", Operation("||", (Operation("&&", (A, B)), C)), None),
    ("(†a || †b) && †c", Operation("&&", (Operation("||", (A, B)), C)), None),
    ("†a && (†b || †c)", Operation("&&", (A, Operation("||", (B, C)))), None),
    ("((†a))", A, "†a"),
    (" \t( †a\n||\u00a0†b ) ", Operation("||", (A, B)), "†a || †b"),
    ("†a.x  &&\n†b", Operation("&&", (p("a", "x"), B)), "†a.x && †b"),
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
    ("† state", 2),
    ("†.x", 2),
    ("†state.", 8),
    ("†state..x", 8),
    ("†state .x", 8),
    ("†state x", 8),
    ('†state."x"', 8),
    ("†state]", 7),
    ("†state[]", 8),
    ("†state[-1]", 8),
    ("†state[x]", 8),
    ("†state['x']", 8),
    ("†state[1", 8),
    ('†state["x', 8),
    ('†state["x"', 11),
    ('†state["\\x"]', 8),
    ("†a |", 4),
    ("†a ||", 6),
    ("†a && && †b", 7),
    ("|| †a", 1),
    ("(†a", 4),
    ("(†a || †b", 10),
    ("†a)", 3),
    ("", 1),
    ("state", 1),
    ("†a || b", 7),
    ("†state\x00", 7),
]


@pytest.mark.parametrize(("text", "column"), MALFORMED)
def test_a_malformed_expression_is_refused_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.column == column
    assert f"(column {column})" in str(caught.value)


def test_parentheses_are_bounded_and_the_error_says_so() -> None:
    assert parse("(" * 60 + "†a" + ")" * 60) == A
    with pytest.raises(ExpressionError, match="deeper than 64"):
        parse("(" * 100 + "†a" + ")" * 100)


def test_alternatives_are_bounded_and_the_error_says_so() -> None:
    assert len(alternatives(parse(" && ".join(["(†a || †b)"] * 6)))) <= 64
    with pytest.raises(ExpressionError, match="more than 64 alternatives"):
        alternatives(parse(" || ".join(f"†a.x{i}" for i in range(65))))


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
    assert plain is None or unread_value(text) == plain


fragments = st.sampled_from(
    ["†", "††", "a", "state", ".", "..", ".x", ".0", "[0]", "[", "]", '["k"]', '["', '"]', "||", "|", "&&", "&", "(",
     "==", "!", " ? ", " : ", "null", "[*]", "[†index]"]
)  # fmt: skip
fine = st.sampled_from(
    ["†a", "†b.x", "†c[0]", '†d["k k"]', "(†a || †b)", "(†a)", " || ", " && ", "||", "&&", " ", "†a[*].k", "†b[†index]",
     " == ", " < ", "!", " ? ", " : ", "1", '"†"', "null", "(†a == 1 ? †b : †c)"]
)  # fmt: skip


def plainly(tree: Expression) -> Any:
    match tree:
        case Path(kind, names):
            return ("path", (kind, *names))
        case Projection(source, steps):
            names = [[step.value[1:-1]] if isinstance(step, Step) else step for step in steps]
            return ("part", ((source.kind, *source.names), names))
        case Literal():
            return ("json", tree.value)
        case Operation(sign, terms):
            words = {"||": "or", "&&": "and", "!": "not", "?:": "choice"}
            return (words.get(sign, sign), [plainly(t) for t in terms])


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


ORDERS = [{"id": 1, "at": {"city": "Oslo"}, "rows": [{"n": 1}, {"n": 2}]}, {"id": 2}, 3]
CONTEXT: dict[str, Any] = {
    "n": 5, "zero": 0, "no": False, "nil": None, "list": [], "orders": ORDERS, "box": {"length": 7}, "index": 1,
}  # fmt: skip
# what is written, what it yields
VALUES: list[tuple[str, Any]] = [
    ('†x.missing || "none"', "none"),
    ('†x.nil || "none"', "none"),
    ('†x.zero || "none"', 0),
    ("†x.missing || null", None),
    ("†x.n >= 0.8", True),
    ("†x.n == 5.0", True),
    ("†x.missing == null", True),
    ("†x.missing != null", False),
    ("†x.missing < 1", False),
    ('†x.n > 3 ? "many" : "few"', "many"),
    ('†x.no ? "yes" : "no"', "no"),
    ('†x.list ? "holds" : "not"', "holds"),
    ('†x.missing == null && †x.n ? †x.n : "x"', 5),
    ("†x.n > 9 ? 1 : †x.n > 3 ? 2 : 3", 2),
    ("†x.no ? 1 : †x.missing", ABSENT),
    ("†x.n == 1 || †x.zero", 0),  # conditions are joined as a condition is: what does not hold is no value
    ("†x.n == 1 && †x.zero", False),
    ("†x.n == 1 || †x.no", False),
    ("†x.n == 5 && (†x.no || †x.zero)", 0),
    ("†x.no || †x.zero", False),
    ("†x.no && †x.zero", 0),
    ("†x.n == 1 && †x.missing", ABSENT),
    ("†x.n == (†x.n == 1 || †x.n)", True),
    ("†x.orders[*].id", [1, 2, None]),
    ("†x.orders[*].at.city", ["Oslo", None, None]),
    ("†x.orders[*].rows[*].n", [[1, 2], None, None]),
    ("†x.orders[*].rows.length", [2, None, None]),
    ("†x.orders[*].id.length", [None, None, None]),
    ("†x.n[*]", ABSENT),
    ("†x.nil[*]", ABSENT),
    ("†x.list[*].id", []),
    ("†x.orders.length", 3),
    ("†x.list.length", 0),
    ("†x.box.length", 7),
    ("†x.n.length", ABSENT),
    ("†x.orders[*].id.length ? 1 : 2", 1),
    ("†x.orders[†index].id", 2),
    ('†x.orders[†index].at.city || "nowhere"', "nowhere"),
    ('†{x.n > 3 ? "many" : "few"} of †{x.orders.length}', "many of 3"),
    ('†{x.missing || "none"}, †{x.n == 5}, †{1.5}, †{null}', "none, true, 1.5, "),
    ("†{x.orders[*].id}", "[1,2,null]"),
]


def read_context(path: Path) -> Any:
    return get({"x": CONTEXT, "index": 1}, (path.kind, *path.names))


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=lambda x: x if isinstance(x, str) else None)
def test_a_value_compares_and_chooses(text: str, expected: Any) -> None:
    assert evaluate(parse_marked(text), read_context) == expected


@pytest.mark.parametrize(("text", "expected"), VALUES, ids=lambda x: x if isinstance(x, str) else None)
def test_another_reader_finds_the_same(text: str, expected: Any) -> None:
    def read(where: tuple[str, ...]) -> Any:
        value = read_context(Path(where[0], where[1:]))
        return oracle.ABSENT if value is ABSENT else value

    assert oracle.yields(text, read) == (oracle.ABSENT if expected is ABSENT else expected)


def test_what_is_not_chosen_need_not_be_there() -> None:
    tree = parse("†a ? †b : †c")
    assert is_provided(tree, {A, B}.__contains__)
    assert is_provided(tree, {A, C}.__contains__)
    assert not is_provided(tree, {B, C}.__contains__)
    assert may_yield(parse("†a != null"), lambda _: False)
    assert not may_yield(parse("†a && †b != null"), lambda _: False)


@pytest.mark.parametrize("text", ["†a == 1", '†a || "x"', "†a[*].b", "†a ? †b : †c", "!†a", "1"])
def test_an_output_path_is_made_of_paths(text: str) -> None:
    with pytest.raises(ExpressionError, match="output path"):
        parse_output(text)


def resolve(value: Any, values: dict[Path, Any]) -> tuple[Any, list[ReferenceUse]]:
    uses = [ReferenceUse.of(at, text, parse_marked(text)) for at, text in scan_marked(value)]
    return resolve_references(value, uses, values.__getitem__)


def test_expressions_are_found_at_any_depth_and_keys_are_left_alone() -> None:
    value = {"a": ["†a", {"†key": "†b"}], "c": "††c", "n": 1}
    assert list(scan(value)) == [(("a", 0), "†a"), (("a", 1, "†key"), "†b")]
    assert list(scan_marked(value, "x"))[-1] == (("x", "c"), "††c")
    assert any(scan(value))
    assert not any(scan({"†a": ["††a", 1]}))


def test_expressions_resolve_at_any_depth_and_escapes_lose_a_mark() -> None:
    value = {"a": ["†a", {"†key": "†b || †a"}], "c": "††c", "n": 1, "same": {"x": [1]}}
    before = copy.deepcopy(value)
    values = {A: "†b", B: {"x": "††"}}
    result, missing = resolve(value, values)
    assert result == {"a": ["†b", {"†key": {"x": "††"}}], "c": "†c", "n": 1, "same": {"x": [1]}}
    assert missing == []
    assert value == before
    assert result["same"] is value["same"]  # what holds no expression is not copied


def test_what_is_absent_is_returned_and_the_rest_still_resolves() -> None:
    value = {"x": "†a", "y": "†b", "z": ["†a && †b"]}
    values = {A: ABSENT, B: 2}
    result, missing = resolve(value, values)
    assert result == {**value, "y": 2}
    assert [(use.at, use.text, use.paths) for use in missing] == [(("x",), "†a", (A,)), (("z", 0), "†a && †b", (A, B))]


leaves = st.sampled_from(
    ["†a", "†b", "†a || †b", "†a && †b", "††a", "†††", "text", 1, None, "†{a}, †{a || †b}!", "5† ††{a}", "††x†{b}"]
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "†a", "0"]), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.text("†{}x. -", max_size=12))
def test_a_literal_is_read_as_it_is(text: str) -> None:
    assert unread_value(escape_literal(text)) == text


@given(trees, st.sampled_from([0, None, ABSENT, {"x": "†b"}]), st.sampled_from([1, None, ABSENT, ["††"]]))
def test_two_resolvers_agree(value: Any, a: Any, b: Any) -> None:
    values = {A: a, B: b}
    result, missing = resolve(value, values)

    def read(where: tuple[str, ...]) -> Any:
        part = values[Path(where[0], where[1:])]
        return oracle.ABSENT if part is ABSENT else part

    try:
        expected = oracle.resolve(value, read)
    except KeyError:
        assert missing
        return
    assert (result, missing) == (expected, [])
