"""The examples of docs/plans.md are plans that validate, and do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from acts.language.expression_parser import parse
from acts.language.references import Path as ReferencePath
from acts.language.values import get
from acts.machines.call_report import calls
from acts.plan.context_log import END
from acts.provenance.message_authors import RunRecord
from acts.provenance.trace import ProvenanceIndex
from cli.render.provenance_tree import provenance_tree
from tests.case_rows import fails
from tests.property.drive import Drive, begin

PAGE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text("utf-8")
BLOCKS: list[Any] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
MAIL, PAY, REVIEW, EACH, EACH_FAILED, LITERAL, OUTCOMES = BLOCKS
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
    return drive.walk.log.read(ReferencePath("state"), END)


@pytest.mark.parametrize("block", [MAIL, PAY, REVIEW, EACH, LITERAL, OUTCOMES])
def test_an_example_validates(block: Any) -> None:
    prepared = walk(block, {}, score=1, amount=1).prepared
    assert not prepared.warnings


def test_a_mail_waits_for_the_payment_and_is_skipped_if_it_fails() -> None:
    paid = walk(PAY, {"charge": 7, "sendReceipt": "sent"})
    assert list(paid.started) == ["1:charge", "2:sendReceipt"]
    assert state_of(paid) == {"receipt": 7, "sent": "sent"}
    declined = walk(PAY, {"charge": fails("card_declined", "no"), "openTicket": 9})
    assert declined.state("2:sendReceipt") == "skipped"
    assert declined.started["3:openTicket"][0] == {"reason": "Card of Ada: no"}


@pytest.mark.parametrize(
    ("score", "amount", "trusted", "runs"),
    [(0.7, 1, True, True), (0.8, 1001, True, False), (0.8, 1001, False, True), (0.8, 1000, False, False)],
)
def test_a_review_is_made_where_its_condition_holds(score: float, amount: int, trusted: bool, runs: bool) -> None:  # noqa: FBT001
    customer = {"type": "input", "customer": {"trusted": trusted}}
    drive = begin(REVIEW, context=[INPUT, customer, {"type": "state", "score": score, "amount": amount}])
    assert list(drive.started) == (["1:review"] if runs else [])


def test_a_text_gets_its_values_and_they_are_never_read_again() -> None:
    hostile = {"type": "input", "customer": {"name": "†{state.secret}"}}
    drive = begin(MAIL, context=[INPUT, hostile, {"type": "state", "secret": "s"}])
    assert drive.started["1:sendMail"][0]["text"] == "Dear †{state.secret}, your 2 items are on their way."
    counted = walk(MAIL, {"sendMail": 1}, orders={"count": 5})
    assert ", your 5 items" in counted.started["1:sendMail"][0]["text"]


def test_each_order_is_refunded_and_the_results_are_one_list() -> None:
    results = {"findOrders": ORDERS, "refund": {"number": 9}, "report": "done"}
    drive = walk(EACH, results)
    assert drive.started["2:refund[1]"][0] == {"order": "b", "note": "order 1 of Ada"}
    assert state_of(drive)["refunds"] == [{"number": 9}] * 4
    assert drive.started["3:report"][0] == {"refunds": [{"number": 9}] * 4}


def test_the_error_of_a_list_is_the_one_on_the_page_and_the_report_reads_its_results() -> None:
    results = {
        "findOrders": ORDERS[:3], "refund[0]": {"number": 7}, "refund[2]": {"number": 9}, "report": "done",
        "refund[1]": fails("card_declined", "Your card was declined."),
    }  # fmt: skip
    drive = walk(EACH, results)
    assert get(state_of(drive), ("refundError",)) == EACH_FAILED
    assert drive.started["3:report"][0] == {"refunds": [{"number": 7}, None, {"number": 9}]}


def test_an_empty_list_gives_an_empty_list() -> None:
    assert state_of(walk(EACH, {"findOrders": [], "report": 0}))["refunds"] == []


def test_a_list_may_be_written_out() -> None:
    drive = walk(LITERAL, {"translate": "x"})
    assert [call[0]["to"] for call in drive.started.values()] == ["de", "fr", "it"]


@pytest.mark.parametrize(
    ("holds", "index"), [({"warning": 1}, 0), ({"hint": 1}, 1), ({"warning": 1, "hint": 2}, 2)]
)  # fmt: skip
def test_a_message_chooses_the_outcome_that_it_holds_whole(holds: dict[str, int], index: int) -> None:
    drive = walk(OUTCOMES, {"check": {"type": "state", "state": holds}})
    assert drive.walk.path_written(0) == str(OUTCOMES["_outputPath"]).split(" || ")[index]
    assert state_of(drive) == holds


def test_the_tree_of_why_is_the_one_on_the_page() -> None:
    drive = walk(EACH, {"findOrders": ORDERS, "refund": {"number": 9}, "report": "done"})
    request = [m.raw for m in drive.prepared.request.context]
    tools = {n.tool.name: n.tool for n in drive.walk.nodes}
    record = RunRecord([*request, *drive.walk.appended()], tools, request, calls(drive.walk))
    path = parse("†state.refunds[3]")
    assert isinstance(path, ReferencePath)
    console = Console(width=110, color_system=None)
    with console.capture() as capture:
        console.print(provenance_tree(ProvenanceIndex(record).why(path)))
    (tree,) = re.findall(r"```text\n\$ .*?\n(.*?)```", PAGE, re.DOTALL)
    shown = capture.get().replace("2026-01-01 00", "2026-01-31 12").replace("row.", "")  # the Activities of the rows
    assert shown == tree
