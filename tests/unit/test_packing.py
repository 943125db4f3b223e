"""What the children of a batch have in common: short in every history, read again from all of them."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from acts.tree import compression
from acts.tree.batches import opened, slim
from acts.tree.compression import packed, unpacked

Json = Any

TOOL = {"type": "tool", "tool": {"properties": {"_tool": {"const": "echo"}, "_activity": {"const": "echo"}}}}
PLAN = {"type": "plan", "plan": [{"_tool": "echo", "value": "†state.text", "_outputPath": "†state.said"}]}

# Made when this form was new. It stands for all that histories hold: it is never made again.
STORED = "aePntY2C3w6mMQMZITc7Ih5TAWBIFRLIWOanhCn6wUh0lYBEOrgLgaQDsCZwJpjgxMwUccQDFQEOb"


def own(id_: str, text: str) -> Json:
    return {"type": "state", "state": {"text": text}, "_instance": id_}


def handed(*own_: Json, **more: Json) -> Json:
    request = {"config": {"approve": {"plan": False}}, "context": [TOOL, *own_, PLAN]}
    return {"request": request, "instances": ["a"], "source": {"upto": 3}, **more}


@pytest.mark.parametrize("value", [None, 0, "", "†", "\U0001f642", [], {"a": [1.5, True, None]}, "x" * 100_000])
def test_what_is_packed_is_unpacked(value: Json) -> None:
    assert unpacked(packed(value)) == value


def test_what_was_packed_once_is_read_for_ever() -> None:
    assert unpacked(STORED) == [TOOL, PLAN]


def test_a_small_request_becomes_a_sixth() -> None:
    tools = [{"type": "tool", "tool": {
        "description": f"Do the thing {n}", "type": "object", "required": ["id"],
        "properties": {"_tool": {"const": f"do{n}"}, "_activity": {"const": f"things.do{n}"},
                       "_output": {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]},
                       "_outputPath": {"const": f"†state.do{n}"}, "id": {"type": "string"}},
    }} for n in range(5)]  # fmt: skip
    value = {"request": {"context": [*tools, PLAN]}}
    assert len(packed(value)) * 6 < len(json.dumps(value, ensure_ascii=False).encode())


def test_words_known_beforehand_are_worth_it() -> None:
    alone = base64.b64encode(zlib.compress(json.dumps(handed(), separators=(",", ":")).encode(), 9))
    assert len(packed(handed())) < len(alone) * 0.7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with"), ("b123", "begins with"), ("a", "cut off"), ("a%%%", "base64"),
        ("a" + base64.b64encode(b"no zlib").decode(), "cannot be read"),
        ("a" + base64.b64encode(zlib.compress(b"\xff")).decode(), "decode"),
        (packed({"a": 1})[:-8], "cut off"),
    ],
)  # fmt: skip
def test_what_was_not_packed_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpacked(text)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed("0" * 100_000)
    assert len(bomb) < 500
    monkeypatch.setattr(compression, "MAX_UNPACKED", 10_000)
    with pytest.raises(ValueError, match="more than 10,000 bytes"):
        unpacked(bomb)


def test_a_child_is_handed_what_it_would_be_handed_in_full() -> None:
    for given in (handed(own("a", "one")), handed(), handed(own("a", "one"), own("a", "two"), places=[0])):
        assert opened(json.loads(json.dumps(slim(given)))) == given


def test_a_person_reads_what_is_an_instances_own() -> None:
    assert slim(handed(own("a", "one")))["context"] == [own("a", "one")]


def test_messages_that_came_later_keep_their_place() -> None:
    provided = {"type": "input", "input": {"answer": 1}}
    assert opened(slim(handed(own("a", "one"), provided))) == handed(own("a", "one"), provided)


@pytest.mark.parametrize(
    "given",
    [{}, {"shared": "x"}, {"shared": packed(1)}, {"shared": packed({"request": {"context": []}})}, {"shared": 1}],
)
def test_what_no_parent_made_is_refused(given: Json) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each in words of its own
        opened({"instances": [], "context": [], **given})
