"""Instances walked by children come to what one walk of them all comes to, and see nothing of each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import assume, event, given, reject
from hypothesis import strategies as st

from acts.language.config import Usage
from acts.language.errors import InvalidRequest
from acts.language.messages import read_request
from acts.machines.plan_run import instance_report
from acts.machines.walk import Walk
from acts.plan.calls import UNIT
from acts.plan.validate import ValidatedPlan, validate_parsed, validate_request
from acts.tree.child_requests import Batch, expand_template, needs_children, split_into_children
from acts.views.results import build_result, cut_result
from tests import oracle
from tests.property.drive import NOW, Drive, many, plain
from tests.strategies import Case, cases, orders

Json = Any


def prepared_of(request: Json) -> ValidatedPlan:
    """The validated plan, if children walk its instances."""
    try:
        prepared = validate_request(request)
    except InvalidRequest:
        reject()
    assume(needs_children(prepared))
    return prepared


def child_of(batch: Batch, instances: Sequence[str]) -> ValidatedPlan:
    request, places = batch.request_for(instances)
    prepared = validate_parsed(read_request(json.loads(json.dumps(request))), {}, (), places)
    return expand_template(prepared, instances)


class Batched:
    """A run and its children, each walked by itself; they end in the order that is asked for."""

    def __init__(self, prepared: ValidatedPlan, results: dict[str, Json], order: list[int]) -> None:
        self.drive = Drive(split_into_children(prepared), results)
        self.batch = Batch(prepared, prepared.request.raw.get("config") or {})
        self.order = order
        self.children = 0
        while self.drive.running:
            place = order[self.children % len(order)] % len(self.drive.running) if order else 0
            self._end(self.drive.running[place])

    def _end(self, id_: str) -> None:
        node = self.drive.node(id_)
        if node.kind != UNIT:
            self.drive.finish(id_)
            return
        self.drive.running.remove(id_)
        self.children += 1
        child = Drive(child_of(self.batch, node.members), self.drive.results)
        child.finish_all(self.order)
        value = json.loads(json.dumps(instance_report(child.walk, edited=False)))
        self.drive.perform(self.drive.walk.completed(node.key, value, NOW))


def require_same_cuts(walk: Walk, result: Json) -> None:
    """A batch that is too large is cut without its states and messages as it is with them."""
    cut = cut_result(build_result(walk, Usage(), None, 0), batch_limit=0)
    whole = cut_result(result, batch_limit=0)
    omitted, of_whole = cut.pop("omitted"), whole.pop("omitted")
    assert cut == whole
    assert ("instances" in omitted["bytes"]) == ("instances" in of_whole["bytes"])


def result_of(walk: Walk) -> Json:
    """The result of a run, without what the order of children may change."""
    result = build_result(walk, Usage())
    require_same_cuts(walk, result)
    keys = ("status", "state", "instances", "calls")
    errors = sorted(json.dumps(e, sort_keys=True) for e in result["errors"])
    return {**{k: result[k] for k in keys}, "errors": errors}


def context_of(walk: Walk, instance: str) -> list[Json]:
    return [m for m in build_result(walk, Usage())["context"] if m.get("_instance") == instance]


plans = cases(instances=True) | cases(instances=True, shipped=True)


@many(25)
@given(plans, orders())
def test_children_come_to_what_one_walk_comes_to(case: Case, order: list[int]) -> None:
    prepared = prepared_of(case.request)
    assume(not any(p.code == "unknownReference" for p in prepared.warnings))  # a child of one is then refused
    whole = Drive(prepared, case.results)
    whole.finish_all(order)
    batched = Batched(prepared, case.results, order)
    event(f"status: {whole.walk.status}")
    event(f"units: {len([n for n in batched.drive.walk.nodes if n.kind == UNIT])}")
    assert result_of(batched.drive.walk) == result_of(whole.walk)
    for instance in prepared.request.instances():
        assert context_of(batched.drive.walk, instance) == context_of(whole.walk, instance)


def in_instance(case: Case, instance: str | None) -> Json:
    """The same plan, whose Calls all name an instance; with None, that of a template."""
    *context, plan = case.request["context"]
    own = {} if instance is None else {"_instance": instance}
    calls = [{k: v for k, v in call.items() if k != "_instance"} | own for call in plan["plan"]]
    return {**case.request, "context": [*context, {**plan, "plan": calls}]}


@many(25)
@given(plans, orders(), st.integers(1, 3))
def test_each_instance_of_a_template_comes_to_its_serial_run(case: Case, order: list[int], per_child: int) -> None:
    request = in_instance(case, None)
    request["config"] = {**request["config"], "instancesPerChild": per_child}
    prepared = prepared_of(request)
    assume(not any(p.code == "unknownReference" for p in prepared.warnings))  # a child of one is then refused
    result = build_result(Batched(prepared, case.results, order).drive.walk, Usage())
    for id_, own in result["instances"].items():
        expected = oracle.run(in_instance(case, id_), case.results)
        assert {call["id"]: call["state"] for call in own["calls"]} == expected.states
        assert {c["id"]: plain(c["error"]) for c in own["calls"] if "error" in c} == expected.errors
        assert plain(own["state"]) == expected.view("state", id_)
        appended = [{k: v for k, v in m.items() if k != "_call"} for m in result["context"] if m["_instance"] == id_]
        assert plain(appended) == [{k: v for k, v in m.items() if k != "_call"} for m in expected.appended]


@many(25)
@given(plans)
def test_the_request_of_a_child_has_nothing_of_another_instance(case: Case) -> None:
    prepared = prepared_of(case.request)
    batch = Batch(prepared, {})
    for node in split_into_children(prepared).nodes:
        if node.kind == UNIT:
            request, _ = batch.request_for(node.members)
            *context, plan = request["context"]
            assert {m["_instance"] for m in context if "_instance" in m} <= set(node.members)
            assert {c.get("_instance") for c in plan["plan"]} <= {None, *node.members}
