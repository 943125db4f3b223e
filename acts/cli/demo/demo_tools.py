"""The activities of ``acts demo``: small stand-ins for services; nothing outside the process is touched."""

from __future__ import annotations

from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

Json = dict[str, Any]

_CARD_LIMIT: Final = 20.0  # US dollars in one payment
_LAST_ORDER: Final = 50.0  # US dollars that the customer paid


@activity.defn(name="askWeather")
def ask_weather(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Return a message with either ``state.sunny`` or ``state.rainy``, which selects the branch."""
    is_rainy = call["city"] in ("Bergen", "London")
    answer = {"city": call["city"], "sky": "rain" if is_rainy else "clear"}
    return {"type": "state", "state": {"rainy" if is_rainy else "sunny": answer}}


@activity.defn(name="planPicnic")
def plan_picnic(call: Json, _tool: Json, _context: list[Json]) -> Json:
    return {"what": f"a picnic in {call['weather']['city']}", "bring": ["a blanket", "bread and cheese"]}


@activity.defn(name="bookMuseum")
def book_museum(call: Json, _tool: Json, _context: list[Json]) -> Json:
    return {"what": f"the museum, with {call['people']} tickets", "bring": ["an umbrella"]}


@activity.defn(name="writeInvitation")
def write_invitation(call: Json, _tool: Json, _context: list[Json]) -> Json:
    outing = call["outing"]
    return {"text": f"Come to {outing['what']}. Please bring {', '.join(outing['bring'])}."}


@activity.defn(name="processPayment")
def process_payment(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Return a receipt, or fail with ``card_declined``; ``_id`` is the same in every attempt of the call."""
    if call["amount"] > _CARD_LIMIT:
        raise ApplicationError("Your card was declined.", type="card_declined", non_retryable=True)
    return {"number": f"R-{call['_id'][-6:]}", "amount": call["amount"]}


@activity.defn(name="writeLetter")
def write_letter(call: Json, _tool: Json, _context: list[Json]) -> Json:
    if error := call.get("error"):
        return {"text": f"Nothing was paid. {error['message']} ({error['code']})"}
    return {"text": f"Thank you. Receipt {call['receipt']['number']}: {call['receipt']['amount']:.2f} paid."}


@activity.defn(name="countWords")
def count_words(call: Json, _tool: Json, _context: list[Json]) -> Json:
    return {"month": call["month"], "words": len(call["text"].split())}


@activity.defn(name="summarize")
def summarize(call: Json, _tool: Json, _context: list[Json]) -> Json:
    counts = call["counts"]
    longest = max(counts, key=lambda count: count["words"])["month"]
    return {"words": sum(count["words"] for count in counts), "longest": longest}


@activity.defn(name="checkBillingHistory")
def check_billing_history(_call: Json, _tool: Json, _context: list[Json]) -> Json:
    return {"orders": 4, "lastChargeback": "2025-09-10"}


@activity.defn(name="issueRefund")
def issue_refund(call: Json, _tool: Json, _context: list[Json]) -> Json:
    if call["amount"] > _LAST_ORDER:
        raise ApplicationError(f"the last order cost {_LAST_ORDER}", type="more_than_paid", non_retryable=True)
    return {"confirmationId": "refund_1", "cents": round(call["amount"] * 100)}


@activity.defn(name="escalateToSupervisor")
def escalate_to_supervisor(_call: Json, _tool: Json, _context: list[Json]) -> Json:
    return {"caseId": "case_1"}
