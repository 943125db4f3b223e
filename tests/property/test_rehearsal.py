"""A rehearsal with canned results gives what one Call after another gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from acts.language.errors import InvalidRequest
from acts.plan.validate import validate_request
from acts.testing.rehearsal import Script, rehearse
from tests import oracle
from tests.cases import ROWS, Row
from tests.property.drive import many, plain
from tests.strategies import Case, cases, collisions


def canned(results: dict[str, Any]) -> dict[str, Any]:
    """The results of a case, which writes a failure as ``$fail``."""

    def form(result: Any) -> Any:
        if isinstance(result, dict) and set(result) == {"$fail"}:
            return {"$error": {"code": result["$fail"]["type"], "message": result["$fail"]["message"]}}
        return {"$value": result}

    return {name: form(result) for name, result in results.items()}


@many(60)
@given(st.one_of(cases(), collisions()), st.booleans(), st.integers(1, 4))
def test_a_rehearsal_equals_the_serial_run(case: Case, approves: bool, most: int) -> None:  # noqa: FBT001
    config = {**case.request["config"], "approve": {"calls": approves}, "maxParallel": most}
    request = {**case.request, "config": config}
    try:
        prepared = validate_request(request)
    except InvalidRequest:
        reject()
    expected = oracle.run(request, case.results)
    rehearsal = rehearse(prepared, Script(canned(case.results), decisions="approve"))
    assert rehearsal.complaints == []
    assert {n.id: call.state for n, call in rehearsal.calls} == expected.states
    assert {n.id: plain(call.error) for n, call in rehearsal.calls if call.error} == expected.errors
    started = {call.id: (plain(call.parameters), plain(call.context)) for call in rehearsal.started}
    assert started == expected.started
    assert plain(rehearsal.result["context"]) == expected.appended
    state = expected.view("state")
    assert plain(rehearsal.result["state"]) == ({} if state is oracle.ABSENT else state)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_the_rows_that_run_on_a_server_are_rehearsed_alike(row: Row) -> None:
    rehearsal = rehearse(validate_request(row["request"]), Script(canned(row["results"])))
    expect = row["expect"]
    assert rehearsal.complaints == []
    assert rehearsal.status == expect["status"]
    if "state" in expect:
        assert plain(rehearsal.result["state"]) == expect["state"]
    for id_, state in expect.get("states", {}).items():
        assert {call.state for node, call in rehearsal.calls if node.id == id_} == {state}
