"""What undoes a plan: each Call and element that completed, once, in reverse plan order, whatever finished first."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts.tree.child_requests import undo_request
from tests.property.drive import Drive, many
from tests.strategies import tool

Json = Any
MOST = 6
FAIL = {"$fail": {"type": "declined", "message": "no"}}
UNDO = {"_tool": "undo", "key": "†result.key", "of": "†call.n", "text": "††{x} of †{call.n}"}
TOOLS = {"do": tool("do", _undo=UNDO), "undo": tool("undo")}
# A value that a reader must not take for a reference
results = st.sampled_from([{"key": "†state.c0"}, {"key": None}, {"key": [1]}, {}, FAIL])


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Json], dict[str, Json]]:
    """Calls that write apart, read one of the others (even one listed later), some once per element."""
    count, calls, returned = draw(st.integers(1, MOST)), list[Json](), dict[str, Json]()
    order = draw(st.permutations(range(count)))
    for place, number in enumerate(order):
        reads = draw(st.sampled_from([None, *order[:place]]))
        elements = draw(st.none() | st.integers(0, 3))
        call = {"_tool": "do", "n": number, "_outputPath": f"†state.c{number}"}
        call |= {} if reads is None else {"reads": f"†state.c{reads}"}
        call |= {} if elements is None else {"_each": list(range(elements))}
        call |= {"_errorPath": f"†state.e{number}"} if draw(st.booleans()) else {}
        calls.append((number, call))
    calls.sort(key=lambda pair: pair[0])
    for number, call in calls:
        ids = [f"{number + 1}:do"] if "_each" not in call else [f"{number + 1}:do[{i}]" for i in call["_each"]]
        returned |= {id_: draw(results) for id_ in ids}
    return [call for _, call in calls], returned


@many(300)
@given(plans(), st.permutations(range(MOST)), st.lists(st.booleans(), min_size=30, max_size=30), st.data())
def test_what_completed_is_undone_once_one_after_another_in_reverse_plan_order(
    plan: tuple[list[Json], dict[str, Json]], order: list[int], renewals: list[bool], data: st.DataObject
) -> None:
    calls, returned = plan
    drive = Drive({"context": [{"type": "tool", "tool": TOOLS}, {"type": "plan", "plan": calls}]}, returned)
    while drive.running:
        drive.finish_next(order)
        if not drive.running and renewals.pop():
            drive.carry_over()
    done = [id_ for id_ in drive.started if returned[id_] != FAIL]
    ranks = {node.id: rank for rank, node in enumerate(drive.prepared.nodes)}
    done.sort(key=lambda id_: (ranks[id_.partition("[")[0]], id_), reverse=True)
    steps = drive.walk.undo_steps()
    assert [step.call for step in steps] == done
    assert [step.id for step in steps] == [f"run/{id_}" for id_ in done]

    request = undo_request("run", steps, drive.prepared.tools, {})
    possible = [id_ for id_ in done if "key" in returned[id_]]
    assert [one["call"] for one in request["config"]["undoes"]["calls"]] == possible
    assert [one["call"] for one in request["config"]["undoes"]["problems"]] == [d for d in done if d not in possible]
    outcomes = {f"{at}:undo": data.draw(st.sampled_from([None, FAIL])) for at in range(1, len(possible) + 1)}
    undo = Drive(json.loads(json.dumps(request)), outcomes)
    undo.finish_all(range(len(possible)))
    expected = [{"key": returned[id_]["key"], "of": calls[int(id_.split(":")[0]) - 1]["n"]} for id_ in possible]
    made = [parameters for parameters, _ in undo.started.values()]
    assert [{k: v for k, v in one.items() if k != "text"} for one in made] == expected
    assert [one["text"] for one in made] == [f"†{{x}} of {one['of']}" for one in expected]
    assert undo.most_running <= 1
