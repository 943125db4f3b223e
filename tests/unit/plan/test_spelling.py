"""Typos speak: each is named with the right spelling; and ``<+>`` is ``†`` in files, where ``†`` would count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts.activities.registry import load
from acts.cli.text.source import parse_source
from acts.delegates.definitions import read_definition
from acts.language.spelling import read_plain
from acts.plan.validate import validate, validate_request
from acts.simulation.type_flow import find_type_problems
from tests.cases import tool

INPUT = {"type": "input", "input": {"email": "ann@example.com", "n": 1}}
PERSON = {"type": "object", "properties": {"email": {"type": "string"}}}
GET = {
    "_tool": {"const": "get"}, "_activity": {"const": "get"}, "_outputPath": {"type": "string"},
    "_output": {"properties": {"who": PERSON, "all": {"type": "array", "items": PERSON}}},
}  # fmt: skip
SEND = {**tool("send")["properties"], "to": {"type": "string"}, "any": {}, "n": {"type": "number"}}
SENT = {"type": "tool", "tool": {"get": {"properties": GET}, "send": {"properties": SEND}}}


def advice(**parts: Any) -> list[tuple[str, str | None]]:
    """The code and the hint of each problem of a Call ``send`` with these parts, after a Call that wrote a person."""
    plan = [{"_tool": "get", "_outputPath": "†state.g"}, {"_tool": "send", "_outputPath": "†state.sent", **parts}]
    raw = {"context": [SENT, INPUT, {"type": "plan", "plan": plan}]}
    problems = validate(raw)
    if not any(p.fatal for p in problems):
        problems += [found.problem for found in find_type_problems(validate_request(raw))]
    return [(p.code, p.hint) for p in problems]


def meant(right: str) -> str:
    return f'did you mean "{right}"?'


TYPOS: list[tuple[dict[str, Any], str, str]] = [
    # a reference as other systems write it, in a parameter
    ({"to": "input.email"}, "plainReference", meant("†input.email")),
    ({"to": "{{ input.email }}"}, "plainReference", meant("†input.email")),
    ({"to": "${input.email}"}, "plainReference", meant("†input.email")),
    ({"to": "$.input.email"}, "plainReference", meant("†input.email")),
    ({"to": "Dear {{input.email}}!"}, "plainReference", meant("Dear †{input.email}!")),
    ({"to": "†{input.n} ${state.g.who}"}, "plainReference", meant("†{input.n} †{state.g.who}")),
    ({"any": ["state.g"]}, "plainReference", meant("†state.g")),
    ({"_each": [1], "to": "item.name"}, "plainReference", meant("†item.name")),
    # … and in an expression
    ({"_outputPath": "state.x"}, "invalidExpression", meant("†state.x")),
    ({"_outputPath": "x"}, "invalidExpression", meant("†state.x")),
    ({"_outputPath": "{{ state.a }} || state.b"}, "invalidExpression", meant("†state.a || †state.b")),
    ({"_errorPath": "$state.x"}, "invalidExpression", meant("†state.x")),
    ({"_when": "not input.n and state.g.who"}, "invalidExpression", meant("!†input.n && †state.g.who")),
    ({"_when": 'input.n = 3 or input.to == "a.b"'}, "invalidExpression", meant('†input.n == 3 || †input.to == "a.b"')),
    # names
    ({"_outputpath": "†input.n"}, "forbiddenMeta", meant("_outputPath")),
    ({"_tool": "sent"}, "unknownTool", meant("send")),
    ({"too": "x"}, "undeclaredParameter", meant("to")),
    ({"any": "†inputs.n"}, "unknownReference", 'did you mean "†input"?'),
    # paths that an _output does not have
    ({"any": "†state.g.who.emial"}, "undeclaredPath", meant("†state.g.who.email")),
    ({"to": "Dear †{state.g.hwo.email}"}, "undeclaredPath", meant("†state.g.who.email")),
    ({"_when": "†state.g.who.mail == null"}, "undeclaredPath", meant("†state.g.who.email")),
    ({"_each": "†state.g.all", "to": "†item.eMail"}, "undeclaredPath", meant("†item.email")),
    ({"any": "†state.g.all.email"}, "cannotFit", '†state.g.all is a list: "†state.g.all.0.email" is of its first'),
    # types, of Tools that do not say that they are objects
    ({"n": "†state.g.who.email"}, "cannotFit", "read another path"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "code", "hint"), TYPOS, ids=lambda part: json.dumps(part, ensure_ascii=False)[:60])
def test_a_typo_is_named_with_the_right_spelling(parts: dict[str, Any], code: str, hint: str) -> None:
    assert any(found == code and (text or "").startswith(hint) for found, text in advice(**parts)), advice(**parts)


@pytest.mark.parametrize(
    "text",
    ["input.csv", "input.changed", "state.up", "{{ name }}", "{{ user.name }}", "a.b", "††input.email", "†input.email"],
)  # fmt: skip
def test_what_is_text_in_all_likelihood_is_no_typo(text: str) -> None:
    assert advice(any=text) == []


# What stands in a file, and what becomes of it
SPELLINGS: list[tuple[Any, Any]] = [
    ("<+>state.x", "†state.x"),
    ("<+>state.a || <+>state.b", "†state.a || †state.b"),
    ("(<+>a.b || <+>c.d) && <+>e.f", "(†a.b || †c.d) && †e.f"),
    ("Dear <+>{user.name}, <+>{<+>state.n} left", "Dear †{user.name}, †{†state.n} left"),
    ("<+><+>state.x", "††state.x"),
    ("<+><+>{x", "††{x"),
    ({"_when": '"a" == <+>state.x && !<+>state.y'}, {"_when": '"a" == †state.x && !†state.y'}),
    ([{"a": ["<+>item"]}], [{"a": ["†item"]}]),
    # similar text
    ("a <+> b", "a <+> b"),
    ("parser = letter <+>digits", "parser = letter <+>digits"),
    ("<+>", "<+>"),
    ("<+> state.x", "<+> state.x"),
    ({"<+>state.x": 1}, {"<+>state.x": 1}),
]


@pytest.mark.parametrize(("text", "value"), SPELLINGS, ids=str)
def test_the_plain_spelling_counts_where_the_mark_would(text: Any, value: Any) -> None:
    assert read_plain(json.loads(json.dumps(text))) == value


def test_the_files_of_tools_and_definitions_may_have_it_too(tmp_path: Path) -> None:
    schema = '{"note": {"properties": {"_activity": "x", "_outputPath": {"const": "<+>state.n"}}}}'
    (tmp_path / "note.json").write_text(schema, "utf-8")
    tools = load([], [tmp_path]).tools
    assert tools["note"]["properties"]["_outputPath"] == {"const": "†state.n"}
    definition = read_definition(b'{"context": [{"type": "plan", "plan": [{"_tool": "a", "x": "<+>input.x"}]}]}', "d")
    assert definition["context"][0]["plan"][0]["x"] == "†input.x"


def test_files_may_have_the_plain_spelling_and_errors_still_name_their_lines() -> None:
    text = "plan:\n- _tool: send\n  to: <+>input.email\n  _outputPath: <+>state.sent || <+>state.error\n"
    for source in (parse_source("p", text, "YAML"), parse_source("p", '{"plan": [{"to": "<+>input.email"}]}', "JSON")):
        assert source.value["plan"][0]["to"] == "†input.email"
    assert parse_source("p", text, "YAML").where("/plan/0/to") == "p:3"
