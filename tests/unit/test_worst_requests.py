"""Requests that are heavy for their size end readably, within the steps that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.language.strict_json import json_size
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.machines.commands import StartCall
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from acts.views.results import failure_text
from tests.fuzz.worst_requests import WORST

Json = Any


@pytest.mark.parametrize("name", WORST)
def test_a_heavy_request_ends_with_what_was_too_much(name: str) -> None:
    make, type_, expected = WORST[name]
    request = make()
    assert json_size(request) < MAX_PAYLOAD_BYTES
    if type_ == "InvalidRequest":
        with pytest.raises(InvalidRequest) as refused:
            validate_request(request, {}, ("t",))
        assert expected in str(refused.value)
        return
    walk = Walk(validate_request(request, {}, ("t",)), lambda node: node.id)
    walk.begin("2026-01-01T00:00:00.000Z")
    assert expected in failure_text(walk)


def test_thousands_of_pushes_and_then_reads_of_what_is_not_there() -> None:
    """Each reader knows from counts that no writer brings it: it does not look at all of them."""
    tool = {"type": "object", "properties": {"x": {}, "_outputPath": {}, "_outputMethod": {}}, "_activity": "t"}
    pushes = [{"_tool": "t", "x": 1, "_outputPath": "†state.l", "_outputMethod": "push"}] * 3_000
    reads = [{"_tool": "t", "x": f"†state.l[{5_000 + i}]", "_outputPath": f"†state.r{i}"} for i in range(3_000)]
    context = [{"type": "state", "state": {"l": []}}, {"type": "tool", "tool": {"t": tool}}]
    request = {"config": {"maxParallel": 2_000}, "context": [*context, {"type": "plan", "plan": [*pushes, *reads]}]}
    walk = Walk(validate_request(request, {}, ("t",)), lambda node: node.id)
    started = walk.begin("")
    while started:
        command = started.pop()
        if isinstance(command, StartCall):
            started += walk.completed(command.rank, 1, "")
    assert {state: n for state, n in walk.counts.items() if n} == {"completed": 3_000, "failed": 3_000}
