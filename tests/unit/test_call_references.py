"""Provenance of templates, conditions and elements: what was put into a text is from where it was."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.values import replace_parts
from acts.provenance.trace import ValueTrace
from tests.unit.test_provenance import call, output, plan, why

ORDERS = {"type": "state", "state": {"orders": [{"id": "a"}, {"id": "b"}], "rate": 2, "ok": True}}
REFUND = call(
    "act",
    "†state.refunds",
    _each="†state.orders",
    _when="†state.ok && !†state.no",
    text="Order †{item.id} at †{state.rate}, †{index}",
)


def reads(trace: ValueTrace) -> dict[str, list[tuple[str, str | None]]]:
    """By place: where each part came from, and what it was."""
    (source,) = trace.sources
    return {r.at: [(str(v.path), v.text) for v in r.values] for r in source.reads}


def refunds(where: str, method: str = "set", *before: Any, **more: Any) -> ValueTrace:
    messages = [ORDERS, plan(REFUND), *before, output(REFUND, ["A", "B"], method, **more)]
    return why(messages, 2, where)


def test_what_was_put_into_a_text_is_from_where_it_was() -> None:
    letter = call("act", "†state.letter", text="Dear †{input.name || state.rate}")
    trace = why([{"type": "input", "name": "Ada"}, ORDERS, plan(letter), output(letter, 1)], 3, "†state.letter")
    (source,) = trace.sources
    (read,) = source.reads
    assert [(str(v.path), v.text, v.used) for v in read.values] == [
        ("†input.name", '"Ada"', True),
        ("†state.rate", None, False),
    ]


def test_an_element_of_a_result_is_from_an_element_of_the_list() -> None:
    trace = refunds("†state.refunds[1]")
    (source,) = trace.sources
    assert (source.element, source.id) == (1, "1:act[1]")
    assert reads(trace) == {
        "text": [("†state.orders.1.id", '"b"'), ("†state.rate", "2")],
        "_each": [("†state.orders.1", '{"id": "b"}')],
        "_when": [("†state.ok", "true"), ("†state.no", None)],
    }
    assert source.to_json()["id"] == "1:act[1]"


@pytest.mark.parametrize(
    ("method", "where", "element"),
    [
        ("push", "†state.refunds[0][1]", 1),
        ("push", "†state.refunds[0]", None),
        ("concat", "†state.refunds[0]", 0),
        ("set", "†state.refunds[1].deep", None),
    ],
)
def test_the_element_is_known_by_the_method(method: str, where: str, element: int | None) -> None:
    trace = refunds(where, method)
    assert [s.element for s in trace.sources] == ([] if where.endswith("deep") else [element])


def test_an_element_of_a_literal_list_leads_to_the_references_of_the_list() -> None:
    planned = call("act", "†state.r", _each=["†state.rate", 5], v="†item")
    trace = why([ORDERS, plan(planned), output(planned, [1, 2])], 2, "†state.r[0]")
    assert reads(trace) == {"v": [], "_each[0]": [("†state.rate", "2")]}


# -- jSON values: parts that are replaced, and what makes a value unfit to be stored ---------------------


def test_ten_thousand_parts_of_one_list_cost_what_their_number_says() -> None:
    value = list(range(10_000))
    assert replace_parts(value, [((i,), -i) for i in value]) == [-i for i in value]
