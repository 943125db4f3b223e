"""The rows that drive the pure walk, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import oracle
from tests.cases import ROWS, Row
from tests.workflow.foreign import Foreign, states
from tests.workflow.scripted import Script, Stage

Json = Any

# Rows with instances, or with a thought that only a model can answer, need what ``Plan`` hands to other workflows
PLAIN = [r for r in ROWS if not oracle.instances_of(r["request"]) and "think" not in str(r["expect"].get("started"))]


@pytest.fixture
async def stage(foreign: Foreign) -> AsyncIterator[Stage]:
    async with Stage(foreign).open() as opened:
        yield opened


@pytest.mark.parametrize("row", PLAIN, ids=lambda r: r["name"])
async def test_a_row_comes_to_what_it_says(stage: Stage, row: Row) -> None:
    expect, script = row["expect"], Script(row["results"])
    result, handle = await stage.play(row["request"], script)
    assert result["status"] == expect["status"]
    if "states" in expect:
        assert states(result) == expect["states"]
    assert {c["id"]: c["error"]["code"] for c in result["calls"] if "error" in c} == expect["errors"]
    if "state" in expect:
        assert result["state"] == expect["state"]
        found = await handle.query("context", {"path": "†state"})
        assert found.get("value", {}) == expect["state"]
    if "written" in expect:
        assert [written(m) for m in result["context"]] == expect["written"]
    for id_, parameters in expect.get("started", {}).items():
        assert script.started[id_][0] == parameters
    for id_, context in expect.get("sees", {}).items():
        assert script.started[id_][1] == context
    assert len(set(script.identities)) == len(script.identities)


def written(message: dict[str, Json]) -> list[Json]:
    """``[path, method, value, instance]`` of an appended message."""
    value: Json = message[message["type"]]
    _, where = oracle.parse(message["_outputPath"])
    for name in where[1:]:
        value = value[name]
    return [message["_outputPath"], message["_outputMethod"], value, message.get("_instance")]
