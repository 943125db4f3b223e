"""A right plan for each task of the planning suite that may be looked at: what the language must be able to say.

Each is one answer, as a model gives it that has read the prompt and nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.planning.judge import judge
from benchmarks.planning.tasks import TASKS

Json = Any
BY_ID = {task.id: task for task in TASKS}


def call(name: str, path: str, /, **more: Json) -> Json:
    return {"_tool": name, **more, "_outputPath": path}


CHARGE = {"card": "†input.card", "amount": "†input.amount"}
TO = {"to": "†user.email"}
ORDERS = call("listOrders", "†state.orders", customer="†input.customer")
RISK = call("scoreRisk", "†state.risk", card="†input.card")
REASON = call("openTicket", "†state.ticket", reason="†state.error.message")

PLANS: dict[str, list[Json]] = {
    "after-charge-mail": [
        call("charge", "†state.receipt", **CHARGE),
        call("mail", "†state.mail", _when="†state.receipt", **TO, text="Thank you!"),
    ],
    "after-ship-close": [
        call("ship", "†state.shipment", orderId="o-9"),
        call("openTicket", "†state.ticket", _when="†state.shipment", reason="follow up"),
    ],
    "after-two": [
        call("refund", "†state.first", orderId="o-1"),
        call("refund", "†state.second", orderId="o-2"),
        call("mail", "†state.mail", _when="†state.first && †state.second", to="boss@example.org", text="all done"),
    ],
    "template-dear": [call("mail", "†state.mail", **TO, text="Dear †{user.name}, welcome!")],
    "template-result": [
        call("weather", "†state.riga", city="Riga"),
        call("mail", "†state.mail", to="ada@example.org", text="†{state.riga.sky}, †{state.riga.degrees} degrees"),
    ],
    "template-tracking": [
        call("ship", "†state.parcel", orderId="o-3"),
        call("mail", "†state.mail", **TO, text="Your parcel †{state.parcel.tracking} is on its way, †{user.name}."),
    ],
    "each-refund": [ORDERS, call("refund", "†state.refunds", _each="†state.orders", orderId="†item.id")],
    "each-known": [call("ship", "†state.shipments", _each="†state.orders", orderId="†item.id")],
    "each-mail": [ORDERS, call("mail", "†state.mails", _each="†state.orders", **TO, text="Your order †{item.id}")],
    "failure-reason": [call("charge", "†state.receipt || †state.error", **CHARGE), REASON],
    "failure-mail": [
        call("ship", "†state.shipment || †state.error", orderId="o-4"),
        call("mail", "†state.sorry", **TO, text="It failed: †{state.error.message}"),
        call("mail", "†state.news", **TO, text="Your parcel is †{state.shipment.tracking}."),
    ],
    "failure-goes-on": [call("refund", "†state.refund", orderId="o-1"), call("ship", "†state.shipment", orderId="o-2")],
    "condition-score": [
        RISK,
        call("charge", "†state.receipt", _when="†state.risk.score < 0.5", **CHARGE),
        call("openTicket", "†state.ticket", _when="†state.risk.score >= 0.5", reason="check the card"),
    ],
    "condition-stock": [
        call("checkStock", "†state.stock", article="a-1"),
        call("ship", "†state.shipment", _when="†state.stock.count >= 1", orderId="o-1"),
        call("mail", "†state.mail", _when="†state.stock.count < 1", **TO, text="It is sold out."),
    ],
    "condition-sky": [
        call("weather", "†state.oslo", city="Oslo"),
        call("mail", "†state.mail", _when='†state.oslo.sky == "rain"', **TO, text="take an umbrella"),
    ],
    "parallel-cities": [call("weather", f"†state.{city}", city=city) for city in ("Riga", "Oslo", "Rome")],
    "parallel-two-chains": [
        call("listOrders", "†state.orders", customer="c-7"), call("checkStock", "†state.stock", article="a-1"),
    ],
    "parallel-pairs": [
        part
        for id_ in ("o-1", "o-2")
        for part in (
            call("ship", f"†state.{id_}", orderId=id_),
            call("mail", f"†state.mail-{id_}", **TO, text=f"Your parcel is †{{state.{id_}.tracking}}."),
        )
    ],
    "repeat-declined": [REASON],
    "repeat-all-done": [],
    "repeat-half": [call("refund", "†state.r1", orderId="o-2")],
    "latent-known": [
        {**call("classify", "†state.kind", text="†input.text"), "_output": {"label": "complaint"}},
        call("openTicket", "†state.ticket", _when='†state.kind.label == "complaint"', reason="They say: †{input.text}"),
    ],
    "latent-answer": [],
    "output-reference": [call("weather", "†state.riga", city="Riga")],
    "output-known": [],
    "trust-data": [call("mail", "†state.mail", **TO, text="Thank you for your comment!")],
    "trust-outcome": [call("charge", "†state.receipt", **CHARGE)],
    "instances-ship": [
        call("ship", "†state.parcel", orderId="†order.id"),
        call("mail", "†state.mail", to="†customer.email", text="Your parcel is †{state.parcel.tracking}."),
    ],
    "lazy-branches": [
        call("charge", "†state.receipt || †state.error", **CHARGE),
        call("mail", "†state.mail", _when="†state.receipt", **TO, text="Charged."),
        REASON,
    ],
}  # fmt: skip
OUTPUTS: dict[str, Json] = {
    "repeat-all-done": {"tracking": "†state.shipment.tracking"},
    "latent-answer": "Riga",
    "output-reference": "†state.riga.degrees",
    "output-known": {"count": 3, "total": 16},
}


def test_there_is_a_plan_for_each_task() -> None:
    assert set(PLANS) == set(BY_ID)


@pytest.mark.parametrize("task", BY_ID)
def test_a_task_has_a_right_plan_in_one_answer(task: str) -> None:
    verdict = judge(BY_ID[task], {"calls": PLANS[task], "output": OUTPUTS.get(task)})
    assert (verdict.problems, verdict.wrong) == ((), ())
