"""Where a value came from: what it is made of, who wrote that, what they had read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acts.context import END
from acts.origins import (
    ACTIVITY,
    DECISION,
    DELEGATE,
    EDITED,
    ENGINE,
    MODEL,
    PERSON,
    PROVIDED,
    REQUEST,
    UNKNOWN,
    Origin,
    Origins,
    Told,
)
from acts.parts import Parts, shortened, value_of, writers
from acts.provenance import Found, Limits, Source, Trail
from acts.references import Path, parse
from acts.tools import Tool, read_tool
from acts.values import ABSENT
from tests.property.drive import data_message
from tests.unit.test_context import FOLDS, path, written

Json = Any


def tool(name: str, **meta: Json) -> Tool:
    properties = {"_tool": {"const": name}, "_outputPath": {}, "_scopes": {}, "_output": {}, **meta}
    found, problems = read_tool(name, {"type": "object", "properties": properties})
    assert found is not None
    assert problems == []
    return found


TOOLS = {
    "act": tool("act", _activity={"const": "do.it"}),
    "think": tool("think"),
    "ask": tool("ask", _delegate={"const": "helper"}),
    "seer": tool("seer", _activity={"const": "see"}, _scopes={"const": ["†state.secret"]}),
}


def call(name: str, where: str, **more: Json) -> dict[str, Json]:
    return {"_tool": name, "_outputPath": where, **more}


def output(planned: dict[str, Json], value: Json, method: str = "set", **more: Json) -> dict[str, Json]:
    """The message that a Call appends."""
    where = more.pop("at", planned.get("_outputPath"))
    return written(where, value, method, _call=planned, **{"_date": "2026-01-01T00:00:00Z", **more})


def plan(*calls: Json) -> dict[str, Json]:
    return {"type": "plan", "plan": list(calls)}


def trail(messages: list[Json], given: int | None, **more: Any) -> Trail:
    """The trail of a run that was started with the first ``given`` messages."""
    return Trail(told(messages, given, **more))


def told(messages: list[Json], given: int | None, **more: Any) -> Told:
    return Told(messages, TOOLS, None if given is None else messages[:given], **more)


def parts(messages: list[Json]) -> Parts:
    return Parts(data_message(m) if m["type"] != "plan" else m for m in numbered(messages))


def numbered(messages: list[Json]) -> Iterator[Any]:
    """The messages as the log reads them, each with its place."""
    yield from Origins(Told(messages, {}, messages)).by_index.values()


def texts(wrote: list[Path]) -> list[str]:
    return [str(p) for p in wrote]
