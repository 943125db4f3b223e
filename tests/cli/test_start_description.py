"""What a list of runs shows of a run that ``acts run`` has started: what it is, and no value of it."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client

from acts.language.wire import PLAN
from cli.commands.run import start
from cli.runs.start_description import MAX_SUMMARY_BYTES, describe_start

CALLS = [{"_tool": "lookup", "order": "zebra-4711"}, {"_tool": "refund"}, {"_tool": "lookup"}]


def request(*messages: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"config": config, "context": [*messages, {"type": "plan", "plan": CALLS}]}


def test_a_plan_is_its_first_instruction_and_its_tools() -> None:
    about = describe_start(
        request({"type": "text", "text": "Refund an order.\nBe kind."}, model="local/q"), "refund.yaml"
    )
    assert about.summary == "Refund an order. · 3 calls: lookup, refund"
    assert about.memo == {"file": "refund.yaml", "calls": 3, "model": "local/q"}
    assert about.details.split("\n\n") == [
        "from `refund.yaml`", "Refund an order.", "1. `lookup`", "2. `refund`", "3. `lookup`"
    ]  # fmt: skip
    assert "zebra" not in about.summary + about.details


def test_an_agent_is_what_it_is_asked() -> None:
    about = describe_start({"context": [{"role": "user", "content": "Plan a trip\nto Rome"}]}, "agent.yaml")
    assert about.summary == "Plan a trip"


@pytest.mark.parametrize(
    "odd",
    [None, [], {}, {"context": 7}, {"context": [7, {"type": "plan", "plan": 3}, {"type": "text", "text": 9}]},
     {"context": [{"type": "plan", "plan": [7, {"_tool": ["x"]}]}], "config": 3}],
)  # fmt: skip
def test_a_request_that_makes_no_sense_has_a_summary_too(odd: Any) -> None:
    assert describe_start(odd, "odd.json").summary


def test_a_summary_fits_into_what_the_server_takes() -> None:
    calls = [{"_tool": f"†tool-{n}-{'x' * 100}"} for n in range(1000)]
    about = describe_start({"context": [{"type": "plan", "plan": calls}]}, "big.json")
    assert len(about.summary.encode()) <= MAX_SUMMARY_BYTES
    assert len(about.details.encode()) < 20_000
    assert about.details.endswith("… and 950 more")


async def test_the_server_shows_it(client: Client, task_queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", task_queue)
    started = await start(client, PLAN, request(), task_queue, "refund.yaml")
    described = await started.handle.describe()
    assert await described.static_summary() == "3 calls: lookup, refund"
    assert (await described.static_details() or "").startswith("from `refund.yaml`")
    assert await described.memo() == {"file": "refund.yaml", "calls": 3}
    await started.handle.terminate("the test is over")
