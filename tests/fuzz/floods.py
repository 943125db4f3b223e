"""Many small events in one workflow task: each may cost as much as the whole plan, unless it is found by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.machines.events import DecisionReceived, Provided
from acts.workflows.handlers import provided_message

if TYPE_CHECKING:
    from tests.fuzz.hostile_json import Source

Json = Any
NOW = "2026-01-01T00:00:00.000Z"
# Signals of one kind that come in one workflow task
MAX_SIGNALS = 2_000


def decide_each(source: Source, machine: Any, view: Any) -> list[Any]:
    """Decisions about each Call that waits, and as many about none."""
    waits = machine.approvals.waits.own[: source.pick((10, MAX_SIGNALS))]
    raws = [{k: v for k, v in (("call", wait.call), ("instance", wait.instance)) if v is not None} for wait in waits]
    out: list[Any] = []
    for raw in [*({"call": f"{i}:none"} for i in range(len(raws))), *raws]:
        out += machine.handle(DecisionReceived(raw, "approve", None), NOW)
    return out + end_task(machine, view)


def provide_many(source: Source, machine: Any, view: Any) -> None:
    """Messages, some of which meet what Calls have written."""
    path = source.pick(("x", "l", "k{i}", "o.k{i}", "c{i}"))
    for i in range(source.pick((10, MAX_SIGNALS))):
        value: Json = {"late": i}
        for name in reversed(path.format(i=i).split(".")):
            value = {name: value}
        machine.handle(Provided(provided_message({"type": "state", "state": value})), NOW)
    end_task(machine, view)


def end_task(machine: Any, view: Any) -> list[Any]:
    """What a workflow task does at its end."""
    out = list(machine.flush(NOW))
    view.page()
    return out
