"""The cost of a walk is in proportion to the number of its Calls, whatever they write and read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.cases import own, tool
from tests.property.drive import Drive


def count_operations(run: Callable[[], None]) -> int:
    """How many lines of ``acts/`` are executed, and functions of it called."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "/acts/" not in frame.f_code.co_filename:
            return None
        count += event in ("line", "call")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def all_write_then_all_read(calls: int, write: dict[str, Any], read: dict[str, Any], *context: Any) -> Drive:
    """A plan of which the first half writes and the second half reads; ``{}`` in a text is the position in its half."""
    numbered = [json.loads(json.dumps(part).replace("{}", str(i))) for part in (write, read) for i in range(calls)]
    plan = [{"_tool": "t", **part} for part in numbered]
    context = ({"type": "tool", "tool": {"t": tool("t")}}, *context)
    return Drive({"context": [*context, {"type": "plan", "plan": plan}], "config": {"maxParallel": 2000}}, {})


READS: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any]]] = {
    "the whole of many paths": ({"_outputPath": "†state.k{}"}, {"x": "†state"}, []),
    "the whole of many paths of an instance": (
        {"_outputPath": "†state.k{}", "_instance": "A"},
        {"x": "†state", "_instance": "A"},
        [own("A", id=1)],
    ),
    "an element that was not pushed": (
        {"_outputPath": "†state.l", "_outputMethod": "push"},
        {"x": "†state.l[9999]", "_outputPath": "†log.r{}"},
        [],
    ),
    "an outcome that was not taken": (
        {"_outputPath": "†state.l.k{} || †state.l.error", "_outputMethod": "set"},
        {"x": "†state.l.error", "_outputPath": "†log.r{}"},
        [],
    ),
}


@pytest.mark.parametrize("reads", READS)
def test_many_writes_and_many_reads_cost_what_their_number_says(reads: str) -> None:
    write, read, context = READS[reads]
    few, many = (
        count_operations(lambda n=n: all_write_then_all_read(n, write, read, *context).finish_all()) for n in (40, 160)
    )
    assert many <= 6 * few  # linear is 4 times as much, quadratic 16 times
