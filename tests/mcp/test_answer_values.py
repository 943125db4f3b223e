"""What a tool answered, as a value or a failure."""

from __future__ import annotations

from typing import Any

import pytest

from acts.activities.mcp.server_tools import read_answer
from acts.language.values import Json


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "annotations": {"priority": 1}}


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
BLOB = {"type": "resource", "resource": {"uri": "a:b", "blob": "aGk=", "mimeType": "image/png", "_meta": {"x": 1}}}
WORDS = {"type": "resource", "resource": {"uri": "a:c", "text": "hi"}}
LINK = {"type": "resource_link", "uri": "a:d", "name": "d", "icons": []}

CASES: list[tuple[str, dict[str, Any], Json]] = [
    ("one text", {"content": [text("hi")]}, "hi"),
    ("structure", {"content": [text("{}")], "structuredContent": {"a": 1}}, {"a": 1}),
    ("null is a structure", {"content": [text("x")], "structuredContent": None}, None),
    ("an image", {"content": [IMAGE]}, [IMAGE]),
    ("a mix", {"content": [text("a"), IMAGE]}, [{"type": "text", "text": "a"}, IMAGE]),
    ("a blob", {"content": [BLOB]}, [{"type": "resource", "uri": "a:b", "mimeType": "image/png", "data": "aGk="}]),
    ("a link", {"content": [LINK]}, [{"type": "resource_link", "uri": "a:d", "name": "d"}]),
]


@pytest.mark.parametrize(("answer", "value"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_an_answer_is_a_value(answer: dict[str, Any], value: Json) -> None:
    assert read_answer(answer) == (value, "")
    details, message = read_answer({**answer, "isError": True})
    assert details == value
    assert message.strip()


def test_a_failure_says_what_the_tool_says_and_no_more_than_fits() -> None:
    _, message = read_answer({"content": [text("no"), IMAGE, text("disk " * 10_000)], "isError": True})
    assert message.startswith("no\ndisk ")
    assert len(message) <= 10_000
