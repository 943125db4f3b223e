"""Provenance of templates, conditions and elements: what was put into a text is from where it was."""

from __future__ import annotations

from typing import Any

import pytest

from acts.provenance.trace import Limits, ValueTrace
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


def test_the_whole_result_is_from_the_whole_list() -> None:
    trace = refunds("†state.refunds")
    assert trace.sources[0].element is None
    assert reads(trace)["text"][0] == ("†state.orders", '[{"id": "a"}, {"id": "b"}]')


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


def test_a_list_that_grew_before_moves_its_elements() -> None:
    earlier = output(call("think", "†state.refunds"), ["x", "y"])
    trace = refunds("†state.refunds[3]", "concat", earlier)
    assert [s.id for s in trace.sources] == ["1:act[1]"]


@pytest.mark.parametrize(
    ("each", "where", "paths"),
    [
        (["†state.rate", 5], "†state.r[0]", ["†state.rate"]),
        (["†state.rate", 5], "†state.r[1]", []),
        ([{"x": {"y": "†state.orders"}}], "†state.r[0]", ["†state.orders"]),
        ("†state.none || †state.orders", "†state.r[1]", ["†state.orders.1"]),
    ],
)
def test_an_element_of_a_literal_list_is_from_where_its_reference_leads(
    each: Any, where: str, paths: list[str]
) -> None:
    text = "†item.x.y" if isinstance(each, list) and isinstance(each[0], dict) else "†item"
    planned = call("act", "†state.r", _each=each, v=text)
    trace = why([ORDERS, plan(planned), output(planned, [1, 2])], 2, where)
    assert [path for path, _ in reads(trace)["v"]] == paths


def test_two_elements_of_one_call_are_each_explained() -> None:
    reader = call("think", "†state.both", a="†state.refunds[0]", b="†state.refunds[1]")
    messages = [ORDERS, plan(REFUND, reader), output(REFUND, ["A", "B"]), output(reader, "AB")]
    trace = why(messages, 2, "†state.both", limits=Limits())
    below = [source for read in trace.sources[0].reads for value in read.values for source in value.sources]
    assert [(s.id, s.again, len(s.reads)) for s in below] == [("1:act[0]", False, 3), ("1:act[1]", False, 3)]


def test_a_malformed_call_is_no_obstacle() -> None:
    broken = call("act", "†state.r", _each="†{", _when="= 1", x="†{", y=["†.."])
    trace = why([ORDERS, plan(broken), output(broken, 1)], 2, "†state.r")
    assert trace.sources[0].reads == []
