"""The plans and Requests of the documentation validate, and those of docs/plans.md do what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from acts.activities.shipped_tools import SHIPPED
from acts.cli.commands.read import provenance_tree
from acts.language import source_text
from acts.language.references import Path as ReferencePath
from acts.language.references import parse
from acts.language.values import get
from acts.machines.call_state import call_items
from acts.plan.context_log import END
from acts.plan.validate import validate
from acts.provenance.trace import ProvenanceIndex, RunRecord
from tests.case_rows import fails, tool
from tests.property.drive import Drive, begin

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "plans.md").read_text("utf-8")
# The end of a file is no whole block: the walkthroughs validate that file
FENCE = re.compile(r'^( *)```(json|yaml)(?: title="[^",]*")?\n(.*?)^ *```', re.MULTILINE | re.DOTALL)
BLOCKS: list[Any] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
MAIL, CHOSEN, PAY, REVIEW, EACH, EACH_FAILED, LITERAL, SOME, GROUPS, OUTCOMES = BLOCKS
INPUT = {
    "type": "input",
    "input": {
        "customer": {"name": "Ada", "mail": "ada@example.com", "id": "c1", "trusted": True},
        "order": {"id": "a"}, "card": "card-1", "amount": 50, "count": 2, "language": "it", "note": "Hi",
    },
}  # fmt: skip
ORDERS = [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}]


def walk(block: Any, results: dict[str, Any], **state: Any) -> Drive:
    """The walk of the Calls of an example to its end."""
    plan = block if isinstance(block, list) else [block]
    drive = begin(*plan, context=[INPUT, {"type": "state", "state": state}], results=results)
    drive.finish_all()
    return drive


def state_of(drive: Drive) -> Any:
    return drive.walk.context.log.read(ReferencePath("state"), END)


@pytest.mark.parametrize("block", [MAIL, CHOSEN, PAY, REVIEW, EACH, LITERAL, SOME, GROUPS, OUTCOMES])
def test_an_example_validates(block: Any) -> None:
    lists = {"docs": [1], "invoices": [{"id": 1, "open": True, "cents": 2000}], "orders": []}
    prepared = walk(block, {}, score=1, amount=1, order={"cents": 1}, refund=None, **lists).prepared
    assert not prepared.warnings


def test_a_mail_waits_for_the_payment_and_is_skipped_if_it_fails() -> None:
    paid = walk(PAY, {"charge": 7, "sendReceipt": "sent"})
    assert list(paid.started) == ["1:charge", "2:sendReceipt"]
    assert state_of(paid) == {"receipt": 7, "sent": "sent"}
    declined = walk(PAY, {"charge": fails("card_declined", "no"), "openTicket": 9})
    assert declined.state("2:sendReceipt") == "skipped"
    assert declined.started["3:openTicket"][0] == {"reason": "Card of Ada: no"}


def test_the_error_of_a_list_is_the_one_on_the_page_and_the_report_reads_its_results() -> None:
    results = {
        "findOrders": ORDERS[:3], "refund[0]": {"number": 7}, "refund[2]": {"number": 9}, "report": "done",
        "refund[1]": fails("card_declined", "Your card was declined."),
    }  # fmt: skip
    drive = walk(EACH, results)
    assert get(state_of(drive), ("refundError",)) == EACH_FAILED
    assert drive.started["3:report"][0] == {"refunds": [{"number": 7}, None, {"number": 9}]}


@pytest.mark.parametrize(
    ("holds", "index"), [({"warning": 1}, 0), ({"hint": 1}, 1), ({"warning": 1, "hint": 2}, 2)]
)  # fmt: skip
def test_a_message_chooses_the_outcome_that_it_holds_whole(holds: dict[str, int], index: int) -> None:
    drive = walk(OUTCOMES, {"check": {"type": "state", "state": holds}})
    assert call_items(drive.walk.calls)[0]["outputPath"] == str(OUTCOMES["_outputPath"]).split(" || ")[index]
    assert state_of(drive) == holds


def test_the_tree_of_why_is_the_one_on_the_page() -> None:
    drive = walk(EACH, {"findOrders": ORDERS, "refund": {"number": 9}, "report": "done"})
    request = [m.raw for m in drive.prepared.request.context]
    tools = {n.tool.name: n.tool for n in drive.walk.nodes}
    record = RunRecord([*request, *drive.walk.context.appended()], tools, request, call_items(drive.walk.calls))
    path = parse("†state.refunds[3]")
    assert isinstance(path, ReferencePath)
    console = Console(width=110, color_system=None)
    with console.capture() as capture:
        console.print(provenance_tree(ProvenanceIndex(record).why(path)))
    (tree,) = re.findall(r"```text\n\$ .*?\n(.*?)```", PAGE, re.DOTALL)
    shown = capture.get().replace("2026-01-01 00", "2026-01-31 12").replace("row.", "")  # the Activities of the rows
    assert shown == tree


def find_requests(text: str) -> Iterator[Any]:
    """The Requests among the JSON and YAML blocks of a page; a plan or a Call alone is one, whose data is elsewhere.

    What a run yields (``status``) and what an Activity gets (``_id``) are none.
    """
    for indent, form, body in FENCE.findall(text):
        block = source_text.parse(re.sub(f"^{indent}", "", body, flags=re.MULTILINE), form.upper())
        calls = [block] if isinstance(block, dict) and "_tool" in block and "_id" not in block else block
        if isinstance(calls, list) and all(isinstance(call, dict) and "_tool" in call for call in calls):
            block = {"context": [{"type": "plan", "plan": calls}]}
        if isinstance(block, dict) and isinstance(block.get("context"), list) and "status" not in block:
            yield {**block, "config": {"missing": "wait", **block.get("config", {})}}


def find_tool_names(value: Any) -> Iterator[str]:
    """The Tools of all Calls in a JSON value, also of the plans inside them."""
    if isinstance(value, dict):
        yield from [value["_tool"]] if isinstance(value.get("_tool"), str) else []
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from find_tool_names(inner)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_request_of_a_page_validates(page: Path) -> None:
    for request in find_requests(page.read_text("utf-8")):
        messages = [message["tool"] for message in request["context"] if message.get("type") == "tool"]
        names = (name for message in messages for name in ([message] if isinstance(message, str) else message))
        listed = {name.removeprefix("Tool.") for name in names}
        registry = {name: SHIPPED.get(name) or tool(name) for name in {*listed, *find_tool_names(request["context"])}}
        others = {name: registry[name] for name in registry.keys() - listed}
        context = [{"type": "tool", "tool": others}, *request["context"]] if others else request["context"]
        problems = validate({**request, "context": context}, registry)
        assert [p for p in problems if p.severity == "error" and p.code != "noPlan"] == [], request
