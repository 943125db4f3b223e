"""Each agent of the examples does what its script says: ticks, plans, state, effects; each instance sees its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer
from acts.cli.text.source import parse
from acts.language.wire import AGENT
from tests.examples.running import (
    ROOT,
    ActsWorker,
    Handle,
    activities_of,
    acts_worker,
    below,
    children,
    finished,
    load,
    rows,
    start,
    states,
)
from tests.support import assert_eventually

CHECK = {"_tool": "checkBillingHistory", "customerId": "†input.customerId"}
REFUND = {"_tool": "issueRefund", "customerId": "†input.customerId", "amount": "†input.amount"}
HISTORY = {"orders": 5, "lastChargeback": "2025-09-10"}
DECLINED = {"code": "card_declined", "message": "Your card was declined."}
PAY = {"_tool": "processPayment", "amount": "†input.amount", "_outputPath": "†state.receipt || †state.error"}
CONFIRM = {"_tool": "confirmOrder", "receipt": "†state.receipt"}


async def begin(client: Client, worker: ActsWorker, name: str, **inputs: Any) -> Handle:
    """An agent's example, started as its file says, or with other inputs."""
    request = load(f"examples/{name}/plan.yaml")
    if inputs:
        request["context"].append({"type": "input", "input": inputs})
    return await start(client, worker, request, AGENT)


def plans(result: dict[str, Any]) -> list[list[Any]]:
    """What each tick planned, as the model wrote it."""
    return [m["plan"] for m in result["context"] if m["type"] == "plan"]


def walked(result: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(c["tick"], c["id"], c["state"]) for c in result["calls"]]


async def ran(client: Client, handle: Handle, tick: int) -> dict[str, Any]:
    """The Calls that the plan of a tick really started, by their Activities' names."""
    child = client.get_workflow_handle(f"{handle.id}/plan-{tick}")
    return {found.call["_tool"]: found.call for found in (await activities_of(client, child)).values()}


def test_the_docs_show_all_of_replan() -> None:
    text = (ROOT / "docs" / "agents.md").read_text("utf-8")
    (shown,) = [b for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "scripted:replan/script" in b]
    assert parse(shown, "YAML") == load("examples/replan/plan.yaml")


async def test_refund_keeps_to_its_plan_and_pays_once(server: DevServer, client: Client, tmp_path: Path) -> None:
    with acts_worker(server, f"refund-{tmp_path.name}", tmp_path) as own:
        handle = await begin(client, own, "refund")
        result = await finished(handle)
        paid = await ran(client, handle, 2)
        ledger = rows(own.state, "refund", "SELECT number, call, customer, cents FROM refunds")
    assert plans(result) == [[CHECK, REFUND], [REFUND]]
    assert walked(result) == [(1, "1:checkBillingHistory", "completed"), (2, "1:issueRefund", "completed")]
    assert result["state"] == {"billingHistory": HISTORY, "refund": {"confirmationId": "refund_1", "cents": 5000}}
    assert (result["status"], result["ticks"], result["errors"]) == ("completed", 2, [])
    message = "The refund has been processed successfully."
    assert result["output"] == {"confirmationId": "refund_1", "message": message}
    assert set(paid) == {"issueRefund"}
    assert ledger == [(1, paid["issueRefund"]["_id"], "cust_123", 5000)]


async def test_trip_replaces_the_hotel_that_takes_no_dogs(client: Client, worker: ActsWorker) -> None:
    handle = await begin(client, worker, "trip")
    result = await finished(handle)
    destination = {"destination": "†input.destination"}
    assert plans(result) == [[{"_tool": "bookFlight", **destination}, {"_tool": "findPetFriendlyHotel", **destination}]]
    assert walked(result) == [(1, "1:bookFlight", "completed"), (1, "2:findPetFriendlyHotel", "completed")]
    assert result["state"] == {
        "flight": {"number": "AX 117", "cents": 8900},
        "hotel": {"name": "Pension Linde", "cents": 8100, "pets": True},
    }
    assert result["output"] == {"flight": "AX 117", "hotel": "Pension Linde", "cents": [8900, 8100]}
    assert result["ticks"] == 2
    keys = [call["_id"] for call in (await ran(client, handle, 1)).values()]
    query = "SELECT kind, name FROM bookings WHERE call IN (?, ?) ORDER BY kind"
    assert rows(worker.state, "trip", query, *keys) == [("flight", "AX 117"), ("hotel", "Pension Linde")]


async def test_replan_drops_the_happy_plan_when_the_card_is_declined(client: Client, worker: ActsWorker) -> None:
    handle = await begin(client, worker, "replan")
    result = await finished(handle)
    assert plans(result) == [[PAY, CONFIRM], [{"_tool": "reportFailure", "error": "†state.error"}]]
    assert walked(result) == [
        (1, "1:processPayment", "completed"), (1, "2:confirmOrder", "skipped"), (2, "1:reportFailure", "completed"),
    ]  # fmt: skip
    assert result["calls"][0]["error"] == result["state"]["error"] == DECLINED
    text = "Nothing was paid. Your card was declined. (card_declined)"
    assert result["state"] == {"error": DECLINED, "apology": {"kind": "apology", "text": text}}
    assert (result["output"], result["ticks"], result["errors"]) == ({"status": "Failed"}, 2, [])
    paid = (await ran(client, handle, 1))["processPayment"]
    assert "card" not in paid
    query = "SELECT card, outcome FROM payments WHERE call = ?"
    assert rows(worker.state, "payment", query, paid["_id"]) == [("card-of-tony", "declined")]
    query = "SELECT kind FROM letters WHERE call = ?"
    told = (await ran(client, handle, 2))["reportFailure"]["_id"]
    assert rows(worker.state, "payment", query, told) == [("apology",)]


async def test_translation_fills_the_schema_of_the_state(client: Client, worker: ActsWorker) -> None:
    handle = await begin(client, worker, "translation")
    result = await finished(handle)
    assert plans(result) == [[
        {"_tool": "detectLanguage", "text": "†input.text", "_outputPath": "†state.language"},
        {"_tool": "isEnglish", "language": "†state.language", "_outputPath": "†state.isEnglish"},
        {"_tool": "translateText", "text": "†input.text", "isEnglish": "†state.isEnglish",
         "_outputPath": "†state.translatedText"},
    ]]  # fmt: skip
    assert [state for _, _, state in walked(result)] == ["completed"] * 3
    assert result["state"] == {"language": "fr", "isEnglish": False, "translatedText": "Hello, world"}
    assert result["output"] == {"language": "fr", "text": "Hello, world"}
    assert (result["ticks"], result["usage"]["requests"]) == (2, 3)  # the latent Call has one of its own


async def test_research_finds_the_gap_and_then_the_answer(client: Client, worker: ActsWorker) -> None:
    handle = await begin(client, worker, "research")
    result = await finished(handle)
    assert walked(result) == [
        (1, "1:searchTexts", "completed"),
        (2, "1:summarize", "completed"), (2, "2:summarize", "completed"),
        (2, "3:compare", "completed"), (2, "4:writeAnswer", "skipped"),
        (3, "1:searchTexts", "completed"), (3, "2:summarize", "completed"),
        (3, "3:compare", "completed"), (3, "4:writeAnswer", "completed"),
    ]  # fmt: skip
    chosen = [c["outputPath"] for c in result["calls"] if c["tool"] == "compare"]
    assert chosen == ["†state.gap", "†state.answer"]
    state = result["state"]
    assert [t["file"] for t in state["found"]] == ["01-light.txt", "03-keeper.txt"]
    assert [t["file"] for t in state["more"]] == ["02-mole.txt"]
    assert [s["file"] for s in state["summaries"]] == ["01-light.txt", "03-keeper.txt", "02-mole.txt"]
    report = Path(result["output"]["file"])
    assert report.is_relative_to(worker.state)
    text = f"Why was the light on Gull Point put out?\n\n{result['output']['answer']}\n\n"
    assert report.read_text("utf-8") == f"{text}Sources: 01-light.txt, 02-mole.txt\n"
    # three ticks, compare twice, and the one summary that did not come with a plan
    assert (result["ticks"], result["usage"]["requests"], result["errors"]) == (3, 6, [])


TEXTS = {"①": "Привет", "②": "Bonjour", "③": "こんにちは"}
JUDGED = {"c024": "queued", "c052": "published", "c090": "published"}
RUDE = ("c013", "c038", "c066", "c081")
DAMAGED = "c057"


def outcomes(result: dict[str, Any]) -> dict[str, str | None]:
    return {id_: item["state"].get("outcome") for id_, item in result["instances"].items()}


async def test_greetings_are_translated_each_in_its_own_instance(client: Client, worker: ActsWorker) -> None:
    result = await finished(await start(client, worker, load("examples/greetings/plan.yaml"), AGENT))
    translated = {id_: item["state"] for id_, item in result["instances"].items()}
    assert translated == {
        "①": {"text": "Привет", "translation": "Hi"},
        "②": {"text": "Bonjour", "translation": "Good day"},
        "③": {"text": "こんにちは", "translation": "Hello"},
    }
    assert [item["from"] for item in result["output"]] == ["Russian", "French", "Japanese"]
    assert (result["ticks"], result["usage"]["requests"]) == (2, 5)  # two of the parent, one of each translator


@pytest.mark.long
async def test_moderation_plans_once_for_a_hundred_comments(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/moderation/plan.yaml"), AGENT)
    result = await finished(handle)
    assert result["output"] == {"moderated": 99, "unreadable": [DAMAGED]}
    assert len([m for m in result["context"] if m["type"] == "plan"]) == 1
    # one plan, one look at what failed, and one verdict on each of three
    assert (result["ticks"], result["usage"]["requests"]) == (2, 5)
    assert list((await children(client, below(client, handle, "plan-1"))).values()) == ["Instance"] * 100
    found = outcomes(result)
    assert {id_: found[id_] for id_ in JUDGED} == JUDGED
    assert [id_ for id_, outcome in found.items() if outcome == "removed"] == list(RUDE)
    assert [id_ for id_, outcome in found.items() if outcome is None] == [DAMAGED]
    assert Counter(found.values())["published"] == 94
    assert [(e["call"], e["instance"], e["code"]) for e in result["errors"]] == [
        ("1:screenComment", DAMAGED, "unreadable")
    ]
    assert {id_ for id_, item in result["instances"].items() if item["status"] != "completed"} == {DAMAGED}


async def test_moderation_asks_a_person_about_each_removal(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/moderation/approval.yaml"))

    async def both() -> Any:
        found = await handle.query("pending")
        return found if len(found) == 2 else None

    waits = await assert_eventually(both)
    assert sorted((w["call"], w["instance"]) for w in waits) == [("3:removeComment", "c2"), ("3:removeComment", "c4")]
    await handle.execute_update("decide", {"decision": "approve", "instance": "c2", "by": "Ada"})
    joke = {"decision": "reject", "instance": "c4", "by": "Ada", "reason": "A joke among friends."}
    await handle.execute_update("decide", joke)
    result = await finished(handle)
    assert (result["status"], outcomes(result)) == (
        "partial", {"c1": "published", "c2": "removed", "c3": "published", "c4": None, "c5": "published"}
    )  # fmt: skip
    assert result["instances"]["c4"]["status"] == "rejected"
    assert states(result["instances"]["c4"])["3:removeComment"] == "rejected"
