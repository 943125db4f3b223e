"""A Call with ``_each``, walked: its elements start, settle and are collected into one result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts.language.errors import CallError, DecisionRefused
from acts.machines import call_report
from acts.machines.commands import CountElements, StartCall
from acts.machines.walk import Walk
from acts.plan.call_expressions import MAX_ELEMENTS
from acts.plan.planned_call import PlannedCall
from acts.plan.validate import validate_request
from tests.cases import call, fails, own, row, state, tool
from tests.property.drive import NOW, Drive, begin, data_message, identify

ORDERS = state(orders=[{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}])
REFUND = call("refund", "†state.refunds", _each="†state.orders", id="†item.id", note="Order †{item.n} at †{index}")


def refunds(**more: Any) -> Drive:
    return begin(REFUND | more, call("after", "†state.after", x="†state.refunds"), context=[ORDERS])


def test_each_element_is_a_start_of_its_own_with_its_own_parameters() -> None:
    drive = refunds()
    assert drive.running == ["1:refund[0]", "1:refund[1]", "1:refund[2]"]
    assert drive.started["1:refund[1]"] == ({"id": "b", "note": "Order 2 at 1"}, [])
    starts = [c for c in drive.commands if isinstance(c, StartCall)]
    assert [c.call["_id"] for c in starts] == [f"run/1:refund[{i}]" for i in range(3)]
    assert all(set(c.call) == {"_tool", "_outputPath", "id", "note", "_id"} for c in starts)


def test_the_result_is_the_list_in_the_order_of_the_elements_written_once() -> None:
    drive = refunds()
    drive.results = {"1:refund[0]": "A", "1:refund[1]": "B", "1:refund[2]": "C", "2:after": 1}
    for id_ in ("1:refund[2]", "1:refund[0]"):
        drive.finish(id_)
        assert drive.state("1:refund") == "running"
        assert drive.walk.appended() == []
    drive.finish("1:refund[1]")
    assert drive.walk.state() == {**ORDERS["state"], "refunds": ["A", "B", "C"]}
    assert drive.started["2:after"][0] == {"x": ["A", "B", "C"]}
    assert len(drive.walk.appended()) == 1


def test_a_failed_element_fails_the_call_and_keeps_what_the_others_returned() -> None:
    drive = refunds()
    drive.results = {"1:refund[0]": "A", "1:refund[1]": fails("card_declined", "no money"), "1:refund[2]": "C"}
    drive.finish_all()
    errors = [{"index": 1, "code": "card_declined", "message": "no money"}]
    assert drive.walk.calls[0].error == {
        "code": "eachFailed",
        "message": "1 of 3 elements failed: [1] card_declined: no money",
        "details": {"errors": errors, "results": ["A", None, "C"]},
    }
    assert (drive.state("1:refund"), drive.state("2:after")) == ("failed", "skipped")
    (item, _) = call_report.calls(drive.walk)
    assert item["elements"] == {"total": 3, "completed": 2, "failed": 1, "running": 0}


def test_a_failure_takes_the_error_path() -> None:
    drive = refunds(_errorPath="†state.trouble")
    drive.results = {"1:refund": fails("boom")}
    drive.finish_all()
    trouble = drive.walk.state()["trouble"]
    assert (trouble["code"], len(trouble["details"]["errors"])) == ("eachFailed", 3)
    assert drive.state("1:refund") == "completed"
    assert drive.final_statuses == ["completed"]


def test_the_list_goes_to_the_first_alternative_and_a_failure_to_the_one_for_failures() -> None:
    for result, path in (({"type": "state", "state": {"other": 1}}, "†state.ok"), (fails(), "†state.error")):
        drive = begin(call("e", "†state.ok || †state.other || †state.error", _each=[1, 2]), results={"e": result})
        drive.finish_all()
        assert drive.walk.path_written(0) == path


@pytest.mark.parametrize("method", ["set", "push", "concat"])
def test_the_list_is_one_value_that_is_written_by_the_method(method: str) -> None:
    drive = begin(call("a", "†state.l", method, _each=[1, 2]), context=[state(l=[0])])
    drive.results = {"1:a[0]": "x", "1:a[1]": "y"}
    drive.finish_all()
    assert drive.walk.state()["l"] == {"set": ["x", "y"], "push": [0, ["x", "y"]], "concat": [0, "x", "y"]}[method]


def test_elements_count_against_max_parallel_and_start_in_plan_order() -> None:
    plan = [call("a", "†state.a", _each=[1, 2, 3]), call("b", "†state.b"), call("c", "†state.c", _each=[1, 2])]
    drive = begin(*plan, config={"maxParallel": 2})
    ids = []
    while drive.running:
        assert len(drive.running) <= 2
        ids.append(drive.running[0])
        drive.finish(drive.running[0])
    assert ids == ["1:a[0]", "1:a[1]", "1:a[2]", "2:b", "3:c[0]", "3:c[1]"]


def test_a_list_that_another_call_pushes_to_is_read_when_that_has_settled() -> None:
    plan = [
        call("p", "†state.l", "push"),
        call("e", "†state.e", _each="†state.l", x="†item"),
        call("q", "†state.l", "push"),
    ]
    drive = begin(*plan, context=[state(l=[0])], results={"p": 1, "e": "r", "q": 2})
    assert drive.running == ["1:p", "3:q"]
    drive.finish("3:q")
    drive.finish_all()
    assert drive.walk.state() == {"l": [0, 1, 2], "e": ["r", "r"]}


def test_a_call_may_write_the_list_that_it_reads() -> None:
    drive = begin(call("e", "†state.l", _each="†state.l", x="†item"), context=[state(l=[1, 2])])
    drive.results = {"1:e[0]": 10, "1:e[1]": 20}
    drive.finish_all()
    assert drive.walk.state() == {"l": [10, 20]}


# -- lists that are none ------------------------------------------------------------------

# what is at †state.x, the code that the Call fails with, words of the message
NO_LISTS = [
    (5, "WrongKind", "_each needs a list; †state.x is a number"),
    ("abc", "WrongKind", "is a string"),
    (None, "WrongKind", "is null"),
    ({"0": 1}, "WrongKind", "is an object"),
    ([0] * (MAX_ELEMENTS + 1), "LimitExceeded", "10,001 elements; at most 10,000"),
]


@pytest.mark.parametrize(("value", "code", "words"), NO_LISTS, ids=lambda x: str(x)[:20])
def test_what_is_no_list_fails_the_call(value: Any, code: str, words: str) -> None:
    drive = begin(call("e", "†state.e", _each="†state.x"), context=[state(x=value)])
    assert drive.state("1:e") == "failed"
    assert (drive.walk.calls[0].error or {})["code"] == code
    assert words in (drive.walk.calls[0].error or {})["message"]


def test_an_empty_list_gives_an_empty_list_and_nothing_starts_nor_asks() -> None:
    drive = begin(call("e", "†state.e", _each=[]), call("f", _each=[]), context=[], config={"approve": {"calls": True}})
    assert drive.started == {}
    assert drive.questions == []
    assert drive.walk.state() == {"e": []}
    assert drive.final_statuses == ["completed"]


def test_an_empty_list_inside_an_instance() -> None:
    plan = [call("e", "†state.e", _each="†state.l", _instance=i, x="†item") for i in "AB"]
    for position, each in enumerate(plan):
        each["_tool"] = "ab"[position]
    drive = begin(*plan, context=[own("A", l=[]), own("B", l=[7])], results={"b": "r"})
    drive.finish_all()
    assert (drive.walk.state("A"), drive.walk.state("B")) == ({"l": [], "e": []}, {"l": [7], "e": ["r"]})


def test_a_list_that_is_absent_is_as_any_reference() -> None:
    plan = [call("w", "†state.l || †state.other"), call("e", "†state.e", _each="†state.l")]
    drive = begin(*plan, results={"w": {"type": "state", "state": {"other": 1}}})
    drive.finish_all()
    assert drive.state("2:e") == "skipped"
    assert drive.walk.calls[1].reason == "there is no value at †state.l"


def test_an_element_of_a_literal_list_that_is_absent_fails_the_call() -> None:
    drive = begin(call("e", "†state.e", _each=[1, "†state.l.x"]), context=[state(l={})], config={"missing": "wait"})
    assert drive.state("1:e") == "awaiting"
    drive = begin(call("w", "†state.l"), call("e", "†state.e", _each=[1, "†state.l.x"]), results={"w": {}})
    drive.finish_all()
    assert (drive.walk.calls[1].error or {})["code"] == "UnresolvedReference"


def test_an_element_without_a_parameter_fails_alone() -> None:
    drive = begin(call("e", "†state.e", _each=[{"x": 1}, {}, {"x": 3}], x="†item.x"), results={"e": "r"})
    assert drive.running == ["1:e[0]", "1:e[2]"]
    drive.finish_all()
    details = (drive.walk.calls[0].error or {})["details"]
    message = "there is no value at †item.x"
    assert details == {"errors": [{"index": 1, "code": "UnresolvedReference", "message": message}],
                       "results": ["r", None, "r"]}  # fmt: skip


def test_what_an_element_lacks_is_its_own_failure_even_where_a_dependency_was_skipped() -> None:
    plan = [call("opt", "†state.opt", _when=False), call("e", "†state.e", _each=[{"x": 1}, {}])]
    text = "†{item.x} of †{state.all}"
    for more in ({"x": text, "_scopes": ["state"]}, {"x": text, "y": "†state.opt || †state.all"}):
        drive = begin(plan[0], plan[1] | more, context=[state(all=2)], results={"e": "r"})
        drive.finish_all()
        (error,) = (drive.walk.calls[1].error or {})["details"]["errors"]
        assert (drive.state("2:e"), error["index"], error["code"]) == ("failed", 1, "UnresolvedReference")
    drive = begin(plan[0], plan[1] | {"x": "†item.x || †state.opt"}, results={"e": "r"})
    assert (drive.state("2:e"), drive.started) == ("skipped", {})  # what it needs of the plan is not there


def test_of_a_template_the_expressions_that_are_absent_are_named() -> None:
    x = "Dear †{item.name}, †{state.a} of †{item.all && state.n.b} for †{state.who}"
    each = call("e", "†state.e", _each=[{"name": "A"}], x=x)
    drive = begin(each, context=[state(a=1, n={}, who=2)], config={"missing": "wait"})
    assert drive.walk.calls[0].missing == ("†item.all && †state.n.b",)
    drive = begin(each | {"_each": [{"all": 1}]}, context=[state(a=1, n={"b": 2}, who=2)])
    (error,) = (drive.walk.calls[0].error or {})["details"]["errors"]
    assert error["message"] == "there is no value at †item.name"
    plan = [call("o", "†state.o", _when=False), call("t", "†state.t", x="at †{state.a}: †{state.o}, †{state.o.x}")]
    drive = begin(*plan, context=[state(a=1)])
    assert drive.walk.calls[1].reason == "there is no value at †state.o, †state.o.x"


def test_an_element_whose_parameters_do_not_fit_fails_alone() -> None:
    case = row("", [call("e", "†state.e", _each=[1, "two"], x="†item")], results={"e": "r"})
    case["request"]["context"][0]["tool"]["e"] = tool("e", x={"type": "integer"})
    drive = Drive(case["request"], case["results"])
    drive.finish_all()
    (error,) = (drive.walk.calls[0].error or {})["details"]["errors"]
    assert (error["index"], error["code"]) == (1, "SchemaMismatch")


def test_all_elements_may_fail_before_they_start() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2], x="†item.x"), call("f", "†state.f"), results={"f": 1})
    assert drive.state("1:e") == "failed"
    drive.finish_all()
    assert drive.final_statuses == ["failed"]


def test_a_declared_output_describes_the_result_of_one_element() -> None:
    case = row("", [call("e", "†state.e", _each=[1, 2])])
    case["request"]["context"][0]["tool"]["e"] = tool("e", _output={"type": "integer"})
    drive = Drive(case["request"], {"1:e[0]": 1, "1:e[1]": "two"})
    drive.finish_all()
    assert (drive.walk.calls[0].error or {})["details"]["errors"][0]["code"] == "SchemaMismatch"
    drive = Drive(case["request"], {"1:e": 1})
    drive.finish_all()
    assert drive.walk.state() == {"e": [1, 1]}


def test_a_result_that_is_no_json_fails_its_element_alone() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2]))
    drive.perform(drive.walk.completed(drive.rank("1:e[0]"), float("nan"), NOW))
    drive.perform(drive.walk.completed(drive.rank("1:e[1]"), 1, NOW))
    details = (drive.walk.calls[0].error or {})["details"]
    assert ([e["code"] for e in details["errors"]], details["results"]) == (["NotJson"], [None, 1])


# -- conditions -----------------------------------------------------------------------------


def test_a_call_whose_condition_does_not_hold_is_skipped_with_the_reason() -> None:
    drive = begin(
        call("a", "†state.a", _when="†state.n > 5"), call("b", "†state.b", x="†state.a"), context=[state(n=1)]
    )
    assert [r.state for r in drive.walk.calls] == ["skipped", "skipped"]
    (first, second) = call_report.calls(drive.walk)
    assert first["reason"] == "_when does not hold: †state.n > 5"
    assert second["reason"] == "there is no value at †state.a"


def test_a_condition_is_read_before_the_list_and_waits_for_what_it_reads() -> None:
    plan = [call("w", "†state.ok"), call("e", "†state.e", _when="†state.ok", _each="†state.nothing || †state.n")]
    drive = begin(*plan, context=[state(n=5)], results={"w": False})
    assert drive.running == ["1:w"]
    drive.finish_all()
    assert drive.state("2:e") == "skipped"
    assert "_when" not in drive.started


def test_a_condition_alone_orders_two_calls() -> None:
    plan = [call("mail", "†state.m", _when="†state.receipt"), call("pay", "†state.receipt")]
    drive = begin(*plan, results={"pay": 0, "mail": 1})
    assert [n.id for n in drive.walk.nodes] == ["2:pay", "1:mail"]
    drive.finish_all()
    assert drive.started["1:mail"] == ({}, [])


def test_a_literal_output_waits_for_its_condition_too() -> None:
    drive = begin(call("think", "†state.a", _output=1, _when="†state.n == 2"), context=[state(n=1)])
    assert drive.state("1:think") == "skipped"


# -- fire-and-forget, approval, cancellation ------------------------------------------------------


def test_elements_without_an_output_path_are_let_go_one_by_one() -> None:
    drive = begin(call("notify", _each=[1, 2], x="†item"))
    assert [c.node.is_detached for c in drive.commands if isinstance(c, StartCall)] == [True, True]
    drive.finish("1:notify[0]")
    assert drive.state("1:notify") == "running"
    drive.finish("1:notify[1]")
    assert drive.state("1:notify") == "detached"
    assert drive.final_statuses == ["completed"]


def test_one_approval_is_for_all_elements() -> None:
    drive = begin(REFUND, context=[ORDERS], config={"approve": {"calls": True}})
    assert drive.questions == ["1:refund"]
    assert drive.running == []
    assert (drive.walk.calls[0].resolved or {})["_each"] == ORDERS["state"]["orders"]
    drive.perform(drive.walk.decide(0, "approve", "", NOW))
    assert len(drive.running) == 3


def test_a_cancelled_walk_starts_no_more_elements_and_ends_with_those_that_run() -> None:
    drive = begin(call("e", "†state.e", _each=list(range(9))), config={"maxParallel": 3})
    drive.finish("1:e[0]")
    drive.perform(drive.walk.cancel(NOW))
    assert drive.running == ["1:e[1]", "1:e[2]", "1:e[3]"]
    drive.finish("1:e[1]")
    cancelled = CallError("cancelled", "stopped")
    for id_ in ("1:e[2]", "1:e[3]"):
        drive.perform(drive.walk.failed(drive.rank(id_), cancelled, NOW))
    assert drive.state("1:e") == "cancelled"
    assert drive.final_statuses == ["cancelled"]
    assert call_report.calls(drive.walk)[0]["elements"] == {"total": 9, "completed": 2, "failed": 0, "running": 0}


def test_a_walk_that_is_cancelled_between_two_elements_ends_at_once() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2]), config={"maxParallel": 1})
    drive.perform(drive.walk.pause())
    drive.finish("1:e[0]")
    drive.perform(drive.walk.cancel(NOW))
    assert drive.final_statuses == ["cancelled"]


def test_elements_that_all_ended_before_a_cancellation_could_stop_them_count() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2]), results={"e": "r"})
    drive.perform(drive.walk.cancel(NOW))
    drive.finish_all()
    assert drive.walk.state() == {"e": ["r", "r"]}


def test_a_budget_is_asked_before_a_call_is_made_for_all_elements() -> None:
    request = row("", [call("e", "†state.e", _each=[1, 2, 3]), call("f", "†state.f", _each=[1])])["request"]
    walk = Walk(validate_request(request), identify)
    walk.counts_elements = True
    first, second = walk.begin(NOW)
    assert isinstance(first, CountElements)
    assert (first.node.id, first.more) == ("1:e", 2)
    assert isinstance(second, StartCall)  # one element is the Call itself
    assert [c.node.id for c in walk.allow_elements(0, NOW) if isinstance(c, StartCall)] == [
        f"1:e[{i}]" for i in range(3)
    ]
    walk = Walk(validate_request(request), identify)
    walk.counts_elements = True
    walk.begin(NOW)
    walk.allow_elements(0, NOW, CallError("BudgetExceeded", "no more calls"))
    assert walk.calls[0].error == {"code": "BudgetExceeded", "message": "no more calls"}


# -- carried over, provided, edited ---------------------------------------------------------------


def test_a_walk_goes_on_in_the_middle_of_its_elements() -> None:
    drive = begin(call("e", "†state.e", _each=list(range(7)), x="†item"), config={"maxParallel": 2})
    drive.results = {f"1:e[{i}]": fails() if i == 2 else {"n": i} for i in range(7)}
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.finish_all()
    snapshot = drive.walk.snapshot()
    assert snapshot["runs"] == {"0": {"s": "collecting", "n": {"n": 7, "s": 2, "r": [{"n": 0}, {"n": 1}]}}}
    drive.carry_over()
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.finish_all()
    drive.carry_over()
    drive.finish_all()
    details = (drive.walk.calls[0].error or {})["details"]
    assert [e["index"] for e in details["errors"]] == [2]
    assert details["results"] == [{"n": 0}, {"n": 1}, None, *({"n": i} for i in range(3, 7))]
    assert {p["x"] for p, _ in drive.started.values()} == set(range(7))


def test_what_is_provided_later_changes_no_element() -> None:
    """Calls that have started keep what they read, in the run that goes on with them too."""
    plan = call(
        "e", "†state.e", _each="†input.l", x="†item", y="†input.rate", z="†item.z || †input.rate", _scopes=["input"]
    )
    context = [{"type": "input", "input": {"l": [1, 2, 3, 4], "rate": 1}}]
    drive = begin(plan, context=context, config={"maxParallel": 1}, results={"e": 0})
    late = data_message({"type": "input", "input": {"l": [9], "rate": 2}})
    drive.perform(drive.walk.provide(late, NOW))
    drive.finish("1:e[0]")
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.finish_all()
    drive.carry_over()
    drive.finish_all()
    assert [p for p, _ in drive.started.values()] == [{"x": i, "y": 1, "z": 1} for i in (1, 2, 3, 4)]
    assert all(context[0]["input"]["rate"] == 1 for _, context in drive.started.values())


def test_an_edit_leaves_the_elements_that_run_as_they_are() -> None:
    plan = [call("e", "†state.e", _each=[1, 2, 3], x="†item"), call("f", "†state.f", x="†state.e")]
    drive = begin(*plan, config={"maxParallel": 2}, results={"e": "r", "f": 1})
    drive.finish("1:e[0]")
    edited = row("", [plan[0], call("g", "†state.g"), call("f", "†state.f", x="†state.e[0]")])["request"]
    drive.edit(validate_request({**edited, "config": {"maxParallel": 2}}), {"1:e": "r", "2:g": 0, "3:f": 1})
    assert drive.running == ["1:e[1]", "1:e[2]"]
    for rank in (1, 2):
        drive.perform(drive.walk.decide(rank, "approve", "", NOW))
    drive.finish_all()
    for rank in (1, 2):
        drive.perform(drive.walk.decide(rank, "approve", "", NOW))
    drive.finish_all()
    assert drive.walk.state() == {"e": ["r", "r", "r"], "g": 0, "f": 1}
    assert drive.started["3:f"][0] == {"x": "r"}


def test_an_edit_of_a_call_whose_elements_run_is_refused() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2]), results={"e": "r"})
    edited = row("", [call("e", "†state.e", _each=[1, 2, 3])])["request"]
    with pytest.raises(DecisionRefused, match="1:e has started"):
        drive.walk.check_change(validate_request(edited))


def test_elements_that_were_postponed_start_again_and_first_in_the_next_run_too() -> None:
    drive = begin(call("e", "†state.e", _each=[0, 1, 2, 3], x="†item"), config={"maxParallel": 3}, results={"e": "r"})
    drive.perform(drive.walk.drain(NOW, on=True))
    for index in (2, 1):
        id_ = f"1:e[{index}]"
        drive.running.remove(id_)
        del drive.started[id_]
        drive.perform(drive.walk.postponed(drive.rank(id_), NOW))
    assert drive.walk.startable == 0
    drive.perform(drive.walk.drain(NOW, on=False))
    assert drive.running == ["1:e[0]", "1:e[1]", "1:e[2]"]
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.running.remove("1:e[1]")
    del drive.started["1:e[1]"]
    drive.perform(drive.walk.postponed(drive.rank("1:e[1]"), NOW))
    drive.finish_all()
    assert drive.walk.snapshot()["runs"]["0"]["n"] == {"n": 4, "s": 3, "r": ["r", None, "r"], "p": [1]}
    drive.carry_over()
    assert drive.running == ["1:e[1]", "1:e[3]"]
    drive.finish_all()
    assert drive.walk.state() == {"e": ["r"] * 4}


def test_who_decides_about_starts_is_asked_about_each_element() -> None:
    asked: list[str] = []

    def may_start(node: PlannedCall) -> bool:
        asked.append(node.key)
        return asked.count(node.key) > 1

    request = row("", [call("e", "†state.e", _each=[{"x": 1}, {}, {"x": 3}], x="†item.x"), call("f", "†state.f")])
    walk = Walk(validate_request(request["request"]), identify, may_start)
    assert walk.begin(NOW) == []
    assert asked == ["1:e[0]"]
    assert walk.startable == 4
    assert [c.node.id for c in walk.start_more(NOW) if isinstance(c, StartCall)] == ["1:e[0]"]
    assert asked == ["1:e[0]", "1:e[0]", "1:e[2]"]  # of 1:e[1] nobody is asked: it cannot start
    assert walk.startable == 2


def test_a_walk_that_is_exhausted_ends_with_elements_that_run() -> None:
    drive = begin(
        call("e", "†state.e", _each=[1, 2, 3]), call("f", "†state.f", x="†state.e"), config={"maxParallel": 2}
    )
    drive.finish("1:e[0]")
    drive.perform(drive.walk.exhaust(CallError("LimitExceeded", "full"), NOW))
    assert (drive.state("1:e"), drive.state("2:f")) == ("failed", "skipped")
    assert drive.walk.quiet
    assert drive.walk.completed(drive.rank("1:e[1]"), "late", NOW) == []
    assert drive.final_statuses == ["failed"]


def test_elements_of_a_call_that_has_started_go_on_when_the_rest_of_a_plan_is_dropped() -> None:
    drive = Drive(
        row("", [call("e", "†state.e", _each=[1, 2, 3]), call("f", "†state.f", x="†state.e")])["request"]
        | {"config": {"maxParallel": 1}},
        {"1:e": "r"},
        growing=True,
    )
    drive.perform(drive.walk.drop_unstarted({"code": "NotRun", "message": "broken off"}, NOW))
    drive.finish_all()
    assert drive.walk.state() == {"e": ["r", "r", "r"]}
    assert drive.state("2:f") == "cancelled"


def test_a_report_for_an_element_that_has_settled_is_ignored() -> None:
    drive = begin(call("e", "†state.e", _each=[1, 2]), results={"e": "r"})
    drive.finish("1:e[0]")
    assert drive.walk.completed(drive.rank("1:e[0]"), "again", NOW) == []
    assert drive.walk.completed(drive.rank("1:e"), "all", NOW) == []
    assert drive.walk.ignored == [
        'the event "reported" was ignored: call 1:e[0] is completed',
        'the event "reported" was ignored: call 1:e is running',
    ]
    drive.finish_all()
    assert drive.walk.state() == {"e": ["r", "r"]}


def test_ten_thousand_elements_are_carried_over_compactly() -> None:
    """A snapshot holds what has settled, and neither the list nor what has not started."""
    items = [{"n": i, "text": "x" * 100} for i in range(MAX_ELEMENTS)]
    drive = begin(call("e", "†state.e", _each="†input.l", x="†item.n"), context=[{"type": "input", "l": items}])
    while drive.running:
        drive.perform(drive.walk.drain(NOW, on=True))
        started = len(drive.started)
        for id_ in drive.running:
            drive.perform(drive.walk.completed(drive.rank(id_), "ok", NOW))
        drive.running.clear()
        if started in (100, MAX_ELEMENTS // 2):
            assert len(json.dumps(drive.walk.snapshot())) < 200 + 6 * started
            drive.carry_over()
        drive.perform(drive.walk.drain(NOW, on=False))
    assert drive.walk.state()["e"] == ["ok"] * MAX_ELEMENTS
    assert len(drive.started) == MAX_ELEMENTS
